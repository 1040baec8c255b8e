//! Sixteen lanes of AVX-512.

use std::arch::x86_64::{
    __m512, _CMP_LT_OQ, _mm512_add_ps, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask,
    _mm512_cvtepi32_ps, _mm512_div_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_blend_ps,
    _mm512_max_ps, _mm512_min_ps, _mm512_mul_ps, _mm512_permutex2var_ps, _mm512_reduce_add_ps, _mm512_set1_ps,
    _mm512_setr_epi32, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_storeu_ps, _mm512_sub_ps,
};

use super::{Op, Simd};

/// Proof that AVX-512F is supported; only created by [`run`].
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

/// Runs a kernel compiled with AVX-512F, AVX2 and FMA.
///
/// # Safety
/// The machine must support AVX-512F, AVX2 and FMA.
#[target_feature(enable = "avx512f,avx2,fma")]
pub(super) unsafe fn run<O: Op>(op: O) -> O::Output {
    op.run(Avx512(()))
}

// SAFETY of every block below: an `Avx512` exists, so the machine supports the instructions; pointers are the caller's
// promise.
impl Simd for Avx512 {
    type F = __m512;
    const LANES: usize = 16;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: __m512) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn load_pairs(self, from: *const i16) -> (__m512, __m512) {
        // SAFETY: see above.
        unsafe {
            let pairs = _mm512_loadu_si512(from.cast());
            (_mm512_cvtepi32_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_cvtepi32_ps(pairs))
        }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn mul_add_1(self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn shift_to_exponent(self, a: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(a))) }
    }
    #[inline(always)]
    fn where_negative(self, of: __m512, negative: __m512, otherwise: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let mask = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(of, _mm512_setzero_ps());
            _mm512_mask_blend_ps(mask, otherwise, negative)
        }
    }
    #[inline(always)]
    fn deinterleave(self, a: __m512, b: __m512) -> (__m512, __m512) {
        // SAFETY: see above.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            (_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b))
        }
    }
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        // SAFETY: see above.
        unsafe { _mm512_reduce_add_ps(a) }
    }
}
