//! Active alerts.

use serde::{Deserialize, Serialize};

pub use super::alert_rule::{ALERTS_MAX, Alert, Settings};
use super::event::{Event, EventKind};

/// Maximum number of active alerts that are sent, newest first. All GPUs of a large rig may be lost at once.
pub const FIRED_MAX: usize = 100;

/// An alert that fired and is neither over nor dismissed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FiredAlert {
    /// Number of its [`EventKind::Alert`] event, which dismisses it; 0 while history is paused.
    pub event: u64,
    /// The alert's rule.
    pub alert: Alert,
    /// The GPU's UUID, for an alert about a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The GPU's name, if known. A lost GPU may be missing from the inventory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_name: Option<String>,
    /// The run's ID, for an alert about a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Time at which the alert fired.
    pub time_ms: u64,
    /// The value that exceeded the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

impl FiredAlert {
    /// Returns the alert that an event fires; `None` for other events.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        let EventKind::Alert { alert, gpu, value, .. } = &event.what else { return None };
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

    /// Whether the alert has this rule and this GPU, or else this run. At most one such alert is active.
    #[must_use]
    pub fn is(&self, alert: &Alert, gpu: Option<&str>, run: Option<&str>) -> bool {
        self.alert == *alert && self.gpu.as_deref() == gpu && (gpu.is_some() || self.run.as_deref() == run)
    }

    /// Applies an event to the active alerts, newest first. A full list drops its oldest alert.
    pub fn take(fired: &mut Vec<Self>, event: &Event) {
        match &event.what {
            EventKind::Alert { alert, gpu, .. }
            | EventKind::AlertOver { alert, gpu }
            | EventKind::AlertDismissed { alert, gpu } => {
                fired.retain(|fired| !fired.is(alert, gpu.as_deref(), event.run.as_deref()));
            }
            EventKind::RunDeleted { .. } => fired.retain(|fired| fired.run.is_none() || fired.run != event.run),
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

    fn event(id: u64, run: Option<&str>, what: EventKind) -> Event {
        Event { id, time_ms: id, run: run.map(str::to_owned), what }
    }

    #[test]
    fn an_alert_is_on_once_until_it_is_over_dismissed_or_its_run_deleted() {
        let on = |alert, gpu: Option<&str>| EventKind::Alert {
            alert,
            gpu: gpu.map(str::to_owned),
            value: None,
            status: None,
        };
        let over = |alert, gpu: Option<&str>| EventKind::AlertOver { alert, gpu: gpu.map(str::to_owned) };
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
            event(8, Some("x"), EventKind::AlertDismissed { alert: Alert::RunFailed, gpu: None }),
            event(9, Some("z"), EventKind::RunDeleted { name: None }),
        ] {
            FiredAlert::take(&mut fired, &event);
        }
        assert_eq!(fired.iter().map(|fired| fired.event).collect::<Vec<_>>(), [5, 3]);
        for id in 10..10 + 2 * FIRED_MAX as u64 {
            FiredAlert::take(&mut fired, &event(id, Some(&id.to_string()), on(Alert::RunFailed, None)));
        }
        assert_eq!((fired.len(), fired[0].event), (FIRED_MAX, 9 + 2 * FIRED_MAX as u64));
    }
}
