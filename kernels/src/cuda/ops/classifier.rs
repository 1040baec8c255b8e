//! Softmax and cross-entropy of a chunk of rows, loss and gradient in one pass.

use super::{count, eights};
use crate::cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice};

pub(super) static MODULE: Module = Module { name: "classifier", ptx: include_str!("../../../ptx/classifier.ptx") };
static NARROW: Kernel = Kernel { module: &MODULE, name: "classifier_1", threads: THREADS, shared_bytes: 128 };
static WIDE: Kernel = Kernel { module: &MODULE, name: "classifier_16", threads: THREADS, shared_bytes: 128 };

const THREADS: u32 = 512;
/// Maximum number of columns that one warp processes: eight loads per lane.
const NARROW_COLUMNS: u64 = 2048;

/// Target of an ignored row: -1, the `ignore_index` that nanoGPT passes to `torch.nn.functional.cross_entropy`.
pub const IGNORED: u32 = u32::MAX;

/// Computes each row's loss, and with `dloss` overwrites the logits with their gradient.
///
/// Shapes: `logits` (N, Vp), of which the first `v` columns are used, `targets` (N) → `losses` (N). Vp is a multiple of
/// 8. With `dloss`, the weight of each loss, `logits` (N, Vp) becomes (softmax - onehot) * dloss, and 0 in the padding.
/// A row with target [`IGNORED`] has loss and gradient 0; with another invalid target, NaN.
///
/// Numerics: f32; the gradient is rounded to bfloat16 once.
///
/// Twins: [`crate::reference::crossentropy::crossentropy_forward`] and
/// [`crate::reference::crossentropy::crossentropy_softmax_backward`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or the launch fails.
#[track_caller]
pub fn classifier(
    device: &Device,
    losses: Slice<f32>,
    logits: Slice<Bf16>,
    targets: Slice<u32>,
    v: u64,
    dloss: Option<f32>,
) -> Result<(), CudaError> {
    const OP: &str = "classifier";
    losses.expect(OP, "losses", targets.len())?;
    let n = count(OP, "the number of rows", targets.len())?;
    if n == 0 {
        return Ok(());
    }
    let padded = logits.len() / targets.len();
    logits.expect(OP, "logits", padded * targets.len())?;
    eights(OP, "the padded vocabulary", padded)?;
    if v == 0 || v > padded || padded > u64::from(u32::MAX / 2) {
        return Err(CudaError::Size { op: OP, what: "V", value: v, needed: "from 1 to the columns of a row" });
    }
    let (v, padded) = (count(OP, "V", v)?, count(OP, "the padded vocabulary", padded)?);
    let narrow = u64::from(padded) <= NARROW_COLUMNS;
    let (kernel, rows) = if narrow { (&NARROW, u64::from(THREADS) / 32) } else { (&WIDE, 1) };
    let grid = Grid::x(u64::from(n).div_ceil(rows))?;
    let (scale, with_gradient) = (dloss.unwrap_or(0.0), u32::from(dloss.is_some()));
    device.launch(kernel, grid, &[&losses, &logits, &targets, &n, &v, &padded, &scale, &with_gradient])
}
