//! The form of the owner's settings: alert rules, of which several may have the same kind, and the energy price.
//! Changes from another device are kept beside the user's edits until the user chooses.

use headroom_protocol::alert::{ALERTS_MAX, Alert, Settings};
use headroom_text::decimal;

use crate::text::{self, Key};

/// A kind of rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A GPU is too hot.
    Temperature,
    /// Too much of a GPU's memory is in use.
    Memory,
    /// A run makes no progress.
    Progress,
    /// A GPU is lost.
    Lost,
    /// A run failed.
    Failed,
}

impl Kind {
    /// All kinds, in the form's order.
    pub const ALL: [Self; 5] = [Self::Temperature, Self::Memory, Self::Progress, Self::Lost, Self::Failed];

    /// A rule's kind and number.
    const fn read(alert: &Alert) -> (Self, u64) {
        match *alert {
            Alert::TemperatureAbove { celsius } => (Self::Temperature, celsius),
            Alert::MemoryAbove { percent } => (Self::Memory, percent),
            Alert::NoProgress { minutes } => (Self::Progress, minutes),
            Alert::GpuLost => (Self::Lost, 0),
            Alert::RunFailed => (Self::Failed, 0),
        }
    }

    /// The text before its number, or the whole text.
    pub const fn name(self) -> Key {
        match self {
            Self::Temperature => text::RIG_RULE_TEMPERATURE,
            Self::Memory => text::RIG_RULE_MEMORY,
            Self::Progress => text::RIG_RULE_PROGRESS,
            Self::Lost => text::RIG_ALERT_LOST,
            Self::Failed => text::RIG_ALERT_FAILED,
        }
    }

    /// The unit of its number, with the default, the minimum and the maximum; `None` for a kind without a number.
    pub const fn number(self) -> Option<(&'static str, [u64; 3])> {
        match self {
            Self::Temperature => Some(("°C", [85, 30, 120])),
            Self::Memory => Some(("%", [95, 1, 100])),
            Self::Progress => Some(("min", [10, 1, 10_080])),
            Self::Lost | Self::Failed => None,
        }
    }

    /// Clamps a number to its bounds.
    fn clamp(self, number: u64) -> u64 {
        self.number().map_or(0, |(_, [_, least, most])| number.clamp(least, most))
    }

    const fn rule(self, number: u64) -> Alert {
        match self {
            Self::Temperature => Alert::TemperatureAbove { celsius: number },
            Self::Memory => Alert::MemoryAbove { percent: number },
            Self::Progress => Alert::NoProgress { minutes: number },
            Self::Lost => Alert::GpuLost,
            Self::Failed => Alert::RunFailed,
        }
    }
}

/// A rule in the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its id during the form's lifetime.
    pub id: u32,
    /// Its kind.
    pub kind: Kind,
    /// Its threshold; unused by a kind without a number.
    pub number: u64,
}

/// The owner's settings, as loaded and as edited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertSettingsForm {
    /// The settings as loaded or saved.
    base: Settings,
    /// The agent's entity tag of `base`.
    tag: String,
    /// The form's value before any edit. It differs from `base` in details, such as spaces around a currency.
    untouched: Option<Settings>,
    /// Settings saved elsewhere since the user began to edit, and their tag.
    theirs: Option<(Settings, String)>,
    /// The rules, in their order.
    pub rules: Vec<Rule>,
    /// The price per kWh, as typed.
    pub price: String,
    /// The currency, as typed.
    pub currency: String,
    /// The number of times that the form was filled; each time, it is redrawn completely.
    pub n_fills: u32,
    n_rules_ever: u32,
}

impl AlertSettingsForm {
    /// Takes the agent's current settings. The user's edits are kept.
    pub fn take(&mut self, settings: Settings, tag: String) {
        let made = self.made();
        if made.as_ref() == Some(&settings) {
            self.saved(settings, tag);
        } else if self.tag.is_empty() || made == self.untouched {
            self.fill(settings, tag);
        } else if tag != self.tag {
            self.theirs = Some((settings, tag));
        } else {
            self.theirs = None;
        }
    }

    /// Marks settings as saved on the agent; later edits are kept.
    pub fn saved(&mut self, settings: Settings, tag: String) {
        self.untouched = Some(settings.clone());
        (self.base, self.tag, self.theirs) = (settings, tag, None);
    }

    fn fill(&mut self, settings: Settings, tag: String) {
        self.rules.clear();
        for alert in settings.alerts.iter().take(ALERTS_MAX) {
            let (kind, number) = Kind::read(alert);
            self.push(kind, number);
        }
        self.price = settings.price_per_kwh.map(decimal::shortest).unwrap_or_default();
        self.currency.clone_from(&settings.currency);
        self.n_fills += 1;
        self.saved(settings, tag);
        self.untouched = self.made();
    }

    fn push(&mut self, kind: Kind, number: u64) {
        self.rules.push(Rule { id: self.n_rules_ever, kind, number });
        self.n_rules_ever += 1;
    }

    /// The edited settings; `None` if the price is invalid.
    pub fn made(&self) -> Option<Settings> {
        let mut settings = self.base.clone();
        settings.alerts = self.rules.iter().map(|rule| rule.kind.rule(rule.number)).collect();
        write_price(&mut settings, &self.price, &self.currency).then_some(settings)
    }

    /// The tag of the settings to replace.
    pub fn tag(&self) -> String {
        self.tag.clone()
    }

    /// Returns whether the user has to choose between these edits and settings saved elsewhere.
    pub const fn has_conflict(&self) -> bool {
        self.theirs.is_some()
    }

    /// Keeps these edits; saving them replaces the settings from elsewhere.
    pub fn keep_mine(&mut self) {
        if let Some((settings, tag)) = self.theirs.take() {
            (self.base, self.tag) = (settings, tag);
        }
    }

    /// Replaces these edits by the settings from elsewhere.
    pub fn take_theirs(&mut self) {
        if let Some((settings, tag)) = self.theirs.take() {
            self.fill(settings, tag);
        }
    }

    /// The rules of a kind.
    pub fn of(&self, kind: Kind) -> Vec<Rule> {
        self.rules.iter().filter(|rule| rule.kind == kind).copied().collect()
    }

    /// Returns whether another rule fits.
    pub fn has_room(&self) -> bool {
        self.rules.len() < ALERTS_MAX
    }

    /// Adds a rule of a kind, with the default number or one above the last rule's.
    pub fn add(&mut self, kind: Kind) {
        if self.has_room() {
            let first = kind.number().map_or(0, |(_, [first, ..])| first);
            let last = self.rules.iter().rev().find(|rule| rule.kind == kind).map(|rule| rule.number);
            let number = last.map_or(first, |last| kind.clamp(last.saturating_add(1)));
            self.push(kind, number);
        }
    }

    /// Switches a kind on, with one rule, or off.
    pub fn switch(&mut self, kind: Kind, is_on: bool) {
        self.rules.retain(|rule| rule.kind != kind);
        if is_on {
            self.add(kind);
        }
    }

    /// Removes a rule.
    pub fn remove(&mut self, id: u32) {
        self.rules.retain(|rule| rule.id != id);
    }

    /// Sets a rule's number and returns the resulting one.
    pub fn set(&mut self, id: u32, number: Option<u64>) -> u64 {
        let Some(rule) = self.rules.iter_mut().find(|rule| rule.id == id) else { return 0 };
        if let Some(number) = number {
            rule.number = rule.kind.clamp(number);
        }
        rule.number
    }
}

/// The most characters of a currency that the agent accepts.
const CURRENCY_CHARS_MAX: usize = 8;

/// Sets the price from the typed text; false if it is invalid. An empty text removes the price.
fn write_price(settings: &mut Settings, price: &str, currency: &str) -> bool {
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

/// The highest price of a kilowatt-hour in any currency.
const PRICE_MAX: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    const HOT: Alert = Alert::TemperatureAbove { celsius: 85 };
    const FULL: Alert = Alert::MemoryAbove { percent: 95 };

    fn settings(alerts: &[Alert]) -> Settings {
        Settings { alerts: alerts.to_vec(), price_per_kwh: Some(0.35), currency: "€".to_owned() }
    }

    fn filled(alerts: &[Alert]) -> AlertSettingsForm {
        let mut form = AlertSettingsForm::default();
        form.take(settings(alerts), "1".to_owned());
        form
    }

    #[test]
    fn rules_are_added_changed_and_taken_away_several_of_a_kind() {
        // A number that another program set is kept, although it is below the form's minimum.
        let cold = Alert::TemperatureAbove { celsius: 20 };
        let mut form = filled(&[cold, Alert::GpuLost, HOT]);
        assert_eq!((form.made(), form.n_fills), (Some(settings(&[cold, Alert::GpuLost, HOT])), 1));
        let [first, second] = form.of(Kind::Temperature)[..] else { panic!("two of them") };
        assert_eq!((form.set(second.id, Some(5000)), form.set(second.id, None)), (120, 120));
        form.remove(first.id);
        form.add(Kind::Temperature);
        form.switch(Kind::Lost, false);
        form.switch(Kind::Progress, true);
        let made = form.made().expect("settings").alerts;
        let most = Alert::TemperatureAbove { celsius: 120 };
        assert_eq!(made, [most, most, Alert::NoProgress { minutes: 10 }]);
        for _ in 0..2 * ALERTS_MAX {
            form.add(Kind::Memory);
        }
        assert_eq!((form.rules.len(), form.has_room()), (ALERTS_MAX, false));
        form.switch(Kind::Memory, false);
        assert_eq!(form.rules.len(), 3);
        let mut ids: Vec<u32> = form.rules.iter().map(|rule| rule.id).collect();
        ids.dedup();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn edited_setting_stays_until_user_chooses() {
        let mut form = filled(&[HOT]);
        form.take(settings(&[FULL]), "2".to_owned());
        assert_eq!((form.has_conflict(), form.n_fills, form.made()), (false, 2, Some(settings(&[FULL]))));
        let spaced = Settings { currency: " € ".to_owned(), ..settings(&[HOT]) };
        form.take(spaced, "2a".to_owned());
        form.take(settings(&[FULL]), "2".to_owned());
        assert_eq!((form.has_conflict(), form.n_fills), (false, 4), "surrounding blanks are not an edit");
        form.switch(Kind::Lost, true);
        form.take(settings(&[FULL]), "2".to_owned());
        assert!(!form.has_conflict(), "the settings did not change elsewhere");
        form.take(settings(&[HOT]), "3".to_owned());
        assert!(form.has_conflict());
        assert_eq!((form.n_fills, form.tag().as_str()), (4, "2"), "saving without resolving the conflict is refused");
        let mine = settings(&[FULL, Alert::GpuLost]);
        let mut other = form.clone();
        other.take_theirs();
        assert_eq!((other.made(), other.tag().as_str(), other.n_fills), (Some(settings(&[HOT])), "3", 5));
        form.keep_mine();
        assert_eq!((form.made(), form.tag().as_str(), form.has_conflict()), (Some(mine.clone()), "3", false));
        // The event of this page's own change may arrive before the response to it.
        form.take(mine.clone(), "4".to_owned());
        form.price = "x".to_owned();
        form.saved(mine, "4".to_owned());
        form.take(settings(&[]), "5".to_owned());
        assert_eq!((form.has_conflict(), form.made()), (true, None), "an incomplete price is kept as typed");
        form.take(settings(&[HOT]), "4".to_owned());
        assert!(!form.has_conflict(), "it was changed back");
    }

    #[test]
    fn price_accepts_both_decimal_marks_and_refuses_others() {
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
