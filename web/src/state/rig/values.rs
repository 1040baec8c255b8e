//! Values, durations and missing readings as text.

use headroom_protocol::{
    gpu::Throttle,
    reading::{MissingReason, Reading},
};
use headroom_text::decimal;

use crate::text::{self, Key, say, t};

/// A line of a panel.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The name.
    pub name: Key,
    /// The value.
    pub value: String,
    /// A note. May be empty.
    pub note: String,
}

/// A no-break space between a number and its unit.
pub const BLANK: char = '\u{a0}';

/// A number with its unit.
pub fn with_unit(number: &str, unit: &str) -> String {
    format!("{}{BLANK}{unit}", text::table().number(number))
}

/// A value with `decimals` decimals and its unit.
pub fn value(value: f64, decimals: u32, unit: &str) -> String {
    with_unit(&decimal::fixed(value, decimals), unit)
}

/// The reason why a reading is missing.
pub fn why(why: MissingReason) -> &'static str {
    t(match why {
        MissingReason::NotSupported => text::RIG_NOT_SUPPORTED,
        MissingReason::NoPermission => text::RIG_NO_PERMISSION,
        MissingReason::HiddenByWindows => text::RIG_HIDDEN_BY_WINDOWS,
        MissingReason::GpuLost => text::RIG_CARD_LOST,
        MissingReason::OldDriver => text::RIG_OLD_DRIVER,
        MissingReason::NotVisible => text::RIG_NOT_VISIBLE,
        MissingReason::Implausible => text::RIG_IMPLAUSIBLE,
        MissingReason::NotYet => text::RIG_NOT_YET,
        MissingReason::Failed => text::RIG_FAILED,
    })
}

/// A reading, or the reason why it is missing.
pub fn reading<T>(reading: Option<&Reading<T>>, words: impl FnOnce(&T) -> String) -> String {
    match reading {
        Some(Reading::Is(value)) => words(value),
        Some(Reading::Missing { missing }) => why(*missing).to_owned(),
        None => why(MissingReason::NotYet).to_owned(),
    }
}

/// The reasons why a GPU is throttled; empty if it is not.
pub fn throttled(bits: u64) -> String {
    let reasons: Vec<&str> =
        Throttle::of(bits).filter(|reason| reason.slows()).map(|reason| t(throttle(reason))).collect();
    if reasons.is_empty() { String::new() } else { say(&text::rig_throttled(text::names(reasons))) }
}

const fn throttle(reason: Throttle) -> Key {
    match reason {
        Throttle::Idle => text::RIG_THROTTLE_IDLE,
        Throttle::ApplicationClocks => text::RIG_THROTTLE_OWNER,
        Throttle::PowerCap => text::RIG_THROTTLE_POWER,
        Throttle::HardwareSlowdown => text::RIG_THROTTLE_HARDWARE,
        Throttle::SyncBoost => text::RIG_THROTTLE_SYNC,
        Throttle::SoftwareThermal => text::RIG_THROTTLE_HEAT,
        Throttle::HardwareThermal => text::RIG_THROTTLE_HARDWARE_HEAT,
        Throttle::HardwarePowerBrake => text::RIG_THROTTLE_BRAKE,
        Throttle::DisplayClocks => text::RIG_THROTTLE_DISPLAY,
    }
}

/// A duration in its two largest units.
pub fn duration(ms: u64) -> String {
    let (seconds, minutes, hours) = (ms / 1000, ms / 60_000, ms / 3_600_000);
    match hours {
        0 if minutes == 0 => say(&text::rig_seconds(seconds)),
        0 => say(&text::rig_minutes(minutes, seconds % 60)),
        1..48 => say(&text::rig_hours(hours, minutes % 60)),
        _ => say(&text::rig_days(hours / 24, hours % 24)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_two_units() {
        for (ms, words) in
            [(900, "0 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min"), (2 * 86_400_000 + 3_600_000, "2 d 1 h")]
        {
            assert_eq!(duration(ms).replace(BLANK, " "), words);
        }
    }

    #[test]
    fn a_missing_reading_says_why() {
        let missing: Reading<u64> = Reading::missing(MissingReason::HiddenByWindows);
        assert!(reading(Some(&missing), |_| unreachable!("the reading is missing")).contains("Windows"));
        assert_eq!(reading(Some(&Reading::Is(3_u64)), |n| value(*n as f64, 0, "W")), "3\u{a0}W");
    }

    #[test]
    fn only_what_slows_a_gpu_is_reported() {
        assert_eq!(throttled(Throttle::Idle.bit() | Throttle::ApplicationClocks.bit()), "");
        let both = throttled(Throttle::PowerCap.bit() | Throttle::HardwareThermal.bit() | 1 << 60);
        assert!(both.contains("power") && both.contains("temperature"), "{both}");
    }
}
