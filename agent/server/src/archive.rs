//! The server's interface to the history: a trait, so that tests can provide their own data.
//!
//! All methods read or write a disk, so [`asked`] calls them on threads that may block.

use std::{fmt::Debug, sync::Arc};

use headroom_protocol::{
    Telemetry,
    alert::{FiredAlert, Settings},
    event::Event,
    history::History,
    run::Run,
};

use super::{blocking::blocking, error::ApiError};
use headroom_agent_core::store::{
    ArchivedGpu, Dropped, Error, Store, Subject,
    printed::{Cursor, Page},
};

/// The number of runs in a greeting: the newest, and all that have not ended.
pub const RUNS_IN_HELLO: usize = 50;

/// Returns whether the stored settings are those to be changed; `None` means unreadable settings.
pub type IsExpected<'a> = &'a dyn Fn(Option<&Settings>) -> bool;

/// The operations on the history; each as documented for [`Store`].
pub trait Archive: Debug + Send + Sync + 'static {
    /// [`Store::runs`].
    fn runs(&self, n_max: usize) -> Result<Vec<Run>, Error>;
    /// [`Store::run`].
    fn run(&self, id: &str) -> Result<Run, Error>;
    /// [`Store::events`].
    fn events(&self, run: Option<&str>, after: u64, n_max: usize) -> Result<Vec<Event>, Error>;
    /// [`Archive::printed`](headroom_agent_core::store::Archive::printed).
    fn printed(&self, run: &str, after: Cursor) -> Result<Page, Error>;
    /// [`Store::last_event`].
    fn last_event(&self) -> Result<u64, Error>;
    /// [`Store::delete_run`].
    fn delete_run(&self, id: &str) -> Result<(), Error>;
    /// [`Store::telemetry_after`].
    fn telemetry_after(&self, time_ms: u64, n_max: usize) -> Result<Vec<Telemetry>, Error>;
    /// [`Archive::gpus`](headroom_agent_core::store::Archive::gpus).
    fn gpus(&self) -> Result<Vec<ArchivedGpu>, Error>;
    /// [`Store::history`].
    fn history(&self, subject: Subject<'_>, from_ms: u64, to_ms: u64, n_points: u64) -> Result<History, Error>;
    /// [`Store::settings`].
    fn settings(&self) -> Result<Settings, Error>;
    /// [`Store::set_settings`].
    fn set_settings(&self, settings: &Settings, is_expected: IsExpected<'_>) -> Result<(), Error>;
    /// [`Store::alerts`].
    fn alerts(&self) -> Result<Vec<FiredAlert>, Error>;
    /// [`Store::dismiss`].
    fn dismiss(&self, event: u64) -> Result<(), Error>;
    /// [`Store::dropped`], which does not block.
    fn dropped(&self) -> Dropped;
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

    fn gpus(&self) -> Result<Vec<ArchivedGpu>, Error> {
        self.archive().gpus()
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

    fn alerts(&self) -> Result<Vec<FiredAlert>, Error> {
        self.alerts()
    }

    fn dismiss(&self, event: u64) -> Result<(), Error> {
        self.dismiss(event)
    }

    fn dropped(&self) -> Dropped {
        self.dropped()
    }

    fn newest(&self, up_to: u64, after_ms: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.newest(up_to, after_ms, n_max)
    }
}

/// Runs a query on a thread that may block.
///
/// # Errors
/// The archive returns an error, or the thread ends without an answer.
pub async fn asked<T: Send + 'static>(
    archive: &Arc<dyn Archive>,
    ask: impl FnOnce(&dyn Archive) -> Result<T, Error> + Send + 'static,
) -> Result<T, ApiError> {
    let archive = Arc::clone(archive);
    let answer = blocking(move || ask(&*archive)).await?;
    Ok(answer?)
}
