//! Copies the whole history while other programs write to it, with SQLite's backup API.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, backup::Backup};

use super::{Archive, Error};
use crate::folders::private_file;

/// Why a copy failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The history is unreadable.
    #[error(transparent)]
    History(#[from] Error),
    /// There is no history to copy.
    #[error("nothing was kept in this folder yet")]
    Nothing,
    /// The destination exists already.
    #[error("cannot write {}: it exists already", .0.display())]
    Exists(PathBuf),
    /// The copy cannot be written.
    #[error("cannot write {}: {error}", file.display())]
    Write {
        /// Path of the copy.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl Archive {
    /// Copies a consistent snapshot of the history into a new file, completely or not at all. Returns its size in
    /// bytes.
    ///
    /// # Errors
    /// There is no history, the destination exists, or the copy cannot be written.
    pub fn backup(&self, to: &Path) -> Result<u64, BackupError> {
        let write = |error| BackupError::Write { file: to.to_owned(), error };
        if to.symlink_metadata().is_ok() {
            return Err(BackupError::Exists(to.to_owned()));
        }
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let unfinished = PathBuf::from(name);
        drop(private_file().open(&unfinished).map_err(write)?);
        let copied = self.ask(false, |source| copy(source, &unfinished).map(|()| true));
        let finished = match copied {
            Ok(true) => fs::rename(&unfinished, to).map_err(write),
            Ok(false) => Err(BackupError::Nothing),
            Err(error) => Err(error.into()),
        };
        if finished.is_err() {
            // Even if removal fails, the `.tmp` name marks the file as incomplete.
            let _ = fs::remove_file(&unfinished);
        }
        finished?;
        Ok(fs::metadata(to).map_err(write)?.len())
    }
}

fn copy(source: &Connection, to: &Path) -> rusqlite::Result<()> {
    let mut target = Connection::open(to)?;
    // All pages in one step, from one snapshot. Writes of other programs would restart a copy in several steps.
    Backup::new(source, &mut target)?.step(-1)?;
    // A single file without companion files.
    target.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    target.close().map_err(|(_, error)| error)
}
