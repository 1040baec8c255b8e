//! Readings in words: the value with its unit, or why there is none.

use headroom_shared::{
    protocol::reading::{Reading, Why},
    units::human_size,
};

/// Why there is none, as a person reads it.
pub const fn why(why: Why) -> &'static str {
    match why {
        Why::NotSupported => "this card does not have it",
        Why::NoPermission => "only this system's administrator may read it",
        Why::HiddenByWindows => "Windows manages the memory and does not tell",
        Why::CardLost => "the card is lost",
        Why::OldDriver => "the driver is older than this reading",
        Why::Implausible => "implausible value: the driver answered what no GPU can have",
        Why::NotVisible => "not visible from here: of another container, or just ended",
        Why::NotYet => "not read yet",
        Why::Failed => "the driver failed to answer",
    }
}

/// A reading, its value said by `say`.
pub fn words<T>(reading: &Reading<T>, say: impl FnOnce(&T) -> String) -> String {
    match reading {
        Reading::Is(value) => say(value),
        Reading::Missing { missing } => format!("missing: {}", why(*missing)),
    }
}

/// Bytes.
pub fn size(reading: &Reading<u64>) -> String {
    words(reading, |bytes| human_size(*bytes))
}

/// A number with its unit behind it.
pub fn unit<T: std::fmt::Display>(reading: &Reading<T>, unit: &str) -> String {
    words(reading, |value| format!("{value}{unit}"))
}

/// A fraction with one decimal and its unit.
pub fn decimal(reading: &Reading<f64>, unit: &str) -> String {
    words(reading, |value| format!("{value:.1}{unit}"))
}
