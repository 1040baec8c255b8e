//! What an owner wants to be told of, and what is on of it.

use serde::{Deserialize, Serialize};

use super::{
    event::{Event, What},
    flat::FlatAlert,
};

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case", try_from = "FlatAlert")]
pub enum Alert {
    /// A card is hotter than this.
    TemperatureAbove {
        /// The bound.
        celsius: u64,
    },
    /// More of a card's memory is used than this.
    MemoryAbove {
        /// The bound, of the whole.
        percent: u64,
    },
    /// A run printed nothing new for so long.
    NoProgress {
        /// The bound.
        minutes: u64,
    },
    /// A card stopped answering.
    CardLost,
    /// A run ended by an error.
    RunFailed,
}

/// Rules at most.
pub const ALERTS_MAX: usize = 32;

/// What an owner set, all of it at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// At most [`ALERTS_MAX`].
    pub alerts: Vec<Alert>,
    /// Of energy, in the owner's currency; missing is no cost shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_kwh: Option<f64>,
    /// How the owner's currency is written, as `€`: at most 8 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub currency: String,
}

/// Alerts that are told as being on at most: the newest. Every card of a large rig may be lost at once.
pub const FIRED_MAX: usize = 100;

/// An alert that went off, and is neither over nor dismissed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fired {
    /// Number of its [`What::Alert`], by which it is dismissed; 0 while history is paused.
    pub event: u64,
    /// Which.
    pub alert: Alert,
    /// The card's UUID, of an alert of cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The card's name, where it was ever known: a card that is lost may be in no inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_name: Option<String>,
    /// The run, of an alert of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Since when.
    pub time_ms: u64,
    /// The value that passed its bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

impl Fired {
    /// What goes off by an event; nothing by one that is no alert.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        let What::Alert { alert, gpu, value, .. } = &event.what else { return None };
        Some(Self {
            event: event.id,
            alert: *alert,
            gpu: gpu.clone(),
            gpu_name: None,
            run: event.run.clone(),
            time_ms: event.time_ms,
            value: *value,
        })
    }

    /// Whether it is this rule's, for this card or else for this run: no two of the same are on at once.
    #[must_use]
    pub fn is(&self, alert: &Alert, gpu: Option<&str>, run: Option<&str>) -> bool {
        self.alert == *alert && self.gpu.as_deref() == gpu && (gpu.is_some() || self.run.as_deref() == run)
    }

    /// Takes what happened into those that are on, newest first. What is lost of a bounded list is its oldest.
    pub fn take(fired: &mut Vec<Self>, event: &Event) {
        match &event.what {
            What::Alert { alert, gpu, .. } | What::AlertOver { alert, gpu } | What::AlertDismissed { alert, gpu } => {
                fired.retain(|fired| !fired.is(alert, gpu.as_deref(), event.run.as_deref()));
            }
            What::RunDeleted { .. } => fired.retain(|fired| fired.run.is_none() || fired.run != event.run),
            _ => {}
        }
        if let Some(new) = Self::of(event) {
            fired.insert(0, new);
            fired.truncate(FIRED_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u64, run: Option<&str>, what: What) -> Event {
        Event { id, time_ms: id, run: run.map(str::to_owned), what }
    }

    #[test]
    fn an_alert_is_on_once_until_it_is_over_dismissed_or_its_run_deleted() {
        let on =
            |alert, gpu: Option<&str>| What::Alert { alert, gpu: gpu.map(str::to_owned), value: None, status: None };
        let over = |alert, gpu: Option<&str>| What::AlertOver { alert, gpu: gpu.map(str::to_owned) };
        let hot = Alert::TemperatureAbove { celsius: 85 };
        let mut fired = Vec::new();
        for event in [
            event(1, None, on(hot, Some("a"))),
            event(2, None, on(hot, Some("b"))),
            event(3, None, on(hot, Some("a"))),
            event(4, Some("x"), on(Alert::RunFailed, None)),
            event(5, Some("y"), on(Alert::RunFailed, None)),
            event(6, Some("z"), on(Alert::RunFailed, None)),
            event(7, None, over(hot, Some("b"))),
            event(8, Some("x"), What::AlertDismissed { alert: Alert::RunFailed, gpu: None }),
            event(9, Some("z"), What::RunDeleted { name: None }),
        ] {
            Fired::take(&mut fired, &event);
        }
        assert_eq!(fired.iter().map(|fired| fired.event).collect::<Vec<_>>(), [5, 3]);
        for id in 10..10 + 2 * FIRED_MAX as u64 {
            Fired::take(&mut fired, &event(id, Some(&id.to_string()), on(Alert::RunFailed, None)));
        }
        assert_eq!((fired.len(), fired[0].event), (FIRED_MAX, 9 + 2 * FIRED_MAX as u64));
    }
}
