//! The rig's state as the page knows it, folded from the agent's messages. Everything in it is bounded, so that a tab
//! can stay open for weeks.

pub mod alerts;
pub mod compare;
pub mod connection;
pub mod energy;
pub mod fetched;
pub mod gpu;
pub mod link;
pub mod memory;
pub mod messages;
pub mod names;
pub mod neighbours;
pub mod orders;
pub mod processes;
pub mod run;
#[cfg(test)]
pub mod sample;
pub mod spark;
pub mod values;
pub mod writes;

use std::collections::VecDeque;

use headroom_protocol::{
    Hello, ResumePoint, Scope, ServerMessage, SlowReadings, Telemetry,
    alert::{Alert, FIRED_MAX, FiredAlert},
    event::{Event, EventKind},
    gpu::Gpu,
    history::{History, MissedHistory},
    metric::HostSample,
    run::{Run, RunStatus},
    state::{DriverState, State},
};

use super::rig_charts::losses::Losses;
use gpu::{MonitoredGpu, N_METRICS, Part};

/// The most GPUs. An agent that reports more is not Headroom's.
const GPUS_MAX: usize = 64;
/// The most runs: the running ones and the newest others.
const RUNS_MAX: usize = 200;
/// The most lines of the event log.
const LOG_MAX: usize = 50;
/// Two events this close together may have the same cause: the agent evaluates alerts once per second.
const SAME_MS: u64 = 3_000;
/// The most events held back while older ones arrive. If there are more, the rig's state has to be requested again.
const HELD_MAX: usize = 5_000;

/// A run and its loss curve.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownRun {
    /// The run as the agent folds it.
    pub run: Run,
    /// The losses that it printed.
    pub losses: Losses,
    /// Whether the losses from before this page was opened are included.
    pub is_whole: bool,
    /// The time of a stop request that has not taken effect.
    pub stopping_ms: Option<u64>,
}

/// The parts that a message changed, so that only those are redrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedParts {
    /// The list of GPUs, the agent's state, or the agent's identity.
    pub rig: bool,
    /// Readings, ten times per second.
    pub fast: bool,
    /// Readings, once per second.
    pub slow: bool,
    /// Runs, alerts and the event log.
    pub events: bool,
}

impl ShownRun {
    /// Updates the pending stop request from an event.
    fn take_stopping(&mut self, event: &Event) {
        let asked_ms = match event.what {
            EventKind::RunStopping => Some(event.time_ms),
            EventKind::RunResumed { .. } => None,
            _ => self.stopping_ms,
        };
        self.stopping_ms = asked_ms.filter(|_| !self.run.status.has_ended());
    }
}

impl ChangedParts {
    /// The union of two changes.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            rig: self.rig || other.rig,
            fast: self.fast || other.fast,
            slow: self.slow || other.slow,
            events: self.events || other.events,
        }
    }

    /// Everything.
    pub const ALL: Self = Self { rig: true, fast: true, slow: true, events: true };
}

/// Everything that the agent reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rig {
    /// The machine's name.
    pub name: String,
    /// The agent's version.
    pub agent: String,
    /// The scope of this page's token.
    pub scope: Option<Scope>,
    /// The state of the driver and the history.
    pub state: Option<State>,
    /// The GPUs, in the agent's order.
    pub gpus: Vec<MonitoredGpu>,
    /// The newest sample of the machine.
    pub host: Option<HostSample>,
    /// The runs, newest first.
    pub runs: Vec<ShownRun>,
    /// The active alerts, newest first.
    pub fired: Vec<FiredAlert>,
    /// The event log, newest first.
    pub log: VecDeque<Event>,
    /// The number of telemetry messages that this page was too slow to receive.
    pub n_lost: u64,
    /// The time of the newest telemetry.
    pub newest_ms: u64,
    /// The number of the newest event.
    newest_event: u64,
    /// The number of the newest event included in the runs and alerts that the agent sent last.
    folded_event: u64,
    /// Events held back until older ones arrive; `None` if none was missed.
    held: Option<Vec<Event>>,
    /// Whether too many events were held back, so that the state has to be requested again.
    pub is_behind: bool,
}

impl Rig {
    /// The point up to which this page is current; `None` before the first greeting.
    pub fn after(&self) -> Option<ResumePoint> {
        self.scope?;
        Some(ResumePoint { time_ms: self.newest_ms, event: self.newest_event })
    }

    /// Returns whether GPUs are monitored, so that silence means a problem.
    pub fn is_fed(&self) -> bool {
        let ready = self.state.as_ref().is_some_and(|state| matches!(state.driver, DriverState::Ready { .. }));
        ready && self.gpus.iter().any(|gpu| gpu.info.present)
    }

    /// Applies a message. `asked` is whether the greeting requested the missed messages.
    pub fn hear(&mut self, message: ServerMessage, asked: bool) -> ChangedParts {
        let nothing = ChangedParts::default();
        match message {
            ServerMessage::Hello(hello) => {
                self.greet(*hello, asked);
                ChangedParts::ALL
            }
            ServerMessage::Inventory { gpus } => {
                self.take_gpus(gpus);
                ChangedParts { rig: true, fast: true, ..nothing }
            }
            ServerMessage::State(state) => {
                self.state = Some(state);
                ChangedParts { rig: true, ..nothing }
            }
            ServerMessage::Telemetry(telemetry) => {
                if telemetry.time_ms < self.newest_ms {
                    self.forget_times(telemetry.time_ms);
                }
                self.take_telemetry(&telemetry);
                ChangedParts { fast: true, ..nothing }
            }
            ServerMessage::Slow(slow) => {
                self.take_slow(slow);
                ChangedParts { slow: true, ..nothing }
            }
            ServerMessage::Event(event) => {
                match &mut self.held {
                    Some(held) if held.len() < HELD_MAX => held.push(event),
                    Some(_) => self.is_behind = true,
                    None => self.take_event(event),
                }
                ChangedParts { events: true, ..nothing }
            }
            ServerMessage::Lost { n_messages } => {
                self.n_lost = self.n_lost.saturating_add(n_messages);
                ChangedParts { rig: true, ..nothing }
            }
            ServerMessage::Past(past) => {
                self.take_missed(past);
                ChangedParts::ALL
            }
            ServerMessage::Refused(_) => nothing,
        }
    }

    fn greet(&mut self, hello: Hello, asked: bool) {
        // A new history numbers its events from 1 again.
        if hello.last_event < self.newest_event {
            self.newest_event = hello.last_event;
        }
        if !asked {
            self.newest_event = hello.last_event;
        }
        (self.name, self.agent, self.scope) = (hello.name, hello.agent, Some(hello.scope));
        self.folded_event = hello.last_event;
        self.fired = hello.alerts;
        self.fired.truncate(FIRED_MAX);
        self.held = (asked && self.newest_event < hello.last_event).then(Vec::new);
        self.is_behind = false;
        self.state = Some(hello.state);
        self.take_gpus(hello.gpus);
        let mut before = std::mem::take(&mut self.runs);
        for run in hello.runs.into_iter().take(RUNS_MAX) {
            let known = before.iter().position(|watched| watched.run.id == run.id).map(|at| before.swap_remove(at));
            let (mut losses, is_whole, stopping_ms) = known
                .map_or((Losses::default(), false, None), |known| (known.losses, known.is_whole, known.stopping_ms));
            losses.max_iters = run.max_iters;
            let stopping_ms = stopping_ms.filter(|_| !run.status.has_ended());
            self.runs.push(ShownRun { run, losses, is_whole, stopping_ms });
        }
    }

    fn take_gpus(&mut self, gpus: Vec<Gpu>) {
        let mut before = std::mem::take(&mut self.gpus);
        for gpu in gpus.into_iter().take(GPUS_MAX) {
            // The UUID survives restarts of the agent; the index may change.
            let known =
                before.iter().position(|monitored| monitored.info.uuid == gpu.uuid).map(|at| before.swap_remove(at));
            let mut monitored = known.unwrap_or_else(|| MonitoredGpu::new(gpu.clone()));
            monitored.info = gpu;
            self.gpus.push(monitored);
        }
    }

    fn gpu_at(&mut self, index: u32) -> Option<&mut MonitoredGpu> {
        self.gpus.iter_mut().find(|gpu| gpu.info.index == index)
    }

    /// A GPU by its UUID.
    pub fn gpu(&self, uuid: &str) -> Option<&MonitoredGpu> {
        self.gpus.iter().find(|gpu| gpu.info.uuid == uuid)
    }

    fn take_telemetry(&mut self, telemetry: &Telemetry) {
        self.newest_ms = self.newest_ms.max(telemetry.time_ms);
        for sample in &telemetry.gpus {
            if let Some(gpu) = self.gpu_at(sample.gpu) {
                gpu.take(telemetry.time_ms, sample);
            }
        }
    }

    /// Handles a clock of the agent that was set back: removes the readings with times in the future.
    fn forget_times(&mut self, now_ms: u64) {
        self.newest_ms = now_ms;
        self.gpus.iter_mut().for_each(|gpu| gpu.forget_after(now_ms));
    }

    fn take_slow(&mut self, slow: SlowReadings) {
        for sample in slow.gpus {
            if let Some(gpu) = self.gpu_at(sample.gpu) {
                gpu.slow = Some(sample);
            }
        }
        self.host = Some(slow.host);
    }

    fn take_missed(&mut self, past: MissedHistory) {
        for telemetry in &past.telemetry {
            self.take_telemetry(telemetry);
        }
        for event in past.events {
            // Events before the first greeting, whose state already includes their effects.
            if event.id <= self.newest_event && event.what.has_line() {
                let of = |watched: &&mut ShownRun| event.run.as_ref() == Some(&watched.run.id);
                if let Some(watched) = self.runs.iter_mut().find(of) {
                    watched.take_stopping(&event);
                }
                self.remember(event);
            } else {
                self.take_event(event);
            }
        }
        if let (Some(slow), None) = (past.slow, &self.host) {
            self.take_slow(slow);
        }
        if past.done {
            for event in self.held.take().into_iter().flatten() {
                self.take_event(event);
            }
        }
    }

    /// Adds seconds of a GPU's history, for a page that was just opened.
    pub fn take_history(&mut self, history: &History) -> ChangedParts {
        let Some(gpu) = self.gpus.iter_mut().find(|gpu| gpu.info.uuid == history.gpu) else {
            return ChangedParts::default();
        };
        for (at, time_ms) in history.times_ms.iter().enumerate() {
            #[expect(clippy::cast_possible_truncation, reason = "finer than a pixel")]
            let of = |values: &[Option<f64>]| values.get(at).copied().flatten().map(|value| value as f32);
            let mut parts = [Part::NOTHING; N_METRICS];
            for (part, series) in parts.iter_mut().zip(&history.series) {
                if let Some(mean) = of(&series.mean) {
                    let (min, max) = (of(&series.min).unwrap_or(mean), of(&series.max).unwrap_or(mean));
                    *part = Part { min, max, sum: mean, n: 1 };
                }
            }
            gpu.take_past(*time_ms, &parts);
        }
        ChangedParts { fast: true, ..ChangedParts::default() }
    }

    /// Adds the losses of a run from its start, as its events report them.
    pub fn take_losses(&mut self, run: &str, events: &[Event]) -> ChangedParts {
        if let Some(watched) = self.runs.iter_mut().find(|watched| watched.run.id == run) {
            let live = std::mem::take(&mut watched.losses);
            events.iter().for_each(|event| watched.losses.take(&event.what));
            // Losses printed during the fetch may be newer than the fetched ones.
            watched.losses.go_on(&live);
            watched.is_whole = true;
        }
        ChangedParts { events: true, ..ChangedParts::default() }
    }

    fn take_event(&mut self, event: Event) {
        // Number 0 means that the history is paused: the event is sent immediately, and perhaps again after it is
        // written.
        if event.id != 0 && event.id <= self.newest_event {
            return;
        }
        self.newest_event = self.newest_event.max(event.id);
        self.fold(&event);
        if event.id == 0 || event.id > self.folded_event {
            FiredAlert::take(&mut self.fired, &event);
        }
        if self.is_reported(&event, self.log.front()) {
            self.log.push_front(event);
            self.log.truncate(LOG_MAX);
        }
    }

    /// Inserts an event from before the page was opened into the log, in order.
    fn remember(&mut self, event: Event) {
        if self.log.iter().all(|known| known.id != event.id) {
            let at = self.log.iter().position(|known| known.id != 0 && known.id < event.id).unwrap_or(self.log.len());
            if self.is_reported(&event, self.log.get(at)) {
                self.log.insert(at, event);
                self.log.truncate(LOG_MAX);
            }
        }
    }

    fn fold(&mut self, event: &Event) {
        if let EventKind::RunStarted { run } = &event.what
            && self.runs.iter().all(|watched| watched.run.id != run.id)
        {
            let (losses, is_whole, stopping_ms) = (Losses::default(), true, None);
            self.runs.insert(0, ShownRun { run: (**run).clone(), losses, is_whole, stopping_ms });
            // The oldest run that has ended is removed first.
            if self.runs.len() > RUNS_MAX {
                let ended = self.runs.iter().rposition(|watched| watched.run.status.has_ended());
                self.runs.remove(ended.unwrap_or(self.runs.len() - 1));
            }
        }
        let Some(id) = &event.run else { return };
        if matches!(event.what, EventKind::RunDeleted { .. }) {
            self.runs.retain(|watched| watched.run.id != *id);
        }
        let Some(watched) = self.runs.iter_mut().find(|watched| watched.run.id == *id) else { return };
        watched.losses.take(&event.what);
        if event.id == 0 || event.id > self.folded_event {
            watched.run.apply(event.time_ms, &event.what);
        }
        watched.take_stopping(event);
    }

    fn is_ours(&self, run: Option<&str>) -> bool {
        self.runs.iter().any(|watched| Some(&*watched.run.id) == run && watched.run.order.is_some())
    }

    /// Returns whether an event gets a line in the log after the line before it. An event that repeats another line
    /// gets none.
    fn is_reported(&self, event: &Event, before: Option<&Event>) -> bool {
        let is_new = match &event.what {
            // These alerts repeat events of the GPU or the run itself, which have their own lines, also when they are
            // over.
            EventKind::Alert { alert, .. } | EventKind::AlertOver { alert, .. } => {
                !matches!(alert, Alert::GpuLost | Alert::RunFailed)
            }
            // The out-of-memory event already states how the run ended.
            EventKind::RunStatus { status: RunStatus::Exited { code: 1.., .. } | RunStatus::Killed { .. }, .. } => {
                let is_oom =
                    |before: &Event| before.run == event.run && matches!(before.what, EventKind::RunOom { .. });
                !self.log.iter().any(is_oom)
            }
            // The agent's own runs save at every evaluation, where the agent knows it, so their checkpoints get no
            // line.
            EventKind::RunCheckpoint { .. } => !self.is_ours(event.run.as_deref()),
            what => what.has_line(),
        };
        is_new && !before.is_some_and(|before| says_same(event, before))
    }
}

/// Returns whether an event repeats the one before it: that a run is stalled, or continues.
fn says_same(event: &Event, before: &Event) -> bool {
    let stands_still = |what: &EventKind| match what {
        EventKind::RunStatus { status: RunStatus::Stalled { .. }, .. }
        | EventKind::Alert { alert: Alert::NoProgress { .. }, .. } => Some(true),
        EventKind::RunStatus { .. } | EventKind::AlertOver { alert: Alert::NoProgress { .. }, .. } => Some(false),
        _ => None,
    };
    let is_near = event.time_ms.abs_diff(before.time_ms) <= SAME_MS;
    let said = stands_still(&event.what);
    is_near && event.run == before.run && said.is_some() && said == stands_still(&before.what)
}

/// Returns whether a run has begun and not ended.
pub const fn is_at_work(run: &Run) -> bool {
    matches!(run.status, RunStatus::Running | RunStatus::Stalled { .. })
}

#[cfg(test)]
mod tests;
