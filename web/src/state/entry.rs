//! Parsing of the form's fields. Invalid input yields the expected format.

use headroom_planner::{memory::message::TorchVersion, session::Options};
use headroom_text::{
    Key, decimal,
    units::{GIB, parse_size},
};
use leptos::prelude::*;

/// The expected format, if the input is invalid.
pub type Fault = Option<Key>;

/// The fields of a form whose text is invalid, by label, with the expected format. While there is one, the form has no
/// answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults(RwSignal<Vec<(&'static str, Key)>>, RwSignal<u32>);

impl Faults {
    /// The first invalid field.
    pub fn first(self) -> Option<(&'static str, Key)> {
        self.0.with(|faults| faults.first().copied())
    }

    /// The fault of a field.
    pub fn of(self, label: &str) -> Fault {
        self.0.with(|faults| faults.iter().find(|(of, _)| *of == label).map(|(_, expected)| *expected))
    }

    /// Sets or clears the fault of a field.
    pub fn set(self, label: &'static str, fault: Fault) {
        let known = self.0.with_untracked(|faults| faults.iter().find(|(of, _)| *of == label).map(|(_, key)| *key));
        if known != fault {
            self.0.update(|faults| {
                faults.retain(|(of, _)| *of != label);
                faults.extend(fault.map(|expected| (label, expected)));
            });
        }
    }

    /// Clears every fault: the fields show the values of the session again.
    pub fn clear(self) {
        self.0.set(Vec::new());
        self.reset();
    }

    /// Makes each valid field show the value of the session, also the field with the focus. A restored run or an action
    /// elsewhere changed the value, not the text in the field.
    pub fn reset(self) {
        self.1.update(|n| *n = n.wrapping_add(1));
    }

    /// The number of calls of [`Faults::reset`], tracked.
    pub fn n_resets(self) -> u32 {
        self.1.get()
    }
}

/// More memory than any GPU or host has; a larger size is a typing error.
const BYTES_MAX: u64 = 1024 * GIB;
/// The largest count; whole numbers up to here are exact as floats.
const COUNT_MAX: f64 = 9.0e15;

/// The bytes of a size with a unit, or of a bare number in `unit`.
pub fn size(typed: &str, unit: &str) -> Option<u64> {
    let mut typed = with_point(typed)?;
    if typed.ends_with(|c: char| c.is_ascii_digit() || c == '.') {
        typed.push_str(unit);
    }
    parse_size(&typed).ok().filter(|bytes| *bytes <= BYTES_MAX)
}

/// Parses a whole number from `min` up; 8, 8.0 and 8e0 are the same.
pub fn count(typed: &str, min: i64) -> Option<i64> {
    let number = decimal::parse(typed.trim())?;
    let is_count = number.fract() == 0.0 && (min as f64..=COUNT_MAX).contains(&number);
    #[expect(clippy::cast_possible_truncation, reason = "the range was just checked")]
    is_count.then_some(number as i64)
}

/// Parses a number from 0 to 1.
pub fn share(typed: &str) -> Option<f64> {
    number(typed).filter(|share| (0.0..=1.0).contains(share))
}

/// Parses any number.
pub fn number(typed: &str) -> Option<f64> {
    decimal::parse(&with_point(typed)?)
}

/// Parses a version of PyTorch; an empty text is the default version.
pub fn torch(typed: &str) -> Option<String> {
    match typed.trim() {
        "" => Some(Options::default().torch),
        typed => typed.parse::<TorchVersion>().is_ok().then(|| typed.to_owned()),
    }
}

/// Replaces a decimal comma by a point; `None` if the comma may be a thousands separator.
fn with_point(typed: &str) -> Option<String> {
    let typed = typed.trim();
    let Some((whole, rest)) = typed.split_once(',') else { return Some(typed.to_owned()) };
    let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    ((n_digits != 3 || whole == "0") && !whole.contains('.')).then(|| format!("{whole}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_text::units::MIB;

    #[test]
    fn sizes_are_taken_as_people_write_them() {
        for (typed, bytes) in [
            ("2", 2 * GIB),
            (" 2.5 ", 5 * GIB / 2),
            ("2,5", 5 * GIB / 2),
            ("0,125", GIB / 8),
            ("800MiB", 800 * MIB),
            ("800 mib", 800 * MIB),
            ("1,5 GB", 1_500_000_000),
            ("0", 0),
            ("1024", 1024 * GIB),
        ] {
            assert_eq!(size(typed, "GiB"), Some(bytes), "{typed}");
        }
        assert_eq!(size("480", "MiB"), Some(480 * MIB));
    }

    #[test]
    fn invalid_size_is_not_guessed() {
        // A comma before three digits is ambiguous: a decimal comma or a thousands separator.
        for typed in
            ["", "abc", "-1", "1,024", "1.024,5", "1,2,3", "1e3", "1024.1", "2 parsecs", "NaN", "inf", "\u{ff12}"]
        {
            assert_eq!(size(typed, "GiB"), None, "{typed}");
        }
    }

    #[test]
    fn counts_are_whole_and_not_below_their_least() {
        for (typed, min, expected) in [
            ("8", 1, Some(8)),
            (" 8.0 ", 1, Some(8)),
            ("1e3", 1, Some(1000)),
            ("0", 0, Some(0)),
            ("0", 1, None),
            ("-3", 0, None),
            ("8.5", 1, None),
            ("", 1, None),
            ("x", 0, None),
            ("inf", 0, None),
            ("nan", 0, None),
            ("1e16", 0, None),
        ] {
            assert_eq!(count(typed, min), expected, "{typed}");
        }
    }

    #[test]
    fn shares_lie_between_0_and_1() {
        for (typed, expected) in
            [("0.1", Some(0.1)), ("0,1", Some(0.1)), ("1", Some(1.0)), ("1.5", None), ("-0.1", None), ("", None)]
        {
            assert_eq!(share(typed), expected, "{typed}");
        }
    }

    #[test]
    fn no_version_is_the_recorded_one() {
        assert_eq!(torch(" "), Some(Options::default().torch));
        assert_eq!(torch("2.5.1+cu124").as_deref(), Some("2.5.1+cu124"));
        assert_eq!((torch("2."), torch("latest")), (None, None));
    }
}
