//! Vectors of f32, as wide as the machine has them: one way to write a kernel, compiled once for each.
//!
//! A kernel is an [`Op`], generic over [`Simd`]; [`Level::run`] compiles it for each instruction set and takes the one
//! that was found at the start. On wasm32 that is simd128, without a flag for the whole module. Everything that touches
//! a vector is `#[inline(always)]`, or it would be compiled without the instructions it is there for.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(target_arch = "wasm32")]
mod simd128;

/// The most lanes of any instruction set here.
pub(crate) const MAX_LANES: usize = 16;

/// A vector's operations on one instruction set. A value of an implementing type stands for: this machine has it.
pub(crate) trait Simd: Copy {
    /// A vector of f32.
    type F: Copy;
    /// Its lanes, a power of two up to [`MAX_LANES`].
    const LANES: usize;

    fn splat(self, value: f32) -> Self::F;
    /// # Safety
    /// `LANES` values can be read from there; no alignment is asked for.
    unsafe fn load(self, from: *const f32) -> Self::F;
    /// # Safety
    /// `LANES` values can be written there; no alignment is asked for.
    unsafe fn store(self, to: *mut f32, value: Self::F);
    /// Reads `2 * LANES` 16-bit integers as `LANES` pairs of 32 bits: 65,536 times the even ones, and 65,536 times the odd
    /// ones with the even one below them still in the lower half, as `decode::int16` explains.
    ///
    /// # Safety
    /// `2 * LANES` values can be read from there; no alignment is asked for.
    unsafe fn load_pairs(self, from: *const i16) -> (Self::F, Self::F);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once or twice.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The same of single numbers, rounded as often.
    fn mul_add_1(self, a: f32, b: f32, c: f32) -> f32;
    /// The bits, shifted left by 23: an integer becomes an exponent.
    fn shift_to_exponent(self, a: Self::F) -> Self::F;
    /// The lanes of `negative` where `of` is below zero, else those of `otherwise`.
    fn where_negative(self, of: Self::F, negative: Self::F, otherwise: Self::F) -> Self::F;
    /// The even and the odd elements of `a` followed by `b`.
    fn deinterleave(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);
    /// The sum of all lanes.
    fn sum(self, a: Self::F) -> f32;
}

/// A kernel, compiled for every instruction set.
pub(crate) trait Op {
    type Output;
    /// Marked `#[inline(always)]` by each implementation.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// An instruction set that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// What any machine has.
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "wasm32")]
    Simd128,
}

impl Level {
    /// All that this machine has, the best last.
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

    /// The best.
    pub(crate) fn detect() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }

    /// Lanes of its vectors.
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

    /// Its name, for a report.
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

    /// Runs a kernel.
    pub(crate) fn run<O: Op>(self, op: O) -> O::Output {
        match self {
            Self::Portable => op.run(portable::Portable),
            // SAFETY: `available` gives these out only where the machine has the instructions.
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
