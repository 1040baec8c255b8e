//! Vectors as arrays, for machines without a supported instruction set and as the baseline of tests.

use super::{Simd, pair};

#[derive(Clone, Copy)]
pub(super) struct Portable;

const LANES: usize = 8;
type F = [f32; LANES];

#[inline(always)]
fn zip(a: F, b: F, f: impl Fn(f32, f32) -> f32) -> F {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    type F = F;
    const LANES: usize = LANES;

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F {
        // SAFETY: promised by the caller; no alignment is required.
        unsafe { from.cast::<F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: F) {
        // SAFETY: promised by the caller.
        unsafe { to.cast::<F>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn load_pairs(self, from: *const i16) -> (F, F) {
        // SAFETY: promised by the caller.
        let all = unsafe { from.cast::<[i16; 2 * LANES]>().read_unaligned() };
        let pairs: [_; LANES] = std::array::from_fn(|i| pair(all[2 * i], all[2 * i + 1]));
        (pairs.map(|pair| pair.0), pairs.map(|pair| pair.1))
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        zip(a, b, f32::max)
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        zip(a, b, f32::min)
    }
    #[inline(always)]
    fn mul_add(self, a: F, b: F, c: F) -> F {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn mul_add_1(self, a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
    #[inline(always)]
    fn shift_to_exponent(self, a: F) -> F {
        a.map(|a| f32::from_bits(a.to_bits() << 23))
    }
    #[inline(always)]
    fn where_negative(self, of: F, negative: F, otherwise: F) -> F {
        std::array::from_fn(|i| if of[i] < 0.0 { negative[i] } else { otherwise[i] })
    }
    #[inline(always)]
    fn deinterleave(self, a: F, b: F) -> (F, F) {
        let at = |i: usize| if i < LANES { a[i] } else { b[i - LANES] };
        (std::array::from_fn(|i| at(2 * i)), std::array::from_fn(|i| at(2 * i + 1)))
    }
    #[inline(always)]
    fn sum(self, a: F) -> f32 {
        let [s0, s1, s2, s3]: [f32; 4] = std::array::from_fn(|i| a[i] + a[i + 4]);
        (s0 + s2) + (s1 + s3)
    }
}
