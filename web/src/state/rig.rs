//! A rig as the page knows it: what the agent told, folded. Everything in it is bounded, so that a tab may stay open for
//! weeks.

pub mod alerts;
pub mod card;
pub mod compare;
pub mod connection;
pub mod energy;
pub mod fetched;
pub mod link;
pub mod memory;
pub mod names;
pub mod neighbours;
pub mod orders;
pub mod processes;
pub mod run;
#[cfg(test)]
pub mod sample;
pub mod spark;
pub mod words;
pub mod writes;

use std::collections::VecDeque;

use headroom_shared::protocol::{
    After, Hello, Scope, ServerMessage, Slow, Telemetry,
    alert::{Alert, FIRED_MAX, Fired},
    event::{Event, What},
    gpu::Gpu,
    history::{History, Past},
    host::HostSample,
    run::{Run, RunStatus},
    state::{DriverState, State},
};

use super::rig_charts::losses::Losses;
use card::{Card, N_METRICS, Part};

/// Cards at most; an agent that tells more is not ours.
const CARDS_MAX: usize = 64;
/// Runs at most: those that go on, and the newest.
const RUNS_MAX: usize = 200;
/// Lines of what happened.
const LOG_MAX: usize = 50;
/// Two events so near to each other can be of one thing: an alert is looked for once a second.
const SAME_MS: u64 = 3_000;
/// Events that wait while older ones are being sent; more of them is a rig that has to be asked anew.
const HELD_MAX: usize = 5_000;

/// A run, and its curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Watched {
    /// As the agent folds it.
    pub run: Run,
    /// What was printed of its losses.
    pub losses: Losses,
    /// Whether the losses from before this page was opened are there too.
    pub is_whole: bool,
    /// When somebody asked for its end, which has not come yet.
    pub stopping_ms: Option<u64>,
}

/// What a message changed, so that only that is drawn anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The list of cards, the agent's state, or who the agent is.
    pub rig: bool,
    /// Readings, ten times a second.
    pub fast: bool,
    /// Readings, once a second.
    pub slow: bool,
    /// Runs, alerts and what happened.
    pub events: bool,
}

impl Watched {
    /// Takes what an event says of whether its end was asked for.
    fn take_stopping(&mut self, event: &Event) {
        let asked_ms = match event.what {
            What::RunStopping => Some(event.time_ms),
            What::RunResumed { .. } => None,
            _ => self.stopping_ms,
        };
        self.stopping_ms = asked_ms.filter(|_| !self.run.status.has_ended());
    }
}

impl Changed {
    /// Both.
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

/// Everything the agent told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rig {
    /// What the machine is called.
    pub name: String,
    /// The agent's version.
    pub agent: String,
    /// What this page may do.
    pub scope: Option<Scope>,
    /// Driver and history.
    pub state: Option<State>,
    /// In the agent's order.
    pub cards: Vec<Card>,
    /// The machine around them.
    pub host: Option<HostSample>,
    /// Newest first.
    pub runs: Vec<Watched>,
    /// What is on, newest first.
    pub fired: Vec<Fired>,
    /// What happened, newest first.
    pub log: VecDeque<Event>,
    /// Telemetry that this page was too slow for.
    pub n_lost: u64,
    /// Time of the newest telemetry.
    pub newest_ms: u64,
    /// Number of the newest event.
    newest_event: u64,
    /// Runs and alerts as the agent told them last have all events up to this one in them.
    folded_event: u64,
    /// Events that wait for older ones; `None` where nothing was missed.
    held: Option<Vec<Event>>,
    /// More of them came than can wait: what was missed has to be asked for anew.
    pub is_behind: bool,
}

impl Rig {
    /// How far this page has come; nothing where it has not begun.
    pub fn after(&self) -> Option<After> {
        self.scope?;
        Some(After { time_ms: self.newest_ms, event: self.newest_event })
    }

    /// Whether cards are read, so that silence would be strange.
    pub fn is_fed(&self) -> bool {
        let ready = self.state.as_ref().is_some_and(|state| matches!(state.driver, DriverState::Ready { .. }));
        ready && self.cards.iter().any(|card| card.gpu.present)
    }

    /// Takes a message. `asked` is whether the greeting asked for what was missed.
    pub fn hear(&mut self, message: ServerMessage, asked: bool) -> Changed {
        let nothing = Changed::default();
        match message {
            ServerMessage::Hello(hello) => {
                self.greet(*hello, asked);
                Changed::ALL
            }
            ServerMessage::Inventory { gpus } => {
                self.take_cards(gpus);
                Changed { rig: true, fast: true, ..nothing }
            }
            ServerMessage::State(state) => {
                self.state = Some(state);
                Changed { rig: true, ..nothing }
            }
            ServerMessage::Telemetry(telemetry) => {
                if telemetry.time_ms < self.newest_ms {
                    self.forget_times(telemetry.time_ms);
                }
                self.take_telemetry(&telemetry);
                Changed { fast: true, ..nothing }
            }
            ServerMessage::Slow(slow) => {
                self.take_slow(slow);
                Changed { slow: true, ..nothing }
            }
            ServerMessage::Event(event) => {
                match &mut self.held {
                    Some(held) if held.len() < HELD_MAX => held.push(event),
                    Some(_) => self.is_behind = true,
                    None => self.take_event(event),
                }
                Changed { events: true, ..nothing }
            }
            ServerMessage::Lost { n_messages } => {
                self.n_lost = self.n_lost.saturating_add(n_messages);
                Changed { rig: true, ..nothing }
            }
            ServerMessage::Past(past) => {
                self.take_missed(past);
                Changed::ALL
            }
            ServerMessage::Refused(_) => nothing,
        }
    }

    fn greet(&mut self, hello: Hello, asked: bool) {
        // A history that was begun anew counts its events from 1 again.
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
        self.take_cards(hello.gpus);
        let mut before = std::mem::take(&mut self.runs);
        for run in hello.runs.into_iter().take(RUNS_MAX) {
            let known = before.iter().position(|watched| watched.run.id == run.id).map(|at| before.swap_remove(at));
            let (mut losses, is_whole, stopping_ms) = known
                .map_or((Losses::default(), false, None), |known| (known.losses, known.is_whole, known.stopping_ms));
            losses.max_iters = run.max_iters;
            let stopping_ms = stopping_ms.filter(|_| !run.status.has_ended());
            self.runs.push(Watched { run, losses, is_whole, stopping_ms });
        }
    }

    fn take_cards(&mut self, gpus: Vec<Gpu>) {
        let mut before = std::mem::take(&mut self.cards);
        for gpu in gpus.into_iter().take(CARDS_MAX) {
            // The UUID stays the same over restarts of the agent; the place may not.
            let known = before.iter().position(|card| card.gpu.uuid == gpu.uuid).map(|at| before.swap_remove(at));
            let mut card = known.unwrap_or_else(|| Card::new(gpu.clone()));
            card.gpu = gpu;
            self.cards.push(card);
        }
    }

    fn card_at(&mut self, index: u32) -> Option<&mut Card> {
        self.cards.iter_mut().find(|card| card.gpu.index == index)
    }

    /// A card by its UUID.
    pub fn card(&self, uuid: &str) -> Option<&Card> {
        self.cards.iter().find(|card| card.gpu.uuid == uuid)
    }

    fn take_telemetry(&mut self, telemetry: &Telemetry) {
        self.newest_ms = self.newest_ms.max(telemetry.time_ms);
        for sample in &telemetry.gpus {
            if let Some(card) = self.card_at(sample.gpu) {
                card.take(telemetry.time_ms, sample);
            }
        }
    }

    /// The agent's clock was set back: what the cards have is of times that are yet to come.
    fn forget_times(&mut self, now_ms: u64) {
        self.newest_ms = now_ms;
        self.cards.iter_mut().for_each(|card| card.forget_after(now_ms));
    }

    fn take_slow(&mut self, slow: Slow) {
        for sample in slow.gpus {
            if let Some(card) = self.card_at(sample.gpu) {
                card.slow = Some(sample);
            }
        }
        self.host = Some(slow.host);
    }

    fn take_missed(&mut self, past: Past) {
        for telemetry in &past.telemetry {
            self.take_telemetry(telemetry);
        }
        for event in past.events {
            // From before a first greeting, which has all that follows from them.
            if event.id <= self.newest_event && event.what.has_line() {
                let of = |watched: &&mut Watched| event.run.as_ref() == Some(&watched.run.id);
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

    /// Takes seconds of a card from history, for a page that has just been opened.
    pub fn take_history(&mut self, history: &History) -> Changed {
        let Some(card) = self.cards.iter_mut().find(|card| card.gpu.uuid == history.gpu) else {
            return Changed::default();
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
            card.take_past(*time_ms, &parts);
        }
        Changed { fast: true, ..Changed::default() }
    }

    /// Takes the losses of a run from its beginning, as its events tell them.
    pub fn take_losses(&mut self, run: &str, events: &[Event]) -> Changed {
        if let Some(watched) = self.runs.iter_mut().find(|watched| watched.run.id == run) {
            let live = std::mem::take(&mut watched.losses);
            events.iter().for_each(|event| watched.losses.take(&event.what));
            // What was printed while these were fetched may be behind their end.
            watched.losses.go_on(&live);
            watched.is_whole = true;
        }
        Changed { events: true, ..Changed::default() }
    }

    fn take_event(&mut self, event: Event) {
        // Number 0 is of a history that is paused: told at once, and perhaps once more when it is written.
        if event.id != 0 && event.id <= self.newest_event {
            return;
        }
        self.newest_event = self.newest_event.max(event.id);
        self.fold(&event);
        if event.id == 0 || event.id > self.folded_event {
            Fired::take(&mut self.fired, &event);
        }
        if self.is_told(&event, self.log.front()) {
            self.log.push_front(event);
            self.log.truncate(LOG_MAX);
        }
    }

    /// A line of what happened before the page was opened, at its place.
    fn remember(&mut self, event: Event) {
        if self.log.iter().all(|known| known.id != event.id) {
            let at = self.log.iter().position(|known| known.id != 0 && known.id < event.id).unwrap_or(self.log.len());
            if self.is_told(&event, self.log.get(at)) {
                self.log.insert(at, event);
                self.log.truncate(LOG_MAX);
            }
        }
    }

    fn fold(&mut self, event: &Event) {
        if let What::RunStarted { run } = &event.what
            && self.runs.iter().all(|watched| watched.run.id != run.id)
        {
            let (losses, is_whole, stopping_ms) = (Losses::default(), true, None);
            self.runs.insert(0, Watched { run: (**run).clone(), losses, is_whole, stopping_ms });
            // The oldest that has ended goes first.
            if self.runs.len() > RUNS_MAX {
                let ended = self.runs.iter().rposition(|watched| watched.run.status.has_ended());
                self.runs.remove(ended.unwrap_or(self.runs.len() - 1));
            }
        }
        let Some(id) = &event.run else { return };
        if matches!(event.what, What::RunDeleted { .. }) {
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

    /// Whether an event has a line among what happened, behind the line before it: what another line says already is
    /// not said twice.
    fn is_told(&self, event: &Event, before: Option<&Event>) -> bool {
        let is_new = match &event.what {
            // The event of the card or of the run itself is told, with when it is over.
            What::Alert { alert, .. } | What::AlertOver { alert, .. } => {
                !matches!(alert, Alert::CardLost | Alert::RunFailed)
            }
            // That it ran out of memory says how it ended.
            What::RunStatus { status: RunStatus::Exited { code: 1.., .. } | RunStatus::Killed { .. }, .. } => {
                let is_oom = |before: &Event| before.run == event.run && matches!(before.what, What::RunOom { .. });
                !self.log.iter().any(is_oom)
            }
            // The agent's own save as often as they evaluate, where the agent knows.
            What::RunCheckpoint { .. } => !self.is_ours(event.run.as_deref()),
            what => what.has_line(),
        };
        is_new && !before.is_some_and(|before| says_same(event, before))
    }
}

/// Whether an event that follows another says what that one says: that a run stands still, or goes on.
fn says_same(event: &Event, before: &Event) -> bool {
    let stands_still = |what: &What| match what {
        What::RunStatus { status: RunStatus::Stalled { .. }, .. }
        | What::Alert { alert: Alert::NoProgress { .. }, .. } => Some(true),
        What::RunStatus { .. } | What::AlertOver { alert: Alert::NoProgress { .. }, .. } => Some(false),
        _ => None,
    };
    let is_near = event.time_ms.abs_diff(before.time_ms) <= SAME_MS;
    let said = stands_still(&event.what);
    is_near && event.run == before.run && said.is_some() && said == stands_still(&before.what)
}

#[cfg(test)]
mod tests;
