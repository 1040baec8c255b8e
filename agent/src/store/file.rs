//! The history's one file: where it is, how it is begun, opened, found damaged and set aside.
//!
//! While any connection of this process is open, the file itself is never opened by other means than SQLite: closing it
//! would end the locks that SQLite holds for the whole process. Its name, its mode and its length are asked for by path.

mod aside;
mod identity;
mod salvage;

use std::{
    fs::{self, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use headroom_shared::text;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::schema;
use crate::folders::private_file;
pub use identity::Identity;
pub use salvage::FACT as SET_ASIDE;

/// The file's name in the data folder.
pub const NAME: &str = "history.sqlite";
/// One program at a time looks at the file, begins it or sets it aside; who writes holds SQLite's own locks.
const LOCK_NAME: &str = "history.lock";
/// What a file is called until it is whole.
const UNFINISHED_NAME: &str = "history.sqlite.new";

/// How long a statement waits for another program's. A transaction takes milliseconds, a checkpoint on a slow disk more.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Statements that are kept as they were read: more than the thread that writes has, or it would read some each second.
const STATEMENTS: usize = 48;
/// What is left of the log beside the file once it was written back: four times what SQLite lets it grow to.
const LOG_BYTES: u32 = 16 << 20;

/// Why the file cannot be used now.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// A later version made it; it is as it was.
    #[error("{}", text::history_newer(*found, *known))]
    Newer {
        /// Its version.
        found: usize,
        /// The last one that is known.
        known: usize,
    },
    /// It is no database, or one that contradicts itself.
    #[error("{}", text::history_damaged(.0.as_str()))]
    Damaged(String),
    /// Another program holds it.
    #[error("{}", text::HISTORY_BUSY)]
    Busy,
    /// What SQLite says.
    #[error("{0}")]
    Sqlite(rusqlite::Error),
    /// What the system says.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it says.
        error: io::Error,
    },
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(error.to_string()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            _ => Self::Sqlite(error),
        }
    }
}

impl Trouble {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }
}

/// How far a file is trusted as it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Wholly: it is read where it is read.
    Whole,
    /// Every page is looked at, at hundreds of megabytes a second.
    Looked,
    /// It contradicted itself before: every index is compared with its table as well.
    Suspect,
    /// It did so again, whatever that comparison said.
    None,
}

/// The file, by its folder.
#[derive(Clone, Debug)]
pub struct HistoryFile {
    folder: PathBuf,
}

/// A file that is open for writing.
#[derive(Debug)]
pub struct Opened {
    /// The connection, brought to the last version.
    pub connection: Connection,
    /// Which file this is.
    pub identity: Identity,
    /// What a damaged file before it is called now.
    pub set_aside: Option<String>,
    /// Whether what could be read of that is in this one, of which the last event says so.
    pub is_salvaged: bool,
}

impl HistoryFile {
    /// Of a data folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Whether a file of a name lies beside it.
    pub fn is_beside(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    /// Which file has its name now; none where there is none.
    pub fn identity(&self) -> Option<Identity> {
        fs::metadata(self.path()).ok().map(|metadata| Identity::of(&metadata))
    }

    /// Bytes of it and of the log beside it.
    pub fn bytes(&self) -> u64 {
        let of = |end: &str| fs::metadata(self.folder.join(format!("{NAME}{end}"))).map_or(0, |file| file.len());
        of("") + of("-wal")
    }

    /// Opens it for writing; begins it where there is none, and anew where it is damaged.
    ///
    /// # Errors
    /// It cannot be used, and is left as it is.
    pub fn open(&self, trust: Trust, now_ms: u64) -> Result<Opened, Trouble> {
        // Held until the end: no other program finds the file half begun, or sets aside what this one has just begun.
        let _lock = self.lock()?;
        let mut set_aside = None;
        if !self.path().exists() {
            // A log without its file would be taken for the new file's.
            set_aside = aside::set_aside(&self.folder, now_ms).map_err(Trouble::system("setting a log aside"))?;
            self.begin(None, now_ms)?;
        }
        let mut is_salvaged = false;
        let connection = match self.open_trusted(trust) {
            Err(Trouble::Damaged(_)) => {
                set_aside = aside::set_aside(&self.folder, now_ms).map_err(Trouble::system("setting it aside"))?;
                self.begin(set_aside.as_deref(), now_ms)?;
                is_salvaged = set_aside.is_some();
                self.open_trusted(Trust::Whole)?
            }
            connection => connection?,
        };
        let metadata = fs::metadata(self.path()).map_err(Trouble::system("looking at the file"))?;
        Ok(Opened { connection, identity: Identity::of(&metadata), set_aside, is_salvaged })
    }

    /// Opens it to ask, or to change a single thing; none where nothing was kept yet.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn visit(&self) -> Result<Option<Connection>, Trouble> {
        match fs::metadata(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Trouble::System { what: "looking at the file", error }),
            Ok(_) => {}
        }
        let connection = connect(&self.path())?;
        match schema::version(&connection)? {
            0 => Err(Trouble::Damaged("it is no history".to_owned())),
            found if found < schema::STEPS.len() => {
                // No agent has brought it forward yet.
                drop(connection);
                self.open(Trust::Whole, crate::clock::now_ms()).map(|opened| Some(opened.connection))
            }
            _ => Ok(Some(connection)),
        }
    }

    fn lock(&self) -> Result<Option<fs::File>, Trouble> {
        let file =
            private_file().open(self.folder.join(LOCK_NAME)).map_err(Trouble::system("opening the lock beside it"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Err(Trouble::Busy),
            // Some file systems of networks have no locks; SQLite's do not work there either, so one agent is at work.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            Err(TryLockError::Error(error)) => Err(Trouble::System { what: "locking the file beside it", error }),
        }
    }

    /// Makes the file under another name and renames it when it is whole: a file of no length is a damaged one. What can be
    /// read of one that was set aside is in it then.
    fn begin(&self, set_aside: Option<&str>, now_ms: u64) -> Result<(), Trouble> {
        let unfinished = self.folder.join(UNFINISHED_NAME);
        for end in ["", "-journal"] {
            match fs::remove_file(self.folder.join(format!("{UNFINISHED_NAME}{end}"))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Trouble::System { what: "removing an unfinished file", error });
                }
                _ => {}
            }
        }
        // Before SQLite opens it: what is beside a file has the file's mode.
        drop(private_file().open(&unfinished).map_err(Trouble::system("making the file"))?);
        let mut connection = Connection::open(&unfinished)?;
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        schema::migrate(&mut connection, schema::STEPS)?;
        // Numbers of events go on from the file before, of which nothing may be known: nobody counts a thousand a second.
        let first = i64::try_from(now_ms).unwrap_or(0);
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?1)", [first])?;
        if let Some(name) = set_aside {
            salvage::salvage(&self.folder, name, &mut connection, now_ms)?;
        }
        connection.close().map_err(|(_, error)| error)?;
        fs::rename(&unfinished, self.path()).map_err(Trouble::system("naming the file"))
    }

    fn open_trusted(&self, trust: Trust) -> Result<Connection, Trouble> {
        let metadata = fs::metadata(self.path()).map_err(Trouble::system("looking at the file"))?;
        if !metadata.is_file() || metadata.len() == 0 {
            return Err(Trouble::Damaged("there is nothing in it, or it is no file".to_owned()));
        }
        make_private(&self.path());
        let mut connection = connect(&self.path())?;
        let check = match trust {
            Trust::Whole => None,
            Trust::Looked => Some("quick_check"),
            Trust::Suspect => Some("integrity_check"),
            Trust::None => return Err(Trouble::Damaged("it was found so twice".to_owned())),
        };
        if schema::version(&connection)? == 0 {
            return Err(Trouble::Damaged("it is no history".to_owned()));
        }
        if let Some(check) = check {
            let said: String = connection.query_row(&format!("PRAGMA {check}(1)"), [], |row| row.get(0))?;
            if said != "ok" {
                return Err(Trouble::Damaged(said));
            }
        }
        schema::migrate(&mut connection, schema::STEPS)?;
        Ok(connection)
    }
}

/// A connection with what every one of ours has, to a file of no later version.
fn connect(path: &Path) -> Result<Connection, Trouble> {
    // Without CREATE: a file that is gone meanwhile is not begun by chance. SQLite reads where it may not write.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Before anything is asked for that changes the file.
    let (found, known) = (schema::version(&connection)?, schema::STEPS.len());
    if found > known {
        return Err(Trouble::Newer { found, known });
    }
    // Asked for, not insisted on: where the file may only be read, its mode stays as it is.
    let mode = connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()));
    if let Err(trouble @ (Trouble::Damaged(_) | Trouble::Busy)) = mode.map_err(Trouble::from) {
        return Err(trouble);
    }
    // A loss of power may take the last seconds, and never more.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Takes from others what they may do with a file; where that fails it is not ours, and stays as it is. So does what a
/// link leads to, which somebody else may have made for whoever is at work here.
fn make_private(path: &Path) {
    #[cfg(unix)]
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o600));
    }
    #[cfg(not(unix))]
    let _ = path;
}
