//! Sizes of a product, checked once for every op, and its grid.

use headroom_planner::gpt::buffers::cuda::workspace::TILE;

use super::{count, eights};
use crate::cuda::{Argument, Bf16, CudaError, Device, Grid, Kernel, Slice};

/// Upper bound of N, C and OC. The kernels' 32-bit indices exceed a product's end by less than two tiles.
const SIDE_MAX: u64 = 1 << 31;

/// Sizes in the kernels' types.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct Sizes {
    pub n: u32,
    pub c: u32,
    pub oc: u32,
}

impl Sizes {
    /// Derives the sizes from the lengths of a tensor (N, C) and of the weight.
    pub(in crate::cuda) fn new(op: &'static str, rows_len: u64, weight_len: u64, c: u64) -> Result<Self, CudaError> {
        if c == 0 {
            return Err(CudaError::Size { op, what: "C", value: 0, needed: "at least 1" });
        }
        let (n, oc) = (rows_len / c, weight_len / c);
        for (what, value) in [("C", c), ("OC", oc)] {
            eights(op, what, value)?;
        }
        for (what, value) in [("N", n), ("C", c), ("OC", oc)] {
            if value > SIDE_MAX {
                return Err(CudaError::Size { op, what, value, needed: "at most 2^31" });
            }
        }
        if oc * c != weight_len {
            return Err(CudaError::Length { op, tensor: "weight", expected: oc * c, given: weight_len });
        }
        Ok(Self { n: count(op, "N", n)?, c: count(op, "C", c)?, oc: count(op, "OC", oc)? })
    }

    /// Derives the sizes of a linear layer and checks the lengths of its tensors.
    pub(in crate::cuda) fn of_forward(
        op: &'static str,
        out: Slice<Bf16>,
        inp: Slice<Bf16>,
        weight: Slice<Bf16>,
        bias: Option<Slice<Bf16>>,
        c: u64,
    ) -> Result<Self, CudaError> {
        let sizes = Self::new(op, inp.len(), weight.len(), c)?;
        sizes.check(op, ("inp", inp), ("out", out))?;
        if let Some(bias) = bias {
            bias.expect(op, "bias", u64::from(sizes.oc))?;
        }
        Ok(sizes)
    }

    /// Checks that one tensor is (N, C) and another (N, OC).
    pub(in crate::cuda) fn check(
        self,
        op: &'static str,
        (narrow_name, narrow): (&'static str, Slice<Bf16>),
        (wide_name, wide): (&'static str, Slice<Bf16>),
    ) -> Result<(), CudaError> {
        narrow.expect(op, narrow_name, u64::from(self.n) * u64::from(self.c))?;
        wide.expect(op, wide_name, u64::from(self.n) * u64::from(self.oc))
    }

    /// Launches a kernel for a product of N rows and `columns` columns; an empty product launches nothing.
    #[track_caller]
    pub(in crate::cuda) fn launch_rows(
        self,
        device: &Device,
        kernel: &Kernel,
        columns: u32,
        arguments: &[&dyn Argument],
    ) -> Result<(), CudaError> {
        let tiles = u64::from(self.n).div_ceil(TILE) * u64::from(columns).div_ceil(TILE);
        if tiles == 0 {
            return Ok(());
        }
        device.launch(kernel, Grid::x(tiles)?, arguments)
    }
}
