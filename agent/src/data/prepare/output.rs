//! The files of a data set on their way out: written beside their places and renamed, or held against what is there.

use std::{
    fs::{self, File, TryLockError},
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use super::Error;

/// What a file is called until it is whole.
const PART: &str = "part";

/// Where a file's bytes go.
#[derive(Debug)]
pub enum Output {
    /// Into a new file beside its place.
    Write(Part),
    /// Against the file that is there; nothing is written.
    Compare {
        /// That file.
        path: PathBuf,
        /// The same, being read.
        there: BufReader<File>,
        /// Room to read into.
        bytes: Vec<u8>,
    },
}

impl Output {
    /// A new file.
    pub fn write(path: PathBuf) -> Result<Self, Error> {
        Ok(Self::Write(Part::create(path)?))
    }

    /// The file that is there.
    pub fn compare(path: PathBuf) -> Result<Self, Error> {
        match File::open(&path) {
            Ok(file) => Ok(Self::Compare { path, there: BufReader::with_capacity(1 << 16, file), bytes: Vec::new() }),
            Err(error) => Err(Error::Unreadable { name: path.display().to_string(), error }),
        }
    }

    /// Takes the next bytes.
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

    /// Says that there are no more bytes. A new file is on the disk now, under its passing name.
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

/// A file that is not whole yet, gone again unless it gets its name.
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
        // One that a killed run left is begun anew.
        match File::create(&part) {
            Ok(file) => Ok(Self { path, part, file: BufWriter::with_capacity(1 << 16, file) }),
            Err(error) => Err(Error::Unwritable { path: part, error }),
        }
    }

    /// Gives the file its name.
    pub fn rename(self) -> Result<(), Error> {
        fs::rename(&self.part, &self.path).map_err(|error| Error::Unwritable { path: self.path.clone(), error })
    }

    fn unwritable(&self, error: io::Error) -> Error {
        Error::Unwritable { path: self.path.clone(), error }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // After the renaming there is nothing of that name.
        let _ = fs::remove_file(&self.part);
    }
}

/// Makes the folder, and keeps others from writing there at the same time; the lock ends with the value.
pub fn lock(folder: &Path) -> Result<Option<File>, Error> {
    fs::create_dir_all(folder).map_err(|error| Error::Unwritable { path: folder.to_owned(), error })?;
    // Where a folder cannot be opened or locked (Windows, some network file systems), it goes without.
    let Ok(file) = File::open(folder) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Busy { folder: folder.to_owned() }),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Removes a file that may be there.
pub fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::Unwritable { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}
