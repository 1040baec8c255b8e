//! Output file of `runs export`: a new file, a replaced one, or a device or pipe that is written into.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use headroom_train::files::{self, Disk};

use super::Error;

/// Limit of the links that are followed, as on Linux.
const LINKS_MAX: usize = 40;

/// Place of the output.
#[derive(Debug)]
pub enum Destination {
    /// A file that is created or replaced as a whole. A link to it stays.
    File(PathBuf),
    /// A device, a pipe or a socket.
    Stream(PathBuf),
}

impl Destination {
    /// Determines what the name of an output file leads to. An existing file is replaced only with `force`.
    ///
    /// # Errors
    /// The file exists, or the name is that of a folder or of too many links.
    pub fn of(file: &Path, force: bool) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::Write { file: file.to_owned(), error };
        match fs::metadata(file) {
            Ok(metadata) if metadata.is_dir() => Err(failed(io::ErrorKind::IsADirectory.into())),
            Ok(metadata) if !metadata.is_file() => Ok(Self::Stream(file.to_owned())),
            Ok(_) if !force => Err(Error::Exists(file.to_owned())),
            _ => Ok(Self::File(target(file).map_err(failed)?)),
        }
    }

    /// Writes the output by a closure. A failure leaves a file as it was.
    ///
    /// # Errors
    /// The system refuses it, or `write` fails.
    pub fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Stream(path) => {
                let mut out = BufWriter::new(File::options().write(true).open(path)?);
                write(&mut out)?;
                out.flush()
            }
            Self::File(path) => {
                let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
                else {
                    return Err(io::ErrorKind::InvalidFilename.into());
                };
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                files::replace(&Disk::new(folder), name, |out| write(out))
            }
        }
    }
}

/// Follows links to the file that they name, which may not exist.
fn target(file: &Path) -> io::Result<PathBuf> {
    let mut path = file.to_owned();
    for _ in 0..LINKS_MAX {
        if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
            return Ok(path);
        }
        let named = fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(named);
    }
    Err(io::Error::other("too many links"))
}
