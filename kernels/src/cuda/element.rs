//! Element types of GPU memory, as the host writes and reads them.

use bytemuck::{Pod, Zeroable};

/// A bfloat16 number: the upper half of a float32, with its range and 8 bits of precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bf16(u16);

impl Bf16 {
    /// Rounds to the nearest bfloat16, ties to even, as the kernels do. Values out of range become infinite, and NaN
    /// stays NaN.
    #[must_use]
    pub const fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            // The upper half of a NaN may be that of infinity, so set a mantissa bit.
            return Self::of_upper_half(bits | 0x0040_0000);
        }
        let odd = (bits >> 16) & 1;
        Self::of_upper_half(bits + 0x7fff + odd)
    }

    /// Converts to float32, exactly.
    #[must_use]
    pub const fn to_f32(self) -> f32 {
        f32::from_bits((self.0 as u32) << 16)
    }

    /// Creates a number from its stored bits.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Returns the stored bits.
    #[must_use]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    const fn of_upper_half(bits: u32) -> Self {
        Self((bits >> 16) as u16)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An element type of the kernels: plain numbers that can be copied as bytes.
pub trait Element: Pod + Send + Sync + sealed::Sealed {
    /// Name of the type in the kernel sources.
    const NAME: &'static str;
}

macro_rules! elements {
    ($($element:ty: $name:literal),*) => {
        $(impl sealed::Sealed for $element {}
        impl Element for $element {
            const NAME: &'static str = $name;
        })*
    };
}

elements!(f32: "float", Bf16: "bf16", u8: "u8", u32: "u32", u64: "u64");

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(value: f32) -> f32 {
        Bf16::from_f32(value).to_f32()
    }

    #[test]
    fn bf16_rounds_to_the_nearest_and_ties_to_even() {
        // Neighbours between 1 and 2 are 2^-7 apart.
        let step = 0.007_812_5_f32;
        for (given, expected) in [
            (1.0, 1.0),
            (1.0 + 0.49 * step, 1.0),
            (1.0 + 0.5 * step, 1.0),
            (1.0 + 0.51 * step, 1.0 + step),
            (1.0 + 1.5 * step, 1.0 + 2.0 * step),
            (-1.0 - 2.5 * step, -1.0 - 2.0 * step),
            (f32::MAX, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
        ] {
            assert_eq!(rounded(given).to_bits(), f32::to_bits(expected), "{given}");
        }
        assert!(rounded(f32::from_bits(0x7f80_0001)).is_nan(), "its upper half alone is infinity");
        assert_eq!(Bf16::from_f32(-0.0).to_bits(), 0x8000);
    }

    #[test]
    fn bf16_round_trips() {
        for bits in 0..=u16::MAX {
            let value = Bf16::from_bits(bits);
            let back = Bf16::from_f32(value.to_f32());
            assert!(back == value || value.to_f32().is_nan() && back.to_f32().is_nan(), "{bits:#06x}");
        }
    }
}
