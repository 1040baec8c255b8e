//! The folder that a run writes its checkpoints to, which is its alone as long as it runs.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use headroom_kernels::layout::Layout;

use super::{
    CheckpointError, FILE, Meta, Tensors,
    format::{Beginning, write},
};
use crate::train::files::{Disk, Folder, remove_unfinished, replace};

/// Who may write checkpoints into a folder. Where the process ends, however, the system lets go of it.
#[derive(Debug)]
pub struct Store<F = Disk> {
    dir: PathBuf,
    folder: F,
    /// Held, not used; none where the file system has no locks.
    _lock: Option<File>,
    n_removed: usize,
}

/// A checkpoint that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file's length.
    pub bytes: u64,
}

impl Store {
    /// Takes a folder for a run, makes it where there is none, and removes what writers that were killed left in it.
    ///
    /// # Errors
    /// Another run has it, or it cannot be made or written to.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        let unusable = |error: io::Error| CheckpointError::Folder { error, dir: dir.to_path_buf() };
        fs::create_dir_all(dir).map_err(unusable)?;
        let lock = match lock(dir) {
            Err(TryLockError::WouldBlock) => return Err(CheckpointError::Busy { dir: dir.to_path_buf() }),
            // Network file systems may have none. Two writers then still replace whole files, the last one wins.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
            Ok(file) => Some(file),
        };
        // Without a lock another's unfinished file may be being written.
        let n_removed = if lock.is_some() { remove_unfinished(dir, FILE).map_err(unusable)? } else { 0 };
        Ok(Self { dir: dir.to_path_buf(), folder: Disk(dir.to_path_buf()), _lock: lock, n_removed })
    }
}

impl<F: Folder> Store<F> {
    #[cfg(test)]
    pub(super) fn of(dir: &Path, folder: F) -> Self {
        Self { dir: dir.to_path_buf(), folder, _lock: None, n_removed: 0 }
    }

    /// Unfinished files of writers that were killed, which are gone now.
    #[must_use]
    pub fn n_removed(&self) -> usize {
        self.n_removed
    }

    /// Whether there is a checkpoint to go on from.
    #[must_use]
    pub fn has_checkpoint(&self) -> bool {
        self.dir.join(FILE).exists()
    }

    /// Writes a checkpoint in the place of the one before. It takes the disk's space for both, and no memory worth
    /// mentioning.
    ///
    /// # Errors
    /// Want of space or anything else; the one before is then as it was, and training may go on or not, as its owner
    /// wishes.
    ///
    /// # Panics
    /// The tensors are not as long as the config's layout.
    pub fn save(&self, meta: &Meta, tensors: Tensors<'_>) -> Result<Written, CheckpointError> {
        let failed = |error, bytes| CheckpointError::of_write(error, bytes, self.dir.clone(), self.has_checkpoint());
        let layout = Layout::new(&meta.gpt).map_err(|error| failed(io::Error::other(error), 0))?;
        for tensor in [tensors.params, tensors.exp_avg, tensors.exp_avg_sq] {
            assert_eq!(tensor.len(), layout.len(), "the tensors are the config's");
        }
        let beginning = Beginning::of(meta, &layout).map_err(|error| failed(error.into(), 0))?;
        replace(&self.folder, FILE, |out| write(out, &beginning, tensors))
            .map_err(|error| failed(error, beginning.file_bytes))?;
        Ok(Written { bytes: beginning.file_bytes })
    }
}

/// The folder itself is what is locked, so that nothing more lies in it.
#[cfg(unix)]
fn lock(dir: &Path) -> Result<File, TryLockError> {
    let file = File::open(dir).map_err(TryLockError::Error)?;
    file.try_lock()?;
    Ok(file)
}

#[cfg(not(unix))]
fn lock(dir: &Path) -> Result<File, TryLockError> {
    let mut options = File::options();
    let options = options.create(true).truncate(false).write(true);
    let file = options.open(dir.join("ckpt.lock")).map_err(TryLockError::Error)?;
    file.try_lock()?;
    Ok(file)
}
