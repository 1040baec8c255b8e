//! Elementary functions as branch-free arithmetic, so that loops over them are vectorised.

use pulp::{Arch, Simd, WithSimd};

/// Evaluates an expression, usually a loop, with the widest vectors of this machine.
///
/// A macro, because a closure without forced inlining is compiled for the baseline instruction set only.
macro_rules! vectorized {
    ($work:expr) => {
        $crate::cpu_train::math::dispatch(
            #[inline(always)]
            || $work,
        )
    };
}
pub(super) use vectorized;

/// The function behind [`vectorized`].
///
/// Takes `FnMut`, because a call as `FnOnce` goes through a shim that cannot be forced inline.
#[inline(always)]
pub(super) fn dispatch<R>(work: impl FnMut() -> R) -> R {
    struct Work<F>(F);
    impl<R, F: FnMut() -> R> WithSimd for Work<F> {
        type Output = R;

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, _: S) -> R {
            (self.0)()
        }
    }
    // Detection costs one load after the first call.
    Arch::new().dispatch(Work(work))
}

/// a * b + c with one rounding: a single instruction with AVX2 or NEON, slow without.
#[inline(always)]
fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// Evaluates a polynomial at x, with the highest power's coefficient first.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for &coefficient in &coefficients[1..] {
        sum = fma(sum, x, coefficient);
    }
    sum
}

/// e^x. Relative error below 2e-7 from -87 to 88; 0 or near the largest float beyond.
///
/// Numerics: x = n ln 2 + r with |r| <= ln 2 / 2; a polynomial of degree 6 in r (Cephes' coefficients), scaled by 2^n
/// in the exponent's bits.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // 1.5 * 2^23: adding it leaves the nearest whole number in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.3, 88.0);
    let shifted = fma(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma(n, 2.121_944_4e-4, fma(n, -0.693_359_4, x));
    let p = polynomial(r, [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5]);
    let y = fma(p, r * r, r + 1.0);
    f32::from_bits(y.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// 1 / x for x from 1 to 2^14. Relative error below 2e-7.
///
/// Numerics: the first guess, from the exponent's bits, is off by at most 12 %, and each Newton step squares the error.
/// A vector division takes three times as long.
#[inline(always)]
fn inverse(x: f32) -> f32 {
    let mut y = f32::from_bits(0x7ef3_11c7 - x.to_bits());
    for _ in 0..3 {
        y = fma(y, fma(-x, y, 1.0), y);
    }
    y
}

/// The normal distribution's cumulative function and its density at x.
///
/// Numerics: the error function by Abramowitz and Stegun's 7.1.26 (1.5e-7); with rounding, the absolute error is below
/// 3e-7. Both values share the exponential.
#[inline(always)]
pub fn normal(x: f32) -> (f32, f32) {
    // Beyond 20, the cumulative function is 0 or 1 and the density 0.
    let z = x.abs().min(20.0) * std::f32::consts::FRAC_1_SQRT_2;
    let t = inverse(fma(0.327_591_1, z, 1.0));
    let e = exp(-z * z);
    let series = t * polynomial(t, [1.061_405_4, -1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6]);
    let tail = 0.5 * series * e;
    let cdf = if x < 0.0 { tail } else { 1.0 - tail };
    (cdf, e * 0.398_942_3)
}

/// The number of parallel partial sums, so that a loop's sum is vectorised.
const LANES: usize = 32;

/// The sum of `f` over three slices of equal length.
#[inline(always)]
pub fn sum3(a: &[f32], b: &[f32], c: &[f32], f: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let whole = a.len() / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        let (a, b, c) = (&a[start..][..LANES], &b[start..][..LANES], &c[start..][..LANES]);
        for i in 0..LANES {
            lanes[i] += f(a[i], b[i], c[i]);
        }
    }
    let rest: f32 = (whole..a.len()).map(|i| f(a[i], b[i], c[i])).sum();
    reduce(lanes, |a, b| a + b) + rest
}

/// The sum of `f` over two slices of equal length.
#[inline(always)]
pub fn sum2(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    sum3(a, b, b, |a, b, _| f(a, b))
}

/// The sum of `f` over a slice.
#[inline(always)]
pub fn sum(a: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    sum2(a, a, |a, _| f(a))
}

/// The largest element; negative infinity for an empty slice.
#[inline(always)]
pub fn max(a: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = a.chunks_exact(LANES);
    let rest = chunks.remainder().iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
    for a in chunks {
        for i in 0..LANES {
            lanes[i] = if a[i] > lanes[i] { a[i] } else { lanes[i] };
        }
    }
    reduce(lanes, f32::max).max(rest)
}

#[inline(always)]
fn reduce(mut lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = f(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_near_the_true_one() {
        for i in -87_000..88_000_i32 {
            let x = i as f32 * 1e-3;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got - want).abs() <= 2e-7 * want, "exp({x}) is {got}, not {want}");
        }
        assert!(exp(-1e30) < 1e-37 && exp(-1e30) >= 0.0 && exp(1e30).is_finite());
    }

    #[test]
    fn an_inverse_is_near_the_true_one() {
        for i in 0..1_000_000_i32 {
            let x = 1.0 + (i as f32 * 1.4e-5).exp2();
            let error = (f64::from(inverse(x)) * f64::from(x) - 1.0).abs();
            assert!(error < 2e-7, "1 / {x} is {}", inverse(x));
        }
    }

    #[test]
    fn the_normal_distribution_is_near_the_true_one() {
        for i in -12_000..12_000_i32 {
            let x = i as f32 * 1e-3;
            let (cdf, density) = normal(x);
            let wide = f64::from(x);
            let want = 0.5 * libm::erfc(-wide * std::f64::consts::FRAC_1_SQRT_2);
            let want_density = (-0.5 * wide * wide).exp() / std::f64::consts::TAU.sqrt();
            assert!((f64::from(cdf) - want).abs() <= 3e-7, "Phi({x}) is {cdf}, not {want}");
            assert!((f64::from(density) - want_density).abs() <= 3e-7, "phi({x}) is {density}, not {want_density}");
        }
    }

    #[test]
    fn sums_and_maxima_take_every_element() {
        for n in [0, 1, 31, 32, 33, 100] {
            let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(sum(&a, |x| x), (0..n).sum::<i32>() as f32);
            assert_eq!(max(&a), a.last().copied().unwrap_or(f32::NEG_INFINITY));
        }
    }
}
