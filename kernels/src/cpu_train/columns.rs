//! Sums over rows, per column: the gradients of biases and of layer norms' parameters.

use super::{math::vectorized, thread_pool::DisjointSlice};

/// Columns per task.
const COLUMNS: usize = 64;

/// Sums that are added to a vector's gradient: per column, the sum of `src` or of `src * times`.
///
/// Shapes: `src`, `times` (N, OC) → `dst` (OC).
#[derive(Clone, Copy, Debug)]
pub struct ColumnSums<'a> {
    dst: DisjointSlice<'a>,
    width: usize,
    src: &'a [f32],
    times: Option<&'a [f32]>,
}

impl<'a> ColumnSums<'a> {
    /// Sums over `src`, not yet computed.
    pub fn new(dst: &'a mut [f32], src: &'a [f32], times: Option<&'a [f32]>) -> Self {
        Self { width: dst.len(), dst: DisjointSlice::new(dst), src, times }
    }

    /// The number of pieces, each of up to `COLUMNS` columns.
    pub const fn pieces(&self) -> usize {
        self.width.div_ceil(COLUMNS)
    }

    /// Computes a piece and adds it to the result.
    ///
    /// # Safety
    /// No other thread may access this piece of the result meanwhile.
    pub unsafe fn piece(&self, piece: usize) {
        let start = piece * COLUMNS;
        let n = COLUMNS.min(self.width - start);
        // SAFETY: these columns belong to this piece only.
        let dst = unsafe { self.dst.part(start, n) };
        vectorized!({
            let mut sums = [0.0_f32; COLUMNS];
            let rows = self.src.chunks_exact(self.width).map(|row| &row[start..][..n]);
            match self.times {
                None => rows.for_each(|row| sums[..n].iter_mut().zip(row).for_each(|(sum, x)| *sum += x)),
                Some(times) => {
                    let times = times.chunks_exact(self.width).map(|row| &row[start..][..n]);
                    for (row, times) in rows.zip(times) {
                        sums[..n].iter_mut().zip(row.iter().zip(times)).for_each(|(sum, (x, y))| *sum += x * y);
                    }
                }
            }
            dst.iter_mut().zip(&sums).for_each(|(dst, sum)| *dst += sum);
        });
    }
}
