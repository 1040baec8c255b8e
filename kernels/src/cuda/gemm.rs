//! GEMM backends: built-in kernels, or cuBLASLt if the host has it.
//!
//! Both take the same tensors and compute the same results, up to the order of summation. Each backend sums in a fixed
//! order, so a run is reproducible bit for bit with either.

use std::fmt;

use headroom_planner::gpt::buffers::cuda::GemmBackend;

use super::{Bf16, CudaError, Device, Slice, ops::matmul};

/// The matrix products of linear layers, forward and backward. Sizes, shapes and errors are those of the functions of
/// the same names in [`super::ops::matmul`].
pub trait Gemm: fmt::Debug + Send + Sync {
    /// Name of the backend, for display.
    fn name(&self) -> String;

    /// The planner's name of the backend. A plan must be made for it, so that it includes the backend's workspace.
    fn gemm_backend(&self) -> GemmBackend {
        GemmBackend::BuiltinKernels
    }

    /// Sets the workspace, before the first product. Products run one after the other, so all of them use the same
    /// workspace.
    fn begin(&mut self, workspace: Slice<u8>) {
        let _ = workspace;
    }

    /// Whether every product of a run must be launched once before the run begins, with unused results, to select
    /// algorithms.
    fn rehearses(&self) -> bool {
        false
    }

    /// Ends the rehearsal: the selected algorithms are fixed for this run and for runs resumed from it.
    fn settle(&mut self) {}

    /// Messages for the user about the selected algorithms, without repetition.
    fn notes(&self) -> Vec<String> {
        vec![]
    }

    /// Computes `out` = `inp` x `weight`ᵀ + `bias`.
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

    /// Computes [`Self::forward`], and GELU of its result in `gelu_out`.
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

    /// Computes [`Self::forward`] plus `residual`, which may be `out` itself.
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

    /// Computes `dinp` = `dout` x `weight`.
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

    /// Computes [`Self::backward_inp`] times GELU's derivative at `pre`, which may be `dinp` itself. `scratch` has the
    /// length of both, overlaps no other tensor, and is overwritten.
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

    /// Computes `dweight` = `dout`ᵀ x `inp`, added to the old values if `accumulate`. `planes` is scratch memory.
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

/// Headroom's own kernels, available on every supported GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuiltinKernels;

impl Gemm for BuiltinKernels {
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
