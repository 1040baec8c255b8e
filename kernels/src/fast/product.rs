//! Matrix products, a piece a thread.

use std::time::{Duration, Instant};

use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;

use super::team::{Disjoint, Team};

/// A matrix in a slice: element (i, j) is at i * row + j * column.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    /// Its elements, perhaps among others.
    pub data: &'a [f32],
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Elements from a row to the next.
    pub row: usize,
    /// Elements from a column to the next.
    pub column: usize,
}

impl<'a> Mat<'a> {
    /// Rows one after the other.
    #[inline]
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self { data, rows, cols, row: cols, column: 1 }
    }

    /// Rows of `cols` elements that start every `row` elements.
    #[inline]
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row: usize) -> Self {
        Self { data, rows, cols, row, column: 1 }
    }

    /// Rows and columns change places.
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

/// What becomes of what stood in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// It is written over.
    Fresh,
    /// The product is added to it.
    Sum,
}

/// `dst` = scale * `lhs` x `rhs`, or that added to it; on the thread that asks.
///
/// Shapes: `lhs` (M, K), `rhs` (K, N) → `dst` (M, N), rows one after the other.
///
/// # Panics
/// Shapes disagree, or a matrix leaves its slice.
pub fn product_here(dst: &mut [f32], lhs: Mat<'_>, rhs: Mat<'_>, into: Into, scale: f32) {
    let width = rhs.cols;
    assert!(dst.len() >= lhs.rows * width, "the result has room");
    // SAFETY: dst is (M, N) in one piece, checked above.
    unsafe { raw(dst.as_mut_ptr(), width, lhs, rhs, into, scale) }
}

/// # Safety
/// `dst` is the start of M rows of N elements that start every `row` elements, which nobody else uses meanwhile.
unsafe fn raw(dst: *mut f32, row: usize, lhs: Mat<'_>, rhs: Mat<'_>, into: Into, scale: f32) {
    lhs.check();
    rhs.check();
    let (m, k, n) = (lhs.rows, lhs.cols, rhs.cols);
    assert_eq!(k, rhs.rows, "lhs is (M, K) and rhs (K, N)");
    // SAFETY: both operands lie in their slices, checked above; dst by the caller's promise. Strides fit isize, as
    // slices do. Its kernels want columns one after the other, so that they are given the transposed product.
    unsafe {
        get_gemm_fn()(
            n,
            m,
            k,
            dst,
            row.cast_signed(),
            1,
            into == Into::Sum,
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

/// A product to be computed by several threads: `dst` = `lhs` x `rhs`, or that added to it.
///
/// Shapes: `lhs` (M, K), `rhs` (K, N) → `dst` (M, N), rows one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    dst: Disjoint<'a>,
    lhs: Mat<'a>,
    rhs: Mat<'a>,
    into: Into,
}

/// Pieces start at multiples of this many rows or columns, a kernel's width.
const GRAIN: usize = 32;

impl<'a> Product<'a> {
    /// A product that is not computed yet.
    ///
    /// # Panics
    /// The result has no room.
    pub fn new(dst: &'a mut [f32], lhs: Mat<'a>, rhs: Mat<'a>, into: Into) -> Self {
        assert!(dst.len() >= lhs.rows * rhs.cols, "the result has room");
        Self { dst: Disjoint::new(dst), lhs, rhs, into }
    }

    /// Computes a piece of so many, cut along the longer side of the result.
    ///
    /// # Safety
    /// Nobody else computes this piece meanwhile, or reads or writes the result's part of it.
    ///
    /// # Panics
    /// Shapes disagree, or a matrix leaves its slice.
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
        // SAFETY: pieces are rows or columns of their own, and this one is the caller's.
        unsafe { raw(self.dst.start(at, reach), n, lhs, rhs, self.into, 1.0) };
    }
}

/// Below this many multiplications a product is one thread's: telling another would take longer.
const WORTH_SHARING: usize = 1 << 17;

/// [`product_here`] with the scale 1, on the team's threads.
///
/// # Panics
/// As [`product_here`].
pub fn product(team: &Team, dst: &mut [f32], lhs: Mat<'_>, rhs: Mat<'_>, into: Into) {
    let pieces = if lhs.rows * lhs.cols * rhs.cols < WORTH_SHARING { 1 } else { team.threads() };
    let product = Product::new(dst, lhs, rhs, into);
    // SAFETY: every piece once.
    team.for_each(pieces, |piece| unsafe { product.piece(piece, pieces) });
}

/// Rows and columns of the matrices that [`gemm_rate`] multiplies.
pub const GEMM_SIDE: usize = 1024;

/// Bytes that [`gemm_rate`] takes: a matrix that all threads read twice, and each thread's result.
#[must_use]
pub const fn gemm_rate_bytes(threads: usize) -> u64 {
    (GEMM_SIDE * GEMM_SIDE * size_of::<f32>()) as u64 * (threads as u64 + 1)
}

/// How fast this machine multiplies large matrices on these threads, in operations a second: what a trainer is held
/// against.
///
/// Shapes: (1024, 1024, 1024) a thread, for about `time`; the median of its rounds.
#[must_use]
pub fn gemm_rate(team: &Team, time: Duration) -> f64 {
    const SIDE: usize = GEMM_SIDE;
    let operand = vec![0.5_f32; SIDE * SIDE];
    let mut results = vec![0.0_f32; SIDE * SIDE * team.threads()];
    let mut seconds = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time || seconds.len() < 3 {
        let round = Instant::now();
        team.for_each_piece(&mut results, SIDE * SIDE, |_, result| {
            let operand = Mat::new(&operand, SIDE, SIDE);
            product_here(result, operand, operand.transposed(), Into::Fresh, 1.0);
        });
        seconds.push(round.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    2.0 * (SIDE * SIDE * SIDE * team.threads()) as f64 / seconds[seconds.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cpu::Real, rng::Stream};

    fn naive(lhs: Mat<'_>, rhs: Mat<'_>) -> Vec<f32> {
        let at = |mat: &Mat<'_>, i: usize, j: usize| mat.data[i * mat.row + j * mat.column];
        (0..lhs.rows * rhs.cols)
            .map(|ij| (0..lhs.cols).map(|k| at(&lhs, ij / rhs.cols, k) * at(&rhs, k, ij % rhs.cols)).sum())
            .collect()
    }

    #[test]
    fn pieces_make_the_whole_product() {
        let mut stream = Stream::new(5, 5);
        let team = Team::new(3).expect("threads");
        for (m, k, n) in [(1, 1, 1), (7, 5, 3), (300, 64, 130), (67, 129, 500), (1, 200, 1000)] {
            let mut random = |len: usize| (0..len).map(|_| f32::of(stream.normal())).collect::<Vec<_>>();
            let (a, b) = (random(m * k), random(k * n));
            for (lhs, rhs) in [
                (Mat::new(&a, m, k), Mat::new(&b, k, n)),
                (Mat::new(&a, k, m).transposed(), Mat::new(&b, n, k).transposed()),
            ] {
                let want = naive(lhs, rhs);
                let mut got = vec![1.0; m * n];
                product(&team, &mut got, lhs, rhs, Into::Fresh);
                let far =
                    |got: &[f32], plus: f32| got.iter().zip(&want).any(|(got, want)| (got - want - plus).abs() >= 1e-3);
                assert!(got.iter().all(|x| x.is_finite()) && !far(&got, 0.0), "({m}, {k}, {n})");
                product(&team, &mut got, lhs, rhs, Into::Sum);
                assert!(got.iter().zip(&want).all(|(got, want)| (got - 2.0 * want).abs() < 1e-3), "({m}, {k}, {n})");
                assert!(far(&got, 0.5), "the comparison can fail");
            }
        }
    }
}
