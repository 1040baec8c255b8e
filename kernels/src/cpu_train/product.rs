//! Matrix products, divided into one piece per thread.

use std::time::{Duration, Instant};

use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;

use super::thread_pool::{DisjointSlice, ThreadPool};

/// A matrix in a slice: element (i, j) is at `i * row + j * column`.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    /// A slice that contains the elements.
    pub data: &'a [f32],
    pub rows: usize,
    /// The number of columns.
    pub cols: usize,
    /// The stride from a row to the next, in elements.
    pub row: usize,
    /// The stride from a column to the next, in elements.
    pub column: usize,
}

impl<'a> Mat<'a> {
    /// A contiguous row-major matrix.
    #[inline]
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self { data, rows, cols, row: cols, column: 1 }
    }

    /// Rows of `cols` elements that start every `row` elements.
    #[inline]
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row: usize) -> Self {
        Self { data, rows, cols, row, column: 1 }
    }

    /// The transposed matrix.
    #[inline]
    pub fn transposed(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row: self.column, column: self.row, ..self }
    }

    fn check(&self) {
        let last = self.rows.saturating_sub(1) * self.row + self.cols.saturating_sub(1) * self.column;
        assert!(self.rows == 0 || self.cols == 0 || last < self.data.len(), "a matrix lies in its slice");
    }

    fn rows_from(self, start: usize, rows: usize) -> Self {
        Self { data: &self.data[start * self.row..], rows, ..self }
    }
}

/// The treatment of the result's previous contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMode {
    /// Overwrite them.
    Fresh,
    /// Add the product to them.
    Sum,
}

/// Computes `dst` = scale * `lhs` x `rhs`, or adds the product to `dst`, on the calling thread.
///
/// Shapes: `lhs` (M, K), `rhs` (K, N) → `dst` (M, N), row-major.
///
/// # Panics
/// If shapes disagree, or a matrix exceeds its slice.
pub fn product_here(dst: &mut [f32], lhs: Mat<'_>, rhs: Mat<'_>, into: OutputMode, scale: f32) {
    let width = rhs.cols;
    assert!(dst.len() >= lhs.rows * width, "the result has room");
    // SAFETY: dst is a contiguous (M, N) matrix, checked above.
    unsafe { raw(dst.as_mut_ptr(), width, lhs, rhs, into, scale) }
}

/// # Safety
/// `dst` is the start of M rows of N elements with a stride of `row` elements, which no other thread accesses
/// meanwhile.
unsafe fn raw(dst: *mut f32, row: usize, lhs: Mat<'_>, rhs: Mat<'_>, into: OutputMode, scale: f32) {
    lhs.check();
    rhs.check();
    let (m, k, n) = (lhs.rows, lhs.cols, rhs.cols);
    assert_eq!(k, rhs.rows, "lhs is (M, K) and rhs (K, N)");
    // SAFETY: both operands are within their slices, checked above; dst by the caller's promise. Strides fit isize, as
    // slices do. The `gemm` kernels expect column-major matrices, so the transposed product is passed.
    unsafe {
        get_gemm_fn()(
            n,
            m,
            k,
            dst,
            row.cast_signed(),
            1,
            into == OutputMode::Sum,
            rhs.data.as_ptr(),
            rhs.row.cast_signed(),
            rhs.column.cast_signed(),
            lhs.data.as_ptr(),
            lhs.row.cast_signed(),
            lhs.column.cast_signed(),
            1.0,
            scale,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// A product that several threads compute: `dst` = `lhs` x `rhs`, or that added to `dst`.
///
/// Shapes: `lhs` (M, K), `rhs` (K, N) → `dst` (M, N), row-major.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    dst: DisjointSlice<'a>,
    lhs: Mat<'a>,
    rhs: Mat<'a>,
    into: OutputMode,
}

/// Pieces start at multiples of this number of rows or columns, the width of a GEMM kernel.
const GRAIN: usize = 32;

impl<'a> Product<'a> {
    /// A product that is not computed yet.
    ///
    /// # Panics
    /// If the result does not fit `dst`.
    pub fn new(dst: &'a mut [f32], lhs: Mat<'a>, rhs: Mat<'a>, into: OutputMode) -> Self {
        assert!(dst.len() >= lhs.rows * rhs.cols, "the result has room");
        Self { dst: DisjointSlice::new(dst), lhs, rhs, into }
    }

    /// Computes one of `pieces` pieces, which divide the longer side of the result.
    ///
    /// # Safety
    /// No other thread may compute this piece, or read or write its part of the result, meanwhile.
    ///
    /// # Panics
    /// If shapes disagree, or a matrix exceeds its slice.
    pub unsafe fn piece(&self, piece: usize, pieces: usize) {
        let Self { lhs, rhs, .. } = *self;
        let (m, n) = (lhs.rows, rhs.cols);
        let longer = m.max(n);
        let len = longer.div_ceil(pieces).next_multiple_of(GRAIN);
        let start = piece * len;
        if start >= longer {
            return;
        }
        let len = len.min(longer - start);
        let (lhs, rhs, at, reach) = if m >= n {
            (lhs.rows_from(start, len), rhs, start * n, len * n)
        } else {
            (lhs, rhs.transposed().rows_from(start, len).transposed(), start, (m - 1) * n + len)
        };
        // SAFETY: pieces are disjoint rows or columns, and the caller owns this one.
        unsafe { raw(self.dst.start(at, reach), n, lhs, rhs, self.into, 1.0) };
    }
}

/// A product of fewer multiplications runs on one thread, as synchronisation would take longer.
const WORTH_SHARING: usize = 1 << 17;

/// Computes [`product_here`] with scale 1 on all threads of the pool.
///
/// # Panics
/// As for [`product_here`].
pub fn product(thread_pool: &ThreadPool, dst: &mut [f32], lhs: Mat<'_>, rhs: Mat<'_>, into: OutputMode) {
    let pieces = if lhs.rows * lhs.cols * rhs.cols < WORTH_SHARING { 1 } else { thread_pool.threads() };
    let product = Product::new(dst, lhs, rhs, into);
    // SAFETY: every piece is computed once.
    thread_pool.for_each(pieces, |piece| unsafe { product.piece(piece, pieces) });
}

/// Rows and columns of the matrices that [`gemm_rate`] multiplies.
pub const GEMM_SIDE: usize = 1024;

/// Bytes that [`gemm_rate`] allocates: one matrix that all threads use as both operands, and each thread's result.
#[must_use]
pub const fn gemm_rate_bytes(threads: usize) -> u64 {
    (GEMM_SIDE * GEMM_SIDE * size_of::<f32>()) as u64 * (threads as u64 + 1)
}

/// The rate of large matrix products on these threads, in FLOP per second: the baseline of a trainer's speed.
///
/// Shapes: (1024, 1024, 1024) per thread, repeated for about `time`. The result is from the median round.
#[must_use]
pub fn gemm_rate(thread_pool: &ThreadPool, time: Duration) -> f64 {
    const SIDE: usize = GEMM_SIDE;
    let operand = vec![0.5_f32; SIDE * SIDE];
    let mut results = vec![0.0_f32; SIDE * SIDE * thread_pool.threads()];
    let mut seconds = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time || seconds.len() < 3 {
        let round = Instant::now();
        thread_pool.for_each_piece(&mut results, SIDE * SIDE, |_, result| {
            let operand = Mat::new(&operand, SIDE, SIDE);
            product_here(result, operand, operand.transposed(), OutputMode::Fresh, 1.0);
        });
        seconds.push(round.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    2.0 * (SIDE * SIDE * SIDE * thread_pool.threads()) as f64 / seconds[seconds.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{reference::RealNumber, rng::Stream};

    fn naive(lhs: Mat<'_>, rhs: Mat<'_>) -> Vec<f32> {
        let at = |mat: &Mat<'_>, i: usize, j: usize| mat.data[i * mat.row + j * mat.column];
        (0..lhs.rows * rhs.cols)
            .map(|ij| (0..lhs.cols).map(|k| at(&lhs, ij / rhs.cols, k) * at(&rhs, k, ij % rhs.cols)).sum())
            .collect()
    }

    #[test]
    fn pieces_make_the_whole_product() {
        let mut stream = Stream::new(5, 5);
        let thread_pool = ThreadPool::new(3).expect("threads");
        for (m, k, n) in [(1, 1, 1), (7, 5, 3), (300, 64, 130), (67, 129, 500), (1, 200, 1000)] {
            let mut random = |len: usize| (0..len).map(|_| f32::of(stream.normal())).collect::<Vec<_>>();
            let (a, b) = (random(m * k), random(k * n));
            for (lhs, rhs) in [
                (Mat::new(&a, m, k), Mat::new(&b, k, n)),
                (Mat::new(&a, k, m).transposed(), Mat::new(&b, n, k).transposed()),
            ] {
                let want = naive(lhs, rhs);
                let mut got = vec![1.0; m * n];
                product(&thread_pool, &mut got, lhs, rhs, OutputMode::Fresh);
                let far =
                    |got: &[f32], plus: f32| got.iter().zip(&want).any(|(got, want)| (got - want - plus).abs() >= 1e-3);
                assert!(got.iter().all(|x| x.is_finite()) && !far(&got, 0.0), "({m}, {k}, {n})");
                product(&thread_pool, &mut got, lhs, rhs, OutputMode::Sum);
                assert!(got.iter().zip(&want).all(|(got, want)| (got - 2.0 * want).abs() < 1e-3), "({m}, {k}, {n})");
                assert!(far(&got, 0.5), "the comparison can fail");
            }
        }
    }
}
