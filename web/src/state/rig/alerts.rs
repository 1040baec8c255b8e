//! The rules that an owner sets, one of each kind in a form; more of a kind, which other programs may set, stay.

use headroom_shared::{
    decimal,
    protocol::alert::{Alert, Settings},
};

use crate::text::{self, Key};

/// A kind of rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A card is too hot.
    Temperature,
    /// Too much of a card's memory is used.
    Memory,
    /// A run does not go on.
    Progress,
    /// A card is gone.
    Lost,
    /// A run failed.
    Failed,
}

impl Kind {
    /// All, in the form's order.
    pub const ALL: [Self; 5] = [Self::Temperature, Self::Memory, Self::Progress, Self::Lost, Self::Failed];

    const fn of(alert: &Alert) -> Self {
        match alert {
            Alert::TemperatureAbove { .. } => Self::Temperature,
            Alert::MemoryAbove { .. } => Self::Memory,
            Alert::NoProgress { .. } => Self::Progress,
            Alert::CardLost => Self::Lost,
            Alert::RunFailed => Self::Failed,
        }
    }

    /// What stands before its number, or all of it.
    pub const fn name(self) -> Key {
        match self {
            Self::Temperature => text::RIG_RULE_TEMPERATURE,
            Self::Memory => text::RIG_RULE_MEMORY,
            Self::Progress => text::RIG_RULE_PROGRESS,
            Self::Lost => text::RIG_ALERT_LOST,
            Self::Failed => text::RIG_ALERT_FAILED,
        }
    }

    /// The unit of its number, with what it is at first, at least and at most; nothing where it has none.
    pub const fn number(self) -> Option<(&'static str, [u64; 3])> {
        match self {
            Self::Temperature => Some(("°C", [85, 30, 120])),
            Self::Memory => Some(("%", [95, 1, 100])),
            Self::Progress => Some(("min", [10, 1, 10_080])),
            Self::Lost | Self::Failed => None,
        }
    }

    const fn rule(self, number: u64) -> Alert {
        match self {
            Self::Temperature => Alert::TemperatureAbove { celsius: number },
            Self::Memory => Alert::MemoryAbove { percent: number },
            Self::Progress => Alert::NoProgress { minutes: number },
            Self::Lost => Alert::CardLost,
            Self::Failed => Alert::RunFailed,
        }
    }

    /// Whether it is set, and its number.
    pub fn read(self, settings: &Settings) -> (bool, u64) {
        let set = settings.alerts.iter().find(|alert| Self::of(alert) == self);
        let number = match set {
            Some(Alert::TemperatureAbove { celsius: number })
            | Some(Alert::MemoryAbove { percent: number })
            | Some(Alert::NoProgress { minutes: number }) => Some(*number),
            _ => None,
        };
        (set.is_some(), number.or(self.number().map(|(_, [first, ..])| first)).unwrap_or(0))
    }

    /// Sets it, or takes it away.
    pub fn write(self, settings: &mut Settings, is_on: bool, number: u64) {
        let number = self.number().map_or(0, |(_, [_, least, most])| number.clamp(least, most));
        let at = settings.alerts.iter().position(|alert| Self::of(alert) == self);
        match (at, is_on) {
            (Some(at), true) => settings.alerts[at] = self.rule(number),
            (None, true) => settings.alerts.push(self.rule(number)),
            (Some(_), false) => settings.alerts.retain(|alert| Self::of(alert) != self),
            (None, false) => {}
        }
    }
}

/// Characters of a currency at most, as the agent takes them.
const CURRENCY_CHARS_MAX: usize = 8;

/// Takes a price as it was typed; false where it is none. Nothing typed is no price.
pub fn write_price(settings: &mut Settings, price: &str, currency: &str) -> bool {
    let price = price.trim().replace(',', ".");
    if price.is_empty() {
        settings.price_per_kwh = None;
    } else {
        match decimal::parse(&price).filter(|price| price.is_finite() && (0.0..=PRICE_MAX).contains(price)) {
            Some(price) => settings.price_per_kwh = Some(price),
            None => return false,
        }
    }
    settings.currency = currency.trim().chars().take(CURRENCY_CHARS_MAX).collect();
    true
}

/// In no currency does a kilowatt-hour cost more.
const PRICE_MAX: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_set_changed_and_taken_away() {
        let mut settings = Settings::default();
        for kind in Kind::ALL {
            assert!(!kind.read(&settings).0);
            kind.write(&mut settings, true, 50);
            assert!(kind.read(&settings).0);
        }
        assert_eq!(settings.alerts.len(), 5);
        assert_eq!(Kind::Temperature.read(&settings), (true, 50));
        Kind::Temperature.write(&mut settings, true, 5000);
        assert_eq!(settings.alerts[0], Alert::TemperatureAbove { celsius: 120 });
        Kind::Temperature.write(&mut settings, false, 0);
        assert_eq!((settings.alerts.len(), Kind::Temperature.read(&settings)), (4, (false, 85)));
    }

    #[test]
    fn another_rule_of_a_kind_stays() {
        let mut settings = Settings {
            alerts: vec![Alert::MemoryAbove { percent: 90 }, Alert::MemoryAbove { percent: 99 }],
            ..Settings::default()
        };
        Kind::Memory.write(&mut settings, true, 80);
        assert_eq!(settings.alerts, [Alert::MemoryAbove { percent: 80 }, Alert::MemoryAbove { percent: 99 }]);
    }

    #[test]
    fn a_price_is_read_with_either_mark_and_refused_where_it_is_none() {
        let mut settings = Settings::default();
        assert!(write_price(&mut settings, " 0,35 ", " € "));
        assert_eq!((settings.price_per_kwh, settings.currency.as_str()), (Some(0.35), "€"));
        for wrong in ["x", "-1", "1e9", "NaN", "inf"] {
            assert!(!write_price(&mut settings, wrong, "€"), "{wrong}");
        }
        assert!(write_price(&mut settings, "", "EUR per kWh and more"));
        assert_eq!((settings.price_per_kwh, settings.currency.as_str()), (None, "EUR per "));
    }
}
