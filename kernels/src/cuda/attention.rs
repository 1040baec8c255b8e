//! Attention backends: built-in kernels, or cuDNN if the host has it and the user selects it.
//!
//! Both take the same tensors and compute the same results, up to the order of summation. Each backend sums in a fixed
//! order, so a run is reproducible bit for bit with either.

use std::fmt;

use headroom_planner::gpt::buffers::cuda::AttentionBackend;

use super::{
    Bf16, BuiltinKernels, CudaError, Device, Slice,
    ops::{
        attention_backward::{SavedAttention, attention_backward},
        attention_forward::attention_forward,
    },
};
use crate::reference::attention_forward::Heads;

/// Causal attention, forward and backward. Sizes, shapes and errors are those of the functions of the same names in
/// [`super::ops`].
pub trait Attention: fmt::Debug + Send + Sync {
    /// Name of the backend, for display.
    fn name(&self) -> String;

    /// The planner's name of the backend. A plan must be made for it, so that it includes the backend's workspace.
    fn attention_backend(&self) -> AttentionBackend {
        AttentionBackend::BuiltinKernels
    }

    /// Selects the algorithms, once, before a run begins. The contents of the tensors in `trial` are overwritten.
    ///
    /// # Errors
    /// The GPU fails. An operation that the library does not support is not an error: it is noted in [`Self::notes`],
    /// and the built-in kernels are used.
    fn settle(&mut self, device: &Device, trial: AutotuneInputs) -> Result<(), CudaError> {
        let _ = (device, trial);
        Ok(())
    }

    /// Messages for the user about the selected algorithms, without repetition.
    fn notes(&self) -> Vec<String> {
        vec![]
    }

    /// Computes the output of every head.
    ///
    /// # Errors
    /// As [`attention_forward`].
    fn forward(
        &self,
        device: &Device,
        out: Slice<Bf16>,
        lse: Slice<f32>,
        qkv: Slice<Bf16>,
        heads: Heads,
    ) -> Result<(), CudaError>;

    /// Computes the gradient of [`Self::forward`].
    ///
    /// # Errors
    /// As [`attention_backward`].
    fn backward(
        &self,
        device: &Device,
        dqkv: Slice<Bf16>,
        rows: Slice<f32>,
        dout: Slice<Bf16>,
        saved: SavedAttention,
        heads: Heads,
    ) -> Result<(), CudaError>;
}

/// Tensors of one block, at the sizes of the run and without overlap, for trying out algorithms.
#[derive(Clone, Copy, Debug)]
pub struct AutotuneInputs {
    /// Input and outputs of forward.
    pub saved: SavedAttention,
    /// Gradient of the output: a further input of backward.
    pub dout: Slice<Bf16>,
    /// Gradient of QKV: the output of backward.
    pub dqkv: Slice<Bf16>,
    /// Intermediate buffer of backward.
    pub rows: Slice<f32>,
    /// Sizes of the heads, without dropout.
    pub heads: Heads,
    /// Whether the run applies dropout to the attention weights.
    pub drops: bool,
    /// Workspaces of forward and backward, also for the rest of the run.
    pub rooms: [Slice<u8>; 2],
}

impl Attention for BuiltinKernels {
    fn name(&self) -> String {
        "own kernels".to_owned()
    }

    #[track_caller]
    fn forward(
        &self,
        device: &Device,
        out: Slice<Bf16>,
        lse: Slice<f32>,
        qkv: Slice<Bf16>,
        heads: Heads,
    ) -> Result<(), CudaError> {
        attention_forward(device, out, lse, qkv, heads)
    }

    #[track_caller]
    fn backward(
        &self,
        device: &Device,
        dqkv: Slice<Bf16>,
        rows: Slice<f32>,
        dout: Slice<Bf16>,
        saved: SavedAttention,
        heads: Heads,
    ) -> Result<(), CudaError> {
        attention_backward(device, dqkv, rows, dout, saved, heads)
    }
}
