//! History as it is asked: each question opens the file for itself, so that none holds another up, and works with or
//! without an agent.

mod trainings;

use std::{path::Path, sync::Arc};

use headroom_shared::protocol::{
    Telemetry,
    alert::Settings,
    event::{Event, What},
    history::History,
    run::Run,
    state::HistoryState,
};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::{
    Error,
    alerts::{self, Kept},
    events,
    file::{HistoryFile, SET_ASIDE, Trouble},
    printed::{self, Cursor, Page},
    queue::Queue,
    range::{self, Subject},
    resolution::Resolution,
    samples,
};

pub use trainings::Asked;

/// Moments of telemetry that are read in one go at most: what is kept at full rate.
const MOMENTS_MAX: usize = 36_000;
/// Events that are read in one go at most.
const EVENTS_MAX: usize = 100_000;
/// Runs that a message names where a beginning is that of several.
const CANDIDATES_MAX: usize = 5;
/// What the owner set, among the facts.
const SETTINGS: &str = "settings";

/// The history of a folder. What was never kept is empty; what is damaged is said to the thread that writes, which sets
/// it aside.
#[derive(Clone, Debug)]
pub struct Archive {
    file: HistoryFile,
    queue: Option<Arc<Queue>>,
}

/// A card that history knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// NVML's.
    pub uuid: String,
    /// As NVML has it.
    pub name: String,
}

impl Archive {
    /// Of a data folder, without an agent.
    pub fn new(folder: &Path) -> Self {
        Self { file: HistoryFile::new(folder), queue: None }
    }

    /// Beside the thread that writes.
    pub(super) fn beside(file: HistoryFile, queue: Arc<Queue>) -> Self {
        Self { file, queue: Some(queue) }
    }

    /// Whether it can be asked, and what it takes.
    pub fn state(&self) -> HistoryState {
        match self.last_event() {
            Ok(_) => HistoryState::Kept { bytes: self.file.bytes(), set_aside: None },
            Err(error) => HistoryState::Paused { reason: error.to_string(), since_ms: 0 },
        }
    }

    /// Runs, as [`Store::runs`](super::Store::runs).
    ///
    /// # Errors
    /// History cannot be read.
    pub fn runs(&self, n_max: usize) -> Result<Vec<Run>, Error> {
        self.ask(vec![], |connection| events::runs(connection, n_max))
    }

    /// One run, by its whole number.
    ///
    /// # Errors
    /// There is none, or history cannot be read.
    pub fn run(&self, id: &str) -> Result<Run, Error> {
        self.ask(None, |connection| events::standing(connection, id))?.ok_or_else(|| Error::NoRun(id.to_owned()))
    }

    /// One run, by a beginning of its number or by its name, where no other run has that.
    ///
    /// # Errors
    /// There is none or are several, or history cannot be read.
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

    /// Events, as [`Store::events`](super::Store::events).
    ///
    /// # Errors
    /// History cannot be read.
    pub fn events(&self, run: Option<&str>, after: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.ask(vec![], |connection| events::after(connection, run, after, n_max.min(EVENTS_MAX)))
    }

    /// Lines of figures that a run printed, from the first on or behind a page that was read.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn printed(&self, run: &str, after: Cursor) -> Result<Page, Error> {
        self.ask(Page::default(), |connection| printed::page(connection, run, after))
    }

    /// When a run last made progress; none where its newest events say nothing of that.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn last_progress(&self, run: &str) -> Result<Option<u64>, Error> {
        self.ask(None, |connection| events::last_progress(connection, run))
    }

    /// Number of the newest event.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn last_event(&self) -> Result<u64, Error> {
        self.ask(0, |connection| events::last(connection))
    }

    /// Cards that there are samples of, in the order they were seen first.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn cards(&self) -> Result<Vec<Card>, Error> {
        self.ask(vec![], |connection| {
            let mut select = connection.prepare("SELECT uuid, name FROM gpus ORDER BY id")?;
            select.query_map([], |row| Ok(Card { uuid: row.get(0)?, name: row.get(1)? }))?.collect()
        })
    }

    /// Samples at full rate, of the cards that have a place.
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

    /// A card or the machine over a range of time, in at most so many points: the finest that are left of each part of
    /// it.
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

    /// The same as it is kept: each part in rows of its own width.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn kept(&self, subject: Subject<'_>, from_ms: u64, to_ms: u64) -> Result<Vec<History>, Error> {
        self.ask(vec![], |connection| range::kept(connection, subject, from_ms, to_ms))
    }

    /// What the owner set.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn settings(&self) -> Result<Settings, Error> {
        of_json(self.ask(None, |connection| kept_settings(connection))?)
    }

    /// Keeps what the owner set, if what is kept is still what is expected; all are told of it. Settings that cannot be
    /// read are none to expect.
    ///
    /// # Errors
    /// They are others meanwhile, or history cannot be written.
    pub fn set_settings(
        &self,
        settings: &Settings,
        is_expected: impl FnOnce(Option<&Settings>) -> bool,
        now_ms: u64,
    ) -> Result<(), Error> {
        let json = serde_json::to_string(settings).map_err(|error| Error::Unusable(error.to_string()))?;
        self.change(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let kept = of_json(kept_settings(&transaction)?).ok();
            if !is_expected(kept.as_ref()) {
                return Err(Refused::No(Error::Changed));
            }
            if kept.as_ref() != Some(settings) {
                let sql = "INSERT INTO facts VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
                transaction.execute(sql, (SETTINGS, json))?;
                happened(&transaction, None, &What::SettingsChanged, now_ms)?;
            }
            Ok(transaction.commit()?)
        })
    }

    /// The damaged file that was set aside last, with what came along of it, where it still lies in the folder.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn set_aside(&self) -> Result<Option<What>, Error> {
        let said = self.ask(None, |connection| {
            let sql = "SELECT value FROM facts WHERE name = ?1";
            connection.query_row(sql, [SET_ASIDE], |row| row.get::<_, String>(0)).optional()
        })?;
        let said = said.and_then(|json| serde_json::from_str(&json).ok());
        let lies = |what: &What| matches!(what, What::HistorySetAside { file, .. } if self.file.is_beside(file));
        Ok(said.filter(lies))
    }

    /// Alerts that are on, newest first, dismissed ones among them.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn alerts(&self) -> Result<Vec<Kept>, Error> {
        self.ask(vec![], |connection| alerts::all(connection))
    }

    /// Dismisses an alert that is on, by the number of its event; all are told of it.
    ///
    /// # Errors
    /// There is none, or history cannot be written.
    pub fn dismiss(&self, event: u64, now_ms: u64) -> Result<(), Error> {
        if self.file.identity().is_none() {
            return Err(Error::NoAlert(event));
        }
        self.change(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(fired) = alerts::one(&transaction, event)? else {
                return Err(Refused::No(Error::NoAlert(event)));
            };
            let what = What::AlertDismissed { alert: fired.alert, gpu: fired.gpu };
            happened(&transaction, fired.run.as_deref(), &what, now_ms)?;
            Ok(transaction.commit()?)
        })
    }

    /// The newest events that have a line, as [`Store::newest`](super::Store::newest).
    ///
    /// # Errors
    /// History cannot be read.
    pub fn newest(&self, up_to: u64, after_ms: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.ask(vec![], |connection| events::newest(connection, up_to, after_ms, n_max))
    }

    /// Deletes a run that has ended, with its events; all are told of it.
    ///
    /// # Errors
    /// There is none, it has not ended, or history cannot be written.
    pub fn delete_run(&self, id: &str, now_ms: u64) -> Result<(), Error> {
        if self.file.identity().is_none() {
            return Err(Error::NoRun(id.to_owned()));
        }
        self.change(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(run) = events::standing(&transaction, id)? else {
                return Err(Refused::No(Error::NoRun(id.to_owned())));
            };
            if !run.status.has_ended() {
                return Err(Refused::No(Error::NotEnded(id.to_owned())));
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

    fn change<T>(&self, change: impl FnOnce(&mut Connection) -> Result<T, Refused>) -> Result<T, Error> {
        let visit = || match self.file.visit()? {
            Some(mut connection) => change(&mut connection),
            None => Err(Refused::No(Error::Unusable("nothing was kept in this folder yet".to_owned()))),
        };
        visit().map_err(|refused| match refused {
            Refused::No(error) => error,
            Refused::Trouble(trouble) => self.unusable(&trouble),
        })
    }

    fn unusable(&self, trouble: &Trouble) -> Error {
        if let (Trouble::Damaged(_), Some(queue)) = (trouble, &self.queue) {
            queue.suspect();
        }
        Error::Unusable(trouble.to_string())
    }
}

fn kept_settings(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT value FROM facts WHERE name = ?1";
    connection.query_row(sql, [SETTINGS], |row| row.get(0)).optional()
}

fn of_json(settings: Option<String>) -> Result<Settings, Error> {
    let Some(json) = settings else { return Ok(Settings::default()) };
    serde_json::from_str(&json).map_err(|error| Error::Unusable(format!("the settings in it: {error}")))
}

/// Writes an event that a person brought about.
fn happened(transaction: &Transaction<'_>, run: Option<&str>, what: &What, now_ms: u64) -> rusqlite::Result<()> {
    // A value of ours has a text.
    let Ok(json) = serde_json::to_string(what) else { return Ok(()) };
    let mut batch = events::Batch::new(transaction, now_ms);
    batch.add(now_ms, run, what, &json)?;
    batch.finish()
}

/// Why a change was not made.
enum Refused {
    /// It may not be.
    No(Error),
    /// It cannot be.
    Trouble(Trouble),
}

impl<T: Into<Trouble>> From<T> for Refused {
    fn from(trouble: T) -> Self {
        Self::Trouble(trouble.into())
    }
}
