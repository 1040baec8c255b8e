//! Conversion of stored weights to f32, which is exact for f16 and bf16.

use crate::reference::pack::half_value;

/// The element type of a stored weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredDtype {
    F32,
    F16,
    Bf16,
}

impl StoredDtype {
    /// The type of a name in the format; `None` if it is not supported.
    pub(super) fn named(dtype: &str) -> Option<Self> {
        match dtype {
            "F32" => Some(Self::F32),
            "F16" => Some(Self::F16),
            "BF16" => Some(Self::Bf16),
            _ => None,
        }
    }

    /// Bytes per element.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// The elements, little-endian; an incomplete last element is ignored.
    pub(super) fn values(self, bytes: &[u8]) -> impl Iterator<Item = f32> {
        bytes.chunks_exact(self.bytes()).map(move |element| match (self, element) {
            (Self::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            (Self::F16, &[a, b]) => half_value(u16::from_le_bytes([a, b])),
            (Self::Bf16, &[a, b]) => f32::from_le_bytes([0, 0, a, b]),
            _ => f32::NAN,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_sign_exponent_and_fraction() {
        for half in 0..=u16::MAX {
            let (sign, exponent, fraction) = (half >> 15, i32::from(half >> 10 & 31), f64::from(half & 0x3FF));
            let magnitude = match exponent {
                0 => fraction * 2_f64.powi(-24),
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
            };
            let expected = if sign == 1 { -magnitude } else { magnitude };
            let found = half_value(half);
            assert_eq!(found.is_nan(), expected.is_nan(), "{half:#06x}");
            assert!(found.is_nan() || f64::from(found).to_bits() == expected.to_bits(), "{half:#06x}: {found}");
        }
    }

    #[test]
    fn elements_are_little_endian() {
        let all = |stored: StoredDtype, bytes: &[u8]| stored.values(bytes).collect::<Vec<_>>();
        assert_eq!(all(StoredDtype::F32, &[0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0]), [1.0, -2.0]);
        assert_eq!(all(StoredDtype::F16, &[0, 0x3C, 0, 0xC0]), [1.0, -2.0]);
        assert_eq!(all(StoredDtype::Bf16, &[0x80, 0x3F, 0, 0xC0, 9]), [1.0, -2.0]);
    }
}
