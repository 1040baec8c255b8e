//! Scalar arithmetic, as the PTX ISA specifies it.
//!
//! Where the ISA permits several results, one is chosen deterministically. An approximation is the exact result with an
//! error within the ISA's bound, derived from the operand's bits.

/// The NaN that instructions return.
const NAN: u32 = 0x7fff_ffff;

/// Flushes subnormal values to zero of the same sign: `.ftz`.
fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0.0_f32.copysign(value) } else { value }
}

/// A pseudo-random number from -1 to 1, from a number's bits.
fn share(bits: u32) -> f64 {
    let mixed = bits.wrapping_mul(0x9e37_79b9);
    let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b);
    f64::from(mixed ^ (mixed >> 13)) / f64::from(u32::MAX) * 2.0 - 1.0
}

/// Rounds to the nearest float.
#[expect(clippy::cast_possible_truncation, reason = "it is rounded")]
fn rounded(value: f64) -> f32 {
    value as f32
}

/// `ex2.approx.ftz.f32`: relative error of at most 2^-22.
pub fn power_of_two(bits: u32) -> u32 {
    let x = flushed(f32::from_bits(bits));
    if x.is_nan() {
        return NAN;
    }
    let exact = f64::from(x).exp2();
    let off = if x == 0.0 || !exact.is_finite() { 0.0 } else { share(bits) * f64::from(2.0_f32.powi(-22)) };
    flushed(rounded(exact * (1.0 + off))).to_bits()
}

/// `lg2.approx.ftz.f32`: absolute error of at most 2^-22 between 0.5 and 2, relative error of at most 2^-22 elsewhere.
pub fn logarithm(bits: u32) -> u32 {
    let x = flushed(f32::from_bits(bits));
    if x.is_nan() || x < 0.0 {
        return NAN;
    }
    let exact = f64::from(x).log2();
    if !exact.is_finite() || exact == 0.0 {
        return rounded(exact).to_bits();
    }
    let off = share(bits) * f64::from(2.0_f32.powi(-22));
    let off = if (0.5..=2.0).contains(&x) { off } else { off * exact };
    flushed(rounded(exact + off)).to_bits()
}

/// `rcp.approx.ftz.f32`: error of at most 1 unit in the last place.
pub fn reciprocal(bits: u32) -> u32 {
    let x = flushed(f32::from_bits(bits));
    if x.is_nan() {
        return NAN;
    }
    let exact = 1.0 / f64::from(x);
    let off = if exact.is_finite() { share(bits) * f64::from(2.0_f32.powi(-24)) } else { 0.0 };
    flushed(rounded(exact * (1.0 + off))).to_bits()
}

/// `rsqrt.approx.f32`: relative error of at most 2^-22.9.
pub fn inverse_root(bits: u32) -> u32 {
    let x = f32::from_bits(bits);
    if x.is_nan() || x < 0.0 {
        return NAN;
    }
    let exact = 1.0 / f64::from(x).sqrt();
    let off = if exact.is_finite() && exact != 0.0 { share(bits) * 1.2e-7 } else { 0.0 };
    rounded(exact * (1.0 + off)).copysign(x).to_bits()
}

/// The maximum. A number takes precedence over NaN, and +0 is larger than -0.
pub fn maximum(a: f32, b: f32) -> u32 {
    if a.is_nan() && b.is_nan() {
        return NAN;
    }
    if a == b {
        return if a.is_sign_negative() { b.to_bits() } else { a.to_bits() };
    }
    if b.is_nan() || a > b { a.to_bits() } else { b.to_bits() }
}

/// The minimum. A number takes precedence over NaN, and -0 is smaller than +0.
pub fn minimum(a: f32, b: f32) -> u32 {
    if a.is_nan() && b.is_nan() {
        return NAN;
    }
    if a == b {
        return if a.is_sign_negative() { a.to_bits() } else { b.to_bits() };
    }
    if b.is_nan() || a < b { a.to_bits() } else { b.to_bits() }
}

/// Converts to bfloat16: the nearest, with ties to even.
pub fn bfloat16(bits: u32) -> u32 {
    if f32::from_bits(bits).is_nan() {
        return NAN >> 16;
    }
    (bits + 0x7fff + ((bits >> 16) & 1)) >> 16
}

/// `bfi.b32`: replaces `length` bits of `into` from `position` by the low bits of `field`.
pub fn insert_field(field: u32, into: u32, position: u32, length: u32) -> u32 {
    let (position, length) = (position & 0xff, length & 0xff);
    let ones = |n: u32| 1_u32.checked_shl(n).map_or(u32::MAX, |bit| bit - 1);
    let mask = ones(length).checked_shl(position).unwrap_or(0);
    (into & !mask) | (field.checked_shl(position).unwrap_or(0) & mask)
}

/// The sum of an accumulator and products on tensor cores, truncated to f32. The ISA does not specify the rounding.
pub fn accumulated(accumulator: f32, products: f64) -> f32 {
    let exact = f64::from(accumulator) + products;
    let nearest = rounded(exact);
    if f64::from(nearest).abs() > exact.abs() && nearest.is_finite() {
        return f32::from_bits(nearest.to_bits() - 1);
    }
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approximations_are_within_what_the_isa_allows() {
        for i in 0..200_000_u32 {
            let bits = i.wrapping_mul(21_467);
            let x = f32::from_bits(bits);
            if !x.is_normal() {
                continue;
            }
            let close = |given: u32, exact: f64, relative: f64| {
                let given = f64::from(f32::from_bits(given));
                // Smaller results are flushed to zero.
                let tiny = exact.abs() < f64::from(f32::MIN_POSITIVE) * 1.01;
                assert!(tiny || rounded(exact).is_infinite() || (given - exact).abs() <= relative * exact.abs(), "{x}");
            };
            // The bounds include one rounding of the result.
            close(power_of_two(bits), f64::from(x).exp2(), 3.1e-7);
            close(reciprocal(bits), 1.0 / f64::from(x), 1.2e-7);
            if x > 0.0 {
                close(inverse_root(bits), 1.0 / f64::from(x).sqrt(), 1.9e-7);
                if !(0.5..=2.0).contains(&x) {
                    close(logarithm(bits), f64::from(x).log2(), 3.1e-7);
                }
            }
        }
        assert_eq!(f32::from_bits(power_of_two(0)), 1.0);
        assert_eq!(f32::from_bits(power_of_two((-1e30_f32).to_bits())), 0.0);
        assert!(f32::from_bits(logarithm((-1.0_f32).to_bits())).is_nan());
    }

    #[test]
    fn special_values_follow_the_isa() {
        let [nan, zero, negative_zero] = [f32::NAN, 0.0, -0.0];
        assert_eq!([maximum(nan, 2.0), maximum(2.0, nan), minimum(nan, 2.0)], [2.0_f32.to_bits(); 3]);
        assert_eq!([maximum(negative_zero, zero), maximum(zero, negative_zero)], [0, 0]);
        assert_eq!([minimum(negative_zero, zero), minimum(zero, negative_zero)], [1 << 31, 1 << 31]);
        assert_eq!(maximum(nan, nan), NAN);
        // Ties round to even, and NaN has a single bit pattern.
        assert_eq!([0x3f80_8000, 0x3f81_8000, 0x3f80_8001].map(bfloat16), [0x3f80, 0x3f82, 0x3f81]);
        assert_eq!(bfloat16(0xffc0_0000), 0x7fff);
        assert_eq!(insert_field(0b101, 0xffff_ffff, 4, 3), 0xffff_ffdf);
        assert_eq!(insert_field(0xffff_ffff, 0, 32, 8), 0, "beyond the last bit");
        assert_eq!(insert_field(0xdead_beef, 0, 0, 32), 0xdead_beef);
    }

    #[test]
    fn sums_of_tensor_cores_are_cut_off() {
        assert_eq!(accumulated(1.0, 2.0_f64.powi(-24) * 1.5), 1.0);
        assert_eq!(accumulated(-1.0, -(2.0_f64.powi(-24)) * 1.9), -1.0);
        assert_eq!(accumulated(1.0, 2.0_f64.powi(-23)), 1.0 + f32::EPSILON);
        assert!(accumulated(f32::INFINITY, 1.0).is_infinite() && accumulated(f32::NAN, 1.0).is_nan());
    }
}
