//! The history file: how it is located, created, opened, checked for damage and set aside.
//!
//! While this process has an open connection, only SQLite may open the file. Closing another handle would release all
//! SQLite locks of the process (POSIX locks). Existence, mode and length are therefore queried by path.

mod aside;
mod identity;
mod salvage;

use std::{
    fs::{self, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};

use super::{error::FileUnusable, schema};
use crate::{
    folders::{self, private_file},
    logging::HISTORY,
};
pub use identity::Identity;
pub use salvage::FACT as SET_ASIDE;

/// Name of the file in the data directory.
pub const NAME: &str = "history.sqlite";
/// Name of the lock file. It serialises checking, creating and setting aside of the history file. Writers use SQLite's
/// own locks.
const LOCK_NAME: &str = "history.lock";
/// Name of a new file until it is complete.
const UNFINISHED_NAME: &str = "history.sqlite.new";

/// How long a statement waits for another program. A transaction takes milliseconds; a WAL checkpoint on a slow disk
/// takes longer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Size of the statement cache: more than the statements of the writer thread, so that it does not prepare some every
/// second.
const STATEMENTS: usize = 48;
/// Maximum size of the write-ahead log after a WAL checkpoint: four times SQLite's size for automatic checkpoints.
const LOG_BYTES: u32 = 16 << 20;

/// How thoroughly a file is checked when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The file is not checked.
    Whole,
    /// Every page is checked, at hundreds of megabytes per second.
    Looked,
    /// The file was inconsistent before: every index is also compared with its table.
    Suspect,
    /// The file was inconsistent again, although that comparison found nothing.
    None,
}

/// The history file of a data directory.
#[derive(Clone, Debug)]
pub struct HistoryFile {
    folder: PathBuf,
    /// The file whose tables were found complete, and its [`schema::change_count`] at that time.
    complete: Arc<Mutex<Option<(Identity, i64)>>>,
}

/// A file that is open for writing.
#[derive(Debug)]
pub struct OpenDatabase {
    /// The connection. The file has the last version.
    pub connection: Connection,
    /// Identity of the file.
    pub identity: Identity,
    /// New name of a damaged file that was replaced.
    pub set_aside: Option<String>,
    /// Whether recovered data is in this file. Its last event then describes the recovery.
    pub is_salvaged: bool,
}

impl HistoryFile {
    /// Creates the path in a data directory.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), complete: Arc::default() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Whether a file of this name exists in the same directory.
    pub fn is_beside(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    /// Returns the directory of a run while it is watched.
    pub fn watched(&self, run: &str) -> PathBuf {
        folders::watched(&self.folder, run)
    }

    /// Returns the identity of the file that now has the name; `None` if there is no file.
    pub fn identity(&self) -> Option<Identity> {
        fs::metadata(self.path()).ok().map(|metadata| Identity::of(&metadata))
    }

    /// Returns the size of the file and its write-ahead log.
    pub fn bytes(&self) -> u64 {
        let of = |end: &str| fs::metadata(self.folder.join(format!("{NAME}{end}"))).map_or(0, |file| file.len());
        of("") + of("-wal")
    }

    /// Opens the file for writing. Creates it if it is missing, and replaces it if it is damaged.
    ///
    /// # Errors
    /// The file is unusable, and remains unchanged.
    pub fn open(&self, trust: Trust, now_ms: u64) -> Result<OpenDatabase, FileUnusable> {
        // Held until the end: no other program sees an incomplete file, or sets aside a file that was just created.
        let _lock = self.lock()?;
        let mut set_aside = None;
        if !self.path().exists() {
            // SQLite would apply an orphaned log to the new file.
            set_aside = aside::set_aside(&self.folder, now_ms).map_err(FileUnusable::system("setting a log aside"))?;
            self.begin(None, now_ms)?;
        }
        let mut is_salvaged = false;
        let connection = match self.open_trusted(trust) {
            Err(FileUnusable::Damaged(cause)) => {
                tracing::warn!(target: HISTORY, cause, "the history file is damaged and is set aside");
                set_aside = aside::set_aside(&self.folder, now_ms).map_err(FileUnusable::system("setting it aside"))?;
                self.begin(set_aside.as_deref(), now_ms)?;
                is_salvaged = set_aside.is_some();
                self.open_trusted(Trust::Whole)?
            }
            connection => connection?,
        };
        let metadata = fs::metadata(self.path()).map_err(FileUnusable::system("looking at the file"))?;
        Ok(OpenDatabase { connection, identity: Identity::of(&metadata), set_aside, is_salvaged })
    }

    /// Opens the file to read, or for a single change; `None` if nothing was recorded yet.
    ///
    /// # Errors
    /// The file is unusable.
    pub fn visit(&self) -> Result<Option<Connection>, FileUnusable> {
        let identity = match fs::metadata(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FileUnusable::System { what: "looking at the file", error }),
            Ok(metadata) => Identity::of(&metadata),
        };
        let connection = connect(&self.path())?;
        if schema::version(&connection)? == 0 {
            return Err(FileUnusable::Damaged("it is no history".to_owned()));
        }
        // Comparing the columns of all tables takes as long as a small request.
        let state = Some((identity, schema::change_count(&connection)?));
        if *self.complete.lock().unwrap_or_else(PoisonError::into_inner) == state {
            return Ok(Some(connection));
        }
        if schema::is_old(&connection)? {
            // No agent of this version has opened the file yet.
            drop(connection);
            return self.open(Trust::Whole, crate::clock::now_ms()).map(|opened| Some(opened.connection));
        }
        *self.complete.lock().unwrap_or_else(PoisonError::into_inner) = state;
        Ok(Some(connection))
    }

    /// Returns the system's error if it denies access to the file or to its directory. SQLite writes its log to the
    /// directory, also to read.
    pub fn denied(&self) -> Option<io::Error> {
        #[cfg(unix)]
        {
            use rustix::fs::{Access, access};
            let checked = access(self.path(), Access::READ_OK).and_then(|()| access(&self.folder, Access::WRITE_OK));
            checked.err().map(io::Error::from)
        }
        #[cfg(not(unix))]
        fs::metadata(self.path()).err()
    }

    fn lock(&self) -> Result<Option<fs::File>, FileUnusable> {
        let file = private_file()
            .open(self.folder.join(LOCK_NAME))
            .map_err(FileUnusable::system("opening the lock beside it"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Err(FileUnusable::Busy),
            // Some network file systems have no locks. SQLite's locks do not work there either, so only one agent can
            // run.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            Err(TryLockError::Error(error)) => Err(FileUnusable::System { what: "locking the file beside it", error }),
        }
    }

    /// Creates the file under another name, with data recovered from a set-aside file, and renames it when it is
    /// complete. An empty file would count as damaged.
    fn begin(&self, set_aside: Option<&str>, now_ms: u64) -> Result<(), FileUnusable> {
        let unfinished = self.folder.join(UNFINISHED_NAME);
        for end in ["", "-journal"] {
            match fs::remove_file(self.folder.join(format!("{UNFINISHED_NAME}{end}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(FileUnusable::System { what: "removing an unfinished file", error });
                }
                _ => {}
            }
        }
        // Done before SQLite opens the file, because its companion files get the same mode.
        drop(private_file().open(&unfinished).map_err(FileUnusable::system("making the file"))?);
        let mut connection = Connection::open(&unfinished)?;
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        schema::update(&mut connection)?;
        // Event numbers continue after those of the previous file, which may be unreadable. Starting at the time in
        // milliseconds suffices, because no rig writes a thousand events per second.
        let first = i64::try_from(now_ms).unwrap_or(0);
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?1)", [first])?;
        if let Some(name) = set_aside {
            salvage::salvage(&self.folder, name, &mut connection, now_ms)?;
        }
        connection.close().map_err(|(_, error)| error)?;
        fs::rename(&unfinished, self.path()).map_err(FileUnusable::system("naming the file"))
    }

    fn open_trusted(&self, trust: Trust) -> Result<Connection, FileUnusable> {
        let metadata = fs::metadata(self.path()).map_err(FileUnusable::system("looking at the file"))?;
        if !metadata.is_file() || metadata.len() == 0 {
            return Err(FileUnusable::Damaged("there is nothing in it, or it is no file".to_owned()));
        }
        make_private(&self.path());
        let mut connection = connect(&self.path())?;
        let check = match trust {
            Trust::Whole => None,
            Trust::Looked => Some("quick_check"),
            Trust::Suspect => Some("integrity_check"),
            Trust::None => return Err(FileUnusable::Damaged("it was found so twice".to_owned())),
        };
        if schema::version(&connection)? == 0 {
            return Err(FileUnusable::Damaged("it is no history".to_owned()));
        }
        if let Some(check) = check {
            let said: String = connection.query_row(&format!("PRAGMA {check}(1)"), [], |row| row.get(0))?;
            if said != "ok" {
                return Err(FileUnusable::Damaged(said));
            }
        }
        schema::update(&mut connection)?;
        Ok(connection)
    }
}

/// Opens a connection with the settings of all our connections, to a file of a supported version.
fn connect(path: &Path) -> Result<Connection, FileUnusable> {
    // Without CREATE, a file that was just removed is not created by accident. SQLite opens a write-protected file for
    // reading.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Checked before any statement that changes the file.
    let (found, known) = (schema::version(&connection)?, schema::STEPS.len());
    if found > known {
        return Err(FileUnusable::Newer { found, known });
    }
    // Optional: a read-only file keeps its journal mode.
    let mode = connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()));
    if let Err(trouble @ (FileUnusable::Damaged(_) | FileUnusable::Busy)) = mode.map_err(FileUnusable::from) {
        return Err(trouble);
    }
    // A power failure may lose the last seconds, but nothing else.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Removes other users' permissions from a file. If that fails, another user owns the file, which remains unchanged. A
/// symbolic link's target remains unchanged as well, because another user may have created the link.
fn make_private(path: &Path) {
    #[cfg(unix)]
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        use std::os::unix::fs::PermissionsExt;
        if let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(0o600)) {
            tracing::warn!(target: HISTORY, %error, "cannot remove other users' permissions from the history file");
        }
    }
    #[cfg(not(unix))]
    let _ = path;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_that_disappears_after_a_check_is_added() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = HistoryFile::new(folder.path());
        let opened = file.open(Trust::Whole, 1000).expect("a file");
        for _ in 0..2 {
            file.visit().expect("it is readable").expect("it exists");
        }
        assert!(file.complete.lock().expect("a state").is_some());
        opened.connection.execute_batch("ALTER TABLE samples DROP COLUMN throttle").expect("a change");
        let connection = file.visit().expect("it is readable").expect("it exists");
        connection.prepare("SELECT throttle FROM samples").expect("the column");
    }
}
