//! When an alert goes off and when it is over: what is told of cards and runs in, events out. No clock and no thread:
//! time is what is told with each.
//!
//! A value that trembles at its bound makes no flood: it has to stay beyond the bound for a while to set the alert off,
//! and well within it for longer to end it.

mod level;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use headroom_shared::protocol::{
    Telemetry,
    alert::{ALERTS_MAX, Alert, Fired},
    event::{Event, What},
    gpu::Gpu,
    run::{Run, RunStatus},
};

use crate::telemetry::{Observed, Step};
use level::{Edge, Level};
use runs::Runs;

/// How far a temperature has to fall below its bound.
const TEMPERATURE_MARGIN_CELSIUS: f64 = 3.0;
/// How far the share of used memory has to fall below its bound.
const MEMORY_MARGIN_PERCENT: f64 = 2.0;

/// Before the place of a card that never answered, in the place of its UUID.
const UNKNOWN: &str = "unknown-";

/// Something to be kept, shown and sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Raised {
    /// The run it belongs to.
    pub run: Option<String>,
    /// [`What::Alert`] or [`What::AlertOver`].
    pub what: What,
}

/// The owner's rules, and how each stands.
#[derive(Debug, Default)]
pub struct Alerts {
    rules: Vec<Alert>,
    /// What cards there are, by their places.
    gpus: Vec<Gpu>,
    /// UUIDs of those that do not answer.
    lost: BTreeSet<String>,
    /// Those among them that were lost before the agent started: where one is back, nobody knows that it was away.
    lost_before: BTreeSet<String>,
    /// How the rules of values stand, each for each card.
    levels: Vec<(Alert, String, Level)>,
    runs: Runs,
}

impl Alerts {
    /// Goes on by these rules from what history has: alerts that are on, newest first, and runs, each with when it last made
    /// progress: that the agent was away is none. What is on and still holds does not go off again; what is known to be
    /// over is, and nothing is over as nothing is known yet.
    pub fn restore(&mut self, rules: &[Alert], fired: &[Fired], runs: &[(Run, u64)]) -> Vec<Raised> {
        let is_on = |(run, _): &&(Run, u64)| !run.status.has_ended() && run.status != RunStatus::Queued;
        runs.iter().filter(is_on).for_each(|(run, progress_ms)| self.runs.progress(&run.id, *progress_ms));
        let lost_now = self.lost.clone();
        self.rules = distinct(rules);
        let mut raised = Vec::new();
        for fired in fired.iter().rev() {
            if !self.may_hold(fired) {
                let what = What::AlertOver { alert: fired.alert, gpu: fired.gpu.clone() };
                raised.push(Raised { run: fired.run.clone(), what });
            }
        }
        let is_on = |uuid: &String| fired.iter().any(|fired| fired.is(&Alert::CardLost, Some(uuid), None));
        if self.rules.contains(&Alert::CardLost) {
            raised.extend(lost_now.into_iter().filter(|uuid| !is_on(uuid)).map(card_lost));
        }
        raised
    }

    /// Takes an alert from before the agent started; gives whether it may still hold.
    fn may_hold(&mut self, fired: &Fired) -> bool {
        if !self.rules.contains(&fired.alert) {
            return false;
        }
        match (&fired.gpu, &fired.run) {
            (Some(uuid), _) if fired.alert == Alert::CardLost => {
                let is_lost = !is_back(uuid, &self.gpus);
                if is_lost && self.lost.insert(uuid.clone()) {
                    self.lost_before.insert(uuid.clone());
                }
                is_lost
            }
            (Some(uuid), _) => {
                *level_of(&mut self.levels, fired.alert, uuid) = Level::that_is_on();
                true
            }
            (None, Some(run)) => self.runs.restore(fired.alert, run),
            (None, None) => false,
        }
    }

    /// Other rules: what went off by one that is no more is over, and what one that is new finds goes off.
    pub fn set(&mut self, rules: &[Alert]) -> Vec<Raised> {
        let old = std::mem::replace(&mut self.rules, distinct(rules));
        let gone: Vec<Alert> = old.iter().filter(|rule| !self.rules.contains(rule)).copied().collect();
        let mut raised = Vec::new();
        for alert in gone {
            raised.extend(self.forget(alert));
        }
        if self.rules.contains(&Alert::CardLost) && !old.contains(&Alert::CardLost) {
            raised.extend(self.lost.iter().map(|uuid| card_lost(uuid.clone())));
        }
        raised
    }

    fn forget(&mut self, alert: Alert) -> Vec<Raised> {
        let is_its = |of: &Alert| *of == alert;
        let active = self.levels.iter().filter(|(of, _, level)| is_its(of) && level.is_on());
        let mut raised: Vec<_> = active.map(|(_, uuid, _)| over_of_card(alert, uuid.clone())).collect();
        self.levels.retain(|(of, ..)| !is_its(of));
        if alert == Alert::CardLost {
            raised.extend(self.lost.iter().map(|uuid| over_of_card(alert, uuid.clone())));
        }
        raised.extend(self.runs.forget(alert));
        raised
    }

    /// Takes what is told of the cards.
    pub fn observe(&mut self, observed: &Observed) -> Vec<Raised> {
        match observed {
            Observed::Inventory(gpus) => {
                self.gpus.clone_from(gpus);
                let back: Vec<String> = self.lost_before.iter().filter(|uuid| is_back(uuid, gpus)).cloned().collect();
                back.into_iter().flat_map(|uuid| self.card_back(&uuid)).collect()
            }
            Observed::Telemetry(telemetry) => self.telemetry(telemetry),
            Observed::CardLost(uuid) => {
                // From now on the thread that reads cards says when it is back.
                self.lost_before.remove(uuid);
                let is_new = self.lost.insert(uuid.clone());
                self.if_card_lost_is_asked(is_new, || card_lost(uuid.clone()))
            }
            Observed::CardBack(uuid) => {
                // A card that never answered has its own name only now.
                let uuid = if self.lost.contains(uuid) { Some(uuid.clone()) } else { self.unknown() };
                uuid.map_or_else(Vec::new, |uuid| self.card_back(&uuid))
            }
            Observed::ClockSet(Step { from_ms, to_ms }) => {
                self.runs.clock_set_forward(to_ms.saturating_sub(*from_ms));
                vec![]
            }
            Observed::Driver(_) | Observed::Slow(_) | Observed::Xid { .. } => vec![],
        }
    }

    /// Whether a value is beyond its bound and may soon have been for long enough.
    pub fn is_rising(&self) -> bool {
        self.levels.iter().any(|(.., level)| level.is_rising())
    }

    fn card_back(&mut self, uuid: &str) -> Vec<Raised> {
        self.lost_before.remove(uuid);
        let was_lost = self.lost.remove(uuid);
        self.if_card_lost_is_asked(was_lost, || over_of_card(Alert::CardLost, uuid.to_owned()))
    }

    /// A card that was lost under a name that no card has any more. One from before the agent started may be in no
    /// machine any more.
    fn unknown(&self) -> Option<String> {
        let mut lost = self.lost.difference(&self.lost_before);
        lost.find(|uuid| !self.gpus.iter().any(|gpu| gpu.uuid == **uuid)).cloned()
    }

    fn if_card_lost_is_asked(&self, is_news: bool, raised: impl FnOnce() -> Raised) -> Vec<Raised> {
        if is_news && self.rules.contains(&Alert::CardLost) { vec![raised()] } else { vec![] }
    }

    fn telemetry(&mut self, telemetry: &Telemetry) -> Vec<Raised> {
        let mut raised = Vec::new();
        for sample in &telemetry.gpus {
            let Some(gpu) = self.gpus.iter().find(|gpu| gpu.index == sample.gpu) else { continue };
            for &alert in &self.rules {
                let (value, bound, margin) = match alert {
                    Alert::TemperatureAbove { celsius } => {
                        let value = sample.temperature_celsius.get().map(|&celsius| celsius as f64);
                        (value, celsius as f64, TEMPERATURE_MARGIN_CELSIUS)
                    }
                    Alert::MemoryAbove { percent } => {
                        let total = gpu.memory_total_bytes.get().filter(|&&total| total > 0);
                        let share = |(used, total): (&u64, &u64)| 100.0 * *used as f64 / *total as f64;
                        (sample.memory_used_bytes.get().zip(total).map(share), percent as f64, MEMORY_MARGIN_PERCENT)
                    }
                    Alert::NoProgress { .. } | Alert::CardLost | Alert::RunFailed => continue,
                };
                // What is not known neither sets an alert off nor ends it.
                let Some(value) = value else { continue };
                let level = level_of(&mut self.levels, alert, &gpu.uuid);
                let gpu = || Some(gpu.uuid.clone());
                let what = match level.step(value, bound, margin, telemetry.time_ms) {
                    Some(Edge::On) => What::Alert { alert, gpu: gpu(), value: Some(value), status: None },
                    Some(Edge::Over) => What::AlertOver { alert, gpu: gpu() },
                    None => continue,
                };
                raised.push(Raised { run: None, what });
            }
        }
        raised
    }

    /// Takes what happened to a run.
    pub fn event(&mut self, event: &Event) -> Vec<Raised> {
        event.run.as_deref().map_or_else(Vec::new, |run| self.runs.event(&self.rules, run, event))
    }

    /// Lets time pass: runs that make no progress tell nothing. To be called about once a second.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Raised> {
        self.runs.tick(&self.rules, now_ms)
    }
}

/// Each rule once, within their bound.
fn distinct(rules: &[Alert]) -> Vec<Alert> {
    let mut distinct = Vec::new();
    for rule in rules {
        if distinct.len() < ALERTS_MAX && !distinct.contains(rule) {
            distinct.push(*rule);
        }
    }
    distinct
}

/// Whether a card that was lost before the agent started answers: by its name, or at its place where it had none.
fn is_back(uuid: &str, gpus: &[Gpu]) -> bool {
    let place: Option<u32> = uuid.strip_prefix(UNKNOWN).and_then(|place| place.parse().ok());
    gpus.iter().any(|gpu| gpu.present && (gpu.uuid == uuid || Some(gpu.index) == place))
}

fn level_of<'a>(levels: &'a mut Vec<(Alert, String, Level)>, alert: Alert, uuid: &str) -> &'a mut Level {
    let position = levels.iter().position(|(of, card, _)| *of == alert && card == uuid).unwrap_or_else(|| {
        levels.push((alert, uuid.to_owned(), Level::default()));
        levels.len() - 1
    });
    &mut levels[position].2
}

fn card_lost(uuid: String) -> Raised {
    Raised { run: None, what: What::Alert { alert: Alert::CardLost, gpu: Some(uuid), value: None, status: None } }
}

fn over_of_card(alert: Alert, uuid: String) -> Raised {
    Raised { run: None, what: What::AlertOver { alert, gpu: Some(uuid) } }
}
