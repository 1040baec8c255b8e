//! Components of the rig page, and what they share: the rig's state and the actions on it.

pub mod access;
pub mod acts;
pub mod alerts;
pub mod gpu;
pub mod log;
pub mod losses;
pub mod neighbours;
pub mod oom;
pub mod orders;
pub mod processes;
pub mod run;
pub mod status;
pub mod writes;

use headroom_protocol::{Scope, alert::Settings, run::RunRequest};
use leptos::prelude::*;

use crate::state::{
    memo::memo,
    rig::{
        ChangedParts, Rig,
        alerts::AlertSettingsForm,
        compare::ComparedRuns,
        connection::Connection,
        fetched::RunHistory,
        orders::{LaunchOptions, PendingActions, RunAction},
        run::current,
    },
    rig_charts::view::Range,
};

/// An action that a component requests. Only the page communicates with the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum PageRequest {
    /// Reconnect now.
    Again,
    /// Continue with this token.
    Token(String),
    /// Delete the stored token.
    Forget,
    /// Save the settings in the form.
    Save,
    /// Dismiss the alert that this event fired.
    Dismiss(u64),
    /// Start the ordered run.
    Start,
    /// An action on the run with this id.
    Act(String, RunAction),
}

/// State of the settings: loaded, saved or failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SettingsState {
    /// No answer from the agent yet.
    #[default]
    Unknown,
    /// Loaded from the agent.
    Fetched,
    /// Saved by the agent.
    Saved,
    /// Loading failed, with the message.
    NotFetched(String),
    /// Saving failed, with the message.
    NotSaved(String),
}

/// The shared state of the rig page.
#[derive(Clone, Copy)]
pub struct RigContext {
    /// Everything received from the agent. It changes up to ten times per second without notification; views subscribe
    /// to one of the signals below.
    rig: RwSignal<Rig>,
    fast: RwSignal<()>,
    slow: RwSignal<()>,
    events: RwSignal<()>,
    about: RwSignal<()>,
    /// State of the connection to the agent.
    pub connection: RwSignal<Connection>,
    /// The page's clock, updated once per second.
    pub now_ms: RwSignal<u64>,
    /// Offset of the agent's clock from the page's clock, in milliseconds.
    pub ahead_ms: RwSignal<i64>,
    /// Id of the run that the user selected.
    pub chosen_run: RwSignal<Option<String>>,
    /// Memory history of the GPU of the shown run, once loaded.
    pub run_history: RwSignal<RunHistory>,
    /// Why the losses of the shown run could not be loaded.
    pub losses_fault: RwSignal<Option<String>>,
    /// The owner's settings as saved.
    pub settings: RwSignal<Settings>,
    /// The settings form being edited.
    pub form: RwSignal<AlertSettingsForm>,
    /// State of the settings.
    pub kept: RwSignal<SettingsState>,
    /// Why an alert could not be dismissed; empty if there was no failure.
    pub not_dismissed: RwSignal<String>,
    /// The configs, data sets and devices with which runs can be started.
    pub allowed: RwSignal<LaunchOptions>,
    /// The order of the next run, as edited in the form.
    pub order: RwSignal<RunRequest>,
    /// Runs whose losses are drawn besides those of the shown run.
    pub compared: RwSignal<ComparedRuns>,
    /// Pending actions on runs, and their results.
    pub presses: RwSignal<PendingActions>,
    /// Whether this page's token permits changes.
    pub may_change: Memo<bool>,
    /// Receives the actions that components request.
    pub ask: Callback<PageRequest>,
}

impl RigContext {
    /// Creates the initial state.
    pub fn new(connection: Connection, now_ms: u64, ask: Callback<PageRequest>) -> Self {
        let (rig, about) = (RwSignal::new(Rig::default()), RwSignal::new(()));
        let may_change = memo(move || {
            about.track();
            rig.with_untracked(|rig| rig.scope == Some(Scope::Control))
        });
        Self {
            rig,
            fast: RwSignal::new(()),
            slow: RwSignal::new(()),
            events: RwSignal::new(()),
            about,
            connection: RwSignal::new(connection),
            now_ms: RwSignal::new(now_ms),
            ahead_ms: RwSignal::new(0),
            chosen_run: RwSignal::new(None),
            run_history: RwSignal::new(RunHistory::default()),
            losses_fault: RwSignal::new(None),
            settings: RwSignal::new(Settings::default()),
            form: RwSignal::new(AlertSettingsForm::default()),
            kept: RwSignal::new(SettingsState::Unknown),
            not_dismissed: RwSignal::new(String::new()),
            allowed: RwSignal::new(LaunchOptions::Unknown),
            order: RwSignal::new(RunRequest::default()),
            compared: RwSignal::new(ComparedRuns::default()),
            presses: RwSignal::new(PendingActions::default()),
            may_change,
            ask,
        }
    }

    /// Changes the rig's state. Views are not updated before [`RigContext::draw`].
    pub fn change<T>(self, change: impl FnOnce(&mut Rig) -> T) -> Option<T> {
        self.rig.try_update_untracked(change)
    }

    /// Updates the views of everything that changed.
    pub fn draw(self, changed: ChangedParts) {
        for (is_changed, signal) in [
            (changed.rig, self.about),
            (changed.events, self.events),
            (changed.slow, self.slow),
            (changed.fast, self.fast),
        ] {
            if is_changed {
                signal.notify();
            }
        }
    }

    /// Reads the rig's state without subscribing.
    pub fn look<T>(self, look: impl FnOnce(&Rig) -> T) -> T {
        self.rig.with_untracked(look)
    }

    /// Reads the rig's state and subscribes to changes, up to ten times per second.
    pub fn fast<T>(self, look: impl FnOnce(&Rig) -> T) -> T {
        self.fast.track();
        self.look(look)
    }

    /// Reads the rig's state and subscribes to changes, once per second.
    pub fn slow<T>(self, look: impl FnOnce(&Rig) -> T) -> T {
        self.slow.track();
        self.look(look)
    }

    /// Reads the rig's state and subscribes to events.
    pub fn events<T>(self, look: impl FnOnce(&Rig) -> T) -> T {
        self.events.track();
        self.look(look)
    }

    /// Reads the rig's state and subscribes to changes of GPUs, driver or agent.
    pub fn about<T>(self, look: impl FnOnce(&Rig) -> T) -> T {
        self.about.track();
        self.look(look)
    }

    /// Returns the time of the agent's clock in milliseconds, subscribing to it once per second.
    pub fn agent_now_ms(self) -> u64 {
        self.now_ms.get().saturating_add_signed(self.ahead_ms.get())
    }

    /// Returns the time of the agent's clock in milliseconds without subscribing.
    pub fn agent_now_ms_untracked(self) -> u64 {
        self.now_ms.get_untracked().saturating_add_signed(self.ahead_ms.get_untracked())
    }

    /// Returns the id of the shown run and subscribes to it: the selected run, or else the current one.
    pub fn run(self) -> Option<String> {
        let chosen = self.chosen_run.get();
        self.about.track();
        self.events(|rig| {
            let chosen = chosen.filter(|id| rig.runs.iter().any(|watched| watched.run.id == *id));
            chosen.or_else(|| current(rig).map(|watched| watched.run.id.clone()))
        })
    }

    /// Returns the time range of a run, up to its end or now. It subscribes once per second while the run continues.
    pub fn range_of_run(self, id: &str) -> Option<Range> {
        let (from_ms, ended_ms) = self.events(|rig| {
            let run = &rig.runs.iter().find(|watched| watched.run.id == id)?.run;
            Some((run.started_ms, run.ended_ms))
        })?;
        let to_ms = ended_ms.unwrap_or_else(|| self.agent_now_ms());
        Some(Range { from_ms, to_ms: to_ms.max(from_ms.saturating_add(RUN_MS_MIN)) })
    }
}

/// Minimum length of the time range in milliseconds, so that a run that has just started has a chart.
const RUN_MS_MIN: u64 = 60_000;
