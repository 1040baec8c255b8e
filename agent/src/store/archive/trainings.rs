//! What is asked of runs that the agent starts itself: each change is one transaction with its event, so that two who
//! ask at once get answers that agree.

use headroom_shared::protocol::{
    event::What,
    run::{Run, RunStatus},
};
use rusqlite::{Transaction, TransactionBehavior};

use super::{Archive, Error, Refused, events, happened};
use crate::{
    platform::Process,
    store::trainings::{self, Training},
};

/// Whom the wish for an end goes to.
#[derive(Debug)]
pub enum Asked {
    /// It waited, and does no more.
    Waited,
    /// It runs.
    Runs {
        /// Who watches it, where the system told that.
        watcher: Option<Process>,
        /// When it was asked first; `None` for now.
        before_ms: Option<u64>,
    },
}

impl Archive {
    /// Runs of the agent's that wait, in their order.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn queued(&self) -> Result<Vec<Run>, Error> {
        self.ask(vec![], |connection| trainings::queued(connection))
    }

    /// Runs of the agent's that were started and have not ended.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn going_on(&self) -> Result<Vec<Run>, Error> {
        self.ask(vec![], |connection| trainings::going_on(connection))
    }

    /// Puts a new run at the queue's end.
    ///
    /// # Errors
    /// So many wait already, or history cannot be written.
    pub fn queue(&self, run: &Run, n_max: u64, now_ms: u64) -> Result<(), Error> {
        self.change(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            has_room(&transaction, n_max)?;
            let what = What::RunStarted { run: Box::new(Run { status: RunStatus::Queued, ..run.clone() }) };
            happened(&transaction, Some(&run.id), &what, now_ms)?;
            Ok(transaction.commit()?)
        })
    }

    /// Puts a run of the agent's that has ended at the queue's end, with the command that it is to go on by; gives it as
    /// it stands then.
    ///
    /// # Errors
    /// There is none, it is not the agent's or has not ended, so many wait already, or history cannot be written.
    pub fn queue_again(&self, id: &str, command: Vec<String>, n_max: u64, now_ms: u64) -> Result<Run, Error> {
        self.change_training(id, |transaction, run, _| {
            if !run.status.has_ended() {
                return Err(Refused::No(Error::NotEnded(id.to_owned())));
            }
            has_room(transaction, n_max)?;
            happened(transaction, Some(id), &What::RunCommand { command }, now_ms)?;
            status(transaction, id, RunStatus::Queued, now_ms)
        })?;
        self.run(id)
    }

    /// Asks for a run's end: one that waits has ended with it, one that runs has to be told.
    ///
    /// # Errors
    /// There is none, it is not the agent's or has ended, or history cannot be written.
    pub fn stop(&self, id: &str, now_ms: u64) -> Result<Asked, Error> {
        self.change_training(id, |transaction, run, training| {
            if run.status.has_ended() {
                return Err(Refused::No(Error::HasEnded(id.to_owned())));
            }
            if training.is_queued {
                status(transaction, id, RunStatus::unqueued(), now_ms)?;
                return Ok(Asked::Waited);
            }
            if training.stopping_ms.is_none() {
                happened(transaction, Some(id), &What::RunStopping, now_ms)?;
            }
            Ok(Asked::Runs { watcher: training.watcher, before_ms: training.stopping_ms })
        })
    }

    /// Takes a run out of the queue for its watcher, which starts it; gives it, and none where it does not wait.
    ///
    /// # Errors
    /// There is none, it is not the agent's, or history cannot be written.
    pub fn claim(&self, id: &str, watcher: Option<&Process>, now_ms: u64) -> Result<Option<Run>, Error> {
        self.change_training(id, |transaction, run, _| {
            Ok(trainings::claim(transaction, id, watcher, now_ms)?.then_some(run))
        })
    }

    /// Ends a run of the agent's that could not be started.
    ///
    /// # Errors
    /// There is none, it is not the agent's, or history cannot be written.
    pub fn not_started(&self, id: &str, code: i32, now_ms: u64) -> Result<(), Error> {
        self.change_training(id, |transaction, _, _| status(transaction, id, RunStatus::exited(code), now_ms))
    }

    /// Says why a run of the agent's ends.
    ///
    /// # Errors
    /// There is none, it is not the agent's, or history cannot be written.
    pub fn explain(&self, id: &str, message: String, now_ms: u64) -> Result<(), Error> {
        let what = What::RunExplained { message, xid: None };
        self.change_training(id, |transaction, _, _| Ok(happened(transaction, Some(id), &what, now_ms)?))
    }

    fn change_training<T>(
        &self,
        id: &str,
        change: impl FnOnce(&Transaction<'_>, Run, Training) -> Result<T, Refused>,
    ) -> Result<T, Error> {
        if self.file.identity().is_none() {
            return Err(Error::NoRun(id.to_owned()));
        }
        self.change(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(run) = events::standing(&transaction, id)? else {
                return Err(Refused::No(Error::NoRun(id.to_owned())));
            };
            let Some(training) = trainings::training(&transaction, id)? else {
                return Err(Refused::No(Error::NotOurs(id.to_owned())));
            };
            let changed = change(&transaction, run, training)?;
            transaction.commit()?;
            Ok(changed)
        })
    }
}

fn has_room(transaction: &Transaction<'_>, n_max: u64) -> Result<(), Refused> {
    if trainings::n_queued(transaction)? >= n_max { Err(Refused::No(Error::QueueFull(n_max))) } else { Ok(()) }
}

fn status(transaction: &Transaction<'_>, id: &str, status: RunStatus, now_ms: u64) -> Result<(), Refused> {
    Ok(happened(transaction, Some(id), &What::RunStatus { status, energy_joules: None }, now_ms)?)
}
