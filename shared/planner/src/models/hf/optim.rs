//! Gradient clipping and the optimizers of `TrainingArguments.optim`.
//!
//! Source: torch/nn/utils/clip_grad.py, torch/optim/adam.py (2.11) and transformers/optimization.py (5.17).

mod bitsandbytes;

pub use bitsandbytes::Bitsandbytes;

use crate::{
    dtype::Dtype,
    gpt::tensors::Category,
    torch::{Tensor, Torch},
};

/// `TrainingArguments.optim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// `adamw_torch_fused`.
    AdamwTorchFused,
    /// `adamw_torch`: one list of temporaries for all parameters of a group.
    AdamwTorch,
    /// `sgd`, without momentum.
    Sgd,
    /// `adafactor`.
    Adafactor,
    /// An optimizer of bitsandbytes.
    Bitsandbytes(Bitsandbytes),
}

/// Temporaries of Adafactor that its local variables hold until the next parameter.
#[derive(Debug, Default)]
struct Locals {
    /// The gradient in float32, if it has another dtype.
    grad: Option<Tensor>,
    /// The parameter in float32, if it has another dtype.
    p_data_fp32: Option<Tensor>,
    update: Option<Tensor>,
}

/// An optimizer with its state.
#[derive(Debug)]
pub struct Optim {
    optimizer: Optimizer,
    has_stepped: bool,
    state: Vec<Tensor>,
    /// `state["RMS"]` of each parameter, of Adafactor.
    rms: Vec<Tensor>,
    /// Codes of 8-bit states.
    codes: Vec<Tensor>,
    locals: Locals,
}

impl Optim {
    pub fn new(optimizer: Optimizer) -> Self {
        Self {
            optimizer,
            has_stepped: false,
            state: Vec::new(),
            rms: Vec::new(),
            codes: Vec::new(),
            locals: Locals::default(),
        }
    }

    /// `optimizer.step()`, or that of a gradient scaler, whose `found_inf` a fused optimizer copies. Parameters with two
    /// axes or more have weight decay and are the first group.
    ///
    /// `embeddings` are the weights of embeddings.
    pub fn step(&mut self, torch: &Torch, parameters: &[&Tensor], embeddings: &[&Tensor], found_inf: Option<&Tensor>) {
        let _module = torch.enter("optimizer");
        let _category = torch.enter_category(Category::OptimizerState);
        let is_fused = self.optimizer == Optimizer::AdamwTorchFused;
        let _found_inf = found_inf.filter(|_| is_fused).map(|found| torch.empty("found_inf", &[], found.dtype()));
        let is_first = !std::mem::replace(&mut self.has_stepped, true);
        let (decayed, others): (Vec<_>, Vec<_>) = parameters.iter().partition(|p| p.sizes().len() >= 2);
        let n_decayed = decayed.len();
        for (first, group) in [(0, decayed), (n_decayed, others)] {
            match self.optimizer {
                Optimizer::Sgd => {}
                Optimizer::Adafactor => self.adafactor(torch, first, &group, is_first),
                Optimizer::AdamwTorchFused | Optimizer::AdamwTorch => self.adamw(torch, &group, is_first),
                Optimizer::Bitsandbytes(optimizer) if is_first => {
                    self.state.extend(optimizer.states(torch, &group, embeddings, &mut self.codes));
                }
                Optimizer::Bitsandbytes(_) => {}
            }
        }
        self.locals = Locals::default();
    }

    fn adamw(&mut self, torch: &Torch, group: &[&Tensor], is_first: bool) {
        let is_fused = self.optimizer == Optimizer::AdamwTorchFused;
        for parameter in group.iter().filter(|_| is_first) {
            // The fused kernel keeps its step on the GPU.
            self.state.extend(is_fused.then(|| torch.optimizer_state("step", &[], Dtype::Float32, Some(parameter))));
            let moment = |name| torch.optimizer_state(name, parameter.sizes(), parameter.dtype(), Some(parameter));
            self.state.extend(["exp_avg", "exp_avg_sq"].map(moment));
        }
        if !is_fused {
            let root = |p: &&Tensor| torch.empty("root of the second moment", p.sizes(), p.dtype());
            drop(group.iter().map(root).collect::<Vec<_>>());
        }
    }

    fn set_rms(&mut self, at: usize, rms: Tensor) {
        match self.rms.get_mut(at) {
            Some(earlier) => *earlier = rms,
            None => self.rms.push(rms),
        }
    }

    fn adafactor(&mut self, torch: &Torch, first: usize, group: &[&Tensor], is_first: bool) {
        for (at, parameter) in (first..).zip(group) {
            let sizes = parameter.sizes();
            let vector = |name, n: u64| torch.empty(name, &[n], Dtype::Float32);
            let scalar = || torch.empty("scalar", &[], Dtype::Float32);
            let full = |name| torch.empty(name, sizes, Dtype::Float32);
            let is_half = parameter.dtype() != Dtype::Float32;
            self.locals.grad = None;
            self.locals.grad = is_half.then(|| full("gradient in float32"));
            let factors = (sizes.len() >= 2).then(|| [1, 0].map(|n| parameter.layout().from_last(n)));
            if is_first {
                match factors {
                    Some([rows, columns]) => {
                        self.state.extend([
                            vector("rows of the second moment", rows),
                            vector("columns of the second moment", columns),
                        ]);
                    }
                    None => self.state.push(torch.empty("second moment", sizes, Dtype::Float32)),
                }
            }
            self.locals.p_data_fp32 = None;
            self.locals.p_data_fp32 = is_half.then(|| full("parameter in float32"));
            let norm = scalar();
            let rms = scalar();
            drop(norm);
            self.set_rms(at, rms);
            let squares = {
                let _square = full("square of the gradient");
                full("update")
            };
            self.locals.update = None;
            let update = match factors {
                Some([rows, columns]) => {
                    drop(vector("mean of rows", rows));
                    let mean = vector("mean of columns", columns);
                    drop(torch.column_reduction([rows, columns]));
                    drop(mean);
                    let _row_factor = vector("row factor", rows);
                    let _column_factor = vector("column factor", columns);
                    full("update")
                }
                None => full("update"),
            };
            drop(squares);
            drop([scalar(), scalar()]);
            drop(full("negated update"));
            self.locals.update = Some(update);
        }
    }
}

/// `clip_grad_norm_` of gradients with these dtypes. Returns the total norm.
pub fn clip_grad_norm(torch: &Torch, parameters: &[&Tensor]) -> Tensor {
    /// Elements of a gradient that one block of the kernel reduces.
    const CHUNK: u64 = 65_536;
    let dtype = parameters.first().map_or(Dtype::Float32, |p| p.dtype());
    let scalar = || torch.empty("norm of a gradient", &[], dtype);
    let chunks = parameters.iter().map(|p| p.layout().elements().div_ceil(CHUNK)).max().unwrap_or(0);
    let parts = parameters.len() as u64 * chunks;
    let of_parts = torch.empty("norms of parts of gradients", &[parts], Dtype::Float32);
    let norms: Vec<_> = parameters.iter().map(|_| scalar()).collect();
    drop(of_parts);
    let stacked = torch.empty("norms of all gradients", &[parameters.len() as u64], dtype);
    let total = scalar();
    drop(stacked);
    drop(norms);
    let coefficient = {
        let _sum = scalar();
        let _reciprocal = scalar();
        scalar()
    };
    let _clamped = scalar();
    drop(coefficient);
    total
}
