//! What the server asks of the agent's own runs, as far as it is concerned with it: a trait, so that tests can make one
//! up. Everything here reads or writes a disk, as [`archive`](super::archive) does.

use std::{fmt::Debug, fs::File, sync::Arc};

use headroom_shared::protocol::run::{Order, Run, Training};
use tokio::task::spawn_blocking;

use super::error::Refusal;
use crate::foreman::{Error, Foreman};

/// What is asked; each as [`Foreman`] has it.
pub trait Orders: Debug + Send + Sync + 'static {
    /// [`Foreman::training`].
    fn training(&self) -> Result<Training, Error>;
    /// [`Foreman::order`].
    fn order(&self, order: Order) -> Result<Run, Error>;
    /// [`Foreman::stop`].
    fn stop(&self, id: &str) -> Result<Run, Error>;
    /// [`Foreman::resume`].
    fn resume(&self, id: &str) -> Result<Run, Error>;
    /// [`Foreman::checkpoint`].
    fn checkpoint(&self, id: &str) -> Result<File, Error>;
    /// [`Foreman::deleted`].
    fn deleted(&self, run: &Run) -> Result<(), Error>;
}

impl Orders for Foreman {
    fn training(&self) -> Result<Training, Error> {
        Ok(self.training())
    }

    fn order(&self, order: Order) -> Result<Run, Error> {
        self.order(order)
    }

    fn stop(&self, id: &str) -> Result<Run, Error> {
        self.stop(id)
    }

    fn resume(&self, id: &str) -> Result<Run, Error> {
        self.resume(id)
    }

    fn checkpoint(&self, id: &str) -> Result<File, Error> {
        self.checkpoint(id)
    }

    fn deleted(&self, run: &Run) -> Result<(), Error> {
        self.deleted(run)
    }
}

/// Asks on a thread that may wait.
///
/// # Errors
/// What the foreman says, or that the thread ended without an answer.
pub async fn asked<T: Send + 'static>(
    orders: &Arc<dyn Orders>,
    ask: impl FnOnce(&dyn Orders) -> Result<T, Error> + Send + 'static,
) -> Result<T, Refusal> {
    let orders = Arc::clone(orders);
    let answer = spawn_blocking(move || ask(&*orders)).await.map_err(|_| Refusal::internal())?;
    Ok(answer?)
}
