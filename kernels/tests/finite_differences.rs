//! Compares every gradient of the reference with finite differences of its loss, in f64.

use headroom_kernels::{
    reference::gpt::{DropoutPass, Gpt},
    rng::Stream,
};
use headroom_planner::gpt::{GptConfig, GptShape};

const SHAPE: GptShape =
    GptShape { n_layer: 2, n_head: 2, n_embd: 6, block_size: 5, vocab_size: 7, dropout: 0.0, bias: true };

struct Case {
    gpt: Gpt,
    params: Vec<f64>,
    inp: Vec<u32>,
    targets: Vec<u32>,
    dropout: DropoutPass,
}

fn case(shape: GptShape, t: usize, p: f64) -> Case {
    let gpt = Gpt::new(&GptConfig::new(shape).expect("valid"), t).expect("small");
    let mut stream = Stream::new(42, 0);
    // Larger than a new model's, so that every gradient is large enough to check.
    let params = (0..gpt.layout().len()).map(|_| 0.4 * stream.normal()).collect();
    let mut tokens = || (0..3 * t).map(|_| u32::try_from(stream.below(shape.vocab_size)).expect("small")).collect();
    let (inp, targets) = (tokens(), tokens());
    Case { gpt, params, inp, targets, dropout: DropoutPass { p, key: 9 } }
}

impl Case {
    fn loss(&self, params: &[f64]) -> f64 {
        self.gpt.forward(params, &self.inp, &self.targets, self.dropout).loss()
    }

    fn gradients(&self, loss_scale: f64) -> Vec<f64> {
        let mut grads = vec![0.0; self.params.len()];
        let pass = self.gpt.forward(&self.params, &self.inp, &self.targets, self.dropout);
        self.gpt.backward(&mut grads, &self.params, &pass, &self.inp, &self.targets, loss_scale);
        grads
    }

    /// The largest relative error of any tensor's element, with the tensor's name.
    fn worst(&self, grads: &[f64]) -> (f64, String) {
        let mut worst = (0.0, String::new());
        for entry in self.gpt.layout().entries() {
            // All elements of a vector, and of a matrix every fifth, a stride that reaches every row.
            for i in entry.range.clone().step_by(if entry.shape.len() > 1 { 5 } else { 1 }) {
                let step = 1e-5;
                let mut params = self.params.clone();
                params[i] += step;
                let above = self.loss(&params);
                params[i] -= 2.0 * step;
                let difference = (above - self.loss(&params)) / (2.0 * step);
                let error = (grads[i] - difference).abs() / (1e-4 + difference.abs());
                if error > worst.0 || error.is_nan() {
                    worst = (
                        error,
                        format!("{}[{}]: {} instead of {difference}", entry.name, i - entry.range.start, grads[i]),
                    );
                }
            }
        }
        worst
    }
}

#[track_caller]
fn check(case: &Case) {
    let (error, place) = case.worst(&case.gradients(1.0));
    assert!(error < 1e-5, "{error} at {place}");
}

#[test]
fn gradients_are_those_of_the_loss() {
    check(&case(SHAPE, 5, 0.0));
}

#[test]
fn gradients_are_those_of_the_loss_without_biases() {
    check(&case(GptShape { bias: false, ..SHAPE }, 5, 0.0));
}

#[test]
fn gradients_are_those_of_the_loss_under_dropout() {
    check(&case(SHAPE, 5, 0.3));
}

#[test]
fn gradients_are_those_of_the_loss_for_a_single_token() {
    check(&case(SHAPE, 1, 0.0));
}

#[test]
fn gradients_of_micro_steps_add_up() {
    let case = case(SHAPE, 5, 0.0);
    let (whole, half) = (case.gradients(1.0), case.gradients(0.5));
    assert!(whole.iter().zip(&half).all(|(whole, half)| (whole - 2.0 * half).abs() < 1e-12));
}

#[test]
fn a_wrong_gradient_is_seen() {
    let case = case(SHAPE, 5, 0.0);
    for entry in case.gpt.layout().entries() {
        let mut grads = case.gradients(1.0);
        grads[entry.range.start] += 1e-3;
        assert!(case.worst(&grads).0 > 1e-3, "{}", entry.name);
    }
}
