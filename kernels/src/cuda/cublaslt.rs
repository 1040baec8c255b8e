//! GEMM backend on cuBLASLt, if the host has it. It needs only the library, not CUDA's runtime or compiler.
//!
//! The library's epilogues add a bias, and its `beta` adds the residual stream. Its GELU epilogue is the tanh form, up
//! to 5e-4 off the exact form of these models. GELU and its derivative are therefore separate built-in kernels after
//! the product. Built-in kernels also compute products that the library has no algorithm for, which [`CublasLt::notes`]
//! reports.
//!
//! The algorithm of a product is selected once per shape, in the rehearsal before a run. With a directory for storing
//! the selection, up to [`ALGORITHMS_MAX`] proposals are timed, and the fastest is used. Later runs on the same GPU,
//! driver and library use the stored selection. Without a directory the next run could not repeat the selection, and a
//! run must be reproducible bit for bit. Then the library's first proposal is used, which is always the same.
//!
//! Algorithms without a fixed order of summation are excluded, there is one stream, and the workspace has a fixed
//! address and size. Under these conditions the library guarantees the same bits on the same GPU (cuBLAS library,
//! "Results reproducibility").

mod calls;
mod choose;
mod find;
mod shape;

pub use calls::ALGORITHMS_MAX;
pub use find::{LoadedLibrary, NEEDED, VARIABLE, Version};

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use headroom_planner::gpt::buffers::cuda::GemmBackend;

use super::{
    Bf16, CudaError, Device, Slice,
    driver::Driver,
    gemm::{BuiltinKernels, Gemm},
    libraries::{
        LibraryError,
        algorithm_file::{AlgorithmFile, Key},
    },
    ops::{
        gelu::{gelu_backward, gelu_forward},
        matmul::sizes::Sizes,
    },
};
use choose::AlgorithmCache;
use shape::{GemmKind, Shape, Slices};

/// cuBLASLt on one GPU.
#[derive(Debug)]
pub struct CublasLt {
    found: LoadedLibrary,
    gemm_backend: GemmBackend,
    /// Selected algorithms. Products run one after the other, so they share the workspace.
    chosen: Mutex<AlgorithmCache>,
}

impl CublasLt {
    /// Loads the library that [`VARIABLE`] names, or else the first usable one found. The selected algorithms are
    /// stored in the directory `keep_in`, if given.
    ///
    /// # Errors
    /// [`LibraryError`]; [`LibraryError::is_error`] returns whether a run may continue without the library.
    pub fn find(device: &Device, keep_in: Option<&Path>) -> Result<Self, LibraryError> {
        find::find(device).map(|found| Self::new(device, found, keep_in))
    }

    /// Loads the library at a path; for tests, which cannot set an environment variable of their own process.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn at(device: &Device, library: &Path, keep_in: Option<&Path>) -> Result<Self, LibraryError> {
        find::named(device, library).map(|found| Self::new(device, found, keep_in))
    }

    fn new(device: &Device, (found, handle): (LoadedLibrary, calls::Handle), keep_in: Option<&Path>) -> Self {
        let gemm_backend = GemmBackend::cublaslt(device.gpu().capability);
        // The driver was already opened when the library was loaded.
        let driver = Driver::get().map_or(super::driver::NEEDED, Driver::version);
        let key = Key::new(device.gpu(), driver, ("cublaslt", found.version.0), gemm_backend.workspace_bytes());
        let chosen = AlgorithmCache::new(handle, keep_in.map(|folder| AlgorithmFile::new(folder, key)));
        Self { found, gemm_backend, chosen: Mutex::new(chosen) }
    }

    #[must_use]
    pub fn found(&self) -> &LoadedLibrary {
        &self.found
    }

    fn chosen(&self) -> MutexGuard<'_, AlgorithmCache> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes a product with the library; returns whether the library supports it.
    #[track_caller]
    fn did(&self, device: &Device, which: GemmKind, sizes: Sizes, slices: Slices) -> Result<bool, CudaError> {
        let Sizes { n, c, oc } = sizes;
        let shape = Shape { which, n: n.into(), c: c.into(), oc: oc.into() };
        // Without rows there is nothing to multiply, which the built-in kernels handle.
        if n == 0 {
            return Ok(false);
        }
        self.chosen().multiply(device, shape, slices)
    }

    /// Computes a linear layer with the library; returns whether the library supports it.
    #[track_caller]
    #[expect(clippy::too_many_arguments, reason = "those of the op")]
    fn did_forward(
        &self,
        op: &'static str,
        device: &Device,
        out: Slice<Bf16>,
        [inp, weight]: [Slice<Bf16>; 2],
        bias: Option<Slice<Bf16>>,
        residual: Option<Slice<Bf16>>,
        c: u64,
    ) -> Result<bool, CudaError> {
        let sizes = Sizes::of_forward(op, out, inp, weight, bias, c)?;
        if let Some(residual) = residual {
            residual.expect(op, "residual", out.len())?;
        }
        let has_bias = bias.is_some();
        let which = if residual.is_some() { GemmKind::Residual { has_bias } } else { GemmKind::Forward { has_bias } };
        let slices = Slices {
            a: weight.address(),
            b: inp.address(),
            c: residual.unwrap_or(out).address(),
            out: out.address(),
            bias: bias.map(Slice::address),
        };
        self.did(device, which, sizes, slices)
    }

    /// Computes the gradient of a linear layer's input with the library; returns whether the library supports it.
    #[track_caller]
    fn did_rows(
        &self,
        op: &'static str,
        device: &Device,
        dinp: Slice<Bf16>,
        dout: Slice<Bf16>,
        weight: Slice<Bf16>,
        c: u64,
    ) -> Result<bool, CudaError> {
        let sizes = Sizes::new(op, dinp.len(), weight.len(), c)?;
        sizes.check(op, ("dinp", dinp), ("dout", dout))?;
        let (a, b, out) = (weight.address(), dout.address(), dinp.address());
        self.did(device, GemmKind::Rows, sizes, Slices { a, b, c: out, out, bias: None })
    }
}

impl Gemm for CublasLt {
    fn name(&self) -> String {
        self.found.to_string()
    }

    fn gemm_backend(&self) -> GemmBackend {
        self.gemm_backend
    }

    fn begin(&mut self, workspace: Slice<u8>) {
        self.chosen().begin(workspace);
    }

    fn rehearses(&self) -> bool {
        true
    }

    fn settle(&mut self) {
        self.chosen().settle();
    }

    fn notes(&self) -> Vec<String> {
        self.chosen().notes().to_vec()
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
        if self.did_forward("matmul_forward", device, out, [inp, weight], bias, None, c)? {
            return Ok(());
        }
        BuiltinKernels.forward(device, out, inp, weight, bias, c)
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
        const OP: &str = "matmul_gelu_forward";
        gelu_out.expect(OP, "gelu_out", out.len())?;
        if self.did_forward(OP, device, out, [inp, weight], bias, None, c)? {
            return gelu_forward(device, gelu_out, out);
        }
        BuiltinKernels.gelu_forward(device, gelu_out, out, inp, weight, bias, c)
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
        if self.did_forward("matmul_residual_forward", device, out, [inp, weight], bias, Some(residual), c)? {
            return Ok(());
        }
        BuiltinKernels.residual_forward(device, out, inp, weight, bias, residual, c)
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
        if self.did_rows("matmul_backward_inp", device, dinp, dout, weight, c)? {
            return Ok(());
        }
        BuiltinKernels.backward_inp(device, dinp, dout, weight, c)
    }

    #[track_caller]
    fn gelu_backward_inp(
        &self,
        device: &Device,
        dinp: Slice<Bf16>,
        dout: Slice<Bf16>,
        weight: Slice<Bf16>,
        pre: Slice<Bf16>,
        scratch: Slice<Bf16>,
        c: u64,
    ) -> Result<(), CudaError> {
        const OP: &str = "matmul_gelu_backward_inp";
        pre.expect(OP, "pre", dinp.len())?;
        scratch.expect(OP, "scratch", dinp.len())?;
        if self.did_rows(OP, device, scratch, dout, weight, c)? {
            return gelu_backward(device, dinp, scratch, pre);
        }
        BuiltinKernels.gelu_backward_inp(device, dinp, dout, weight, pre, scratch, c)
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
        const OP: &str = "matmul_backward_weight";
        let sizes = Sizes::new(OP, inp.len(), dweight.len(), c)?;
        sizes.check(OP, ("inp", inp), ("dout", dout))?;
        let (a, b, out) = (inp.address(), dout.address(), dweight.address());
        let which = GemmKind::Weight { accumulates: accumulate };
        if self.did(device, which, sizes, Slices { a, b, c: out, out, bias: None })? {
            return Ok(());
        }
        BuiltinKernels.backward_weight(device, dweight, planes, dout, inp, c, accumulate)
    }
}
