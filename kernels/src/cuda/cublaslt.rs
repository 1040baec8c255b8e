//! Products by cuBLASLt, where the host has it: the library alone, without CUDA's runtime or compiler.
//!
//! The library adds a bias and a residual stream by itself. GELU it has only in the form with tanh, up to 5e-4 from the
//! exact one that models here have, so that GELU and its derivative are our kernels, after the product. What it has no
//! algorithm for is multiplied by our kernels too, and [`CublasLt::notes`] says so.
//!
//! Which algorithm a product is done with is chosen once for its shape, in the rehearsal before a run. With a folder to
//! keep the choice in, up to [`ALGORITHMS_MAX`] proposals are timed and the fastest is taken, in this run and in each
//! later one of the same card, driver and library. Without, nothing would make the next run choose alike, and a run has
//! to repeat itself bit by bit: the library's first proposal is taken, which is always the same. Algorithms whose sums
//! have no fixed order are not asked for, there is one stream, and the workspace is one place of one size; for that the
//! library promises the same bits on the same card (cuBLAS library, "Results reproducibility").

mod calls;
mod choose;
mod find;
mod shape;

pub use calls::ALGORITHMS_MAX;
pub use find::{Found, NEEDED, VARIABLE, Version};

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use headroom_shared::gpt::buffers::cuda::Multiplier;

use super::{
    Bf16, CudaError, Device, Slice,
    driver::Driver,
    libraries::{
        Absent,
        kept::{Kept, Key},
    },
    ops::{
        gelu::{gelu_backward, gelu_forward},
        matmul::sizes::Sizes,
    },
    products::{Own, Products},
};
use choose::Chosen;
use shape::{Shape, Slices, Which};

/// cuBLASLt on a card.
#[derive(Debug)]
pub struct CublasLt {
    found: Found,
    multiplier: Multiplier,
    /// Products come one after the other: they share the workspace.
    chosen: Mutex<Chosen>,
}

impl CublasLt {
    /// The library that [`VARIABLE`] names, else the first one in the usual places that can be used on this card. Choices
    /// are kept in the folder, where one is given.
    ///
    /// # Errors
    /// [`Absent`], of which [`Absent::is_error`] says whether a run may go on without.
    pub fn find(device: &Device, keep_in: Option<&Path>) -> Result<Self, Absent> {
        find::find(device).map(|found| Self::new(device, found, keep_in))
    }

    /// The library at a path; for tests, which cannot set a variable of their own process.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn at(device: &Device, library: &Path, keep_in: Option<&Path>) -> Result<Self, Absent> {
        find::named(device, library).map(|found| Self::new(device, found, keep_in))
    }

    fn new(device: &Device, (found, handle): (Found, calls::Handle), keep_in: Option<&Path>) -> Self {
        let multiplier = Multiplier::cublaslt(device.card().capability.major);
        // That there is a driver was seen when the library was taken.
        let driver = Driver::get().map_or(super::driver::NEEDED, Driver::version);
        let key = Key::new(device.card(), driver, ("cublaslt", found.version.0), multiplier.workspace_bytes());
        let chosen = Chosen::new(handle, keep_in.map(|folder| Kept::new(folder, key)));
        Self { found, multiplier, chosen: Mutex::new(chosen) }
    }

    /// Which library it is.
    #[must_use]
    pub fn found(&self) -> &Found {
        &self.found
    }

    fn chosen(&self) -> MutexGuard<'_, Chosen> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the library do a product; whether it did.
    #[track_caller]
    fn did(&self, device: &Device, which: Which, sizes: Sizes, slices: Slices) -> Result<bool, CudaError> {
        let Sizes { n, c, oc } = sizes;
        let shape = Shape { which, n: n.into(), c: c.into(), oc: oc.into() };
        // Where there are no rows there is nothing to multiply, which our kernels know.
        if n == 0 {
            return Ok(false);
        }
        self.chosen().multiply(device, shape, slices)
    }

    /// A linear layer, as far as the library does it.
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
        let which = if residual.is_some() { Which::Residual { has_bias } } else { Which::Forward { has_bias } };
        let slices = Slices {
            a: weight.address(),
            b: inp.address(),
            c: residual.unwrap_or(out).address(),
            out: out.address(),
            bias: bias.map(Slice::address),
        };
        self.did(device, which, sizes, slices)
    }

    /// The gradient of rows, as far as the library does it.
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
        self.did(device, Which::Rows, sizes, Slices { a, b, c: out, out, bias: None })
    }
}

impl Products for CublasLt {
    fn name(&self) -> String {
        self.found.to_string()
    }

    fn multiplier(&self) -> Multiplier {
        self.multiplier
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
        Own.forward(device, out, inp, weight, bias, c)
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
        Own.gelu_forward(device, gelu_out, out, inp, weight, bias, c)
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
        Own.residual_forward(device, out, inp, weight, bias, residual, c)
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
        Own.backward_inp(device, dinp, dout, weight, c)
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
        Own.gelu_backward_inp(device, dinp, dout, weight, pre, scratch, c)
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
        let which = Which::Weight { accumulates: accumulate };
        if self.did(device, which, sizes, Slices { a, b, c: out, out, bias: None })? {
            return Ok(());
        }
        Own.backward_weight(device, dweight, planes, dout, inp, c, accumulate)
    }
}
