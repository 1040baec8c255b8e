//! Decimal numbers as text, read and written.
//!
//! The one place where text becomes a float and a float text. The standard library would do, and brings the page fifteen
//! kilobytes for it, most of them tables that no compression shrinks; a crate made to be compact brings as much code.
//! `exact` is two kilobytes.

mod exact;

/// Reads a decimal number: digits with an optional sign, point and exponent, or `inf`, `infinity`, `nan` in any case;
/// rounded to the nearest float, ties to even. `None` where anything else stands in the text.
#[must_use]
pub fn parse(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (number, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let value = if are_digits(whole) && are_digits(fraction) && whole.len() + fraction.len() > 0 {
        let exponent = exponent.map_or(Some(0), power)?;
        exact::nearest(whole.bytes().chain(fraction.bytes()), exponent.saturating_sub(fraction.len() as i64))
    } else if ["inf", "infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name)) {
        f64::INFINITY
    } else if unsigned.eq_ignore_ascii_case("nan") {
        f64::NAN
    } else {
        return None;
    };
    Some(if text.starts_with('-') { -value } else { value })
}

/// An exponent; beyond any float's it stays where it is.
fn power(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    let mut power = 0_i64;
    for byte in digits.bytes() {
        power = (power * 10 + i64::from(byte.is_ascii_digit().then(|| byte - b'0')?)).min(EXPONENT_MAX);
    }
    Some(if text.starts_with('-') { -power } else { power })
}

/// Larger than the digits of any text are many, so that it outweighs them.
const EXPONENT_MAX: i64 = 1 << 50;

/// The fewest digits that read back as the same float, as Python's `repr` writes them: `0.0006`, `6e-05`, `1e+16`, `1.0`.
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
    let text = if value == 0.0 {
        "0.0".to_owned()
    } else {
        let (number, exponent) = exact::shortest(value.abs());
        let digits = number.to_string();
        let point = exponent + digits.len() as i64;
        placed(digits.trim_end_matches('0'), i32::try_from(point).unwrap_or(0))
    };
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

/// Whole numbers as a list with commas: `13, 15`.
#[must_use]
pub fn list(numbers: &[u64]) -> String {
    let numbers = numbers.iter().map(u64::to_string);
    numbers.reduce(|list, number| list + ", " + &number).unwrap_or_default()
}

/// `part / whole` with so many decimals, at most 9, exact and rounded half to even, as `printf` does.
#[must_use]
pub fn ratio(part: u64, whole: u64, decimals: u32) -> String {
    let scale = 10_u64.pow(decimals.min(9));
    let whole = u128::from(whole.max(1));
    let scaled = u128::from(part) * u128::from(scale);
    let (mut rounded, rest) = (scaled / whole, scaled % whole);
    if rest * 2 > whole || (rest * 2 == whole && rounded % 2 == 1) {
        rounded += 1;
    }
    // Both parts have 64 bits, and code that writes 128 bits is a kilobyte of a page.
    #[expect(clippy::cast_possible_truncation, reason = "at most `part`, and less than `scale`")]
    let (units, fraction) = ((rounded / u128::from(scale)) as u64, (rounded % u128::from(scale)) as u64);
    if decimals == 0 {
        return units.to_string();
    }
    let width = decimals as usize;
    format!("{units}.{fraction:0width$}")
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
        fn written_data_reads_back(bits: u64) {
            let float = f64::from_bits(bits);
            prop_assume!(!float.is_nan());
            prop_assert_eq!(parse(&shortest(float)), Some(float), "{}", shortest(float));
        }

        #[test]
        fn no_digit_more_than_the_standard_library(bits: u64) {
            let float = f64::from_bits(bits);
            prop_assume!(float.is_finite());
            let n_digits = |text: &str| {
                let digits: String = text.split('e').next().unwrap_or("").chars().filter(char::is_ascii_digit).collect();
                digits.trim_start_matches('0').trim_end_matches('0').len()
            };
            prop_assert_eq!(n_digits(&shortest(float)), n_digits(&format!("{float:e}")), "{}", float);
        }

        #[test]
        fn as_many_digits_as_there_may_be(text in "0{0,3}[0-9]{0,900}\\.[0-9]{1,900}e-?[0-9]{1,3}") {
            prop_assert_eq!(parse(&text), text.parse().ok());
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
        for text in [
            "9007199254740993",
            "9007199254740993.00000000000000000000000000000000001",
            "2.2250738585072011e-308",
            "5e-324",
            "2.4703282292062327e-324",
            "2.4703282292062328e-324",
            "1.7976931348623158e308",
            "1.7976931348623159e308",
            "1e999999999999999999999",
            "-1e-999999999999999999999",
            "0e9999999999999",
        ] {
            assert_eq!(parse(text), text.parse().ok(), "{text}");
        }
    }

    #[test]
    fn invalid_numbers_do_not_parse() {
        for text in ["", ".", "1e", "e1", "1_0", "0x1", " 1", "1.2.3", "--1", "١"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
