//! Who computes attention: our own kernels, or a library of the host's where there is one and a person wants it.
//!
//! Both take the same tensors and leave the same results, up to the order of their sums; each keeps its own order from
//! launch to launch, so that a run repeats itself bit by bit with either.

use std::fmt;

use headroom_shared::gpt::buffers::cuda::Attender;

use super::{
    Bf16, CudaError, Device, Own, Slice,
    ops::{
        attention_backward::{Saved, attention_backward},
        attention_forward::attention_forward,
    },
};
use crate::cpu::attention_forward::Heads;

/// Causal attention, forward and backward. Sizes, shapes and errors are those of the functions of the same names in
/// [`super::ops`].
pub trait Attention: fmt::Debug + Send + Sync {
    /// Who it is, for the person who starts a run.
    fn name(&self) -> String;

    /// What a run's plan is made with, so that it has the room that this needs.
    fn attender(&self) -> Attender {
        Attender::Own
    }

    /// Chooses how it computes, once, before a run begins; what the trial's tensors hold is lost.
    ///
    /// # Errors
    /// The card fails. That a library does not do it is none: it is noted, and our kernels do.
    fn settle(&mut self, device: &Device, trial: Trial) -> Result<(), CudaError> {
        let _ = (device, trial);
        Ok(())
    }

    /// What a person should know of how it is done, each said once.
    fn notes(&self) -> Vec<String> {
        vec![]
    }

    /// The result of every head.
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

    /// Its gradient.
    ///
    /// # Errors
    /// As [`attention_backward`].
    fn backward(
        &self,
        device: &Device,
        dqkv: Slice<Bf16>,
        rows: Slice<f32>,
        dout: Slice<Bf16>,
        saved: Saved,
        heads: Heads,
    ) -> Result<(), CudaError>;
}

/// Tensors of a block, of the sizes of the run and all there at once, to be tried on.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// What forward reads and leaves.
    pub saved: Saved,
    /// What backward reads besides.
    pub dout: Slice<Bf16>,
    /// What it leaves.
    pub dqkv: Slice<Bf16>,
    /// What it has in between.
    pub rows: Slice<f32>,
    /// Without dropout.
    pub heads: Heads,
    /// Whether the run drops from attention's weights.
    pub drops: bool,
    /// Room of forward, and of backward, from now on.
    pub rooms: [Slice<u8>; 2],
}

impl Attention for Own {
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
        saved: Saved,
        heads: Heads,
    ) -> Result<(), CudaError> {
        attention_backward(device, dqkv, rows, dout, saved, heads)
    }
}
