//! Decimal numbers as text, read and written.
//!
//! The one place where text becomes a float and a float text. The standard library would do, and brings the page fifteen
//! kilobytes for it, most of them tables that no compression shrinks; lexical's compact ways do without.

use lexical_parse_float::FromLexical;
use lexical_write_float::{FormattedSize, ToLexical};

/// Reads a decimal number: digits with an optional sign, point and exponent, or `inf`, `infinity`, `nan` in any case;
/// rounded to the nearest float, ties to even. `None` where anything else stands in the text.
#[must_use]
pub fn parse(text: &str) -> Option<f64> {
    f64::from_lexical(text.as_bytes()).ok()
}

/// Digits that read back as the same float, as Python's `repr` writes them: `0.0006`, `6e-05`, `1e+16`, `1.0`. Shortest
/// but for about one float in a thousand, which gets a digit more.
#[must_use]
pub fn shortest(value: f64) -> String {
    if !value.is_finite() {
        return (if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        })
        .to_owned();
    }
    let mut buffer = [0; f64::FORMATTED_SIZE_DECIMAL];
    let written = value.abs().to_lexical(&mut buffer);
    // The digits without leading zeros, and how many of them stand before the point.
    let (mut digits, mut point, mut seen_point, mut exponent) = (String::new(), 0_i32, false, 0_i32);
    let mut bytes = written.iter();
    for &byte in bytes.by_ref() {
        match byte {
            b'.' => seen_point = true,
            b'e' => break,
            b'0' if digits.is_empty() => point -= i32::from(seen_point),
            digit => {
                digits.push(char::from(digit));
                point += i32::from(!seen_point);
            }
        }
    }
    let is_negative = bytes.as_slice().first() == Some(&b'-');
    for &byte in bytes.filter(|byte| byte.is_ascii_digit()) {
        exponent = exponent * 10 + i32::from(byte - b'0');
    }
    point += if is_negative { -exponent } else { exponent };
    let digits = digits.trim_end_matches('0');
    let text = if digits.is_empty() { "0.0".to_owned() } else { placed(digits, point) };
    if value.is_sign_negative() { format!("-{text}") } else { text }
}

/// Digits with a point behind the first `point` of them, by Python's rule for when an exponent is written.
fn placed(digits: &str, point: i32) -> String {
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or(0));
    let n_digits = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    match point {
        -3..=0 => format!("0.{}{digits}", zeros(-point)),
        1..=16 if n_digits <= point => format!("{digits}{}.0", zeros(point - n_digits)),
        1..=16 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
            format!("{whole}.{fraction}")
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            let (dot, exponent) = (if rest.is_empty() { "" } else { "." }, point - 1);
            let (sign, size) = (if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs());
            format!("{first}{dot}{rest}e{sign}{}{size}", if size < 10 { "0" } else { "" })
        }
    }
}

/// `part / whole` with so many decimals, at most 9, exact and rounded half to even, as `printf` does.
#[must_use]
pub fn ratio(part: u64, whole: u64, decimals: u32) -> String {
    let scale = 10_u128.pow(decimals.min(9));
    let whole = u128::from(whole.max(1));
    let scaled = u128::from(part) * scale;
    let (mut rounded, rest) = (scaled / whole, scaled % whole);
    if rest * 2 > whole || (rest * 2 == whole && rounded % 2 == 1) {
        rounded += 1;
    }
    if decimals == 0 {
        return rounded.to_string();
    }
    let width = decimals as usize;
    format!("{}.{:0width$}", rounded / scale, rounded % scale)
}

/// A number from 0 up, of a drawing or a share, with so many decimals; what is larger than a drawing stays at 10^12.
#[must_use]
pub fn fixed(value: f64, decimals: u32) -> String {
    let scale = 10_u32.pow(decimals.min(6));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let scaled = (value.clamp(0.0, 1e12) * f64::from(scale)).round() as u64;
    ratio(scaled, u64::from(scale), decimals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_float_reads_back(bits: u64) {
            let float = f64::from_bits(bits);
            prop_assume!(!float.is_nan());
            prop_assert_eq!(parse(&format!("{float:?}")), Some(float));
        }

        /// The standard library is the judge; half-way cases need all of their digits.
        #[test]
        fn rounds_as_the_standard_library(text in "[-+]?[0-9]{0,25}(\\.[0-9]{0,25})?([eE][-+]?[0-9]{1,3})?") {
            prop_assert_eq!(parse(&text), text.parse().ok(), "{}", text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(bits: u64) {
            let float = f64::from_bits(bits);
            prop_assume!(!float.is_nan());
            prop_assert_eq!(parse(&shortest(float)), Some(float), "{}", shortest(float));
        }

        #[test]
        fn a_ratio_is_printed_as_by_the_standard_library(part in 0_u64..1 << 50, log2 in 0_u32..40, decimals in 0_u32..4) {
            // Divided by a power of two, the float is exact.
            let whole = 1_u64 << log2;
            let float = part as f64 / whole as f64;
            prop_assert_eq!(ratio(part, whole, decimals), format!("{float:.*}", decimals as usize));
        }
    }

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (float, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (6e-4, "0.0006"),
            (1e-4, "0.0001"),
            (6e-5, "6e-05"),
            (0.95, "0.95"),
            (123_456.789, "123456.789"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (-2.5e-300, "-2.5e-300"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(shortest(float), text);
        }
    }

    #[test]
    fn numbers_of_a_drawing() {
        assert_eq!(
            (fixed(12.34, 1), fixed(0.0, 3), fixed(f64::NAN, 1), fixed(99.96, 1)),
            ("12.3".into(), "0.000".into(), "0.0".into(), "100.0".into())
        );
    }

    #[test]
    fn half_way_between_two_floats() {
        for text in
            ["9007199254740993", "9007199254740993.00000000000000000000000000000000001", "2.2250738585072011e-308"]
        {
            assert_eq!(parse(text), text.parse().ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_number() {
        for text in ["", ".", "1e", "e1", "1_0", "0x1", " 1", "1.2.3", "--1", "١"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
