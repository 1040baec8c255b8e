//! Compares the reference and the CPU trainer with PyTorch's values in tests/golden/pytorch_gpt.

use std::collections::BTreeMap;

use headroom_kernels::{
    cpu_train::{Micro, Trainer},
    layout::Layout,
    reference::{
        RealNumber,
        adamw_update::{AdamW, adamw_update},
        global_norm::{clip_scale, sum_of_squares},
        gpt::{DropoutPass, Gpt},
    },
};
use headroom_planner::gpt::{GptConfig, GptShape};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    n_layer: u64,
    n_head: u64,
    n_embd: u64,
    block_size: u64,
    vocab_size: u64,
    x: Vec<u32>,
    y: Vec<u32>,
    params: BTreeMap<String, Vec<f64>>,
    steps: Vec<Step>,
    after: BTreeMap<String, Vec<f64>>,
}

#[derive(Deserialize)]
struct Step {
    loss: f64,
    norm: f64,
    logits: Vec<f64>,
    grads: Option<BTreeMap<String, Vec<f64>>>,
}

const GRAD_CLIP: f64 = 0.5;

impl Golden {
    fn read() -> Self {
        let text = include_str!("../../tests/golden/pytorch_gpt/pytorch_gpt.json");
        serde_json::from_str(text).expect("the golden file is as make.py wrote it")
    }

    fn config(&self) -> GptConfig {
        let Self { n_layer, n_head, n_embd, block_size, vocab_size, .. } = *self;
        GptConfig::new(GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout: 0.0, bias: true })
            .expect("valid")
    }
}

/// Tensors by name, flat in the layout's order.
fn flat(layout: &Layout, tensors: &BTreeMap<String, Vec<f64>>) -> Vec<f64> {
    assert_eq!(layout.entries().len(), tensors.len(), "every tensor is in the file");
    layout.entries().iter().flat_map(|entry| &tensors[&entry.name]).copied().collect()
}

#[track_caller]
fn check<F: RealNumber>(what: &str, got: &[F], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got.wide() - want).abs();
        assert!(error <= tolerance * (1.0 + want.abs()), "{what} {i}: {got:?} instead of {want}");
    }
}

/// The value of make.py, larger than the default. With 1e-8, a gradient that is only rounding error, as of the biases
/// of keys, causes a step of full length.
const EPS: f64 = 1e-4;

const fn adamw(step: u64, gradient_scale: f64) -> AdamW {
    AdamW { learning_rate: 1e-2, beta1: 0.9, beta2: 0.95, eps: EPS, weight_decay: 0.1, step, gradient_scale }
}

/// The file has twelve digits.
const DIGITS: f64 = 1e-10;

#[test]
fn the_reference_is_pytorch() {
    let golden = Golden::read();
    let gpt = Gpt::new(&golden.config(), 5).expect("small");
    let mut params = flat(gpt.layout(), &golden.params);
    let (mut m, mut v) = (vec![0.0; params.len()], vec![0.0; params.len()]);
    for (step, want) in (1..).zip(&golden.steps) {
        let pass = gpt.forward(&params, &golden.x, &golden.y, DropoutPass::NONE);
        check("loss", &[pass.loss()], &[want.loss], DIGITS);
        check("logit", &pass.logits, &want.logits, DIGITS);
        let mut grads = vec![0.0; params.len()];
        gpt.backward(&mut grads, &params, &pass, &golden.x, &golden.y, 1.0);
        if let Some(want) = &want.grads {
            check("gradient", &grads, &flat(gpt.layout(), want), DIGITS);
        }
        let norm = sum_of_squares(&grads).sqrt();
        check("norm", &[norm], &[want.norm], DIGITS);
        for entry in gpt.layout().entries() {
            let range = entry.range.clone();
            let whole = adamw(step, clip_scale(norm, GRAD_CLIP));
            let weight_decay = if entry.parameter.decayed { whole.weight_decay } else { 0.0 };
            let (params, m, v) = (&mut params[range.clone()], &mut m[range.clone()], &mut v[range.clone()]);
            adamw_update(params, m, v, &grads[range], AdamW { weight_decay, ..whole });
        }
    }
    check("parameter", &params, &flat(gpt.layout(), &golden.after), DIGITS);
}

#[test]
fn the_trainer_is_pytorch() {
    let golden = Golden::read();
    let mut trainer = Trainer::new(&golden.config(), 2, 2).expect("small");
    let layout = trainer.layout().clone();
    for (param, value) in trainer.state_mut().0.iter_mut().zip(flat(&layout, &golden.params)) {
        *param = f32::of(value);
    }
    let (x, y) = trainer.batch_mut();
    x.copy_from_slice(&golden.x);
    y.copy_from_slice(&golden.y);
    for (step, want) in (1..).zip(&golden.steps) {
        let loss = trainer.micro_step(Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE });
        check("loss", &[loss], &[want.loss], 1e-6);
        if let Some(want) = &want.grads {
            check("gradient", trainer.grads(), &flat(&layout, want), 1e-6);
        }
        let norm = trainer.gradient_norm();
        check("norm", &[norm], &[want.norm], 1e-6);
        trainer.update(adamw(step, clip_scale(norm, GRAD_CLIP)));
    }
    check("parameter", trainer.params(), &flat(&layout, &golden.after), 1e-5);
}

#[test]
#[should_panic(expected = "parameter 0")]
fn the_comparison_can_fail() {
    check("parameter", &[1.0 + 3.0 * DIGITS], &[1.0], DIGITS);
}
