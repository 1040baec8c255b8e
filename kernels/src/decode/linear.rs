//! Linear layers over one token or several: each row of the matrix is read once for all of them.

use super::{
    int16,
    simd::{Op, Simd},
};

/// A matrix (OC, C) as it is kept.
pub(super) trait Matrix: Copy {
    /// What an element is kept as.
    type Element;

    fn elements(&self) -> &[Self::Element];
    /// What a row's products are multiplied with in the end.
    fn scale(&self, row: usize) -> f32;
    /// Reads `2 * LANES` weights, in the order in which the activations are.
    ///
    /// # Safety
    /// So many elements can be read from there.
    unsafe fn load<S: Simd>(simd: S, from: *const Self::Element) -> (S::F, S::F);
    /// One weight of a row, without its scale.
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
        // SAFETY: the caller's.
        unsafe { (simd.load(from), simd.load(from.add(S::LANES))) }
    }
    #[inline(always)]
    fn weight(row: &[f32], i: usize) -> f32 {
        row[i]
    }
}

/// A matrix in 16-bit integers with a scale a row, for activations that [`Deinterleave`] has put in its order.
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
        // SAFETY: the caller's.
        unsafe { simd.load_pairs(from) }
    }
    #[inline(always)]
    fn weight(row: &[i16], i: usize) -> f32 {
        int16::weight(row, i)
    }
}

/// A linear layer.
///
/// Shapes: `inp` (N, C), `matrix` (OC, C), `bias` (OC) or none → `out` (N, OC), added where `adds`.
/// Numerics: f32; every product of a row and a token is summed in one order, whatever the other rows and tokens, so that
/// a prompt in pieces gives the very logits that its tokens give one by one.
/// Twin: [`crate::cpu::matmul`].
#[derive(Debug)]
pub(super) struct Linear<'a, M> {
    pub(super) out: &'a mut [f32],
    pub(super) inp: &'a [f32],
    pub(super) matrix: M,
    pub(super) bias: Option<&'a [f32]>,
    /// Channels in, C.
    pub(super) c: usize,
    /// Whether the result is added to what `out` has.
    pub(super) adds: bool,
}

/// Rows at a time for one token: as many streams as hide the latency of an addition.
const ROWS_OF_ONE: usize = 8;
/// Rows and tokens at a time for several; with simd128's 16 registers in mind.
const ROWS_OF_SEVERAL: usize = 2;
const TOKENS: usize = 4;

impl<M: Matrix> Op for Linear<'_, M> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let c = self.c;
        let (n, oc) = (self.inp.len() / c, self.matrix.elements().len() / c);
        assert_eq!(self.inp.len(), n * c, "inp is (N, C)");
        assert_eq!(self.matrix.elements().len(), oc * c, "matrix is (OC, C)");
        assert_eq!(self.out.len(), n * oc, "out is (N, OC)");
        assert!(self.bias.is_none_or(|bias| bias.len() == oc), "bias is (OC)");
        let mut row = 0;
        if n == 1 {
            while row + ROWS_OF_ONE <= oc {
                self.tile::<S, ROWS_OF_ONE, 1>(simd, row, 0, oc);
                row += ROWS_OF_ONE;
            }
        } else {
            while row + ROWS_OF_SEVERAL <= oc {
                let mut token = 0;
                while token + TOKENS <= n {
                    self.tile::<S, ROWS_OF_SEVERAL, TOKENS>(simd, row, token, oc);
                    token += TOKENS;
                }
                while token < n {
                    self.tile::<S, ROWS_OF_SEVERAL, 1>(simd, row, token, oc);
                    token += 1;
                }
                row += ROWS_OF_SEVERAL;
            }
        }
        while row < oc {
            for token in 0..n {
                self.tile::<S, 1, 1>(simd, row, token, oc);
            }
            row += 1;
        }
    }
}

impl<M: Matrix> Linear<'_, M> {
    /// R rows by N tokens from there on.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const N: usize>(&mut self, simd: S, row: usize, token: usize, oc: usize) {
        let c = self.c;
        let rows = &self.matrix.elements()[row * c..][..R * c];
        let tokens = &self.inp[token * c..][..N * c];
        let dots = products::<S, M, R, N>(simd, rows, tokens, c);
        for (n, dots) in dots.iter().enumerate() {
            let out = &mut self.out[(token + n) * oc + row..][..R];
            for (r, (out, &dot)) in out.iter_mut().zip(dots).enumerate() {
                let before = if self.adds { *out } else { 0.0 };
                let bias = match self.bias {
                    Some(bias) => bias[row + r],
                    None => 0.0,
                };
                *out = before + (dot * self.matrix.scale(row + r) + bias);
            }
        }
    }
}

/// The products of R rows and N tokens, each of C.
#[inline(always)]
fn products<S: Simd, M: Matrix, const R: usize, const N: usize>(
    simd: S,
    rows: &[M::Element],
    tokens: &[f32],
    c: usize,
) -> [[f32; R]; N] {
    assert!(rows.len() == R * c && tokens.len() == N * c, "R rows and N tokens");
    let mut sums = [[simd.splat(0.0); R]; N];
    let whole = c - c % (2 * S::LANES);
    let mut i = 0;
    while i < whole {
        for r in 0..R {
            // SAFETY: i + 2 * LANES <= whole <= c, and there are R rows and N tokens of c elements.
            unsafe {
                let (w0, w1) = M::load(simd, rows.as_ptr().add(r * c + i));
                for n in 0..N {
                    let x = tokens.as_ptr().add(n * c + i);
                    sums[n][r] = simd.mul_add(w0, simd.load(x), sums[n][r]);
                    sums[n][r] = simd.mul_add(w1, simd.load(x.add(S::LANES)), sums[n][r]);
                }
            }
        }
        i += 2 * S::LANES;
    }
    let mut dots = [[0.0; R]; N];
    for n in 0..N {
        for r in 0..R {
            let mut dot = simd.sum(sums[n][r]);
            for i in whole..c {
                dot = simd.mul_add_1(M::weight(&rows[r * c..][..c], i), tokens[n * c + i], dot);
            }
            dots[n][r] = dot;
        }
    }
    dots
}

/// Puts the even elements of every `2 * LANES` before the odd ones, as [`Int16`] asks; a row's rest stays.
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
    use crate::{cpu::matmul::matmul_forward, decode::simd::Level, rng::Stream};

    #[expect(clippy::cast_possible_truncation, reason = "random numbers")]
    fn random(n: usize, name: u64) -> Vec<f32> {
        let mut stream = Stream::new(7, name);
        (0..n).map(|_| stream.normal() as f32).collect()
    }

    /// Rounding of a sum of c products about 1, and half a step of 16-bit integers in each.
    fn tolerance(c: usize, step: f32) -> f32 {
        (c as f32).sqrt() * (2e-6 + step)
    }

    #[test]
    fn every_storage_and_width_equals_the_reference() {
        for (n, c, oc) in [(1, 1, 1), (1, 64, 9), (2, 7, 3), (3, 33, 8), (5, 100, 17), (16, 71, 5), (7, 128, 20)] {
            let (inp, weight, bias) = (random(n * c, 0), random(oc * c, 1), random(oc, 2));
            let mut want = vec![0.0; n * oc];
            matmul_forward(&mut want, &inp, &weight, Some(&bias), c);
            let mut ints = vec![0; oc * c];
            let scales: Vec<f32> = ints
                .chunks_mut(c)
                .zip(weight.chunks(c))
                .map(|(ints, row)| int16::encode(ints, row).expect("finite"))
                .collect();
            for level in Level::available() {
                let mut out = vec![1.0; n * oc];
                let bias = Some(&bias[..]);
                level.run(Linear { out: &mut out, inp: &inp, matrix: F32(&weight), bias, c, adds: true });
                check(&out, &want, 1.0, tolerance(c, 0.0), level);
                let mut inp = inp.clone();
                level.run(Deinterleave { inout: &mut inp, c });
                let matrix = Int16 { ints: &ints, scales: &scales };
                level.run(Linear { out: &mut out, inp: &inp, matrix, bias, c, adds: false });
                check(&out, &want, 0.0, tolerance(c, 1e-4), level);
            }
        }
    }

    #[track_caller]
    fn check(got: &[f32], want: &[f32], more: f32, tolerance: f32, level: Level) {
        for (got, want) in got.iter().zip(want) {
            // Written so that a NaN fails.
            assert!((got - more - want).abs() <= tolerance, "{level:?}: {got} instead of {want}");
        }
    }

    #[test]
    #[should_panic(expected = "instead of")]
    fn the_comparison_can_fail() {
        check(&[f32::NAN], &[0.0], 0.0, 1.0, Level::Portable);
    }
}
