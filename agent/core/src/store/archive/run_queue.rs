//! Requests about runs that the agent starts. Each change is one transaction with its event, so concurrent requests get
//! consistent answers.

use headroom_protocol::{
    event::EventKind,
    message::Message,
    run::{Run, RunStatus},
};
use rusqlite::{Transaction, TransactionBehavior};

use super::{Archive, ChangeError, Error, events, happened};
use crate::{
    platform::Process,
    store::run_queue::{self, Training},
};

/// A stop request for a running run.
#[derive(Debug)]
pub struct StopRequest {
    /// Process of the watcher, if the system reports it.
    pub watcher: Option<Process>,
    /// Time of the first request; `None` if this is the first.
    pub first_ms: Option<u64>,
}

/// Outcome of a stop request that takes effect.
#[derive(Debug)]
pub struct StopOutcome<E> {
    /// The run after the request.
    pub run: Run,
    /// Why the record of the request could not be committed, although the request was delivered.
    pub unrecorded: Option<E>,
}

impl Archive {
    /// Returns the agent's queued runs in their order.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn queued(&self) -> Result<Vec<Run>, Error> {
        self.ask(vec![], |connection| run_queue::queued(connection))
    }

    /// Returns the agent's runs that were started and have not ended.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn going_on(&self) -> Result<Vec<Run>, Error> {
        self.ask(vec![], |connection| run_queue::going_on(connection))
    }

    /// Adds a new run at the end of the queue.
    ///
    /// # Errors
    /// The queue is full, or history cannot be written.
    pub fn queue(&self, run: &Run, n_max: u64, now_ms: u64) -> Result<(), Error> {
        self.change(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            has_room(&transaction, n_max)?;
            let what = EventKind::RunStarted { run: Box::new(Run { status: RunStatus::Queued, ..run.clone() }) };
            happened(&transaction, Some(&run.id), &what, now_ms)?;
            Ok(transaction.commit()?)
        })
    }

    /// Adds one of the agent's runs that has ended at the end of the queue, with the command to resume it. Returns the
    /// updated run.
    ///
    /// # Errors
    /// The run does not exist, is not the agent's or has not ended, the queue is full, or history cannot be written.
    pub fn queue_again(&self, id: &str, command: Vec<String>, n_max: u64, now_ms: u64) -> Result<Run, Error> {
        self.change_training(id, |transaction, run, _| {
            if !run.status.has_ended() {
                return Err(ChangeError::No(Error::NotEnded(id.to_owned())));
            }
            has_room(transaction, n_max)?;
            happened(transaction, Some(id), &EventKind::RunCommand { command }, now_ms)?;
            Ok(status(transaction, id, RunStatus::Queued, now_ms)?)
        })?;
        self.run(id)
    }

    /// Stops a run. A queued run ends immediately. `deliver` sends the request to a running one, and concurrent requests
    /// are delivered one after the other. The request is recorded in a transaction that is committed after delivery, so
    /// a request that is not delivered leaves no record. Once it is delivered, the outcome is a success even if the
    /// commit fails.
    ///
    /// # Errors
    /// The run does not exist, is not the agent's or has ended, history cannot be read or written, or `deliver` fails.
    /// The request has no effect then.
    pub fn stop<E: From<Error>>(
        &self,
        id: &str,
        now_ms: u64,
        deliver: impl FnOnce(StopRequest) -> Result<(), E>,
    ) -> Result<StopOutcome<E>, E> {
        let mut delivered = None;
        let committed = self.change_training(id, |transaction, run, training| {
            if run.status.has_ended() {
                return Err(ChangeError::No(Error::HasEnded(id.to_owned()).into()));
            }
            if training.is_queued {
                status(transaction, id, RunStatus::unqueued(), now_ms)?;
                return current(transaction, id);
            }
            if training.stopping_ms.is_none() {
                happened(transaction, Some(id), &EventKind::RunStopping, now_ms)?;
            }
            let run = current(transaction, id)?;
            let request = StopRequest { watcher: training.watcher, first_ms: training.stopping_ms };
            deliver(request).map_err(ChangeError::No)?;
            delivered = Some(run.clone());
            Ok(run)
        });
        match (committed, delivered) {
            (Ok(run), _) => Ok(StopOutcome { run, unrecorded: None }),
            (Err(error), Some(run)) => Ok(StopOutcome { run, unrecorded: Some(error) }),
            (Err(error), None) => Err(error),
        }
    }

    /// Removes a run from the queue for its watcher, which starts the run. Returns the run, or `None` if it is not
    /// queued.
    ///
    /// # Errors
    /// The run does not exist or is not the agent's, or history cannot be written.
    pub fn claim(&self, id: &str, watcher: Option<&Process>, now_ms: u64) -> Result<Option<Run>, Error> {
        self.change_training(id, |transaction, run, _| {
            Ok(run_queue::claim(transaction, id, watcher, now_ms)?.then_some(run))
        })
    }

    /// Ends one of the agent's runs that could not be started.
    ///
    /// # Errors
    /// The run does not exist or is not the agent's, or history cannot be written.
    pub fn not_started(&self, id: &str, code: i32, now_ms: u64) -> Result<(), Error> {
        self.change_training(id, |transaction, _, _| Ok(status(transaction, id, RunStatus::exited(code), now_ms)?))
    }

    /// Records why one of the agent's runs ends.
    ///
    /// # Errors
    /// The run does not exist or is not the agent's, or history cannot be written.
    pub fn explain(&self, id: &str, message: Message, now_ms: u64) -> Result<(), Error> {
        let what = EventKind::RunExplained { message, xid: None };
        self.change_training(id, |transaction, _, _| Ok(happened(transaction, Some(id), &what, now_ms)?))
    }

    fn change_training<T, E: From<Error>>(
        &self,
        id: &str,
        change: impl FnOnce(&Transaction<'_>, Run, Training) -> Result<T, ChangeError<E>>,
    ) -> Result<T, E> {
        if self.file.identity().is_none() {
            return Err(Error::NoRun(id.to_owned()).into());
        }
        self.change(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let run = current(&transaction, id)?;
            let Some(training) = run_queue::training(&transaction, id)? else {
                return Err(ChangeError::No(Error::NotOurs(id.to_owned()).into()));
            };
            let changed = change(&transaction, run, training)?;
            transaction.commit()?;
            Ok(changed)
        })
    }
}

fn has_room(transaction: &Transaction<'_>, n_max: u64) -> Result<(), ChangeError> {
    if run_queue::n_queued(transaction)? >= n_max { Err(ChangeError::No(Error::QueueFull(n_max))) } else { Ok(()) }
}

/// Returns the run as the transaction sees it.
fn current<E: From<Error>>(transaction: &Transaction<'_>, id: &str) -> Result<Run, ChangeError<E>> {
    events::standing(transaction, id)?.ok_or_else(|| ChangeError::No(Error::NoRun(id.to_owned()).into()))
}

fn status(transaction: &Transaction<'_>, id: &str, status: RunStatus, now_ms: u64) -> rusqlite::Result<()> {
    happened(transaction, Some(id), &EventKind::RunStatus { status, energy_joules: None }, now_ms)
}
