//! The gradient of a linear layer's bias.

use super::{count, eights, sum_planes::sum_planes};
use crate::cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice};

static MODULE: Module = Module { name: "bias_backward", ptx: include_str!("../../../ptx/bias_backward.ptx") };
static BACKWARD: Kernel = Kernel { module: &MODULE, name: "bias_backward", threads: 256, shared_bytes: 8192 };

/// Columns of a block.
const COLUMNS: u64 = 256;
/// Rows that are worth a block at least.
const ROWS: u64 = 64;
/// Blocks that are asked for: some for each multiprocessor of any card, and the same on every one, so that a sum's order
/// is, too.
const BLOCKS: u64 = 512;

const OP: &str = "bias_backward";

/// Elements of the room that parts of the sums take, for `n` rows of `oc` channels.
#[must_use]
pub const fn planes_elements(n: u64, oc: u64) -> u64 {
    n.div_ceil(split(n, oc)) * oc
}

/// Rows of a block.
const fn split(n: u64, oc: u64) -> u64 {
    let planes = BLOCKS / at_least_1(oc.div_ceil(COLUMNS));
    let most = at_least_1(n.div_ceil(ROWS));
    at_least_1(n.div_ceil(at_least_1(if planes < most { planes } else { most })))
}

const fn at_least_1(value: u64) -> u64 {
    if value == 0 { 1 } else { value }
}

/// The sum of each column, added to what is there where `accumulate` says so.
///
/// Shapes: `dout` (N, OC) → `dbias` (OC), with `planes` ([`planes_elements`]) in between; OC a multiple of 8.
/// Numerics: f32, in an order that N and OC alone decide.
/// Twin: [`crate::cpu::matmul::matmul_backward`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or a launch fails.
#[track_caller]
pub fn bias_backward(
    device: &Device,
    dbias: Slice<f32>,
    planes: Slice<f32>,
    dout: Slice<Bf16>,
    accumulate: bool,
) -> Result<(), CudaError> {
    let oc = dbias.len();
    if oc == 0 {
        return Err(CudaError::Size { op: OP, what: "OC", value: 0, needed: "at least 1" });
    }
    eights(OP, "OC", oc)?;
    let n = dout.len() / oc;
    dout.expect(OP, "dout", n * oc)?;
    planes.expect(OP, "planes", planes_elements(n, oc))?;
    if n == 0 {
        return if accumulate { Ok(()) } else { device.zero(dbias) };
    }
    let split = split(n, oc);
    let n_planes = n.div_ceil(split);
    let (rows, columns, split) = (count(OP, "N", n)?, count(OP, "OC", oc)?, count(OP, "a block's rows", split)?);
    device.launch(&BACKWARD, Grid::xy(oc.div_ceil(COLUMNS), n_planes)?, &[&planes, &dout, &rows, &columns, &split])?;
    sum_planes(device, dbias, planes, count(OP, "the number of planes", n_planes)?, accumulate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_shared_out_among_as_many_blocks_as_help() {
        // GPT-2's 64 x 1024 rows of 768 channels: 170 blocks of 386 rows for each of three stretches of columns.
        assert_eq!((split(65_536, 768), planes_elements(65_536, 768)), (386, 170 * 768));
        assert_eq!(split(10, 8), 10);
        assert_eq!(planes_elements(10, 8), 8);
        assert_eq!(planes_elements(0, 8), 0);
        // More columns than blocks: each has all rows.
        assert_eq!(planes_elements(1000, 256 * 600), 256 * 600);
    }
}
