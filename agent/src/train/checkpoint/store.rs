//! The folder that a run writes its checkpoints to, which is its alone as long as it runs.

use std::{
    cell::Cell,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use headroom_kernels::layout::Layout;

use super::{
    BEST, CheckpointError, FILE, Meta, Needed, Tensors,
    choice::val_loss,
    format::{Beginning, write},
};
use crate::train::files::{Disk, Links, keep, probe, remove_unfinished, replace};

/// Who may write checkpoints into a folder. Where the process ends, however, the system lets go of it.
#[derive(Debug)]
pub struct Store<F = Disk> {
    dir: PathBuf,
    folder: F,
    /// Held, not used; none where the file system has no locks.
    _lock: Option<File>,
    n_removed: usize,
    kept: Cell<Kept>,
}

/// The checkpoints in the folder, by their validation losses.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    /// Of `FILE`; none where it was saved without an evaluation.
    last: Option<f64>,
    /// Of `BEST`; none where there is no such file.
    best: Option<f64>,
    /// `BEST` belongs to the run that this one replaces.
    is_best_of_other: bool,
}

impl Kept {
    /// Whether a loss is lower than that of every checkpoint.
    fn is_improved_by(self, val_loss: f64) -> bool {
        [self.last, self.best].into_iter().flatten().all(|kept| val_loss < kept)
    }

    /// The loss of `FILE`, where that is the only copy of the best checkpoint.
    fn only_best(self) -> Option<f64> {
        self.last.filter(|last| self.best.is_none_or(|best| *last < best))
    }
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
        let mut n_removed = 0;
        if lock.is_some() {
            for name in [FILE, BEST] {
                n_removed += remove_unfinished(dir, name).map_err(unusable)?;
            }
        }
        let [last, best] = [FILE, BEST].map(|name| val_loss(&dir.join(name)));
        let kept = Cell::new(Kept { last, best, is_best_of_other: false });
        Ok(Self { dir: dir.to_path_buf(), folder: Disk(dir.to_path_buf()), _lock: lock, n_removed, kept })
    }
}

impl<F: Links> Store<F> {
    #[cfg(test)]
    pub(super) fn of(dir: &Path, folder: F) -> Self {
        let [last, best] = [FILE, BEST].map(|name| val_loss(&dir.join(name)));
        let kept = Cell::new(Kept { last, best, is_best_of_other: false });
        Self { dir: dir.to_path_buf(), folder, _lock: None, n_removed: 0, kept }
    }

    /// Checks, before a run trains anything, that its checkpoints can be saved: the folder takes a file, and the disk has
    /// room for all that lie there at once. `free_bytes` is what the disk has free; none where that is not known.
    ///
    /// # Errors
    /// [`CheckpointError::Folder`] or [`CheckpointError::NoRoom`].
    pub fn check(&self, needed: Needed, free_bytes: Option<u64>) -> Result<(), CheckpointError> {
        let unusable = |error: io::Error| CheckpointError::Folder { error, dir: self.dir.clone() };
        // No file takes the place of a directory.
        if self.dir.join(FILE).is_dir() {
            let why = format!("{FILE} is a directory");
            return Err(unusable(io::Error::new(io::ErrorKind::IsADirectory, why)));
        }
        let Needed { total_bytes, missing_bytes, .. } = needed;
        match free_bytes.filter(|free_bytes| *free_bytes < missing_bytes) {
            Some(free_bytes) => {
                Err(CheckpointError::NoRoom { total_bytes, missing_bytes, free_bytes, dir: self.dir.clone() })
            }
            None => probe(&self.folder, FILE).map_err(unusable),
        }
    }

    /// Starts a new run in the folder of another one, whose checkpoints the first save replaces.
    pub fn replace_other(&self) {
        self.kept.set(Kept { is_best_of_other: self.dir.join(BEST).exists(), ..Kept::default() });
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

    /// The name of the best checkpoint of this run, where that is another one than the last.
    #[must_use]
    pub fn best(&self) -> Option<PathBuf> {
        let kept = self.kept.get();
        (kept.best.is_some() && kept.only_best().is_none()).then(|| self.dir.join(BEST))
    }

    /// Writes a checkpoint in the place of the last one. Where that is the best one so far and this one is no improvement,
    /// the best one stays as `BEST`. It takes the disk's space for both, and no memory worth mentioning.
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
        let failed = |error| failed(error, beginning.file_bytes);
        let mut kept = self.kept.get();
        let is_improvement = meta.state.val_loss.is_some_and(|val_loss| kept.is_improved_by(val_loss));
        if kept.is_best_of_other {
            self.remove_best().map_err(failed)?;
            kept.is_best_of_other = false;
        }
        if let Some(best) = kept.only_best().filter(|_| !is_improvement) {
            keep(&self.folder, FILE, BEST).map_err(failed)?;
            kept.best = Some(best);
        }
        self.kept.set(kept);
        replace(&self.folder, FILE, |out| write(out, &beginning, tensors)).map_err(failed)?;
        kept.last = meta.state.val_loss;
        if is_improvement && kept.best.take().is_some() {
            // Readers compare the losses of the two, so that a file that stays here does no harm.
            let _ = self.remove_best();
        }
        self.kept.set(kept);
        Ok(Written { bytes: beginning.file_bytes })
    }

    fn remove_best(&self) -> io::Result<()> {
        match self.folder.remove(BEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
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
