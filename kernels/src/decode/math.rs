//! Vectorised exponential, normal distribution, softmax and layer norm.

use crate::reference::layernorm_forward::EPS;
use crate::simd::{MAX_LANES, Op, Simd};

/// An elementwise function.
pub(super) trait Map: Copy {
    /// Computes the function for each lane. Implementations are `#[inline(always)]`.
    fn apply<S: Simd>(self, simd: S, x: S::F) -> S::F;
}

/// Replaces each element by the function's value.
#[inline(always)]
pub(super) fn map<S: Simd>(simd: S, inout: &mut [f32], function: impl Map) {
    let mut whole = inout.chunks_exact_mut(S::LANES);
    for chunk in &mut whole {
        // SAFETY: a chunk has LANES elements.
        unsafe { simd.store(chunk.as_mut_ptr(), function.apply(simd, simd.load(chunk.as_ptr()))) };
    }
    let rest = whole.into_remainder();
    if !rest.is_empty() {
        let mut padded = [0.0; MAX_LANES];
        padded[..rest.len()].copy_from_slice(rest);
        // SAFETY: MAX_LANES >= LANES.
        unsafe { simd.store(padded.as_mut_ptr(), function.apply(simd, simd.load(padded.as_ptr()))) };
        rest.copy_from_slice(&padded[..rest.len()]);
    }
}

/// e to the power of each lane.
///
/// Numerics: 2^n e^r with |r| <= ln 2 / 2 and the Taylor polynomial of degree 7, whose own error is below 6e-9. The
/// relative error is below 2e-7. Arguments are clamped to -87 (about 1e-38) and 88.
#[inline(always)]
pub(super) fn exp<S: Simd>(simd: S, x: S::F) -> S::F {
    /// 1.5 * 2^23, which makes the last digits of a sum whole numbers, plus the exponent's bias.
    const ROUND: f32 = 12_582_912.0 + 127.0;
    let x = simd.max(simd.min(x, simd.splat(88.0)), simd.splat(-87.0));
    let shifted = simd.mul_add(x, simd.splat(std::f32::consts::LOG2_E), simd.splat(ROUND));
    let n = simd.sub(shifted, simd.splat(ROUND));
    // ln 2 in two parts, of which the first has so few bits that its product with n is exact.
    let r = simd.mul_add(n, simd.splat(-0.693_359_4), x);
    let r = simd.mul_add(n, simd.splat(2.121_944_4e-4), r);
    let mut sum = simd.splat(1.0 / 5040.0);
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = simd.mul_add(sum, r, simd.splat(coefficient));
    }
    simd.mul(sum, simd.shift_to_exponent(shifted))
}

/// The MLP's activation, exact GELU: x times the normal distribution function.
///
/// Numerics: the distribution's tail uses formula 7.1.26 of Abramowitz and Stegun, so that small negative-side values
/// keep their relative accuracy. The distribution function's absolute error is below 3e-7.
/// Reference: [`crate::reference::gelu`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Gelu;

impl Map for Gelu {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, x: S::F) -> S::F {
        let magnitude = simd.max(x, simd.sub(simd.splat(0.0), x));
        let z = simd.mul(magnitude, simd.splat(std::f32::consts::FRAC_1_SQRT_2));
        let one = simd.splat(1.0);
        let t = simd.div(one, simd.mul_add(z, simd.splat(0.327_591_1), one));
        let mut sum = simd.splat(1.061_405_4);
        for coefficient in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
            sum = simd.mul_add(sum, t, simd.splat(coefficient));
        }
        let density = exp(simd, simd.mul(simd.mul(z, z), simd.splat(-1.0)));
        let tail = simd.mul(simd.mul(simd.mul(sum, t), density), simd.splat(0.5));
        simd.mul(x, simd.where_negative(x, tail, simd.sub(one, tail)))
    }
}

/// The kernel that applies a function to each element of a slice.
#[derive(Debug)]
pub(super) struct ElementKernel<'a, M>(pub(super) &'a mut [f32], pub(super) M);

impl<M: Map> Op for ElementKernel<'_, M> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        map(simd, self.0, self.1);
    }
}

/// e to the power of an element minus the maximum.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpLess(pub(super) f32);

impl Map for ExpLess {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, x: S::F) -> S::F {
        exp(simd, simd.sub(x, simd.splat(self.0)))
    }
}

/// An element times a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times(pub(super) f32);

impl Map for Times {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, x: S::F) -> S::F {
        simd.mul(x, simd.splat(self.0))
    }
}

/// The sum of all elements.
#[inline(always)]
pub(super) fn sum<S: Simd>(simd: S, inp: &[f32]) -> f32 {
    let whole = inp.chunks_exact(S::LANES);
    let mut rest = 0.0;
    for &x in whole.remainder() {
        rest += x;
    }
    let mut sums = simd.splat(0.0);
    for chunk in whole {
        // SAFETY: a chunk has LANES elements.
        sums = simd.add(sums, unsafe { simd.load(chunk.as_ptr()) });
    }
    simd.sum(sums) + rest
}

#[inline(always)]
fn largest<S: Simd>(simd: S, inp: &[f32]) -> f32 {
    let whole = inp.chunks_exact(S::LANES);
    let rest = whole.remainder();
    let mut lanes = [f32::NEG_INFINITY; MAX_LANES];
    // SAFETY: MAX_LANES >= LANES.
    let mut most = unsafe { simd.load(lanes.as_ptr()) };
    for chunk in whole {
        // SAFETY: a chunk has LANES elements.
        most = simd.max(most, unsafe { simd.load(chunk.as_ptr()) });
    }
    // SAFETY: as above.
    unsafe { simd.store(lanes.as_mut_ptr(), most) };
    let mut most = f32::NEG_INFINITY;
    for &x in lanes.iter().chain(rest) {
        most = if x > most { x } else { most };
    }
    most
}

/// Replaces scores by their softmax.
#[inline(always)]
pub(super) fn softmax<S: Simd>(simd: S, scores: &mut [f32]) {
    let largest = largest(simd, scores);
    map(simd, scores, ExpLess(largest));
    let sum = sum(simd, scores);
    map(simd, scores, Times(1.0 / sum));
}

/// The kernel that computes a softmax.
#[derive(Debug)]
pub(super) struct Softmax<'a>(pub(super) &'a mut [f32]);

impl Op for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        softmax(simd, self.0);
    }
}

/// The kernel of a layer norm: normalises each row's channels, then scales and shifts them.
///
/// Shapes: `inp` (N, C), `weight` (C), optional `bias` (C) → `out` (N, C).
/// Reference: [`crate::reference::layernorm_forward`].
#[derive(Debug)]
pub(super) struct Norm<'a> {
    pub(super) out: &'a mut [f32],
    pub(super) inp: &'a [f32],
    pub(super) weight: &'a [f32],
    pub(super) bias: Option<&'a [f32]>,
}

impl Op for Norm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let c = self.weight.len();
        for (inp, out) in self.inp.chunks_exact(c).zip(self.out.chunks_exact_mut(c)) {
            let mean = sum(simd, inp) / c as f32;
            out.copy_from_slice(inp);
            map(simd, out, Less(mean));
            let rstd = 1.0 / (sum_of_squares(simd, out) / c as f32 + EPS).sqrt();
            scale_and_shift(simd, out, rstd, self.weight, self.bias);
        }
    }
}

/// An element minus a number.
#[derive(Clone, Copy, Debug)]
struct Less(f32);

impl Map for Less {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, x: S::F) -> S::F {
        simd.sub(x, simd.splat(self.0))
    }
}

#[inline(always)]
fn sum_of_squares<S: Simd>(simd: S, inp: &[f32]) -> f32 {
    let whole = inp.chunks_exact(S::LANES);
    let mut rest = 0.0;
    for &x in whole.remainder() {
        rest += x * x;
    }
    let mut sums = simd.splat(0.0);
    for chunk in whole {
        // SAFETY: a chunk has LANES elements.
        let x = unsafe { simd.load(chunk.as_ptr()) };
        sums = simd.mul_add(x, x, sums);
    }
    simd.sum(sums) + rest
}

#[inline(always)]
fn scale_and_shift<S: Simd>(simd: S, inout: &mut [f32], rstd: f32, weight: &[f32], bias: Option<&[f32]>) {
    let c = inout.len();
    assert!(weight.len() == c && bias.is_none_or(|bias| bias.len() == c), "weight and bias are (C)");
    let whole = c - c % S::LANES;
    let scale = simd.splat(rstd);
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: LANES elements from i on are below `whole`, which is at most the length of each slice.
        unsafe {
            let x = simd.mul(simd.load(inout.as_ptr().add(i)), scale);
            let weight = simd.load(weight.as_ptr().add(i));
            let shifted = match bias {
                Some(bias) => simd.mul_add(x, weight, simd.load(bias.as_ptr().add(i))),
                None => simd.mul(x, weight),
            };
            simd.store(inout.as_mut_ptr().add(i), shifted);
        }
    }
    for i in whole..c {
        let x = inout[i] * rstd;
        inout[i] = match bias {
            Some(bias) => simd.mul_add_1(x, weight[i], bias[i]),
            None => x * weight[i],
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Level;

    #[derive(Clone, Copy)]
    struct Exp;
    impl Map for Exp {
        #[inline(always)]
        fn apply<S: Simd>(self, simd: S, x: S::F) -> S::F {
            exp(simd, x)
        }
    }

    /// Evaluates a function over a grid on every instruction set.
    fn on_grid(from: f32, to: f32, function: impl Map, check: impl Fn(Level, f32, f32)) {
        // Rounding must not exceed `to`, however large the two are.
        let at = |i: u16| (from + (to - from) * (f32::from(i) / 40_003.0)).min(to);
        let grid: Vec<f32> = (0..=40_003).map(at).collect();
        for level in Level::available() {
            let mut got = grid.clone();
            level.run(ElementKernel(&mut got, function));
            for (&x, &got) in grid.iter().zip(&got) {
                check(level, x, got);
            }
        }
    }

    #[test]
    fn exponentials_are_within_2e_7_of_their_value() {
        on_grid(-87.0, 88.0, Exp, |level, x, got| {
            let want = f64::from(x).exp();
            assert!((f64::from(got) - want).abs() <= 2e-7 * want, "{level:?} {x}: {got} instead of {want}");
        });
        on_grid(-1e30, -1e3, Exp, |level, x, got| assert!((0.0..2e-38).contains(&got), "{level:?} {x}: {got}"));
    }

    #[test]
    fn gelu_is_the_exact_one_within_3e_7_of_x() {
        on_grid(-12.0, 12.0, Gelu, |level, x, got| {
            let x = f64::from(x);
            let want = x * 0.5 * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2));
            let error = (f64::from(got) - want).abs();
            assert!(error <= 3e-7 * x.abs(), "{level:?} {x}: {got} instead of {want}");
        });
    }

    #[test]
    fn norms_equal_the_reference() {
        use crate::reference::layernorm_forward::{Output, layernorm_forward};
        for c in [1_u8, 2, 5, 16, 37, 67] {
            let inp: Vec<f32> = (0..3 * c).map(|i| f32::from(i.wrapping_mul(7) % 31) - 9.5).collect();
            let weight: Vec<f32> = (0..c).map(|i| 1.0 + f32::from(i) * 0.1).collect();
            for bias in [None, Some(&weight[..])] {
                let mut want = vec![0.0; inp.len()];
                let output = Output { out: &mut want, mean: &mut [0.0; 3], rstd: &mut [0.0; 3] };
                layernorm_forward(output, &inp, &weight, bias);
                for level in Level::available() {
                    let mut out = vec![0.0; inp.len()];
                    level.run(Norm { out: &mut out, inp: &inp, weight: &weight, bias });
                    let near = |(got, want): (&f32, &f32)| (got - want).abs() <= 1e-5 + 1e-5 * want.abs();
                    assert!(out.iter().zip(&want).all(near), "{level:?} {c}: {out:?} instead of {want:?}");
                }
            }
        }
    }
}
