//! The parts of the rig's page, and what they have in common: the rig as it was told, and what can be asked of the page.

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

use headroom_shared::protocol::{Scope, alert::Settings, run::Order};
use leptos::prelude::*;

use crate::state::{
    rig::{
        Changed, Rig,
        alerts::Form,
        compare::Compared,
        connection::Connection,
        fetched::RunHistory,
        orders::{Act, Allowed, Presses},
        run::current,
    },
    rig_charts::view::Range,
};

/// What a part asks of the page, which alone speaks with the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Another try to connect, now.
    Again,
    /// To go on with this token.
    Token(String),
    /// To forget the token.
    Forget,
    /// To keep what was made of the form.
    Save,
    /// To dismiss the alert that went off by this event.
    Dismiss(u64),
    /// To start a run as the order stands.
    Start,
    /// This, of the run of that number.
    Act(String, Act),
}

/// What the agent answered when settings were asked for or kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Kept {
    /// Nothing yet.
    #[default]
    Unknown,
    /// As they were fetched.
    Fetched,
    /// As they were saved.
    Saved,
    /// They could not be fetched; in words.
    NotFetched(String),
    /// They could not be saved; in words.
    NotSaved(String),
}

/// The rig's page.
#[derive(Clone, Copy)]
pub struct Desk {
    /// Everything the agent told. It changes in silence, ten times a second; what is drawn follows one of the signals
    /// below.
    rig: RwSignal<Rig>,
    fast: RwSignal<()>,
    slow: RwSignal<()>,
    events: RwSignal<()>,
    about: RwSignal<()>,
    /// How the page stands with the agent.
    pub connection: RwSignal<Connection>,
    /// The page's clock, once a second.
    pub now_ms: RwSignal<u64>,
    /// How far the agent's clock is ahead of the page's.
    pub ahead_ms: RwSignal<i64>,
    /// The run that a person chose.
    pub chosen_run: RwSignal<Option<String>>,
    /// History of a run's card over the run: of the one that is shown, once that was fetched.
    pub run_history: RwSignal<RunHistory>,
    /// Why the losses of the shown run did not arrive.
    pub losses_fault: RwSignal<Option<String>>,
    /// What the owner set.
    pub settings: RwSignal<Settings>,
    /// The same as it is being changed.
    pub form: RwSignal<Form>,
    /// Whether that is kept.
    pub kept: RwSignal<Kept>,
    /// Why an alert could not be dismissed, in words; or nothing.
    pub not_dismissed: RwSignal<String>,
    /// What can be started.
    pub allowed: RwSignal<Allowed>,
    /// The order of the next run, as it is being made.
    pub order: RwSignal<Order>,
    /// Runs whose losses are drawn beside those of the one that is shown.
    pub compared: RwSignal<Compared>,
    /// What was pressed of runs, and what came of it.
    pub presses: RwSignal<Presses>,
    /// Whether this page may change something.
    pub may_change: Memo<bool>,
    /// Takes what a part asks.
    pub ask: Callback<Ask>,
}

impl Desk {
    /// A page at its start.
    pub fn new(connection: Connection, now_ms: u64, ask: Callback<Ask>) -> Self {
        let (rig, about) = (RwSignal::new(Rig::default()), RwSignal::new(()));
        let may_change = Memo::new(move |_| {
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
            form: RwSignal::new(Form::default()),
            kept: RwSignal::new(Kept::Unknown),
            not_dismissed: RwSignal::new(String::new()),
            allowed: RwSignal::new(Allowed::Unknown),
            order: RwSignal::new(Order::default()),
            compared: RwSignal::new(Compared::default()),
            presses: RwSignal::new(Presses::default()),
            may_change,
            ask,
        }
    }

    /// Changes the rig; nothing is drawn before [`Desk::draw`].
    pub fn change<T>(self, change: impl FnOnce(&mut Rig) -> T) -> Option<T> {
        self.rig.try_update_untracked(change)
    }

    /// Draws what changed.
    pub fn draw(self, changed: Changed) {
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

    /// The rig, without following it.
    pub fn look<T>(self, look: impl FnOnce(&Rig) -> T) -> T {
        self.rig.with_untracked(look)
    }

    /// The rig, followed ten times a second.
    pub fn fast<T>(self, look: impl FnOnce(&Rig) -> T) -> T {
        self.fast.track();
        self.look(look)
    }

    /// The rig, followed once a second.
    pub fn slow<T>(self, look: impl FnOnce(&Rig) -> T) -> T {
        self.slow.track();
        self.look(look)
    }

    /// The rig, followed where something happens.
    pub fn events<T>(self, look: impl FnOnce(&Rig) -> T) -> T {
        self.events.track();
        self.look(look)
    }

    /// The rig, followed where cards, driver or agent change.
    pub fn about<T>(self, look: impl FnOnce(&Rig) -> T) -> T {
        self.about.track();
        self.look(look)
    }

    /// What the agent's clock shows; followed once a second.
    pub fn agent_now_ms(self) -> u64 {
        self.now_ms.get().saturating_add_signed(self.ahead_ms.get())
    }

    /// The same without following it.
    pub fn agent_now_ms_untracked(self) -> u64 {
        self.now_ms.get_untracked().saturating_add_signed(self.ahead_ms.get_untracked())
    }

    /// Number of the run that is shown; followed.
    pub fn run(self) -> Option<String> {
        let chosen = self.chosen_run.get();
        self.about.track();
        self.events(|rig| {
            let chosen = chosen.filter(|id| rig.runs.iter().any(|watched| watched.run.id == *id));
            chosen.or_else(|| current(rig).map(|watched| watched.run.id.clone()))
        })
    }

    /// From the beginning of a run to its end or now; followed once a second while it goes on.
    pub fn range_of_run(self, id: &str) -> Option<Range> {
        let (from_ms, ended_ms) = self.events(|rig| {
            let run = &rig.runs.iter().find(|watched| watched.run.id == id)?.run;
            Some((run.started_ms, run.ended_ms))
        })?;
        let to_ms = ended_ms.unwrap_or_else(|| self.agent_now_ms());
        Some(Range { from_ms, to_ms: to_ms.max(from_ms.saturating_add(RUN_MS_MIN)) })
    }
}

/// A run that began this moment has a chart too.
const RUN_MS_MIN: u64 = 60_000;
