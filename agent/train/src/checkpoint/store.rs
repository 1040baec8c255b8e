//! Checkpoint directory of a run, locked while the run is active.

use std::{
    cell::Cell,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use headroom_agent_core::platform;
use headroom_kernels::layout::Layout;

use super::{
    BEST, CheckpointError, FILE, Meta, Tensors,
    choice::val_loss,
    format::{FileHeader, write},
    space::FILES_MAX,
};
use crate::files::{Disk, Links, keep, probe, remove_unfinished, replace};

/// Name of the lock file on systems that cannot lock a directory.
const LOCK: &str = "ckpt.lock";
/// Number of repeated attempts to lock a directory.
const LOCK_ATTEMPTS: u32 = 5;
/// Time between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Exclusive access to a checkpoint directory. The system releases the lock at the end of the process.
#[derive(Debug)]
pub struct Store<F = Disk> {
    dir: PathBuf,
    folder: F,
    /// Created directories, removed if empty before the lock is released.
    _made: MadeFolders,
    /// Lock, held only. `None` if the file system has no locks.
    _lock: Option<File>,
    n_removed: usize,
    kept: Cell<BestLosses>,
}

/// Directories that a run created. Empty ones are removed on drop.
#[derive(Debug, Default)]
struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    /// Creates a directory with its parents.
    fn make(dir: &Path) -> io::Result<Self> {
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let made = Self(dir.ancestors().take_while(is_missing).map(Path::to_path_buf).collect());
        fs::create_dir_all(dir)?;
        Ok(made)
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            // The system does not remove a directory with contents.
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
    }
}

/// Validation losses of the checkpoints in the directory.
#[derive(Clone, Copy, Debug, Default)]
struct BestLosses {
    /// Loss of `FILE`. `None` if it was saved without an evaluation.
    last: Option<f64>,
    /// Loss of `BEST`. `None` if the file does not exist.
    best: Option<f64>,
    /// Whether `BEST` belongs to the run that this one replaces.
    is_best_of_other: bool,
}

impl BestLosses {
    /// Whether a loss is lower than that of every checkpoint.
    fn is_improved_by(self, val_loss: f64) -> bool {
        [self.last, self.best].into_iter().flatten().all(|kept| val_loss < kept)
    }

    /// Loss of `FILE`, if it is the only copy of the best checkpoint.
    fn only_best(self) -> Option<f64> {
        self.last.filter(|last| self.best.is_none_or(|best| *last < best))
    }
}

/// A checkpoint that is safely on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedCheckpoint {
    /// File length in bytes.
    pub bytes: u64,
}

impl Store {
    /// Locks the directory of a run. Creates a missing directory, and removes unfinished files of killed writers.
    ///
    /// # Errors
    /// Another run holds the lock, or the directory cannot be created or written.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        let unusable = |error: io::Error| CheckpointError::Folder { error, dir: dir.to_path_buf() };
        let made = MadeFolders::make(dir).map_err(unusable)?;
        let lock = match lock_patiently(dir) {
            Err(TryLockError::WouldBlock) => return Err(CheckpointError::Busy { dir: dir.to_path_buf() }),
            // Some network file systems have no locks. Two writers then still replace whole files, and the last one
            // wins.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
            Ok(file) => Some(file),
        };
        // Without a lock, an unfinished file may belong to an active writer.
        let mut n_removed = 0;
        if lock.is_some() {
            for name in [FILE, BEST] {
                n_removed += remove_unfinished(dir, name).map_err(unusable)?;
            }
        }
        let [last, best] = [FILE, BEST].map(|name| val_loss(&dir.join(name)));
        let kept = Cell::new(BestLosses { last, best, is_best_of_other: false });
        // A checkpoint contains the config of its run, which may contain secrets.
        let folder = Disk::private(dir);
        Ok(Self { dir: dir.to_path_buf(), folder, _made: made, _lock: lock, n_removed, kept })
    }
}

/// Checks that a name is free or that of a directory. Opens nothing, as a pipe would block.
///
/// # Errors
/// [`CheckpointError::Folder`].
pub fn check_is_folder(dir: &Path) -> Result<(), CheckpointError> {
    if dir.is_dir() || !dir.exists() {
        return Ok(());
    }
    Err(CheckpointError::Folder { error: io::ErrorKind::NotADirectory.into(), dir: dir.to_path_buf() })
}

/// Checks that a directory can be created and written to, without leaving it behind.
///
/// # Errors
/// [`CheckpointError::Folder`].
pub fn check_folder(dir: &Path) -> Result<(), CheckpointError> {
    let checked = MadeFolders::make(dir).and_then(|_made| platform::check_writable(dir));
    checked.map_err(|error| CheckpointError::Folder { error, dir: dir.to_path_buf() })
}

impl<F: Links> Store<F> {
    #[cfg(test)]
    pub(super) fn of(dir: &Path, folder: F) -> Self {
        let [last, best] = [FILE, BEST].map(|name| val_loss(&dir.join(name)));
        let kept = Cell::new(BestLosses { last, best, is_best_of_other: false });
        Self { dir: dir.to_path_buf(), folder, _made: MadeFolders::default(), _lock: None, n_removed: 0, kept }
    }

    /// Checks before training that the directory can hold as many checkpoints as a run has at one time, by writing small
    /// files.
    ///
    /// # Errors
    /// [`CheckpointError::Folder`].
    pub fn check(&self) -> Result<(), CheckpointError> {
        let unusable = |error: io::Error| CheckpointError::Folder { error, dir: self.dir.clone() };
        // A file cannot replace a directory.
        if let Some(name) = [FILE, BEST].into_iter().find(|name| self.dir.join(name).is_dir()) {
            let why = format!("{name} is a directory");
            return Err(unusable(io::Error::new(io::ErrorKind::IsADirectory, why)));
        }
        let n_present = [FILE, BEST].into_iter().filter(|name| self.dir.join(name).exists()).count();
        probe(&self.folder, FILE, FILES_MAX - n_present).map_err(unusable)
    }

    /// Starts a new run in the directory of another one, whose checkpoints the first save replaces.
    pub fn replace_other(&self) {
        self.kept.set(BestLosses { is_best_of_other: self.dir.join(BEST).exists(), ..BestLosses::default() });
    }

    /// Number of unfinished files of killed writers that were removed.
    #[must_use]
    pub fn n_removed(&self) -> usize {
        self.n_removed
    }

    /// Whether there is a checkpoint to resume from.
    #[must_use]
    pub fn has_checkpoint(&self) -> bool {
        self.dir.join(FILE).exists()
    }

    /// Path of this run's best checkpoint, if it is not the last one.
    #[must_use]
    pub fn best(&self) -> Option<PathBuf> {
        let kept = self.kept.get();
        (kept.best.is_some() && kept.only_best().is_none()).then(|| self.dir.join(BEST))
    }

    /// Replaces the last checkpoint. If that one is the best so far and the new one is not better, the best one is
    /// kept as `BEST`. This needs disk space for both, and negligible memory.
    ///
    /// # Errors
    /// The disk is full, or the write fails. The previous checkpoint is intact then, and the caller may continue
    /// training.
    ///
    /// # Panics
    /// The tensors do not have the length of the config's layout.
    pub fn save(&self, meta: &Meta, tensors: Tensors<'_>) -> Result<SavedCheckpoint, CheckpointError> {
        let failed = |error, bytes| CheckpointError::of_write(error, bytes, self.dir.clone(), self.has_checkpoint());
        let layout = Layout::new(&meta.gpt).map_err(|error| failed(io::Error::other(error), 0))?;
        for tensor in [tensors.params, tensors.exp_avg, tensors.exp_avg_sq] {
            assert_eq!(tensor.len(), layout.len(), "the tensors are the config's");
        }
        let beginning = FileHeader::of(meta, &layout).map_err(|error| failed(error.into(), 0))?;
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
            // Readers compare the losses of the two files, so a remaining file is harmless.
            let _ = self.remove_best();
        }
        self.kept.set(kept);
        Ok(SavedCheckpoint { bytes: beginning.file_bytes })
    }

    fn remove_best(&self) -> io::Result<()> {
        match self.folder.remove(BEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// Whether an active run saves to a directory.
#[must_use]
pub fn is_busy(dir: &Path) -> bool {
    // Elsewhere than on Unix, `lock` would create a file.
    let may_be_locked = cfg!(unix) || dir.join(LOCK).exists();
    // Opening a pipe would block.
    may_be_locked && dir.is_dir() && matches!(lock(dir), Err(TryLockError::WouldBlock))
}

/// Locks a directory. A process that examines the lock holds it for a moment, so the attempt is repeated.
fn lock_patiently(dir: &Path) -> Result<File, TryLockError> {
    for _ in 0..LOCK_ATTEMPTS {
        match lock(dir) {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            locked => return locked,
        }
    }
    lock(dir)
}

/// Locks the directory itself, which needs no additional file.
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
    let file = options.open(dir.join(LOCK)).map_err(TryLockError::Error)?;
    file.try_lock()?;
    Ok(file)
}
