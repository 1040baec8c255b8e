//! Writes the run of a plan as a memory snapshot of PyTorch.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use headroom_planner::{
    plan::{Plan, RunOnMachine},
    snapshot,
};
use thiserror::Error;

/// Why a snapshot is not written.
#[derive(Debug, Error)]
#[error("cannot write the snapshot {}: {error}", path.display())]
pub struct SnapshotError {
    /// File as given.
    path: PathBuf,
    /// What the system reports.
    error: io::Error,
}

/// Writes the run to a file.
///
/// # Errors
/// The file cannot be written.
pub fn write<R: RunOnMachine>(path: &Path, plan: &Plan<R>) -> Result<(), SnapshotError> {
    fs::write(path, snapshot::write(plan)).map_err(|error| SnapshotError { path: path.to_owned(), error })
}
