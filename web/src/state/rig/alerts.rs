//! The form of what an owner sets: rules, several of a kind where one likes, and the price of energy. What another
//! device sets meanwhile is kept beside what a person changes here, until that person chooses.

use headroom_shared::{
    decimal,
    protocol::alert::{ALERTS_MAX, Alert, Settings},
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

    /// A rule's kind, and its number.
    const fn read(alert: &Alert) -> (Self, u64) {
        match *alert {
            Alert::TemperatureAbove { celsius } => (Self::Temperature, celsius),
            Alert::MemoryAbove { percent } => (Self::Memory, percent),
            Alert::NoProgress { minutes } => (Self::Progress, minutes),
            Alert::CardLost => (Self::Lost, 0),
            Alert::RunFailed => (Self::Failed, 0),
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

    /// A number within its bounds.
    fn clamp(self, number: u64) -> u64 {
        self.number().map_or(0, |(_, [_, least, most])| number.clamp(least, most))
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
}

/// A rule in the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Names it as long as the form lives.
    pub id: u32,
    /// What it is about.
    pub kind: Kind,
    /// Its bound; nothing to a kind without.
    pub number: u64,
}

/// What the owner set, as it was read and as a person changes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Form {
    /// As it was read or saved.
    base: Settings,
    /// The agent's name for that.
    tag: String,
    /// What the form made of that before anybody typed: spaces around a currency are none of it.
    untouched: Option<Settings>,
    /// What was set elsewhere since a person began to change this, and its name.
    theirs: Option<(Settings, String)>,
    /// In their order.
    pub rules: Vec<Rule>,
    /// As it is typed.
    pub price: String,
    /// As it is typed.
    pub currency: String,
    /// How often the form was filled: then all of it is drawn anew.
    pub n_fills: u32,
    n_rules_ever: u32,
}

impl Form {
    /// Takes what the agent has now. What a person began to change stays as it is.
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

    /// What was made of it is what the agent has now; what was typed since stays.
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

    /// What a person made of it; nothing where the price is none.
    pub fn made(&self) -> Option<Settings> {
        let mut settings = self.base.clone();
        settings.alerts = self.rules.iter().map(|rule| rule.kind.rule(rule.number)).collect();
        write_price(&mut settings, &self.price, &self.currency).then_some(settings)
    }

    /// The name of what is to be changed.
    pub fn tag(&self) -> String {
        self.tag.clone()
    }

    /// Whether a person has to choose between this and what was set elsewhere.
    pub const fn has_conflict(&self) -> bool {
        self.theirs.is_some()
    }

    /// This is to take the place of what was set elsewhere.
    pub fn keep_mine(&mut self) {
        if let Some((settings, tag)) = self.theirs.take() {
            (self.base, self.tag) = (settings, tag);
        }
    }

    /// What was set elsewhere takes the place of this.
    pub fn take_theirs(&mut self) {
        if let Some((settings, tag)) = self.theirs.take() {
            self.fill(settings, tag);
        }
    }

    /// Rules of a kind.
    pub fn of(&self, kind: Kind) -> Vec<Rule> {
        self.rules.iter().filter(|rule| rule.kind == kind).copied().collect()
    }

    /// Whether there may be one more.
    pub fn has_room(&self) -> bool {
        self.rules.len() < ALERTS_MAX
    }

    /// One more of a kind, at first beside the last of it.
    pub fn add(&mut self, kind: Kind) {
        if self.has_room() {
            let first = kind.number().map_or(0, |(_, [first, ..])| first);
            let last = self.rules.iter().rev().find(|rule| rule.kind == kind).map(|rule| rule.number);
            let number = last.map_or(first, |last| kind.clamp(last.saturating_add(1)));
            self.push(kind, number);
        }
    }

    /// All of a kind, or none.
    pub fn switch(&mut self, kind: Kind, is_on: bool) {
        self.rules.retain(|rule| rule.kind != kind);
        if is_on {
            self.add(kind);
        }
    }

    /// Takes one away.
    pub fn remove(&mut self, id: u32) {
        self.rules.retain(|rule| rule.id != id);
    }

    /// Gives one another number, and says which it has then.
    pub fn set(&mut self, id: u32, number: Option<u64>) -> u64 {
        let Some(rule) = self.rules.iter_mut().find(|rule| rule.id == id) else { return 0 };
        if let Some(number) = number {
            rule.number = rule.kind.clamp(number);
        }
        rule.number
    }
}

/// Characters of a currency at most, as the agent takes them.
const CURRENCY_CHARS_MAX: usize = 8;

/// Takes a price as it was typed; false where it is none. Nothing typed is no price.
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

/// In no currency does a kilowatt-hour cost more.
const PRICE_MAX: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    const HOT: Alert = Alert::TemperatureAbove { celsius: 85 };
    const FULL: Alert = Alert::MemoryAbove { percent: 95 };

    fn settings(alerts: &[Alert]) -> Settings {
        Settings { alerts: alerts.to_vec(), price_per_kwh: Some(0.35), currency: "€".to_owned() }
    }

    fn filled(alerts: &[Alert]) -> Form {
        let mut form = Form::default();
        form.take(settings(alerts), "1".to_owned());
        form
    }

    #[test]
    fn rules_are_added_changed_and_taken_away_several_of_a_kind() {
        // A number that another program set stays, though the form gives none so low.
        let cold = Alert::TemperatureAbove { celsius: 20 };
        let mut form = filled(&[cold, Alert::CardLost, HOT]);
        assert_eq!((form.made(), form.n_fills), (Some(settings(&[cold, Alert::CardLost, HOT])), 1));
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
    fn what_a_person_changes_stays_until_that_person_chooses() {
        let mut form = filled(&[HOT]);
        form.take(settings(&[FULL]), "2".to_owned());
        assert_eq!((form.has_conflict(), form.n_fills, form.made()), (false, 2, Some(settings(&[FULL]))));
        let spaced = Settings { currency: " € ".to_owned(), ..settings(&[HOT]) };
        form.take(spaced, "2a".to_owned());
        form.take(settings(&[FULL]), "2".to_owned());
        assert_eq!((form.has_conflict(), form.n_fills), (false, 4), "nobody typed a space less");
        form.switch(Kind::Lost, true);
        form.take(settings(&[FULL]), "2".to_owned());
        assert!(!form.has_conflict(), "nobody changed it elsewhere");
        form.take(settings(&[HOT]), "3".to_owned());
        assert!(form.has_conflict());
        assert_eq!((form.n_fills, form.tag().as_str()), (4, "2"), "saving as if nothing had happened is refused");
        let mine = settings(&[FULL, Alert::CardLost]);
        let mut other = form.clone();
        other.take_theirs();
        assert_eq!((other.made(), other.tag().as_str(), other.n_fills), (Some(settings(&[HOT])), "3", 5));
        form.keep_mine();
        assert_eq!((form.made(), form.tag().as_str(), form.has_conflict()), (Some(mine.clone()), "3", false));
        // The event of one's own change may come before the answer to it.
        form.take(mine.clone(), "4".to_owned());
        form.price = "x".to_owned();
        form.saved(mine, "4".to_owned());
        form.take(settings(&[]), "5".to_owned());
        assert_eq!((form.has_conflict(), form.made()), (true, None), "what is typed is no price yet, and kept");
        form.take(settings(&[HOT]), "4".to_owned());
        assert!(!form.has_conflict(), "it was changed back");
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
