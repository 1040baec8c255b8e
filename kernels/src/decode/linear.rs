//! Linear layers over one or several tokens, for which each row of the matrix is read once.

use super::int16;
use crate::simd::{Op, Simd};

/// The memory layout of a matrix (OC, C): the order in which the kernel for one token reads it.
///
/// Rows form groups of [`GROUP`]. A group holds the first `chunk` elements of each of its rows, then the next of each,
/// and last the remainder of each row. Without groups, eight rows would be eight streams that change after every row,
/// too often for hardware prefetchers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packing {
    /// Input channels, C.
    pub(super) c: usize,
    /// Output channels, OC.
    pub(super) oc: usize,
    /// Elements per step of a product: twice the lanes of a vector.
    pub(super) chunk: usize,
}

/// Rows per group; the last group may have fewer. Chosen so that independent sums hide the latency of an addition.
pub(super) const GROUP: usize = 8;

impl Packing {
    /// The number of a row's elements in whole chunks.
    #[inline(always)]
    const fn whole(self) -> usize {
        self.c - self.c % self.chunk
    }

    /// The offset and the number of rows of a row's group.
    #[inline(always)]
    const fn group(self, row: usize) -> (usize, usize) {
        let first = row - row % GROUP;
        (first * self.c, if self.oc - first < GROUP { self.oc - first } else { GROUP })
    }

    /// The ranges of a row's pieces in memory, in order. Each starts at an even element.
    pub(super) fn pieces(self, row: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let Self { c, chunk, .. } = self;
        let ((start, rows), whole) = (self.group(row), self.whole());
        let rest = start + rows * whole + row % GROUP * (c - whole);
        let chunks = (0..whole / chunk).map(move |k| start + (k * rows + row % GROUP) * chunk);
        chunks.map(move |at| at..at + chunk).chain(std::iter::once(rest..rest + c - whole))
    }
}

/// A packed matrix in one of the storage types.
pub(super) trait Matrix: Copy {
    /// The element type.
    type Element;

    fn elements(&self) -> &[Self::Element];
    /// The factor of a row's products.
    fn scale(&self, row: usize) -> f32;
    /// Loads `2 * LANES` weights, in the order of the activations.
    ///
    /// # Safety
    /// `2 * LANES` elements must be readable at `from`.
    unsafe fn load<S: Simd>(simd: S, from: *const Self::Element) -> (S::F, S::F);
    /// One weight of a row, without the row's scale.
    fn weight(row: &[Self::Element], i: usize) -> f32;
}

/// A matrix in f32.
#[derive(Clone, Copy, Debug)]
pub(super) struct F32<'a>(pub(super) &'a [f32]);

impl Matrix for F32<'_> {
    type Element = f32;

    #[inline(always)]
    fn elements(&self) -> &[f32] {
        self.0
    }
    #[inline(always)]
    fn scale(&self, _row: usize) -> f32 {
        1.0
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, from: *const f32) -> (S::F, S::F) {
        // SAFETY: promised by the caller.
        unsafe { (simd.load(from), simd.load(from.add(S::LANES))) }
    }
    #[inline(always)]
    fn weight(row: &[f32], i: usize) -> f32 {
        row[i]
    }
}

/// A matrix of 16-bit integers with a scale per row, for activations reordered by [`Deinterleave`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Int16<'a> {
    pub(super) ints: &'a [i16],
    pub(super) scales: &'a [f32],
}

impl Matrix for Int16<'_> {
    type Element = i16;

    #[inline(always)]
    fn elements(&self) -> &[i16] {
        self.ints
    }
    #[inline(always)]
    fn scale(&self, row: usize) -> f32 {
        self.scales[row]
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, from: *const i16) -> (S::F, S::F) {
        // SAFETY: promised by the caller.
        unsafe { simd.load_pairs(from) }
    }
    #[inline(always)]
    fn weight(row: &[i16], i: usize) -> f32 {
        int16::weight(row, i)
    }
}

/// A linear layer.
///
/// Shapes: `inp` (N, C), `matrix` (OC, C), optional `bias` (OC) → `out` (N, OC), accumulated if `adds`.
/// Numerics: f32. The order of summation does not depend on the other rows and tokens. Logits are therefore
/// bit-identical for a prompt in pieces and token by token.
/// Reference: [`crate::reference::matmul`].
#[derive(Debug)]
pub(super) struct Linear<'a, M> {
    pub(super) out: &'a mut [f32],
    pub(super) inp: &'a [f32],
    pub(super) matrix: M,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) packing: Packing,
    /// Whether the result is added to `out`.
    pub(super) adds: bool,
}

/// Rows and tokens per tile if there are several, chosen for simd128's 16 registers.
const ROWS: usize = 2;
const TOKENS: usize = 4;

impl<M: Matrix> Op for Linear<'_, M> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Packing { c, oc, chunk } = self.packing;
        let n = self.inp.len() / c;
        assert_eq!(chunk, 2 * S::LANES, "the matrix is packed for these vectors");
        assert_eq!(self.inp.len(), n * c, "inp is (N, C)");
        assert_eq!(self.matrix.elements().len(), oc * c, "matrix is (OC, C)");
        assert_eq!(self.out.len(), n * oc, "out is (N, OC)");
        assert!(self.bias.is_none_or(|bias| bias.len() == oc), "bias is (OC)");
        let grouped = oc - oc % GROUP;
        if n == 1 {
            for row in (0..grouped).step_by(GROUP) {
                self.tile::<S, GROUP, 1>(simd, row, 0);
            }
        } else {
            for row in (0..grouped).step_by(ROWS) {
                let mut token = 0;
                while token + TOKENS <= n {
                    self.tile::<S, ROWS, TOKENS>(simd, row, token);
                    token += TOKENS;
                }
                while token < n {
                    self.tile::<S, ROWS, 1>(simd, row, token);
                    token += 1;
                }
            }
        }
        for row in grouped..oc {
            for token in 0..n {
                self.tile::<S, 1, 1>(simd, row, token);
            }
        }
    }
}

impl<M: Matrix> Linear<'_, M> {
    /// Computes a tile of R rows of one group by N tokens.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const N: usize>(&mut self, simd: S, row: usize, token: usize) {
        let Packing { c, oc, .. } = self.packing;
        let tokens = &self.inp[token * c..][..N * c];
        let dots = gemm::<S, M, R, N>(simd, &self.matrix, self.packing, row, tokens);
        for (r, dots) in dots.iter().enumerate() {
            let scale = self.matrix.scale(row + r);
            let bias = match self.bias {
                Some(bias) => bias[row + r],
                None => 0.0,
            };
            for (n, &dot) in dots.iter().enumerate() {
                let out = &mut self.out[(token + n) * oc + row + r];
                let before = if self.adds { *out } else { 0.0 };
                *out = before + (dot * scale + bias);
            }
        }
    }
}

/// The products of R rows of one group and N tokens.
#[inline(always)]
fn gemm<S: Simd, M: Matrix, const R: usize, const N: usize>(
    simd: S,
    matrix: &M,
    packing: Packing,
    row: usize,
    tokens: &[f32],
) -> [[f32; N]; R] {
    let Packing { c, .. } = packing;
    let ((start, rows), whole, first) = (packing.group(row), packing.whole(), row % GROUP);
    let group = &matrix.elements()[start..][..rows * c];
    assert!(first + R <= rows && tokens.len() == N * c && packing.chunk == 2 * S::LANES, "R rows and N tokens");
    let mut sums = [[simd.splat(0.0); N]; R];
    let mut i = 0;
    while i < whole {
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: i + chunk <= whole <= c, and first + r < rows, so that the accesses are within `rows` rows and N
            // tokens. Each has c elements.
            unsafe {
                let (w0, w1) = M::load(simd, group.as_ptr().add(i * rows + (first + r) * packing.chunk));
                for (n, sum) in sums.iter_mut().enumerate() {
                    let x = tokens.as_ptr().add(n * c + i);
                    *sum = simd.mul_add(w0, simd.load(x), *sum);
                    *sum = simd.mul_add(w1, simd.load(x.add(S::LANES)), *sum);
                }
            }
        }
        i += packing.chunk;
    }
    let mut dots = [[0.0; N]; R];
    for (r, (dots, sums)) in dots.iter_mut().zip(&sums).enumerate() {
        let rest = &group[rows * whole + (first + r) * (c - whole)..][..c - whole];
        for (n, (dot, &sum)) in dots.iter_mut().zip(sums).enumerate() {
            *dot = simd.sum(sum);
            for (i, &x) in tokens[n * c + whole..][..c - whole].iter().enumerate() {
                *dot = simd.mul_add_1(M::weight(rest, i), x, *dot);
            }
        }
    }
    dots
}

/// Moves the even elements of every `2 * LANES` before the odd ones, as [`Int16`] requires. A row's remainder stays in
/// place.
#[derive(Debug)]
pub(super) struct Deinterleave<'a> {
    pub(super) inout: &'a mut [f32],
    pub(super) c: usize,
}

impl Op for Deinterleave<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for row in self.inout.chunks_exact_mut(self.c) {
            for chunk in row.chunks_exact_mut(2 * S::LANES) {
                let at = chunk.as_mut_ptr();
                // SAFETY: a chunk has 2 * LANES elements.
                unsafe {
                    let (even, odd) = simd.deinterleave(simd.load(at), simd.load(at.add(S::LANES)));
                    simd.store(at, even);
                    simd.store(at.add(S::LANES), odd);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{reference::matmul::matmul_forward, rng::Stream, simd::Level};

    #[expect(clippy::cast_possible_truncation, reason = "random numbers")]
    fn random(n: usize, name: u64) -> Vec<f32> {
        let mut stream = Stream::new(7, name);
        (0..n).map(|_| stream.normal() as f32).collect()
    }

    /// The tolerance: rounding of a sum of c products about 1, and half a step of 16-bit integers in each.
    fn tolerance(c: usize, step: f32) -> f32 {
        (c as f32).sqrt() * (2e-6 + step)
    }

    #[test]
    fn every_storage_and_width_equals_the_reference() {
        for (n, c, oc) in [(1, 1, 1), (1, 64, 9), (2, 7, 3), (3, 33, 8), (5, 100, 17), (16, 71, 5), (7, 128, 20)] {
            let (inp, weight, bias) = (random(n * c, 0), random(oc * c, 1), random(oc, 2));
            let mut want = vec![0.0; n * oc];
            matmul_forward(&mut want, &inp, &weight, Some(&bias), c);
            for level in Level::available() {
                let packing = Packing { c, oc, chunk: 2 * level.lanes() };
                let (mut packed, mut ints, mut scales) = (vec![f32::NAN; oc * c], vec![0; oc * c], vec![0.0; oc]);
                for (row, weight) in weight.chunks(c).enumerate() {
                    let mut row_ints = vec![0; c];
                    scales[row] = int16::encode(&mut row_ints, weight).expect("finite");
                    let mut at = 0;
                    for piece in packing.pieces(row) {
                        packed[piece.clone()].copy_from_slice(&weight[at..][..piece.len()]);
                        ints[piece.clone()].copy_from_slice(&row_ints[at..][..piece.len()]);
                        at += piece.len();
                    }
                }
                let mut out = vec![1.0; n * oc];
                let bias = Some(&bias[..]);
                level.run(Linear { out: &mut out, inp: &inp, matrix: F32(&packed), bias, packing, adds: true });
                check(&out, &want, 1.0, tolerance(c, 0.0), level);
                let mut inp = inp.clone();
                level.run(Deinterleave { inout: &mut inp, c });
                let matrix = Int16 { ints: &ints, scales: &scales };
                level.run(Linear { out: &mut out, inp: &inp, matrix, bias, packing, adds: false });
                check(&out, &want, 0.0, tolerance(c, 1e-4), level);
            }
        }
    }

    #[track_caller]
    fn check(got: &[f32], want: &[f32], more: f32, tolerance: f32, level: Level) {
        for (got, want) in got.iter().zip(want) {
            // Written such that NaN fails.
            assert!((got - more - want).abs() <= tolerance, "{level:?}: {got} instead of {want}");
        }
    }

    #[test]
    #[should_panic(expected = "instead of")]
    fn the_comparison_can_fail() {
        check(&[f32::NAN], &[0.0], 0.0, 1.0, Level::Portable);
    }
}
