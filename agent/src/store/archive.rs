//! History as it is asked: each question opens the file for itself, so that none holds another up, and works with or
//! without an agent.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use headroom_shared::protocol::{
    Telemetry, alert::Settings, event::Event, history::History, run::Run, state::HistoryState,
};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::{
    Error, events,
    file::{HistoryFile, Trouble},
    queue::Queue,
    range::{self, Subject},
    resolution::Resolution,
    samples,
};

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
    /// How often settings were kept by this program; a clone's count is the same.
    n_settings: Arc<AtomicU64>,
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
        Self { file: HistoryFile::new(folder), queue: None, n_settings: Arc::default() }
    }

    /// Beside the thread that writes.
    pub(super) fn beside(file: HistoryFile, queue: Arc<Queue>) -> Self {
        Self { file, queue: Some(queue), n_settings: Arc::default() }
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
        let json: Option<String> = self.ask(None, |connection| {
            let sql = "SELECT value FROM facts WHERE name = ?1";
            connection.query_row(sql, [SETTINGS], |row| row.get(0)).optional()
        })?;
        match json {
            None => Ok(Settings::default()),
            Some(json) => {
                serde_json::from_str(&json).map_err(|error| Error::Unusable(format!("the settings in it: {error}")))
            }
        }
    }

    /// Keeps what the owner set.
    ///
    /// # Errors
    /// History cannot be written.
    pub fn set_settings(&self, settings: &Settings) -> Result<(), Error> {
        let json = serde_json::to_string(settings).map_err(|error| Error::Unusable(error.to_string()))?;
        self.change(|connection| {
            let sql = "INSERT INTO facts VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
            Ok(connection.execute(sql, (SETTINGS, json)).map(|_| ())?)
        })?;
        self.n_settings.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// A number that changes when this program keeps other settings: to ask for it opens no file.
    pub(super) fn n_settings(&self) -> u64 {
        self.n_settings.load(Ordering::Acquire)
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

    fn change(&self, change: impl FnOnce(&mut Connection) -> Result<(), Refused>) -> Result<(), Error> {
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
