//! The server's interface to runs that the agent starts: a trait, so that tests can provide their own. All methods read
//! or write a disk, like those of [`archive`](super::archive).

use std::{fmt::Debug, fs::File, sync::Arc};

use headroom_protocol::run::{Run, RunRequest, Training};

use super::{blocking::blocking, error::ApiError};
use crate::run_manager::{Error, RunManager};

/// The operations on runs; each as documented for [`RunManager`].
pub trait Orders: Debug + Send + Sync + 'static {
    /// [`RunManager::training`].
    fn training(&self) -> Result<Training, Error>;
    /// [`RunManager::order`].
    fn order(&self, order: RunRequest) -> Result<Run, Error>;
    /// [`RunManager::stop`].
    fn stop(&self, id: &str) -> Result<Run, Error>;
    /// [`RunManager::resume`].
    fn resume(&self, id: &str) -> Result<Run, Error>;
    /// [`RunManager::checkpoint`].
    fn checkpoint(&self, id: &str) -> Result<File, Error>;
    /// [`RunManager::deleted`].
    fn deleted(&self, run: &Run) -> Result<(), Error>;
}

impl Orders for RunManager {
    fn training(&self) -> Result<Training, Error> {
        Ok(self.training())
    }

    fn order(&self, order: RunRequest) -> Result<Run, Error> {
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

/// Runs a query on a thread that may block.
///
/// # Errors
/// The run manager returns an error, or the thread ends without an answer.
pub async fn asked<T: Send + 'static>(
    orders: &Arc<dyn Orders>,
    ask: impl FnOnce(&dyn Orders) -> Result<T, Error> + Send + 'static,
) -> Result<T, ApiError> {
    let orders = Arc::clone(orders);
    let answer = blocking(move || ask(&*orders)).await?;
    Ok(answer?)
}
