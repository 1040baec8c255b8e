//! Output files of a data set: written next to their final path and renamed, or compared with the existing files.

use std::{
    fs::{self, File, TryLockError},
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use super::Error;

/// Extension of a file that is not complete yet.
const PART: &str = "part";

/// Destination of a file's bytes.
#[derive(Debug)]
pub enum Output {
    /// Writes a new file next to the final path.
    Write(Part),
    /// Compares with the existing file and writes nothing.
    Compare {
        /// Path of the existing file.
        path: PathBuf,
        /// Reader of the existing file.
        there: BufReader<File>,
        /// Buffer for reading.
        bytes: Vec<u8>,
    },
}

impl Output {
    /// Creates a new file.
    pub fn write(path: PathBuf) -> Result<Self, Error> {
        Ok(Self::Write(Part::create(path)?))
    }

    /// Opens the existing file for comparison.
    pub fn compare(path: PathBuf) -> Result<Self, Error> {
        match File::open(&path) {
            Ok(file) => Ok(Self::Compare { path, there: BufReader::with_capacity(1 << 16, file), bytes: Vec::new() }),
            Err(error) => Err(Error::Unreadable { name: path.display().to_string(), error }),
        }
    }

    /// Writes or compares the next bytes.
    pub fn put(&mut self, new: &[u8]) -> Result<(), Error> {
        match self {
            Self::Write(part) => part.file.write_all(new).map_err(|error| part.unwritable(error)),
            Self::Compare { path, there, bytes } => {
                bytes.resize(new.len(), 0);
                match there.read_exact(bytes) {
                    Ok(()) if bytes == new => Ok(()),
                    Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                        Err(Error::Unreadable { name: path.display().to_string(), error })
                    }
                    _ => Err(Error::Exists { path: path.clone() }),
                }
            }
        }
    }

    /// Ends the output. A new file is then on the disk under its temporary name.
    pub fn finish(self) -> Result<Option<Part>, Error> {
        match self {
            Self::Write(mut part) => {
                let done = part.file.flush().and_then(|()| part.file.get_ref().sync_data());
                done.map_err(|error| part.unwritable(error))?;
                Ok(Some(part))
            }
            Self::Compare { path, mut there, .. } => match there.read(&mut [0]) {
                Ok(0) => Ok(None),
                Ok(_) => Err(Error::Exists { path }),
                Err(error) => Err(Error::Unreadable { name: path.display().to_string(), error }),
            },
        }
    }
}

/// An incomplete file, deleted on drop unless it is renamed.
#[derive(Debug)]
pub struct Part {
    path: PathBuf,
    part: PathBuf,
    file: BufWriter<File>,
}

impl Part {
    fn create(path: PathBuf) -> Result<Self, Error> {
        let mut part = path.clone().into_os_string();
        part.push(format!(".{PART}"));
        let part = PathBuf::from(part);
        // Overwrites the file that a killed run left.
        match File::create(&part) {
            Ok(file) => Ok(Self { path, part, file: BufWriter::with_capacity(1 << 16, file) }),
            Err(error) => Err(Error::Unwritable { path: part, error }),
        }
    }

    /// Renames the file to its final name.
    pub fn rename(self) -> Result<(), Error> {
        fs::rename(&self.part, &self.path).map_err(|error| Error::Unwritable { path: self.path.clone(), error })
    }

    fn unwritable(&self, error: io::Error) -> Error {
        Error::Unwritable { path: self.path.clone(), error }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // After renaming, this name no longer exists.
        let _ = fs::remove_file(&self.part);
    }
}

/// Creates the directory and locks it against concurrent writers. The lock is released on drop.
pub fn lock(folder: &Path) -> Result<Option<File>, Error> {
    fs::create_dir_all(folder).map_err(|error| Error::Unwritable { path: folder.to_owned(), error })?;
    // If a directory cannot be opened or locked (Windows, some network file systems), no lock is used.
    let Ok(file) = File::open(folder) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Busy { folder: folder.to_owned() }),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Removes a file if it exists.
pub fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::Unwritable { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}
