//! One agent per data folder: a lock that ends with the process that holds it, however it ends.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::private_file;

/// The file that is locked. Other programs cannot read a locked file on Windows, so it holds nothing.
const LOCK_NAME: &str = "agent.lock";
/// The process id of the last agent that held the lock.
const PID_NAME: &str = "agent.pid";

/// Why the folder cannot be locked.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another agent holds it.
    #[error("cannot use the data folder {}: {} uses it", folder.display(), holder(*pid))]
    Taken {
        /// The data folder.
        folder: PathBuf,
        /// The other agent's process, where its id could be read.
        pid: Option<u32>,
    },
    /// The system refuses.
    #[error("cannot lock the data folder {}: {error}", folder.display())]
    System {
        /// The data folder.
        folder: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("`headroom serve` with process id {pid}"),
        None => "another `headroom serve`".to_owned(),
    }
}

impl LockError {
    /// What to try instead.
    pub fn hint(&self) -> String {
        match self {
            Self::Taken { .. } => "stop the other one first, or use another folder with --data-dir".to_owned(),
            Self::System { .. } => "use a folder that this user can write, with --data-dir".to_owned(),
        }
    }
}

/// The lock; released when this is dropped or the process ends.
#[derive(Debug)]
pub struct AgentLock {
    #[expect(dead_code, reason = "held")]
    file: Option<File>,
}

impl AgentLock {
    /// Locks a data folder for this process.
    ///
    /// # Errors
    /// Another process holds it, or the file cannot be written.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let system = |error| LockError::System { folder: folder.to_owned(), error };
        let file = private_file().open(folder.join(LOCK_NAME)).map_err(system)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Taken { folder: folder.to_owned(), pid: pid_of_holder(folder) });
            }
            // Some network file systems have no locks; SQLite does not work there either.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                return Ok(Self { file: None });
            }
            Err(TryLockError::Error(error)) => return Err(system(error)),
        }
        // Only an error message needs it: where it cannot be written, that names no process.
        if let Ok(mut pid) = private_file().open(folder.join(PID_NAME))
            && pid.set_len(0).is_ok()
        {
            let _ = pid.write_all(std::process::id().to_string().as_bytes());
        }
        Ok(Self { file: Some(file) })
    }
}

fn pid_of_holder(folder: &Path) -> Option<u32> {
    fs::read_to_string(folder.join(PID_NAME)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_holder_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = AgentLock::take(folder.path()).expect("the first");
        let error = AgentLock::take(folder.path()).expect_err("it is taken");
        let own = std::process::id();
        assert!(matches!(error, LockError::Taken { pid: Some(pid), .. } if pid == own), "{error}");
        drop(first);
        AgentLock::take(folder.path()).expect("it is free again");
        let error = AgentLock::take(&folder.path().join("none")).expect_err("the folder does not exist");
        assert!(matches!(error, LockError::System { .. }), "{error}");
    }
}
