//! Decimal numbers as text.
//!
//! The one place where text becomes a float. `str::parse` would do, and brings the page ten kilobytes of powers of
//! five that no compression shrinks; `lexical-parse-float`'s compact way rounds as correctly without them.

/// Reads a decimal number: digits with an optional sign, point and exponent, or `inf`, `infinity`, `nan` in any case;
/// rounded to the nearest float, ties to even. `None` where anything else stands in the text.
#[must_use]
pub fn parse(text: &str) -> Option<f64> {
    lexical_parse_float::FromLexical::from_lexical(text.as_bytes()).ok()
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
