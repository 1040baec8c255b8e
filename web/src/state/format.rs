//! Formatting of bytes, shapes and names.

use headroom_planner::{oom, plan::basis::Certainty};
use headroom_text::{decimal, units};

use crate::text::{self, t};

/// A human-readable size with two decimals and grouped digits: TiB from 1 TiB, MiB below 1 GiB, else GiB.
pub fn size(bytes: u64) -> String {
    let (size, table) = (units::human_size(bytes), text::table());
    match size.split_once('.') {
        Some((whole, rest)) => table.number(whole) + &table.number(&format!(".{rest}")),
        None => table.number(&size),
    }
}

/// A size with its sign, for free or missing memory.
pub fn signed_size(bytes: i64) -> String {
    let magnitude = size(bytes.unsigned_abs());
    if bytes < 0 { format!("−{magnitude}") } else { magnitude }
}

/// A difference in size with its sign; zero has none.
pub fn difference(bytes: i64) -> String {
    let size = signed_size(bytes);
    if bytes > 0 { format!("+{size}") } else { size }
}

/// The exact number of bytes, grouped by thousands, as a size shows it on hover.
pub fn exact_bytes(bytes: u64) -> String {
    format!("{} {}", grouped(bytes), t(text::BYTES))
}

/// Formats a number in groups of three digits.
pub fn grouped(number: u64) -> String {
    text::table().grouped(number)
}

/// A shape in PyTorch's notation; a scalar is `()`.
pub fn shape(axes: &[u64]) -> String {
    match axes {
        [only] => format!("({only},)"),
        _ => oom::shape(axes),
    }
}

/// Bytes in GiB for an input field, without trailing zeros.
pub fn gib_field(bytes: u64) -> String {
    // Two decimals would round a few MiB to zero.
    let text = decimal::ratio(bytes, units::GIB, if bytes < units::GIB / 10 { 4 } else { 2 });
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The sign beside a figure that shows its certainty.
pub fn mark(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Exact => "=",
        Certainty::Measured => "•",
        Certainty::Estimated => "≈",
    }
}

/// The title of a part that shows a plan, marked if it is that of an earlier input.
pub fn marked_previous(title: String, is_previous: bool) -> String {
    if is_previous { [&title, " (", t(text::PREVIOUS_PLAN), ")"].concat() } else { title }
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
    fn missing_bytes_have_a_minus() {
        assert_eq!(signed_size(-1_600_000_000), "−1.49 GiB");
        assert_eq!(signed_size(1 << 20), "1.0 MiB");
        // A run of 500 layers with a context of 16384, on a GPU of 12 GB.
        assert_eq!(signed_size(-2_510_621_167_929_262), "−2,283.40 TiB");
    }

    #[test]
    fn differences_have_a_sign() {
        assert_eq!([1 << 30, -(1 << 30)].map(difference), ["+1.00 GiB", "−1.00 GiB"]);
        assert!(!difference(0).contains(['+', '−']));
    }

    #[test]
    fn a_field_shows_no_needless_digits() {
        assert_eq!(gib_field(2 << 30), "2");
        assert_eq!(gib_field(3 << 29), "1.5");
        assert_eq!(gib_field(0), "0");
        assert_eq!(gib_field(5 << 20), "0.0049");
    }
}
