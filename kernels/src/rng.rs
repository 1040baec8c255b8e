//! Counter-based random numbers: a function of a key and a counter, without state, identical on every device and
//! thread.

/// A well-mixed 32-bit hash of an index under a key: two rounds of the finaliser of MurmurHash3 with the key between.
///
/// Uses 32-bit products only, so that WGSL and vector units compute the same values.
#[must_use]
#[inline(always)]
pub fn hash(key: u32, index: u32) -> u32 {
    mix(mix(index.wrapping_mul(0x9E37_79B9) ^ key).wrapping_add(key.rotate_left(16)))
}

#[inline(always)]
fn mix(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85EB_CA6B);
    h ^= h >> 13;
    h = h.wrapping_mul(0xC2B2_AE35);
    h ^ (h >> 16)
}

/// A stream of random numbers, fully described by its seed, name and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    seed: u64,
    name: u64,
    /// The number of values drawn.
    pub position: u64,
}

impl Stream {
    /// The stream `name` of a seed, from its start.
    #[must_use]
    pub const fn new(seed: u64, name: u64) -> Self {
        Self { seed, name, position: 0 }
    }

    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The stream's number among the seed's streams.
    #[must_use]
    pub const fn name(&self) -> u64 {
        self.name
    }

    /// The same stream after `position` values.
    #[must_use]
    pub const fn at(self, position: u64) -> Self {
        Self { position, ..self }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let at = self.position;
        self.position += 1;
        split_mix(split_mix(split_mix(self.seed).wrapping_add(self.name)).wrapping_add(at))
    }

    /// Returns a uniform number below `bound`, which is at least 1. The bias is below bound / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// Returns a uniform number from 0 to below 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// Returns a normal number of mean 0 and standard deviation 1, as one of a Box-Muller pair.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// SplitMix64's increment of its state.
pub const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's output function (Steele, Lea and Flood 2014), for the state one step after `x`.
#[must_use]
pub const fn split_mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(GOLDEN_GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_goes_on_from_its_position() {
        let mut whole = Stream::new(1337, 2);
        let first: Vec<_> = (0..10).map(|_| whole.next_u64()).collect();
        let mut resumed = Stream::new(1337, 2).at(5);
        let rest: Vec<_> = (0..5).map(|_| resumed.next_u64()).collect();
        assert_eq!(first[5..], rest[..]);
    }

    #[test]
    fn streams_differ_by_seed_and_name() {
        let mut starts: Vec<_> =
            (0..8).flat_map(|seed| (0..8).map(move |name| Stream::new(seed, name).next_u64())).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), 64);
    }

    #[test]
    fn normals_have_mean_0_and_deviation_1() {
        let mut stream = Stream::new(1, 1);
        let x: Vec<f64> = (0..40_000).map(|_| stream.normal()).collect();
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn below_reaches_all_and_no_more() {
        let mut stream = Stream::new(3, 0);
        let mut seen = [0; 7];
        for _ in 0..7000 {
            seen[usize::try_from(stream.below(7)).expect("small")] += 1;
        }
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
    }
}
