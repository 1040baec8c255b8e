//! A copy of the whole history, made while others write to it, by SQLite's own means.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, backup::Backup};

use super::{Archive, Error};
use crate::folders::private_file;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// History itself.
    #[error(transparent)]
    History(#[from] Error),
    /// Nothing to copy.
    #[error("nothing was kept in this folder yet")]
    Nothing,
    /// The name is taken.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// The copy cannot be written.
    #[error("cannot write {}: {error}", file.display())]
    Write {
        /// Which.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

impl Archive {
    /// Copies history as it is at one moment into a new file, which is there whole or not at all; gives its bytes.
    ///
    /// # Errors
    /// There is none, a file has the name already, or the copy cannot be written.
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
            // What is left of it has a name that says so, where it cannot be removed either.
            let _ = fs::remove_file(&unfinished);
        }
        finished?;
        Ok(fs::metadata(to).map_err(write)?.len())
    }
}

fn copy(source: &Connection, to: &Path) -> rusqlite::Result<()> {
    let mut target = Connection::open(to)?;
    // All pages in one go, from one picture: another program's writing would make a copy in pieces begin again.
    Backup::new(source, &mut target)?.step(-1)?;
    // One file, with nothing beside it.
    target.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    target.close().map_err(|(_, error)| error)
}
