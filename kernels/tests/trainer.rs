//! Compares the CPU trainer with the reference in f64: losses, every gradient and updates. Also checks determinism.

use headroom_kernels::{
    cpu_train::{Micro, Trainer},
    reference::{
        RealNumber,
        adamw_update::{AdamW, adamw_update},
        gpt::{DropoutPass, Gpt},
    },
    rng::Stream,
};
use headroom_planner::gpt::{GptConfig, GptShape};

/// Widths that are not multiples of a vector, and partial attention blocks.
const ODD: GptShape =
    GptShape { n_layer: 2, n_head: 3, n_embd: 33, block_size: 67, vocab_size: 101, dropout: 0.0, bias: true };

const ADAMW: AdamW = AdamW {
    learning_rate: 1e-2,
    beta1: 0.9,
    beta2: 0.95,
    eps: AdamW::EPS,
    weight_decay: 0.1,
    step: 1,
    gradient_scale: 0.5,
};

fn config(shape: GptShape) -> GptConfig {
    GptConfig::new(shape).expect("valid")
}

fn trainer(shape: GptShape, batch_size: u64, threads: usize) -> Trainer {
    let mut trainer = Trainer::new(&config(shape), batch_size, threads).expect("small");
    // Larger than a new model's, so that every gradient is large enough to check.
    let mut stream = Stream::new(42, 0);
    let layout = trainer.layout().clone();
    let (params, ..) = trainer.state_mut();
    for entry in layout.entries() {
        let center = if entry.name.contains("ln_") && entry.name.ends_with("weight") { 1.0 } else { 0.0 };
        let deviation = if entry.shape.len() > 1 { 0.7 / (shape.n_embd as f64).sqrt() } else { 0.2 };
        params[entry.range.clone()].fill_with(|| f32::of(center + deviation * stream.normal()));
    }
    trainer
}

/// Fills in batch number `i` of a run.
fn fill(trainer: &mut Trainer, shape: GptShape, i: u64) -> (Vec<u32>, Vec<u32>) {
    let mut stream = Stream::new(7, i);
    let (x, y) = trainer.batch_mut();
    x.iter_mut()
        .chain(y.iter_mut())
        .for_each(|token| *token = u32::try_from(stream.below(shape.vocab_size)).expect("small"));
    (x.to_vec(), y.to_vec())
}

/// The largest absolute error, relative to the largest magnitude in the same tensor of the reference.
fn worst(trainer: &Trainer, got: &[f32], want: &[f64]) -> (f64, String) {
    let mut worst = (0.0, String::new());
    assert_eq!(got.len(), want.len());
    for entry in trainer.layout().entries() {
        let largest = want[entry.range.clone()].iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        for i in entry.range.clone() {
            let error = (f64::from(got[i]) - want[i]).abs() / largest;
            if error > worst.0 || error.is_nan() {
                worst =
                    (error, format!("{}[{}]: {} instead of {}", entry.name, i - entry.range.start, got[i], want[i]));
            }
        }
    }
    worst
}

/// The rounding error of a gradient in f32: sums of some hundred products of rounded numbers.
const TOLERANCE: f64 = 3e-5;

#[track_caller]
fn check(shape: GptShape, batch_size: u64, threads: usize) {
    let mut trainer = trainer(shape, batch_size, threads);
    let params: Vec<f64> = trainer.params().iter().map(|&x| f64::from(x)).collect();
    let gpt = Gpt::new(&config(shape), usize::try_from(shape.block_size).expect("small")).expect("small");
    let mut want = vec![0.0; params.len()];
    for micro_step in 0..2 {
        let dropout = DropoutPass { p: shape.dropout, key: 11 + micro_step };
        let (x, y) = fill(&mut trainer, shape, micro_step);
        let pass = gpt.forward(&params, &x, &y, dropout);
        gpt.backward(&mut want, &params, &pass, &x, &y, 0.5);
        let loss = trainer.micro_step(Micro { first: micro_step == 0, loss_scale: 0.5, dropout });
        assert!((loss - pass.loss()).abs() < 1e-5, "{loss} instead of {}", pass.loss());
        let (evaluated, plain) = (trainer.loss(), gpt.forward(&params, &x, &y, DropoutPass::NONE).loss());
        assert!((evaluated - plain).abs() < 1e-5, "{evaluated} instead of {plain}");
    }
    let (error, place) = worst(&trainer, trainer.grads(), &want);
    assert!(error < TOLERANCE, "{error} at {place}");
    let norm = want.iter().map(|g| g * g).sum::<f64>().sqrt();
    assert!((trainer.gradient_norm() - norm).abs() < 1e-5 * norm, "{} instead of {norm}", trainer.gradient_norm());

    check_update(&mut trainer, params);
}

/// Compares two updates from the trainer's own gradients, as the sign of a gradient near zero is random.
#[track_caller]
fn check_update(trainer: &mut Trainer, mut params: Vec<f64>) {
    let grads: Vec<f64> = trainer.grads().iter().map(|&g| f64::from(g)).collect();
    let (mut m, mut v) = (vec![0.0; params.len()], vec![0.0; params.len()]);
    for step in 1..=2 {
        for entry in trainer.layout().entries() {
            let range = entry.range.clone();
            let weight_decay = if entry.shape.len() > 1 { ADAMW.weight_decay } else { 0.0 };
            let (params, m, v) = (&mut params[range.clone()], &mut m[range.clone()], &mut v[range.clone()]);
            adamw_update(params, m, v, &grads[range], AdamW { weight_decay, step, ..ADAMW });
        }
        trainer.update(AdamW { step, ..ADAMW });
    }
    for (i, (got, want)) in trainer.params().iter().zip(&params).enumerate() {
        assert!((f64::from(*got) - want).abs() < 1e-5, "parameter {i} is {got} instead of {want}");
    }
    for (got, want) in [(trainer.moments().0, &m), (trainer.moments().1, &v)] {
        let (error, place) = worst(trainer, got, want);
        assert!(error < 1e-6, "{error} at {place}");
    }
}

#[test]
fn equals_the_reference() {
    check(ODD, 3, 2);
}

#[test]
fn equals_the_reference_without_biases() {
    check(GptShape { bias: false, ..ODD }, 3, 2);
}

#[test]
fn equals_the_reference_under_dropout() {
    check(GptShape { dropout: 0.3, ..ODD }, 3, 2);
}

#[test]
fn equals_the_reference_on_one_thread_and_on_more_than_there_is_work_for() {
    check(ODD, 1, 1);
    check(ODD, 1, 5);
}

#[test]
fn equals_the_reference_for_a_single_token() {
    check(GptShape { block_size: 1, ..ODD }, 1, 2);
}

#[test]
fn equals_the_reference_where_attention_takes_several_blocks() {
    let shape =
        GptShape { n_layer: 1, n_head: 2, n_embd: 16, block_size: 300, vocab_size: 17, dropout: 0.0, bias: true };
    check(shape, 2, 2);
    check(GptShape { dropout: 0.2, ..shape }, 1, 2);
}

#[test]
fn a_wrong_gradient_is_seen() {
    let mut trainer = trainer(ODD, 2, 1);
    fill(&mut trainer, ODD, 0);
    trainer.micro_step(Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE });
    let want: Vec<f64> = trainer.grads().iter().map(|&g| f64::from(g)).collect();
    for entry in trainer.layout().entries() {
        let mut got = trainer.grads().to_vec();
        let largest = entry.range.clone().max_by(|&a, &b| want[a].abs().total_cmp(&want[b].abs())).expect("not empty");
        got[largest] *= 1.0001;
        assert!(worst(&trainer, &got, &want).0 > TOLERANCE, "{}", entry.name);
    }
}

#[test]
fn a_run_repeats_itself_bit_for_bit() {
    let shape = GptShape { dropout: 0.1, ..ODD };
    let run = || {
        let mut trainer = Trainer::new(&config(shape), 2, 3).expect("small");
        trainer.initialize(1337);
        for step in 1..=5 {
            fill(&mut trainer, shape, step);
            let dropout = DropoutPass { p: shape.dropout, key: step };
            trainer.micro_step(Micro { first: true, loss_scale: 1.0, dropout });
            trainer.update(AdamW { step, ..ADAMW });
        }
        trainer.params().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    assert!(run() == run());
}

#[test]
fn one_batch_is_learnt_by_heart() {
    let mut trainer = Trainer::new(&config(ODD), 2, 2).expect("small");
    trainer.initialize(1);
    fill(&mut trainer, ODD, 0);
    let first = trainer.loss();
    assert!((first - 101_f64.ln()).abs() < 0.1, "a fresh model guesses: {first}");
    for step in 1..=150 {
        trainer.micro_step(Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE });
        trainer.update(AdamW { step, gradient_scale: 1.0, ..ADAMW });
    }
    assert!(trainer.loss() < 0.1, "{}", trainer.loss());
}

#[test]
fn allocated_buffers_equal_plan() {
    for dropout in [0.0, 0.1] {
        let trainer = Trainer::new(&config(GptShape { dropout, ..ODD }), 3, 2).expect("small");
        assert_eq!(trainer.allocated_bytes(), trainer.planned().bytes());
        assert!(trainer.planned().bytes() > 16 * trainer.params().len() as u64);
    }
}
