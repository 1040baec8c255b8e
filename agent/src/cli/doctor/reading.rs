//! Readings as text: the value with its unit, or the reason why it is missing.

use headroom_protocol::reading::{MissingReason, Reading};
use headroom_text::units::human_size;

/// Returns a reason as text.
pub const fn why(why: MissingReason) -> &'static str {
    match why {
        MissingReason::NotSupported => "this GPU does not have it",
        MissingReason::NoPermission => "only this system's administrator may read it",
        MissingReason::HiddenByWindows => "Windows manages the memory and does not tell",
        MissingReason::GpuLost => "the GPU is lost",
        MissingReason::OldDriver => "the driver is older than this reading",
        MissingReason::Implausible => "implausible value: the driver answered what no GPU can have",
        MissingReason::NotVisible => "not visible from here: of another container, or just ended",
        MissingReason::NotYet => "not read yet",
        MissingReason::Failed => "the driver failed to answer",
    }
}

/// Formats a reading, with `say` for its value.
pub fn words<T>(reading: &Reading<T>, say: impl FnOnce(&T) -> String) -> String {
    match reading {
        Reading::Is(value) => say(value),
        Reading::Missing { missing } => format!("missing: {}", why(*missing)),
    }
}

/// Formats a size in bytes.
pub fn size(reading: &Reading<u64>) -> String {
    words(reading, |bytes| human_size(*bytes))
}

/// Formats a number with its unit.
pub fn unit<T: std::fmt::Display>(reading: &Reading<T>, unit: &str) -> String {
    words(reading, |value| format!("{value}{unit}"))
}

/// Formats a fraction with one decimal and its unit.
pub fn decimal(reading: &Reading<f64>, unit: &str) -> String {
    words(reading, |value| format!("{value:.1}{unit}"))
}
