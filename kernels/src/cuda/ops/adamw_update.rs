//! AdamW over every tensor of a model in one launch.

use headroom_planner::gpt::buffers::cuda::workspace;

use super::count;
use crate::{
    cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice, ops::layernorm_forward::or_null},
    reference::{RealNumber, adamw_update::AdamW},
};

pub(super) static MODULE: Module = Module { name: "adamw_update", ptx: include_str!("../../../ptx/adamw_update.ptx") };
static UPDATE: Kernel = Kernel { module: &MODULE, name: "adamw_update", threads: 256, shared_bytes: 0 };

/// Elements of a tensor per block.
const CHUNK: u64 = 8192;
/// 64-bit words per tensor in the table.
const ROW: u64 = workspace::TENSOR_WORDS;

const OP: &str = "adamw_update";

/// A tensor's optimizer state. All slices have the same length, a multiple of 4, and addresses that are multiples of
/// 16.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Weight used by the model; written.
    pub weight: Slice<Bf16>,
    /// Float32 master weight; updated. Without one, `weight` itself is updated and should be rounded stochastically.
    pub master: Option<Slice<f32>>,
    /// First moment; updated.
    pub m: Slice<f32>,
    /// Second moment; updated.
    pub v: Slice<f32>,
    /// Gradient; read.
    pub grad: Slice<f32>,
    /// Whether weight decay applies: to matrices, not to vectors.
    pub decayed: bool,
}

/// The kernel's table of tensors, copied to the GPU once: [`workspace::TENSOR_WORDS`] words per tensor.
#[derive(Clone, Debug)]
pub struct Table {
    words: Vec<u64>,
    n_tensors: u32,
    blocks: u64,
}

impl Table {
    /// Builds the table of tensors.
    ///
    /// # Errors
    /// [`CudaError::Length`] if the slices of a tensor differ in length, [`CudaError::Size`] if the kernel does not
    /// support a tensor.
    pub fn new(parameters: &[Parameter]) -> Result<Self, CudaError> {
        let mut words = Vec::new();
        let (mut first_element, mut blocks) = (0_u64, 0_u64);
        for parameter in parameters.iter().filter(|parameter| !parameter.weight.is_empty()) {
            let Parameter { weight, master, m, v, grad, decayed } = *parameter;
            let n = weight.len();
            let floats =
                [("m", m), ("v", v), ("grad", grad)].into_iter().chain(master.map(|master| ("master", master)));
            for (tensor, slice) in floats {
                slice.expect(OP, tensor, n)?;
                multiple(16, slice.address(), "an address", "a multiple of 16")?;
            }
            multiple(16, weight.address(), "an address", "a multiple of 16")?;
            multiple(4, n, "a tensor's number of elements", "a multiple of 4")?;
            let first_block = u64::from(count(OP, "the number of blocks", blocks)?);
            let addresses = [weight.address(), or_null(master).address(), m.address(), v.address(), grad.address()];
            words.extend(addresses);
            words.extend([n, first_element, first_block | u64::from(decayed) << 32]);
            first_element += n;
            blocks += n.div_ceil(CHUNK);
        }
        let n_tensors = count(OP, "the number of tensors", words.len() as u64 / ROW)?;
        count(OP, "the number of blocks", blocks)?;
        Ok(Self { words, n_tensors, blocks })
    }

    /// The words to copy to the GPU.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

fn multiple(of: u64, value: u64, what: &'static str, needed: &'static str) -> Result<(), CudaError> {
    if value.is_multiple_of(of) { Ok(()) } else { Err(CudaError::Size { op: OP, what, value, needed }) }
}

/// Gradient clipping: gradients are scaled so that their norm is at most `grad_clip`, which is above 0.
#[derive(Clone, Copy, Debug)]
pub struct Clip {
    /// Norm of the gradients, (1), on the GPU: the result of [`super::global_norm::global_norm`].
    pub norm: Slice<f32>,
    /// Maximum norm.
    pub grad_clip: f32,
}

/// Rounding of master weights to bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To nearest, ties to even.
    Nearest,
    /// To one of the two neighbours, with a probability that falls with the distance, so that the expected value is the
    /// master. The random bits are a hash of the key and the element's index.
    Stochastic {
        /// Key of the step; it must differ between steps.
        key: u32,
    },
}

/// Updates every tensor from its gradient.
///
/// Shapes: `words` are those of `table`; `clip.norm` (1).
///
/// Numerics: f32; the weight is the master rounded once. `adamw.gradient_scale` applies in addition to clipping.
///
/// Twin: [`crate::reference::adamw_update::adamw_update`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or the launch fails.
#[track_caller]
pub fn adamw_update(
    device: &Device,
    (table, words): (&Table, Slice<u64>),
    clip: Option<Clip>,
    adamw: AdamW,
    rounding: Rounding,
) -> Result<(), CudaError> {
    words.expect(OP, "words", table.words.len() as u64)?;
    if let Some(clip) = clip {
        clip.norm.expect(OP, "norm", 1)?;
    }
    if table.n_tensors == 0 {
        return Ok(());
    }
    let norm = or_null(clip.map(|clip| clip.norm));
    let grad_clip = clip.map_or(0.0, |clip| clip.grad_clip);
    let (correction1, root_correction2) = adamw.corrections();
    let [beta1, rest1] = [adamw.beta1, 1.0 - adamw.beta1].map(f32::of);
    let [beta2, rest2] = [adamw.beta2, 1.0 - adamw.beta2].map(f32::of);
    let [gradient_scale, step_size] = [adamw.gradient_scale, adamw.learning_rate / correction1].map(f32::of);
    let [inverse_root, eps] = [1.0 / root_correction2, adamw.eps].map(f32::of);
    let decay = f32::of(1.0 - adamw.learning_rate * adamw.weight_decay);
    let (stochastic, key) = match rounding {
        Rounding::Nearest => (0_u32, 0),
        Rounding::Stochastic { key } => (1, key),
    };
    device.launch(
        &UPDATE,
        Grid::x(table.blocks)?,
        &[
            &words,
            &table.n_tensors,
            &norm,
            &grad_clip,
            &gradient_scale,
            &beta1,
            &rest1,
            &beta2,
            &rest2,
            &step_size,
            &inverse_root,
            &eps,
            &decay,
            &stochastic,
            &key,
        ],
    )
}
