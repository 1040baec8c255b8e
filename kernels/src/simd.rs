//! SIMD vectors of f32, as wide as the machine supports. A kernel is written once and compiled per instruction set.
//!
//! A kernel is an [`Op`], generic over [`Simd`]. [`Level::run`] compiles it for each instruction set and selects the
//! one detected at start. On wasm32 that is simd128, without a compiler flag for the whole module. All functions on
//! vectors must be `#[inline(always)]`; otherwise they are compiled without the instruction set's features.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(target_arch = "wasm32")]
mod simd128;

/// The largest number of lanes of any instruction set here.
pub(crate) const MAX_LANES: usize = 16;

/// The vector operations of an instruction set. A value of an implementing type proves that the machine supports it.
pub(crate) trait Simd: Copy {
    /// A vector of f32.
    type F: Copy;
    /// The number of lanes, a power of two up to [`MAX_LANES`].
    const LANES: usize;

    fn splat(self, value: f32) -> Self::F;
    /// # Safety
    /// `LANES` values must be readable at `from`, without alignment requirements.
    unsafe fn load(self, from: *const f32) -> Self::F;
    /// # Safety
    /// `LANES` values must be writable at `to`, without alignment requirements.
    unsafe fn store(self, to: *mut f32, value: Self::F);
    /// Loads `2 * LANES` 16-bit integers as `LANES` pairs, each in a 32-bit lane.
    ///
    /// Returns 65,536 times the even integers, and 65,536 times the odd ones with the even one in the lower half, as
    /// [`pair`] does.
    ///
    /// # Safety
    /// `2 * LANES` values must be readable at `from`, without alignment requirements.
    unsafe fn load_pairs(self, from: *const i16) -> (Self::F, Self::F);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, with one or two roundings.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// [`Self::mul_add`] of single numbers, with the same rounding.
    fn mul_add_1(self, a: f32, b: f32, c: f32) -> f32;
    /// Shifts the bits left by 23, which makes an integer an exponent.
    fn shift_to_exponent(self, a: Self::F) -> Self::F;
    /// The lanes of `negative` where `of` is below zero, and those of `otherwise` elsewhere.
    fn where_negative(self, of: Self::F, negative: Self::F, otherwise: Self::F) -> Self::F;
    /// The even and the odd elements of `a` followed by `b`.
    fn deinterleave(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);
    /// The sum of all lanes.
    fn sum(self, a: Self::F) -> f32;
}

/// The f32 values of an even and an odd weight: 65,536 times their integers, the odd one with its fraction.
#[inline(always)]
pub(crate) fn pair(even: i16, odd: i16) -> (f32, f32) {
    let lane = (i32::from(odd) << 16) | i32::from(even.cast_unsigned());
    ((lane << 16) as f32, lane as f32)
}

/// A kernel that is compiled for every instruction set.
pub(crate) trait Op {
    type Output;
    /// Runs the kernel. Implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// An instruction set of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Plain Rust, for any machine.
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "wasm32")]
    Simd128,
}

impl Level {
    /// The supported instruction sets, with the best last.
    pub(crate) fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let more = {
            let avx2 = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
            let avx512 = avx2 && std::is_x86_feature_detected!("avx512f");
            [avx2.then_some(Self::Avx2), avx512.then_some(Self::Avx512)]
        };
        #[cfg(target_arch = "wasm32")]
        let more = [Some(Self::Simd128)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "wasm32")))]
        let more = [None];
        std::iter::once(Self::Portable).chain(more.into_iter().flatten())
    }

    /// The best supported instruction set.
    pub(crate) fn detect() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }

    /// The number of lanes of its vectors.
    pub(crate) const fn lanes(self) -> usize {
        match self {
            Self::Portable => <portable::Portable as Simd>::LANES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => <avx2::Avx2 as Simd>::LANES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => <avx512::Avx512 as Simd>::LANES,
            #[cfg(target_arch = "wasm32")]
            Self::Simd128 => <simd128::Simd128 as Simd>::LANES,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "AVX-512",
            #[cfg(target_arch = "wasm32")]
            Self::Simd128 => "simd128",
        }
    }

    /// Runs a kernel on this instruction set.
    pub(crate) fn run<O: Op>(self, op: O) -> O::Output {
        match self {
            Self::Portable => op.run(portable::Portable),
            // SAFETY: `available` returns a level only if the machine supports it.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2::run(op) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { avx512::run(op) },
            #[cfg(target_arch = "wasm32")]
            Self::Simd128 => simd128::run(op),
        }
    }
}
