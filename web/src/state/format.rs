//! Bytes, shapes and names as the page writes them.

use headroom_shared::{decimal, plan::basis::Certainty, units};

use crate::text;

/// A size for a person: GiB with two decimals, MiB below one GiB.
pub fn size(bytes: u64) -> String {
    text::table().number(&units::human_size(bytes))
}

/// A size with its sign, for what is left or missing.
pub fn signed_size(bytes: i64) -> String {
    let magnitude = size(bytes.unsigned_abs());
    if bytes < 0 { format!("−{magnitude}") } else { magnitude }
}

/// The exact count, grouped by thousands: what a size shows on hover.
pub fn exact_bytes(bytes: u64) -> String {
    format!("{} {}", grouped(bytes), text::t(text::BYTES))
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    text::table().grouped(number)
}

/// A shape as PyTorch writes it; a scalar is `()`.
pub fn shape(axes: &[u64]) -> String {
    match axes {
        [only] => format!("({only},)"),
        _ => {
            let axes: Vec<String> = axes.iter().map(u64::to_string).collect();
            format!("({})", axes.join(", "))
        }
    }
}

/// Bytes as GiB for a field that a person edits, without trailing zeros.
pub fn gib_field(bytes: u64) -> String {
    // Two decimals would make nothing of a few MiB.
    let text = decimal::ratio(bytes, units::GIB, if bytes < units::GIB / 10 { 4 } else { 2 });
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The sign beside a figure that tells how sure it is.
pub fn mark(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Exact => "=",
        Certainty::Measured => "•",
        Certainty::Estimated => "≈",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (6_593_445_888, "6,593,445,888")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn shapes_read_as_in_pytorch() {
        assert_eq!(shape(&[65536, 50304]), "(65536, 50304)");
        assert_eq!(shape(&[768]), "(768,)");
        assert_eq!(shape(&[]), "()");
    }

    #[test]
    fn what_is_missing_has_a_minus() {
        assert_eq!(signed_size(-1_600_000_000), "−1.49 GiB");
        assert_eq!(signed_size(1 << 20), "1.0 MiB");
    }

    #[test]
    fn a_field_shows_no_needless_digits() {
        assert_eq!(gib_field(2 << 30), "2");
        assert_eq!(gib_field(3 << 29), "1.5");
        assert_eq!(gib_field(0), "0");
        assert_eq!(gib_field(5 << 20), "0.0049");
    }
}
