//! Where the program keeps what outlives it: the user's data folder, as each system has it.

pub mod lock;

use std::{
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
};

use etcetera::BaseStrategy;
use thiserror::Error;

/// What names another folder.
pub const VARIABLE: &str = "HEADROOM_DATA_DIR";

/// Why no folder is chosen.
const HOME_MISSING: &str =
    if cfg!(unix) { "HOME is not set to an absolute path" } else { "the system names no home folder" };

/// Why there is no folder.
#[derive(Debug, Error)]
pub enum Error {
    /// No variable or system setting names the user's home folder.
    #[error("cannot choose a data folder: {HOME_MISSING}")]
    NoHome,
    /// It cannot be made.
    #[error("cannot make the folder {}: {error}", folder.display())]
    Make {
        /// Which.
        folder: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

impl Error {
    /// What to try instead.
    pub fn hint(&self) -> String {
        format!("--data-dir FOLDER, or the variable {VARIABLE}, names another one")
    }
}

/// The folder: the one that an option names, else that of the variable, else the system's own with `headroom` in it. It
/// may be missing.
///
/// # Errors
/// There is no home.
pub fn named(option: Option<&Path>) -> Result<PathBuf, Error> {
    match option.map(Path::to_owned).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from)) {
        Some(folder) => Ok(folder),
        // Without HOME the system's list of users would answer, with a folder that may be another user's.
        None if !has_home() => Err(Error::NoHome),
        None => Ok(etcetera::choose_base_strategy().map_err(|_| Error::NoHome)?.data_dir().join("headroom")),
    }
}

/// Whether the environment names the user's own folders. Windows has them in the user's profile.
fn has_home() -> bool {
    let is_absolute = |name| std::env::var_os(name).is_some_and(|folder| Path::new(&folder).is_absolute());
    !cfg!(unix) || is_absolute("HOME") || is_absolute("XDG_DATA_HOME")
}

/// The same, made where it is missing. Only its owner can look into one that is made here.
///
/// # Errors
/// There is no home, or the folder cannot be made.
pub fn data(option: Option<&Path>) -> Result<PathBuf, Error> {
    let folder = named(option)?;
    make(&folder).map_err(|error| Error::Make { folder: folder.clone(), error })?;
    Ok(folder)
}

/// The folder that every program of this user sees while the user is logged in, with `headroom` in it: `XDG_RUNTIME_DIR`'s;
/// none where the system has none, as for a service of the whole machine. It may be missing.
pub fn runtime() -> Option<PathBuf> {
    Some(etcetera::choose_base_strategy().ok()?.runtime_dir()?.join("headroom"))
}

/// How files are made, where they are missing, that only their owner reads. A link is not followed: an administrator who
/// works in the folder of another user would open, or give away, whatever that user's link leads to.
pub fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options
}

/// Makes a folder that only its owner looks into, where it is missing.
///
/// # Errors
/// It cannot be made.
pub fn make(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
