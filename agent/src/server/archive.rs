//! What the server asks history for, as far as it is concerned with it: a trait, so that tests can make a past up.
//!
//! Everything here reads or writes a disk: it is called on threads that may wait, by [`asked`].

use std::{fmt::Debug, sync::Arc};

use headroom_shared::protocol::{
    Telemetry,
    alert::{Fired, Settings},
    event::Event,
    history::History,
    run::Run,
};
use tokio::task::spawn_blocking;

use super::error::Refusal;
use crate::store::{
    Card, Error, Store, Subject,
    printed::{Cursor, Page},
};

/// Whether settings that are kept are those that are to be changed; none are those that cannot be read.
pub type IsExpected<'a> = &'a dyn Fn(Option<&Settings>) -> bool;

/// What is asked; each as [`Store`] has it.
pub trait Archive: Debug + Send + Sync + 'static {
    /// [`Store::runs`].
    fn runs(&self, n_max: usize) -> Result<Vec<Run>, Error>;
    /// [`Store::run`].
    fn run(&self, id: &str) -> Result<Run, Error>;
    /// [`Store::events`].
    fn events(&self, run: Option<&str>, after: u64, n_max: usize) -> Result<Vec<Event>, Error>;
    /// [`Archive::printed`](crate::store::Archive::printed).
    fn printed(&self, run: &str, after: Cursor) -> Result<Page, Error>;
    /// [`Store::last_event`].
    fn last_event(&self) -> Result<u64, Error>;
    /// [`Store::delete_run`].
    fn delete_run(&self, id: &str) -> Result<(), Error>;
    /// [`Store::telemetry_after`].
    fn telemetry_after(&self, time_ms: u64, n_max: usize) -> Result<Vec<Telemetry>, Error>;
    /// [`Archive::cards`](crate::store::Archive::cards).
    fn cards(&self) -> Result<Vec<Card>, Error>;
    /// [`Store::history`].
    fn history(&self, subject: Subject<'_>, from_ms: u64, to_ms: u64, n_points: u64) -> Result<History, Error>;
    /// [`Store::settings`].
    fn settings(&self) -> Result<Settings, Error>;
    /// [`Store::set_settings`].
    fn set_settings(&self, settings: &Settings, is_expected: IsExpected<'_>) -> Result<(), Error>;
    /// [`Store::alerts`].
    fn alerts(&self) -> Result<Vec<Fired>, Error>;
    /// [`Store::dismiss`].
    fn dismiss(&self, event: u64) -> Result<(), Error>;
    /// [`Store::newest`].
    fn newest(&self, up_to: u64, after_ms: u64, n_max: usize) -> Result<Vec<Event>, Error>;
}

impl Archive for Store {
    fn runs(&self, n_max: usize) -> Result<Vec<Run>, Error> {
        self.runs(n_max)
    }

    fn run(&self, id: &str) -> Result<Run, Error> {
        self.run(id)
    }

    fn events(&self, run: Option<&str>, after: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.events(run, after, n_max)
    }

    fn printed(&self, run: &str, after: Cursor) -> Result<Page, Error> {
        self.archive().printed(run, after)
    }

    fn last_event(&self) -> Result<u64, Error> {
        self.last_event()
    }

    fn delete_run(&self, id: &str) -> Result<(), Error> {
        self.delete_run(id)
    }

    fn telemetry_after(&self, time_ms: u64, n_max: usize) -> Result<Vec<Telemetry>, Error> {
        self.telemetry_after(time_ms, n_max)
    }

    fn cards(&self) -> Result<Vec<Card>, Error> {
        self.archive().cards()
    }

    fn history(&self, subject: Subject<'_>, from_ms: u64, to_ms: u64, n_points: u64) -> Result<History, Error> {
        self.history(subject, from_ms, to_ms, n_points)
    }

    fn settings(&self) -> Result<Settings, Error> {
        self.settings()
    }

    fn set_settings(&self, settings: &Settings, is_expected: IsExpected<'_>) -> Result<(), Error> {
        self.set_settings(settings, is_expected)
    }

    fn alerts(&self) -> Result<Vec<Fired>, Error> {
        self.alerts()
    }

    fn dismiss(&self, event: u64) -> Result<(), Error> {
        self.dismiss(event)
    }

    fn newest(&self, up_to: u64, after_ms: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.newest(up_to, after_ms, n_max)
    }
}

/// Asks on a thread that may wait.
///
/// # Errors
/// What the archive says, or that the thread ended without an answer.
pub async fn asked<T: Send + 'static>(
    archive: &Arc<dyn Archive>,
    ask: impl FnOnce(&dyn Archive) -> Result<T, Error> + Send + 'static,
) -> Result<T, Refusal> {
    let archive = Arc::clone(archive);
    let answer = spawn_blocking(move || ask(&*archive)).await.map_err(|_| Refusal::internal())?;
    Ok(answer?)
}
