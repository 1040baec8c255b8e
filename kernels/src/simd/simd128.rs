//! Four lanes of WebAssembly's simd128. A module with these instructions needs a browser that supports them, as all
//! have since 2023.

use std::arch::wasm32::{
    f32x4_add, f32x4_convert_i32x4, f32x4_div, f32x4_extract_lane, f32x4_lt, f32x4_mul, f32x4_pmax, f32x4_pmin,
    f32x4_splat, f32x4_sub, i32x4_shl, i32x4_shuffle, v128, v128_bitselect, v128_load, v128_store,
};

use super::{Op, Simd};

#[derive(Clone, Copy)]
pub(super) struct Simd128;

/// Runs a kernel compiled with simd128.
#[target_feature(enable = "simd128")]
pub(super) fn run<O: Op>(op: O) -> O::Output {
    op.run(Simd128)
}

impl Simd for Simd128 {
    type F = v128;
    const LANES: usize = 4;

    #[inline(always)]
    fn splat(self, value: f32) -> v128 {
        f32x4_splat(value)
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> v128 {
        // SAFETY: promised by the caller; the instruction requires no alignment.
        unsafe { v128_load(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: v128) {
        // SAFETY: promised by the caller; the instruction requires no alignment.
        unsafe { v128_store(to.cast(), value) }
    }
    #[inline(always)]
    unsafe fn load_pairs(self, from: *const i16) -> (v128, v128) {
        // SAFETY: promised by the caller; the instruction requires no alignment.
        let pairs = unsafe { v128_load(from.cast()) };
        (f32x4_convert_i32x4(i32x4_shl(pairs, 16)), f32x4_convert_i32x4(pairs))
    }
    #[inline(always)]
    fn add(self, a: v128, b: v128) -> v128 {
        f32x4_add(a, b)
    }
    #[inline(always)]
    fn sub(self, a: v128, b: v128) -> v128 {
        f32x4_sub(a, b)
    }
    #[inline(always)]
    fn mul(self, a: v128, b: v128) -> v128 {
        f32x4_mul(a, b)
    }
    #[inline(always)]
    fn div(self, a: v128, b: v128) -> v128 {
        f32x4_div(a, b)
    }
    #[inline(always)]
    fn max(self, a: v128, b: v128) -> v128 {
        f32x4_pmax(a, b)
    }
    #[inline(always)]
    fn min(self, a: v128, b: v128) -> v128 {
        f32x4_pmin(a, b)
    }
    #[inline(always)]
    fn mul_add(self, a: v128, b: v128, c: v128) -> v128 {
        f32x4_add(f32x4_mul(a, b), c)
    }
    #[inline(always)]
    fn mul_add_1(self, a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
    #[inline(always)]
    fn shift_to_exponent(self, a: v128) -> v128 {
        i32x4_shl(a, 23)
    }
    #[inline(always)]
    fn where_negative(self, of: v128, negative: v128, otherwise: v128) -> v128 {
        v128_bitselect(negative, otherwise, f32x4_lt(of, f32x4_splat(0.0)))
    }
    #[inline(always)]
    fn deinterleave(self, a: v128, b: v128) -> (v128, v128) {
        (i32x4_shuffle::<0, 2, 4, 6>(a, b), i32x4_shuffle::<1, 3, 5, 7>(a, b))
    }
    #[inline(always)]
    fn sum(self, a: v128) -> f32 {
        let halves = f32x4_add(a, i32x4_shuffle::<2, 3, 0, 1>(a, a));
        f32x4_extract_lane::<0>(halves) + f32x4_extract_lane::<1>(halves)
    }
}
