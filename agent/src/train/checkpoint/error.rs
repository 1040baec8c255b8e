//! Why a checkpoint was not written or not read, for the person whose run it is.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use headroom_kernels::weights::WeightsError;
use headroom_shared::{
    text::{self, Key},
    units::human_size,
};
use thiserror::Error;

use crate::train::files::is_disk_full;

/// A part of a checkpoint that has a checksum of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header, with the run's state.
    Header,
    /// The weights.
    Params,
    /// AdamW's first moments.
    ExpAvg,
    /// AdamW's second moments.
    ExpAvgSq,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "its header",
            Self::Params => "the weights",
            Self::ExpAvg => "AdamW's first moments (exp_avg)",
            Self::ExpAvgSq => "AdamW's second moments (exp_avg_sq)",
        })
    }
}

/// Why there is no checkpoint, in a file or in memory.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// No run wrote here.
    #[error("{}", text::checkpoint_none(.path.display().to_string()))]
    NotFound {
        /// Where it would be.
        path: PathBuf,
    },
    /// Another run writes here.
    #[error("{}", text::checkpoint_busy(.dir.display().to_string()))]
    Busy {
        /// The folder.
        dir: PathBuf,
    },
    /// No space.
    #[error(
        "{}",
        text::checkpoint_disk_full(text::size(*.needed_bytes), .dir.display().to_string(), old(*.keeps_old))
    )]
    DiskFull {
        /// What the new one takes, while the old one is still there.
        needed_bytes: u64,
        /// The folder.
        dir: PathBuf,
        /// Whether there is an older one, which is whole.
        keeps_old: bool,
    },
    /// Another reason for which nothing was written.
    #[error(
        "{}",
        text::checkpoint_not_written(.dir.display().to_string(), error.to_string(), old(*.keeps_old))
    )]
    Write {
        /// What the system says.
        error: io::Error,
        /// The folder.
        dir: PathBuf,
        /// Whether there is an older one, which is whole.
        keeps_old: bool,
    },
    /// The folder cannot be used.
    #[error("{}", text::checkpoint_folder(.dir.display().to_string(), error.to_string()))]
    Folder {
        /// What the system says.
        error: io::Error,
        /// The folder.
        dir: PathBuf,
    },
    /// The disk is too small for the run's checkpoints.
    #[error(
        "{}",
        text::checkpoint_no_room(.dir.display().to_string(), text::size(*.total_bytes), text::size(*.free_bytes))
    )]
    NoRoom {
        /// What they take at once, at most.
        total_bytes: u64,
        /// What of that is still to be written.
        missing_bytes: u64,
        /// What the disk has free.
        free_bytes: u64,
        /// The folder.
        dir: PathBuf,
    },
    /// A new run would replace the checkpoint of another one.
    #[error("{}", text::checkpoint_exists(.path.display().to_string()))]
    Exists {
        /// The checkpoint.
        path: PathBuf,
    },
    /// nanoGPT's own checkpoint, a pickle.
    #[error("{}", text::checkpoint_pytorch(.path.display().to_string()))]
    PyTorch {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("{}", text::checkpoint_unread(.path.display().to_string(), error.to_string()))]
    Read {
        /// What the system says.
        error: io::Error,
        /// The file.
        path: PathBuf,
    },
    /// It is cut, or no checkpoint's header.
    #[error("{}", text::checkpoint_broken(.path.display().to_string(), error.to_string()))]
    Broken {
        /// What is wrong.
        error: Box<WeightsError>,
        /// The file.
        path: PathBuf,
    },
    /// A file of weights that no run of ours wrote.
    #[error("{}", text::checkpoint_not_ours(.path.display().to_string()))]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// From a later program.
    #[error("{}", text::checkpoint_version(.path.display().to_string(), found.as_str(), *known))]
    Version {
        /// As the file says.
        found: String,
        /// What is read.
        known: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Its bytes are not those that were written.
    #[error(
        "the checkpoint {} is damaged: {part} should have the checksum {expected:08x} and has {found:08x}", .path.display()
    )]
    Checksum {
        /// Which part.
        part: Part,
        /// As it was written.
        expected: u32,
        /// As it is.
        found: u32,
        /// The file.
        path: PathBuf,
    },
    /// It is as it was written, and nothing goes on from it.
    #[error("{}", text::checkpoint_not_finite(.path.display().to_string(), error.to_string()))]
    NotFinite {
        /// Which tensor has what is no number.
        error: Box<WeightsError>,
        /// The file.
        path: PathBuf,
    },
    /// What it says of the run is not understood.
    #[error("the checkpoint {} says of its {what}: {why}", .path.display())]
    Meta {
        /// Which key.
        what: &'static str,
        /// What is wrong.
        why: String,
        /// The file.
        path: PathBuf,
    },
    /// The machine's memory.
    #[error("the checkpoint's tensors take {}, which this machine does not have free", human_size(*.bytes))]
    OutOfMemory {
        /// Of the part that did not fit.
        bytes: u64,
    },
}

const fn old(keeps_old: bool) -> Key {
    if keeps_old { text::CHECKPOINT_OLD } else { text::CHECKPOINT_OLD_NONE }
}

impl CheckpointError {
    /// What the system said of a write, as what it means to a person.
    pub(super) fn of_write(error: io::Error, needed_bytes: u64, dir: PathBuf, keeps_old: bool) -> Self {
        if is_disk_full(&error) {
            return Self::DiskFull { needed_bytes, dir, keeps_old };
        }
        Self::Write { error, dir, keeps_old }
    }

    /// A checkpoint that no address space holds.
    pub(super) fn too_large(error: impl Into<Box<dyn std::error::Error + Send + Sync>>, dir: &Path) -> Self {
        Self::Folder { error: io::Error::other(error), dir: dir.to_path_buf() }
    }

    /// Whether space is all that is missing.
    #[cfg(test)]
    #[must_use]
    pub const fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
    }

    /// Whether the system refused a file or a folder, or a named one does not exist.
    #[must_use]
    pub const fn is_input_output(&self) -> bool {
        use CheckpointError::{DiskFull, Folder, NoRoom, NotFound, Read, Write};
        matches!(self, NotFound { .. } | DiskFull { .. } | NoRoom { .. } | Write { .. } | Folder { .. } | Read { .. })
    }

    /// What to try.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::DiskFull { needed_bytes, dir, .. } => {
                text::try_free(text::size(*needed_bytes), dir.display().to_string()).to_string()
            }
            Self::NoRoom { missing_bytes, free_bytes, dir, .. } => {
                let size = text::size(missing_bytes.saturating_sub(*free_bytes));
                text::try_free_or_out_dir(size, dir.display().to_string()).to_string()
            }
            Self::Exists { .. } => text::TRY_RESUME_OR_FORCE.to_string(),
            Self::PyTorch { .. } => text::TRY_CONVERT_CKPT.to_string(),
            Self::Busy { .. } => text::TRY_OWN_OUT_DIR.to_string(),
            Self::Folder { error, dir } | Self::Write { error, dir, .. } => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    text::try_writable(dir.display().to_string()).to_string()
                }
                _ if matches!(self, Self::Folder { .. }) => text::TRY_OTHER_OUT_DIR.to_string(),
                _ => return None,
            },
            Self::Broken { error, .. } => error.hint()?.to_string(),
            Self::NotFound { .. } => "name the folder that the run wrote to".to_owned(),
            Self::NotOurs { .. } => "--init_from=gpt2 starts anew from such weights".to_owned(),
            Self::Checksum { .. } => text::TRY_OLDER_COPY.to_string(),
            Self::NotFinite { .. } => {
                "go back to an older copy, or begin anew with a lower --learning_rate= or --grad_clip=".to_owned()
            }
            Self::Version { .. } => "use the program that wrote it".to_owned(),
            Self::Read { .. } | Self::Meta { .. } | Self::OutOfMemory { .. } => return None,
        })
    }
}
