//! Gradient scaling, clipping, and the optimizer's step.
//!
//! Source: torch/optim/adamw.py, torch/nn/utils/clip_grad.py and torch/amp/grad_scaler.py (2.11).

use super::{Tensor, Torch};
use crate::{
    dtype::Dtype,
    optimizer_spec::{Optimizer, OptimizerSpec},
};

fn scalar(torch: &Torch, dtype: Dtype) -> Tensor {
    torch.empty("scalar", &[], dtype)
}

/// `torch.amp.GradScaler`.
#[derive(Debug, Default)]
pub struct GradScaler {
    /// The scale and its growth counter, from the first call.
    state: Option<[Tensor; 2]>,
}

impl GradScaler {
    /// `scaler.scale(loss)`.
    pub fn scale(&mut self, torch: &Torch, loss: &Tensor) -> Tensor {
        self.state.get_or_insert_with(|| {
            [Dtype::Float32, Dtype::Int32].map(|dtype| torch.empty("gradient scaler", &[], dtype))
        });
        torch.scale(loss)
    }

    /// `unscale_`: returns whether an infinity was found. A fused step without clipping unscales by itself.
    pub fn unscale(torch: &Torch, is_inside: bool) -> Tensor {
        let scale = (!is_inside).then(|| scalar(torch, Dtype::Float64));
        let inverse = (!is_inside).then(|| scalar(torch, Dtype::Float64));
        drop(scale);
        let _inverse = scalar(torch, Dtype::Float32);
        drop(inverse);
        let _found = scalar(torch, Dtype::Float32);
        let found_inf = torch.empty("found_inf", &[], Dtype::Float32);
        let _copy = scalar(torch, Dtype::Float32);
        found_inf
    }
}

/// An optimizer with its state.
#[derive(Debug)]
pub struct Optim {
    spec: &'static OptimizerSpec,
    /// Number of elements of each parameter, by group: those with weight decay, then the others.
    groups: [Vec<u64>; 2],
    n_parameters: u64,
    state: Vec<Tensor>,
}

impl Optim {
    /// An optimizer without state. Parameters with two axes or more have weight decay.
    #[must_use]
    pub fn new(optimizer: Optimizer, parameters: Vec<&Tensor>) -> Self {
        let n_parameters = parameters.len() as u64;
        let (decayed, others): (Vec<_>, Vec<_>) = parameters.into_iter().partition(|p| p.sizes().len() >= 2);
        let groups = [decayed, others].map(|group| group.iter().map(|p| p.layout().elements()).collect());
        Self { spec: optimizer.spec(), groups, n_parameters, state: Vec::new() }
    }

    /// Allocates the state of all parameters, as a resumed run does.
    pub fn allocate_state(&mut self, torch: &Torch) {
        for group in 0..self.groups.len() {
            self.allocate_state_of(torch, group);
        }
    }

    fn allocate_state_of(&mut self, torch: &Torch, group: usize) {
        for &elements in &self.groups[group] {
            if self.spec.is_fused {
                self.state.push(torch.optimizer_state("step", &[], Dtype::Float32, None));
            }
            for role in self.spec.states_of(elements) {
                let bytes = role.state_bytes(elements).unwrap_or(0);
                self.state.push(torch.optimizer_state("optimizer state", &[bytes], Dtype::Uint8, None));
            }
        }
    }

    /// Unscales, clips and steps.
    pub fn step(&mut self, torch: &Torch, scaler: Option<&GradScaler>, clips: bool) {
        let unscales_inside = scaler.is_some() && self.spec.is_fused && !clips;
        let found_inf = scaler.map(|_| GradScaler::unscale(torch, unscales_inside));
        if clips {
            self.clip(torch);
        }
        let found_copy = (scaler.is_some() && self.spec.is_fused).then(|| scalar(torch, Dtype::Float32));
        let grad_scale = unscales_inside.then(|| scalar(torch, Dtype::Float32));
        let is_first = self.state.is_empty();
        for group in 0..self.groups.len() {
            if is_first {
                self.allocate_state_of(torch, group);
            }
            if self.spec.foreach_temporary.is_some() {
                let temporary = |&n: &u64| torch.empty("temporary of the optimizer", &[n], Dtype::Float32);
                let held: Vec<_> = self.groups[group].iter().map(temporary).collect();
                drop(held);
            }
        }
        drop((grad_scale, found_copy, found_inf));
    }

    /// `clip_grad_norm_`.
    fn clip(&self, torch: &Torch) {
        let norms: Vec<_> = (0..self.n_parameters).map(|_| scalar(torch, Dtype::Float32)).collect();
        let stacked = torch.empty("norms of all gradients", &[self.n_parameters], Dtype::Float32);
        let total = scalar(torch, Dtype::Float32);
        drop((stacked, norms));
        let sum = scalar(torch, Dtype::Float32);
        let reciprocal = scalar(torch, Dtype::Float32);
        let coefficient = scalar(torch, Dtype::Float32);
        drop((reciprocal, sum));
        let clamped = scalar(torch, Dtype::Float32);
        drop((coefficient, clamped, total));
    }
}
