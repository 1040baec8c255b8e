//! Who multiplies matrices: our own kernels, or a library of the host's where there is one.
//!
//! Both take the same tensors and leave the same results, up to the order of their sums; each keeps its own order from
//! launch to launch, so that a run repeats itself bit by bit with either.

use std::fmt;

use headroom_shared::gpt::buffers::cuda::Multiplier;

use super::{Bf16, CudaError, Device, Slice, ops::matmul};

/// The products of linear layers, forward and backward. Sizes, shapes and errors are those of the functions of the same
/// names in [`super::ops::matmul`].
pub trait Products: fmt::Debug + Send + Sync {
    /// Who it is, for the person who starts a run.
    fn name(&self) -> String;

    /// What a run's plan is made with, so that it has the room that this needs between the launches of a product.
    fn multiplier(&self) -> Multiplier {
        Multiplier::Own
    }

    /// Takes that room, before anything is multiplied. What is launched later uses it one product after the other.
    fn begin(&mut self, workspace: Slice<u8>) {
        let _ = workspace;
    }

    /// Whether it wants every product of a run once before the run begins, with results that nobody needs, so that it
    /// can choose how each is done.
    fn rehearses(&self) -> bool {
        false
    }

    /// The rehearsal is over: what was chosen stays, in this run and in one that resumes it.
    fn settle(&mut self) {}

    /// What a person should know of how products are done, each said once.
    fn notes(&self) -> Vec<String> {
        vec![]
    }

    /// `out` = `inp` x `weight`ᵀ + `bias`.
    ///
    /// # Errors
    /// As [`matmul::matmul_forward`].
    fn forward(
        &self,
        device: &Device,
        out: Slice<Bf16>,
        inp: Slice<Bf16>,
        weight: Slice<Bf16>,
        bias: Option<Slice<Bf16>>,
        c: u64,
    ) -> Result<(), CudaError>;

    /// The same, and GELU of it.
    ///
    /// # Errors
    /// As [`matmul::matmul_gelu_forward`].
    #[expect(clippy::too_many_arguments, reason = "the op's own")]
    fn gelu_forward(
        &self,
        device: &Device,
        gelu_out: Slice<Bf16>,
        out: Slice<Bf16>,
        inp: Slice<Bf16>,
        weight: Slice<Bf16>,
        bias: Option<Slice<Bf16>>,
        c: u64,
    ) -> Result<(), CudaError>;

    /// The same, added to `residual`, which `out` may be itself.
    ///
    /// # Errors
    /// As [`matmul::matmul_residual_forward`].
    #[expect(clippy::too_many_arguments, reason = "the op's own")]
    fn residual_forward(
        &self,
        device: &Device,
        out: Slice<Bf16>,
        inp: Slice<Bf16>,
        weight: Slice<Bf16>,
        bias: Option<Slice<Bf16>>,
        residual: Slice<Bf16>,
        c: u64,
    ) -> Result<(), CudaError>;

    /// `dinp` = `dout` x `weight`.
    ///
    /// # Errors
    /// As [`matmul::matmul_backward_inp`].
    fn backward_inp(
        &self,
        device: &Device,
        dinp: Slice<Bf16>,
        dout: Slice<Bf16>,
        weight: Slice<Bf16>,
        c: u64,
    ) -> Result<(), CudaError>;

    /// The same times GELU's derivative at `pre`, which `dinp` may be itself. `scratch` is as long as both, overlaps
    /// nothing, and holds anything afterwards.
    ///
    /// # Errors
    /// As [`matmul::matmul_gelu_backward_inp`].
    #[expect(clippy::too_many_arguments, reason = "the op's own, and room")]
    fn gelu_backward_inp(
        &self,
        device: &Device,
        dinp: Slice<Bf16>,
        dout: Slice<Bf16>,
        weight: Slice<Bf16>,
        pre: Slice<Bf16>,
        scratch: Slice<Bf16>,
        c: u64,
    ) -> Result<(), CudaError>;

    /// `dweight` = `dout`ᵀ x `inp`, added to what is there where `accumulate` says so; `planes` is room in between.
    ///
    /// # Errors
    /// As [`matmul::matmul_backward_weight`].
    #[expect(clippy::too_many_arguments, reason = "the op's own")]
    fn backward_weight(
        &self,
        device: &Device,
        dweight: Slice<f32>,
        planes: Slice<f32>,
        dout: Slice<Bf16>,
        inp: Slice<Bf16>,
        c: u64,
        accumulate: bool,
    ) -> Result<(), CudaError>;
}

/// Our own kernels, which every card has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own;

impl Products for Own {
    fn name(&self) -> String {
        "own kernels".to_owned()
    }

    #[track_caller]
    fn forward(
        &self,
        device: &Device,
        out: Slice<Bf16>,
        inp: Slice<Bf16>,
        weight: Slice<Bf16>,
        bias: Option<Slice<Bf16>>,
        c: u64,
    ) -> Result<(), CudaError> {
        matmul::matmul_forward(device, out, inp, weight, bias, c)
    }

    #[track_caller]
    fn gelu_forward(
        &self,
        device: &Device,
        gelu_out: Slice<Bf16>,
        out: Slice<Bf16>,
        inp: Slice<Bf16>,
        weight: Slice<Bf16>,
        bias: Option<Slice<Bf16>>,
        c: u64,
    ) -> Result<(), CudaError> {
        matmul::matmul_gelu_forward(device, gelu_out, out, inp, weight, bias, c)
    }

    #[track_caller]
    fn residual_forward(
        &self,
        device: &Device,
        out: Slice<Bf16>,
        inp: Slice<Bf16>,
        weight: Slice<Bf16>,
        bias: Option<Slice<Bf16>>,
        residual: Slice<Bf16>,
        c: u64,
    ) -> Result<(), CudaError> {
        matmul::matmul_residual_forward(device, out, inp, weight, bias, residual, c)
    }

    #[track_caller]
    fn backward_inp(
        &self,
        device: &Device,
        dinp: Slice<Bf16>,
        dout: Slice<Bf16>,
        weight: Slice<Bf16>,
        c: u64,
    ) -> Result<(), CudaError> {
        matmul::matmul_backward_inp(device, dinp, dout, weight, c)
    }

    #[track_caller]
    fn gelu_backward_inp(
        &self,
        device: &Device,
        dinp: Slice<Bf16>,
        dout: Slice<Bf16>,
        weight: Slice<Bf16>,
        pre: Slice<Bf16>,
        _scratch: Slice<Bf16>,
        c: u64,
    ) -> Result<(), CudaError> {
        matmul::matmul_gelu_backward_inp(device, dinp, dout, weight, pre, c)
    }

    #[track_caller]
    fn backward_weight(
        &self,
        device: &Device,
        dweight: Slice<f32>,
        planes: Slice<f32>,
        dout: Slice<Bf16>,
        inp: Slice<Bf16>,
        c: u64,
        accumulate: bool,
    ) -> Result<(), CudaError> {
        matmul::matmul_backward_weight(device, dweight, planes, dout, inp, c, accumulate)
    }
}
