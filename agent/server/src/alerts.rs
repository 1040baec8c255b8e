//! Evaluates alert rules: observations and events in, alert events out. The module has no clock and no thread; each
//! input contains its time.
//!
//! A value that fluctuates around its limit must not cause many alerts. The value must exceed the limit for some time
//! to fire the alert, and stay well below the limit for longer to end it.

mod level;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use headroom_protocol::{
    Telemetry,
    alert::{ALERTS_MAX, Alert, FiredAlert},
    event::{Event, EventKind},
    gpu::Gpu,
    run::{Run, RunStatus},
};

use headroom_agent_core::telemetry::{Step, TelemetryEvent};
use level::{Edge, Level};
use runs::Runs;

/// How far a temperature must fall below its limit to end an alert.
const TEMPERATURE_MARGIN_CELSIUS: f64 = 3.0;
/// How far the share of used memory must fall below its limit to end an alert.
const MEMORY_MARGIN_PERCENT: f64 = 2.0;

/// Prefix of the index of a GPU that never responded, used instead of its UUID.
const UNKNOWN: &str = "unknown-";

/// An alert event to be stored, shown and sent.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertEvent {
    /// ID of the run that the event belongs to.
    pub run: Option<String>,
    /// [`EventKind::Alert`] or [`EventKind::AlertOver`].
    pub what: EventKind,
}

/// The owner's rules and their state.
#[derive(Debug, Default)]
pub struct Alerts {
    rules: Vec<Alert>,
    /// The inventory of GPUs.
    gpus: Vec<Gpu>,
    /// UUIDs of GPUs that do not respond.
    lost: BTreeSet<String>,
    /// Those GPUs that were lost before the agent started. The telemetry thread does not report their return.
    lost_before: BTreeSet<String>,
    /// State of the rules about values, for each GPU.
    levels: Vec<(Alert, String, Level)>,
    runs: Runs,
}

impl Alerts {
    /// Restores the state from history: rules, active alerts, newest first, and runs with the time of their last
    /// progress. Time without an agent is not progress. An active alert that still holds does not fire again. The
    /// method returns the end of alerts that are known to be over; unknown states end nothing.
    pub fn restore(&mut self, rules: &[Alert], fired: &[FiredAlert], runs: &[(Run, u64)]) -> Vec<AlertEvent> {
        let is_on = |(run, _): &&(Run, u64)| !run.status.has_ended() && run.status != RunStatus::Queued;
        runs.iter().filter(is_on).for_each(|(run, progress_ms)| self.runs.progress(&run.id, *progress_ms));
        let lost_now = self.lost.clone();
        self.rules = distinct(rules);
        let mut raised = Vec::new();
        for fired in fired.iter().rev() {
            if !self.may_hold(fired) {
                let what = EventKind::AlertOver { alert: fired.alert, gpu: fired.gpu.clone() };
                raised.push(AlertEvent { run: fired.run.clone(), what });
            }
        }
        let is_on = |uuid: &String| fired.iter().any(|fired| fired.is(&Alert::GpuLost, Some(uuid), None));
        if self.rules.contains(&Alert::GpuLost) {
            raised.extend(lost_now.into_iter().filter(|uuid| !is_on(uuid)).map(gpu_lost));
        }
        raised
    }

    /// Restores an alert from before the agent started. Returns whether it may still hold.
    fn may_hold(&mut self, fired: &FiredAlert) -> bool {
        if !self.rules.contains(&fired.alert) {
            return false;
        }
        match (&fired.gpu, &fired.run) {
            (Some(uuid), _) if fired.alert == Alert::GpuLost => {
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

    /// Replaces the rules. Active alerts of removed rules are over, and new rules may fire immediately.
    pub fn set(&mut self, rules: &[Alert]) -> Vec<AlertEvent> {
        let old = std::mem::replace(&mut self.rules, distinct(rules));
        let gone: Vec<Alert> = old.iter().filter(|rule| !self.rules.contains(rule)).copied().collect();
        let mut raised = Vec::new();
        for alert in gone {
            raised.extend(self.forget(alert));
        }
        if self.rules.contains(&Alert::GpuLost) && !old.contains(&Alert::GpuLost) {
            raised.extend(self.lost.iter().map(|uuid| gpu_lost(uuid.clone())));
        }
        raised
    }

    fn forget(&mut self, alert: Alert) -> Vec<AlertEvent> {
        let is_its = |of: &Alert| *of == alert;
        let active = self.levels.iter().filter(|(of, _, level)| is_its(of) && level.is_on());
        let mut raised: Vec<_> = active.map(|(_, uuid, _)| over_of_gpu(alert, uuid.clone())).collect();
        self.levels.retain(|(of, ..)| !is_its(of));
        if alert == Alert::GpuLost {
            raised.extend(self.lost.iter().map(|uuid| over_of_gpu(alert, uuid.clone())));
        }
        raised.extend(self.runs.forget(alert));
        raised
    }

    /// Evaluates an observation of the GPUs.
    pub fn observe(&mut self, observed: &TelemetryEvent) -> Vec<AlertEvent> {
        match observed {
            TelemetryEvent::Inventory(gpus) => {
                self.gpus.clone_from(gpus);
                let back: Vec<String> = self.lost_before.iter().filter(|uuid| is_back(uuid, gpus)).cloned().collect();
                back.into_iter().flat_map(|uuid| self.gpu_back(&uuid)).collect()
            }
            TelemetryEvent::Telemetry(telemetry) => self.telemetry(telemetry),
            TelemetryEvent::GpuLost(uuid) => {
                // From now on the telemetry thread reports the return of this GPU.
                self.lost_before.remove(uuid);
                let is_new = self.lost.insert(uuid.clone());
                self.if_gpu_lost_is_asked(is_new, || gpu_lost(uuid.clone()))
            }
            TelemetryEvent::GpuRecovered(uuid) => {
                // A GPU that never responded gets its UUID only now.
                let uuid = if self.lost.contains(uuid) { Some(uuid.clone()) } else { self.unknown() };
                uuid.map_or_else(Vec::new, |uuid| self.gpu_back(&uuid))
            }
            TelemetryEvent::ClockSet(Step { from_ms, to_ms }) => {
                self.runs.clock_set_forward(to_ms.saturating_sub(*from_ms));
                vec![]
            }
            TelemetryEvent::Driver(_) | TelemetryEvent::Slow(_) | TelemetryEvent::Xid { .. } => vec![],
        }
    }

    /// Whether a value exceeds its limit and its alert may fire soon.
    pub fn is_rising(&self) -> bool {
        self.levels.iter().any(|(.., level)| level.is_rising())
    }

    fn gpu_back(&mut self, uuid: &str) -> Vec<AlertEvent> {
        self.lost_before.remove(uuid);
        let was_lost = self.lost.remove(uuid);
        self.if_gpu_lost_is_asked(was_lost, || over_of_gpu(Alert::GpuLost, uuid.to_owned()))
    }

    /// Returns a GPU that was lost under a name that no GPU has now. GPUs that were lost before the agent started are
    /// excluded, because they may have been removed from the machine.
    fn unknown(&self) -> Option<String> {
        let mut lost = self.lost.difference(&self.lost_before);
        lost.find(|uuid| !self.gpus.iter().any(|gpu| gpu.uuid == **uuid)).cloned()
    }

    fn if_gpu_lost_is_asked(&self, is_news: bool, raised: impl FnOnce() -> AlertEvent) -> Vec<AlertEvent> {
        if is_news && self.rules.contains(&Alert::GpuLost) { vec![raised()] } else { vec![] }
    }

    fn telemetry(&mut self, telemetry: &Telemetry) -> Vec<AlertEvent> {
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
                    Alert::NoProgress { .. } | Alert::GpuLost | Alert::RunFailed => continue,
                };
                // A missing value neither fires nor ends an alert.
                let Some(value) = value else { continue };
                let level = level_of(&mut self.levels, alert, &gpu.uuid);
                let gpu = || Some(gpu.uuid.clone());
                let what = match level.step(value, bound, margin, telemetry.time_ms) {
                    Some(Edge::On) => EventKind::Alert { alert, gpu: gpu(), value: Some(value), status: None },
                    Some(Edge::Over) => EventKind::AlertOver { alert, gpu: gpu() },
                    None => continue,
                };
                raised.push(AlertEvent { run: None, what });
            }
        }
        raised
    }

    /// Applies an event of a run.
    pub fn event(&mut self, event: &Event) -> Vec<AlertEvent> {
        event.run.as_deref().map_or_else(Vec::new, |run| self.runs.event(&self.rules, run, event))
    }

    /// Checks runs without progress, which cause no events. Must be called about once per second.
    pub fn tick(&mut self, now_ms: u64) -> Vec<AlertEvent> {
        self.runs.tick(&self.rules, now_ms)
    }
}

/// Removes duplicate rules and limits their number.
fn distinct(rules: &[Alert]) -> Vec<Alert> {
    let mut distinct = Vec::new();
    for rule in rules {
        if distinct.len() < ALERTS_MAX && !distinct.contains(rule) {
            distinct.push(*rule);
        }
    }
    distinct
}

/// Whether a GPU that was lost before the agent started responds, by its UUID, or by its index if it had none.
fn is_back(uuid: &str, gpus: &[Gpu]) -> bool {
    let place: Option<u32> = uuid.strip_prefix(UNKNOWN).and_then(|place| place.parse().ok());
    gpus.iter().any(|gpu| gpu.present && (gpu.uuid == uuid || Some(gpu.index) == place))
}

fn level_of<'a>(levels: &'a mut Vec<(Alert, String, Level)>, alert: Alert, uuid: &str) -> &'a mut Level {
    let position = levels.iter().position(|(of, gpu, _)| *of == alert && gpu == uuid).unwrap_or_else(|| {
        levels.push((alert, uuid.to_owned(), Level::default()));
        levels.len() - 1
    });
    &mut levels[position].2
}

fn gpu_lost(uuid: String) -> AlertEvent {
    AlertEvent {
        run: None,
        what: EventKind::Alert { alert: Alert::GpuLost, gpu: Some(uuid), value: None, status: None },
    }
}

fn over_of_gpu(alert: Alert, uuid: String) -> AlertEvent {
    AlertEvent { run: None, what: EventKind::AlertOver { alert, gpu: Some(uuid) } }
}
