//! The file of tokens, `access.json` in the data directory, readable only by its owner.
//!
//! The file is always replaced as a whole. Writers hold a lock file, so that the agent and `headroom token` never undo
//! each other's changes.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use super::{error::FileError, token_file::TokenFile};
use headroom_agent_core::folders::private_file;
use headroom_train::files::{Disk, create_private, replace};

const NAME: &str = "access.json";
const LOCK_NAME: &str = "access.lock";
/// The version of the file's format.
const VERSION: u32 = 1;
/// The maximum size of the file in bytes: several times the size of the most tokens with the longest names.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The maximum time to wait for the lock; a change takes milliseconds.
const LOCK_TIME_MAX: Duration = Duration::from_secs(3);
/// The period of attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A fingerprint of the file's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStamp {
    modified: Option<SystemTime>,
    len: u64,
    /// The inode number: distinguishes a file that replaced another within one tick of the clock.
    number: u64,
}

impl FileStamp {
    fn of(metadata: &fs::Metadata) -> Self {
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(metadata);
        #[cfg(not(unix))]
        let number = 0;
        Self { modified: metadata.modified().ok(), len: metadata.len(), number }
    }
}

#[derive(Serialize, Deserialize)]
struct WrittenFile<B> {
    version: u32,
    #[serde(flatten)]
    book: B,
}

/// The file of tokens and its lock.
#[derive(Clone, Debug)]
pub struct AccessFile {
    folder: PathBuf,
}

impl AccessFile {
    /// Returns the file of a data directory.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    fn io(&self, error: io::Error) -> FileError {
        FileError::Io { path: self.path(), error }
    }

    /// Returns the file's fingerprint; `None` if the file does not exist.
    pub fn stamp(&self) -> Option<FileStamp> {
        fs::metadata(self.path()).ok().as_ref().map(FileStamp::of)
    }

    /// Reads the file and its fingerprint. A missing file is empty.
    ///
    /// # Errors
    /// The file cannot be read or is damaged.
    pub fn read(&self) -> Result<(TokenFile, Option<FileStamp>), FileError> {
        let file = match File::open(self.path()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((TokenFile::default(), None)),
            Err(error) => return Err(self.io(error)),
        };
        let stamp = FileStamp::of(&file.metadata().map_err(|error| self.io(error))?);
        let damaged = |why: String| FileError::Damaged { path: self.path(), why };
        if stamp.len > FILE_BYTES_MAX {
            return Err(damaged(format!("it has {} bytes", stamp.len)));
        }
        let text = io::read_to_string(io::Read::take(file, FILE_BYTES_MAX)).map_err(|error| self.io(error))?;
        let written: WrittenFile<TokenFile> =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if written.version != VERSION {
            return Err(damaged(format!("it has version {}, and this headroom knows {VERSION}", written.version)));
        }
        Ok((written.book, Some(stamp)))
    }

    /// Changes the content under the lock.
    ///
    /// # Errors
    /// The change is refused, or the file cannot be read or written. The file is unchanged then.
    pub fn change<T, E: Into<FileError>>(
        &self,
        change: impl FnOnce(&mut TokenFile) -> Result<T, E>,
    ) -> Result<T, FileError> {
        let _lock = self.lock()?;
        let (mut book, _) = self.read()?;
        let value = change(&mut book).map_err(Into::into)?;
        let mut text = serde_json::to_vec_pretty(&WrittenFile { version: VERSION, book: &book })
            .map_err(|error| self.io(error.into()))?;
        text.push(b'\n');
        let folder = Disk::creating(&self.folder, create_for_owner);
        replace(&folder, NAME, |out| out.write_all(&text)).map_err(|error| self.io(error))?;
        Ok(value)
    }

    /// Acquires the lock, which is held until the file is dropped.
    fn lock(&self) -> Result<File, FileError> {
        let path = self.folder.join(LOCK_NAME);
        let io = |error| FileError::Io { path: path.clone(), error };
        let file = private_file().open(&path).map_err(io)?;
        #[cfg(unix)]
        give_to_owner(&file, &path).map_err(io)?;
        for _ in 0..LOCK_TIME_MAX.as_millis() / LOCK_PAUSE.as_millis() {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(io(error)),
            }
        }
        Err(FileError::Busy { path })
    }
}

/// Creates a file that only the owner of its directory can read.
fn create_for_owner(path: &Path) -> io::Result<File> {
    let file = create_private(path)?;
    #[cfg(unix)]
    give_to_owner(&file, path)?;
    Ok(file)
}

/// Gives a file to the owner of its directory. The agent of another user can then read a file that an administrator
/// wrote. A file with a second hard link is refused: it may be a link of that user to a third user's file.
#[cfg(unix)]
fn give_to_owner(file: &File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let folder = fs::metadata(path.parent().unwrap_or(Path::new(".")))?;
    let own = file.metadata()?;
    if own.uid() == folder.uid() {
        return Ok(());
    }
    if own.nlink() != 1 {
        return Err(io::Error::other("it is a file of another user's, and has a second name"));
    }
    fchown(file, Some(folder.uid()), Some(folder.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_protocol::Scope;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = AccessFile::of(folder.path());
        assert_eq!(file.read().expect("nothing"), (TokenFile::default(), None));
        let token = file.change(|book| book.add("laptop", Scope::Control, 7)).expect("a token");
        let (book, stamp) = file.read().expect("a book");
        assert_eq!((book.tokens.len(), stamp), (1, file.stamp()));
        let text = fs::read_to_string(folder.path().join(NAME)).expect("a file");
        assert!(text.contains("\"version\": 1") && !text.contains(&token), "{text}");
        let before = file.stamp();
        file.change(|book| book.revoke("nobody")).expect_err("the token does not exist");
        assert_eq!(file.stamp(), before, "a rejected change has no effect");
        file.change(|book| book.revoke("laptop")).expect("it is there");
        assert_ne!(file.stamp(), before);
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let file = AccessFile::of(folder.path());
        file.change(|book| book.add("laptop", Scope::View, 7)).expect("a token");
        for name in [NAME, LOCK_NAME] {
            let mode = fs::metadata(folder.path().join(name)).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_administrators_change_is_still_the_agents_to_read() {
        use std::os::unix::fs::{MetadataExt, chown};
        let folder = tempfile::tempdir().expect("a folder");
        // Only an administrator can change the owner; for other users this does nothing.
        let given = chown(folder.path(), Some(12_345), Some(12_345)).is_ok();
        let owner = fs::metadata(folder.path()).expect("it is there").uid();
        assert_eq!(given, owner == 12_345);
        AccessFile::of(folder.path()).change(|book| book.add("laptop", Scope::View, 7)).expect("a token");
        for name in [NAME, LOCK_NAME] {
            assert_eq!(fs::metadata(folder.path().join(name)).expect("it is there").uid(), owner, "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn planted_symlink_is_not_followed() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
        let folder = tempfile::tempdir().expect("a folder");
        let place = tempfile::tempdir().expect("a place");
        // Simulates an administrator in another user's directory; without privileges the owner stays.
        let _ = chown(folder.path(), Some(12_345), Some(12_345));
        let victim = place.path().join("victim");
        fs::write(&victim, "mine").expect("a file");
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o644)).expect("for all to read");
        let before = fs::metadata(&victim).expect("it is there");
        let file = AccessFile::of(folder.path());
        let lock = folder.path().join(LOCK_NAME);
        symlink(&victim, &lock).expect("a link");
        let error = file.change(|book| book.add("laptop", Scope::View, 7)).expect_err("it is not followed");
        assert!(matches!(&error, FileError::Io { path, .. } if *path == lock), "{error}");
        // A dangling link is not followed either.
        fs::remove_file(&lock).expect("removed");
        symlink(place.path().join("new"), &lock).expect("a link");
        file.change(|book| book.add("laptop", Scope::View, 7)).expect_err("it is not followed");
        assert!(!place.path().join("new").exists());
        // A file with a second hard link does not change its owner.
        fs::remove_file(&lock).expect("removed");
        fs::hard_link(&victim, &lock).expect("a second name");
        let _ = file.change(|book| book.add("laptop", Scope::View, 7));
        let after = fs::metadata(&victim).expect("it is there");
        assert_eq!((before.uid(), before.mode()), (after.uid(), after.mode()));
        assert_eq!(fs::read_to_string(&victim).expect("a text"), "mine");
    }

    #[test]
    fn what_is_damaged_is_said_and_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = AccessFile::of(folder.path());
        let hash = |digits: &str| {
            format!(r#"{{"version":1,"tokens":[{{"name":"x","hash":"{digits}","scope":"view","created_ms":1}}]}}"#)
        };
        for text in [
            String::new(),
            "{}".to_owned(),
            r#"{"version":2,"tokens":[]}"#.to_owned(),
            hash("ab"),
            hash(&"é".repeat(32)),
            hash(&"+f".repeat(32)),
        ] {
            fs::write(folder.path().join(NAME), &text).expect("written");
            let error = file.change(|book| book.add("laptop", Scope::View, 7)).expect_err(&text);
            assert!(matches!(error, FileError::Damaged { .. }) && error.hint().is_some(), "{error}");
            assert_eq!(fs::read_to_string(folder.path().join(NAME)).expect("a file"), text);
        }
        fs::write(folder.path().join(NAME), hash(&"aB".repeat(32))).expect("written");
        assert_eq!(file.read().expect("a book").0.tokens[0].hash, [0xab; 32]);
    }

    #[test]
    fn changes_at_once_undo_none() {
        let folder = tempfile::tempdir().expect("a folder");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let file = AccessFile::of(folder.path());
                scope.spawn(move || {
                    for i in 0..5 {
                        file.change(|book| book.add(&format!("{thread} {i}"), Scope::View, 7)).expect("added");
                    }
                });
            }
        });
        assert_eq!(AccessFile::of(folder.path()).read().expect("a book").0.tokens.len(), 20);
    }
}
