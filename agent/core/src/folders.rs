//! Directories for persistent data, by the conventions of each system.

pub mod lock;

use std::{
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
};

use etcetera::BaseStrategy;
use thiserror::Error;

/// The subdirectory of the data directory with the directories of watched runs.
pub const WATCHED: &str = "watched";

/// The environment variable that overrides the data directory.
pub const VARIABLE: &str = "HEADROOM_DATA_DIR";

/// The reason why no directory can be determined.
const HOME_MISSING: &str =
    if cfg!(unix) { "HOME is not set to an absolute path" } else { "the system names no home folder" };

/// The error of determining or creating a directory.
#[derive(Debug, Error)]
pub enum Error {
    /// No variable or system setting names the user's home directory.
    #[error("cannot choose the data folder: {HOME_MISSING}")]
    NoHome,
    /// The directory cannot be created.
    #[error("cannot create the data folder {}: {error}", folder.display())]
    Make {
        /// The path of the directory.
        folder: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl Error {
    /// Returns a suggestion to resolve the error.
    pub fn hint(&self) -> String {
        format!("--data-dir FOLDER, or the variable {VARIABLE}, names another one")
    }
}

/// Returns the data directory: the option's, else the variable's, else `headroom` in the system's data directory. It
/// may not exist.
///
/// # Errors
/// The user's home directory is unknown.
pub fn named(option: Option<&Path>) -> Result<PathBuf, Error> {
    let variable = || std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    match option.map(Path::to_owned).or_else(variable) {
        // Absolute, because runs of the agent start in another directory.
        Some(folder) => Ok(std::path::absolute(&folder).unwrap_or(folder)),
        // Without HOME, the system's user database would be consulted, whose directory may be another user's.
        None if !has_home() => Err(Error::NoHome),
        None => Ok(etcetera::choose_base_strategy().map_err(|_| Error::NoHome)?.data_dir().join("headroom")),
    }
}

/// Returns whether the environment names the user's directories. Windows has them in the user's profile.
fn has_home() -> bool {
    let is_absolute = |name| std::env::var_os(name).is_some_and(|folder| Path::new(&folder).is_absolute());
    !cfg!(unix) || is_absolute("HOME") || is_absolute("XDG_DATA_HOME")
}

/// Returns the data directory, and creates it if it does not exist. Only its owner can access a created directory.
///
/// # Errors
/// The home directory is unknown, or the directory cannot be created.
pub fn data(option: Option<&Path>) -> Result<PathBuf, Error> {
    let folder = named(option)?;
    make(&folder).map_err(|error| Error::Make { folder: folder.clone(), error })?;
    Ok(folder)
}

/// Returns `headroom` in `XDG_RUNTIME_DIR`, which all programs of the user share during a login session. `None` if
/// `XDG_RUNTIME_DIR` is unset, as for a system service. The directory may not exist.
pub fn runtime() -> Option<PathBuf> {
    Some(etcetera::choose_base_strategy().ok()?.runtime_dir()?.join("headroom"))
}

/// Returns the directory of a run while it is watched, given the data directory.
pub fn watched(data: &Path, run: &str) -> PathBuf {
    data.join(WATCHED).join(run)
}

/// Returns options that create files readable only by their owner. Symbolic links are not followed: an administrator in
/// another user's directory would otherwise open or give away the target of that user's link.
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

/// Creates a directory accessible only to its owner, if it does not exist.
///
/// # Errors
/// The directory cannot be created.
pub fn make(folder: &Path) -> io::Result<()> {
    private_folder().recursive(true).create(folder)
}

/// Creates a new directory accessible only to its owner.
///
/// # Errors
/// The directory exists or cannot be created.
pub fn make_new(folder: &Path) -> io::Result<()> {
    private_folder().create(folder)
}

#[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes"))]
fn private_folder() -> std::fs::DirBuilder {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}
