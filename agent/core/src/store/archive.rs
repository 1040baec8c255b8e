//! Requests to history: reads, and single changes such as a deletion. Each request opens the file itself, so requests
//! do not block each other. It works with and without an agent. Requests about the agent's own runs are in
//! `archive/run_queue.rs`.

mod run_queue;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use headroom_protocol::{
    Telemetry,
    alert::Settings,
    event::{Event, EventKind},
    history::History,
    run::Run,
    state::HistoryState,
};
use headroom_text as text;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::{
    Error,
    alerts::{self, StoredAlert},
    error::FileUnusable,
    events,
    file::{HistoryFile, SET_ASIDE},
    printed::{self, Cursor, Page},
    queue::Queue,
    range::{self, Subject},
    resolution::Resolution,
    rows, samples,
};

pub use run_queue::{StopOutcome, StopRequest};

/// Maximum number of telemetry moments per request: all that is kept at full rate.
const MOMENTS_MAX: usize = 36_000;
/// Maximum number of events per request.
const EVENTS_MAX: usize = 100_000;
/// Maximum number of runs that an ambiguity error lists.
const CANDIDATES_MAX: usize = 5;
/// Name of the settings in the table of facts.
const SETTINGS: &str = "settings";

/// The history in a directory. Missing history reads as empty. Damage is reported to the writer thread, which sets the
/// file aside.
#[derive(Clone, Debug)]
pub struct Archive {
    file: HistoryFile,
    queue: Option<Arc<Queue>>,
}

/// A GPU in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedGpu {
    /// NVML's UUID.
    pub uuid: String,
    /// NVML's product name.
    pub name: String,
}

impl Archive {
    /// Opens the history of a data directory without an agent.
    pub fn new(folder: &Path) -> Self {
        Self { file: HistoryFile::new(folder), queue: None }
    }

    /// Creates an archive that reports damage to the writer thread.
    pub(super) fn beside(file: HistoryFile, queue: Arc<Queue>) -> Self {
        Self { file, queue: Some(queue) }
    }

    /// Returns the path of the history file.
    pub fn path(&self) -> PathBuf {
        self.file.path()
    }

    /// Checks that the file can be opened, if there is one.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn check(&self) -> Result<(), Error> {
        self.ask((), |_| Ok(()))
    }

    /// Returns whether history is readable, and the size of its file.
    pub fn state(&self) -> HistoryState {
        match self.last_event() {
            Ok(_) => HistoryState::Kept { bytes: self.file.bytes(), set_aside: None },
            Err(error) => HistoryState::Paused { reason: error.text().into(), since_ms: 0 },
        }
    }

    /// Returns runs, as [`Store::runs`](super::Store::runs).
    ///
    /// # Errors
    /// History cannot be read.
    pub fn runs(&self, n_max: usize) -> Result<Vec<Run>, Error> {
        self.ask(vec![], |connection| events::runs(connection, n_max))
    }

    /// Returns a run by its full ID.
    ///
    /// # Errors
    /// The run does not exist, or history cannot be read.
    pub fn run(&self, id: &str) -> Result<Run, Error> {
        self.ask(None, |connection| events::standing(connection, id))?.ok_or_else(|| Error::NoRun(id.to_owned()))
    }

    /// Returns a run by a unique ID prefix or by a unique name.
    ///
    /// # Errors
    /// No run or several runs match, or history cannot be read.
    pub fn find(&self, word: &str) -> Result<Run, Error> {
        if word.is_empty() {
            return Err(Error::NoRun(String::new()));
        }
        let mut ids = self.ask(vec![], |connection| {
            let mut ids = events::beginning(connection, word, CANDIDATES_MAX)?;
            let named = events::named(connection, word, CANDIDATES_MAX)?;
            ids.extend(named.into_iter().filter(|id| !id.starts_with(word)));
            Ok(ids)
        })?;
        if ids.iter().any(|id| id == word) {
            return self.run(word);
        }
        match ids.pop() {
            Some(id) if ids.is_empty() => self.run(&id),
            Some(id) => {
                ids.push(id);
                Err(Error::Ambiguous(word.to_owned(), ids.join(", ")))
            }
            None => Err(Error::NoRun(word.to_owned())),
        }
    }

    /// Returns events, as [`Store::events`](super::Store::events).
    ///
    /// # Errors
    /// History cannot be read.
    pub fn events(&self, run: Option<&str>, after: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.ask(vec![], |connection| events::after(connection, run, after, n_max.min(EVENTS_MAX)))
    }

    /// Returns a page of the figures that a run printed, from the start or after a page.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn printed(&self, run: &str, after: Cursor) -> Result<Page, Error> {
        self.ask(Page::default(), |connection| printed::page(connection, run, after))
    }

    /// Returns the number of stored lines of figures of a run, without omitted lines.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn n_printed(&self, run: &str) -> Result<u64, Error> {
        self.ask(0, |connection| printed::count(connection, run))
    }

    /// Returns the time of a run's last progress; `None` if its newest events contain none.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn last_progress(&self, run: &str) -> Result<Option<u64>, Error> {
        self.ask(None, |connection| events::last_progress(connection, run))
    }

    /// Returns the number of the newest event.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn last_event(&self) -> Result<u64, Error> {
        self.ask(0, |connection| rows::last_event(connection))
    }

    /// Returns the GPUs with samples, in the order of their first sample.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn gpus(&self) -> Result<Vec<ArchivedGpu>, Error> {
        self.ask(vec![], |connection| {
            let mut select = connection.prepare("SELECT uuid, name FROM gpus ORDER BY id")?;
            select.query_map([], |row| Ok(ArchivedGpu { uuid: row.get(0)?, name: row.get(1)? }))?.collect()
        })
    }

    /// Returns full-rate samples of the GPUs that have an index.
    ///
    /// # Errors
    /// History cannot be read.
    pub(super) fn telemetry_after(
        &self,
        place_of: impl Fn(&str) -> Option<u32>,
        time_ms: u64,
        n_max: usize,
    ) -> Result<Vec<Telemetry>, Error> {
        self.ask(vec![], |connection| samples::after(connection, place_of, time_ms, n_max.min(MOMENTS_MAX)))
    }

    /// Returns the readings of a GPU or of the machine over a range of time, in at most `n_points` points. Each part of
    /// the range uses the finest resolution that is left.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn history(&self, subject: Subject<'_>, from_ms: u64, to_ms: u64, n_points: u64) -> Result<History, Error> {
        let empty = History {
            gpu: subject.gpu.to_owned(),
            from_ms,
            to_ms: to_ms.max(from_ms),
            step_ms: Resolution::Full.step_ms(subject.group),
            times_ms: vec![],
            series: vec![Default::default(); subject.group.metrics().len()],
        };
        self.ask(empty, |connection| range::history(connection, subject, from_ms, to_ms, n_points))
    }

    /// Returns the stored rows of a range, each part at its own resolution.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn kept(&self, subject: Subject<'_>, from_ms: u64, to_ms: u64) -> Result<Vec<History>, Error> {
        self.ask(vec![], |connection| range::kept(connection, subject, from_ms, to_ms))
    }

    /// Returns the owner's settings.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn settings(&self) -> Result<Settings, Error> {
        of_json(self.ask(None, |connection| kept_settings(connection))?)
    }

    /// Stores the owner's settings if the stored ones are as expected, and notifies all viewers. Unreadable settings
    /// are passed to `is_expected` as `None`.
    ///
    /// # Errors
    /// The settings changed in the meantime, or history cannot be written.
    pub fn set_settings(
        &self,
        settings: &Settings,
        is_expected: impl FnOnce(Option<&Settings>) -> bool,
        now_ms: u64,
    ) -> Result<(), Error> {
        let json = serde_json::to_string(settings).map_err(|error| Error::Unusable(text::as_is(error.to_string())))?;
        self.change(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let kept = of_json(kept_settings(&transaction)?).ok();
            if !is_expected(kept.as_ref()) {
                return Err(ChangeError::No(Error::Changed));
            }
            if kept.as_ref() != Some(settings) {
                let sql = "INSERT INTO facts VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
                transaction.execute(sql, (SETTINGS, json))?;
                happened(&transaction, None, &EventKind::SettingsChanged, now_ms)?;
            }
            Ok(transaction.commit()?)
        })
    }

    /// Returns the event about the last damaged file and its recovered data, if that file is still in the directory.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn set_aside(&self) -> Result<Option<EventKind>, Error> {
        let said = self.ask(None, |connection| {
            let sql = "SELECT value FROM facts WHERE name = ?1";
            connection.query_row(sql, [SET_ASIDE], |row| row.get::<_, String>(0)).optional()
        })?;
        let said = said.and_then(|json| serde_json::from_str(&json).ok());
        let lies =
            |what: &EventKind| matches!(what, EventKind::HistorySetAside { file, .. } if self.file.is_beside(file));
        Ok(said.filter(lies))
    }

    /// Returns the active alerts, newest first, including dismissed ones.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn alerts(&self) -> Result<Vec<StoredAlert>, Error> {
        self.ask(vec![], |connection| alerts::all(connection))
    }

    /// Dismisses an active alert by the number of its event, and notifies all viewers.
    ///
    /// # Errors
    /// The alert does not exist, or history cannot be written.
    pub fn dismiss(&self, event: u64, now_ms: u64) -> Result<(), Error> {
        if self.file.identity().is_none() {
            return Err(Error::NoAlert(event));
        }
        self.change(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(fired) = alerts::one(&transaction, event)? else {
                return Err(ChangeError::No(Error::NoAlert(event)));
            };
            let what = EventKind::AlertDismissed { alert: fired.alert, gpu: fired.gpu };
            happened(&transaction, fired.run.as_deref(), &what, now_ms)?;
            Ok(transaction.commit()?)
        })
    }

    /// Returns the newest events of the event list, as [`Store::newest`](super::Store::newest).
    ///
    /// # Errors
    /// History cannot be read.
    pub fn newest(&self, up_to: u64, after_ms: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.ask(vec![], |connection| events::newest(connection, up_to, after_ms, n_max))
    }

    /// Deletes a run that has ended, with its events, and notifies all viewers.
    ///
    /// # Errors
    /// The run does not exist or has not ended, or history cannot be written.
    pub fn delete_run(&self, id: &str, now_ms: u64) -> Result<(), Error> {
        if self.file.identity().is_none() {
            return Err(Error::NoRun(id.to_owned()));
        }
        self.change(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(run) = events::standing(&transaction, id)? else {
                return Err(ChangeError::No(Error::NoRun(id.to_owned())));
            };
            if !run.status.has_ended() {
                return Err(ChangeError::No(Error::NotEnded(id.to_owned())));
            }
            events::delete(&transaction, id, now_ms)?;
            Ok(transaction.commit()?)
        })
    }

    pub(super) fn ask<T>(
        &self,
        empty: T,
        question: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let visit = || match self.file.visit()? {
            Some(mut connection) => Ok(question(&mut connection)?),
            None => Ok(empty),
        };
        visit().map_err(|trouble| self.unusable(&trouble))
    }

    fn change<T, E: From<Error>>(
        &self,
        change: impl FnOnce(&mut Connection) -> Result<T, ChangeError<E>>,
    ) -> Result<T, E> {
        let visit = || match self.file.visit()? {
            Some(mut connection) => change(&mut connection),
            None => Err(ChangeError::No(Error::Unusable(text::as_is("nothing was kept in this folder yet")).into())),
        };
        visit().map_err(|refused| match refused {
            ChangeError::No(error) => error,
            ChangeError::Trouble(trouble) => self.unusable(&trouble).into(),
        })
    }

    fn unusable(&self, trouble: &FileUnusable) -> Error {
        if let (FileUnusable::Damaged(_), Some(queue)) = (trouble, &self.queue) {
            queue.suspect();
        }
        match self.file.denied().filter(|_| trouble.may_be_denied()) {
            Some(error) => Error::Denied(text::as_is(error.to_string())),
            None => Error::Unusable(trouble.text()),
        }
    }
}

fn kept_settings(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT value FROM facts WHERE name = ?1";
    connection.query_row(sql, [SETTINGS], |row| row.get(0)).optional()
}

fn of_json(settings: Option<String>) -> Result<Settings, Error> {
    let Some(json) = settings else { return Ok(Settings::initial()) };
    serde_json::from_str(&json).map_err(|error| Error::Unusable(text::as_is(format!("the settings in it: {error}"))))
}

/// Writes an event that a user caused.
fn happened(transaction: &Transaction<'_>, run: Option<&str>, what: &EventKind, now_ms: u64) -> rusqlite::Result<()> {
    // Serialising our own types does not fail.
    let Ok(json) = serde_json::to_string(what) else { return Ok(()) };
    let mut batch = events::Batch::new(transaction, now_ms);
    batch.add(now_ms, run, what, &json)?;
    batch.finish()
}

/// Why a change was not made.
enum ChangeError<E = Error> {
    /// The change is not permitted.
    No(E),
    /// The change is not possible.
    Trouble(FileUnusable),
}

impl<T: Into<FileUnusable>, E> From<T> for ChangeError<E> {
    fn from(trouble: T) -> Self {
        Self::Trouble(trouble.into())
    }
}
