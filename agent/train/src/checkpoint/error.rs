//! Errors of reading and writing checkpoints, worded for the user.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use headroom_kernels::weights::WeightsError;
use headroom_text::{self as text, Key, Text, units::human_size};
use thiserror::Error;

use super::pytorch::{self, PytorchError};
use crate::files::is_disk_full;

/// A part of a checkpoint with its own checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Header with the run's state.
    Header,
    /// Weights.
    Params,
    /// First moments of AdamW.
    ExpAvg,
    /// Second moments of AdamW.
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

/// Why a checkpoint cannot be written, read or loaded.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub enum CheckpointError {
    /// There is no checkpoint.
    NotFound {
        /// Expected path.
        path: PathBuf,
    },
    /// Another run writes to this directory.
    Busy {
        /// Directory of the checkpoint.
        dir: PathBuf,
    },
    DiskFull {
        /// Size of the new checkpoint, which needs space beside the old one.
        needed_bytes: u64,
        /// Directory of the checkpoint.
        dir: PathBuf,
        /// Whether an intact older checkpoint remains.
        keeps_old: bool,
    },
    /// The write failed for another reason.
    Write {
        /// What the system reports.
        error: io::Error,
        /// Directory of the checkpoint.
        dir: PathBuf,
        /// Whether an intact older checkpoint remains.
        keeps_old: bool,
    },
    /// The directory cannot be used.
    Folder {
        /// What the system reports.
        error: io::Error,
        /// Directory of the checkpoint.
        dir: PathBuf,
    },
    /// The disk is too small for the run's checkpoints.
    NoRoom {
        /// Maximum space of the checkpoints at one time.
        total_bytes: u64,
        /// Part of that space that is still to be written.
        missing_bytes: u64,
        /// Free space on the disk.
        free_bytes: u64,
        /// Directory of the checkpoints.
        dir: PathBuf,
    },
    /// A checkpoint exceeds the size of a file that the process may write.
    FileLimit {
        /// Size of a checkpoint.
        file_bytes: u64,
        /// Maximum size of a file.
        limit_bytes: u64,
        /// Directory of the checkpoints.
        dir: PathBuf,
    },
    /// A new run would replace the checkpoint of another one.
    Exists {
        /// Path of the existing checkpoint.
        path: PathBuf,
    },
    /// The file is a nanoGPT checkpoint that cannot be read.
    PyTorch {
        /// Cause of the failure.
        error: Box<PytorchError>,
        /// Path of the file.
        path: PathBuf,
    },
    /// The file cannot be read.
    Read {
        /// What the system reports.
        error: io::Error,
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is truncated, or its header is invalid.
    Broken {
        /// Cause of the failure.
        error: Box<WeightsError>,
        /// Path of the file.
        path: PathBuf,
    },
    /// The file has weights but no run state of this trainer.
    NotOurs {
        /// Path of the file.
        path: PathBuf,
    },
    /// A later version of this program wrote the file.
    Version {
        /// Version of the file.
        found: String,
        /// Supported version.
        known: &'static str,
        /// Path of the file.
        path: PathBuf,
    },
    /// A part of the file is corrupt.
    Checksum {
        /// Affected part.
        part: Part,
        /// Checksum in the file.
        expected: u32,
        /// Checksum of the bytes.
        found: u32,
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is intact, but a value is NaN or infinite, so the run cannot resume.
    NotFinite {
        /// Tensor with the invalid value.
        error: Box<WeightsError>,
        /// Path of the file.
        path: PathBuf,
    },
    /// The run's state in the header is invalid.
    Meta {
        /// Name of the key.
        what: &'static str,
        /// Cause of the failure.
        why: String,
        /// Path of the file.
        path: PathBuf,
    },
    /// The machine is out of memory.
    OutOfMemory {
        /// Size of the part that did not fit.
        bytes: u64,
    },
}

impl CheckpointError {
    /// Translatable text of the error.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::NotFound { path } => text::checkpoint_none(path.display().to_string()),
            Self::Busy { dir } => text::checkpoint_busy(dir.display().to_string()),
            Self::DiskFull { needed_bytes, dir, keeps_old } => {
                text::checkpoint_disk_full(text::size(*needed_bytes), dir.display().to_string(), old(*keeps_old))
            }
            Self::Write { error, dir, keeps_old } => {
                text::checkpoint_not_written(dir.display().to_string(), error.to_string(), old(*keeps_old))
            }
            Self::Folder { error, dir } => text::checkpoint_folder(dir.display().to_string(), error.to_string()),
            Self::NoRoom { total_bytes, free_bytes, dir, .. } => {
                text::checkpoint_no_room(dir.display().to_string(), text::size(*total_bytes), text::size(*free_bytes))
            }
            Self::FileLimit { file_bytes, limit_bytes, dir } => {
                let [size, limit] = [*file_bytes, *limit_bytes].map(text::size);
                text::checkpoint_file_limit(dir.display().to_string(), size, limit)
            }
            Self::Exists { path } => text::checkpoint_exists(path.display().to_string()),
            Self::PyTorch { error, path } => text::checkpoint_pytorch(path.display().to_string(), error.to_string()),
            Self::Read { error, path } => text::checkpoint_unread(path.display().to_string(), error.to_string()),
            Self::Broken { error, path } => text::checkpoint_broken(path.display().to_string(), error.to_string()),
            Self::NotOurs { path } => text::checkpoint_not_ours(path.display().to_string()),
            Self::Version { found, known, path } => {
                text::checkpoint_version(path.display().to_string(), found.as_str(), *known)
            }
            Self::Checksum { part, expected, found, path } => text::as_is(format!(
                "cannot read the checkpoint {}: it is damaged: the checksum of {part} is {found:08x} instead of {expected:08x}",
                path.display()
            )),
            Self::NotFinite { error, path } => {
                text::checkpoint_not_finite(path.display().to_string(), error.to_string())
            }
            Self::Meta { what, why, path } => {
                text::as_is(format!("cannot read the checkpoint {}: {what} is invalid: {why}", path.display()))
            }
            Self::OutOfMemory { bytes } => text::as_is(format!(
                "cannot load the checkpoint: its tensors need {}, and this machine has less free memory",
                human_size(*bytes)
            )),
        }
    }
}

const fn old(keeps_old: bool) -> Key {
    if keeps_old { text::CHECKPOINT_OLD } else { text::CHECKPOINT_OLD_NONE }
}

impl CheckpointError {
    /// Converts an I/O error of a write.
    pub(super) fn of_write(error: io::Error, needed_bytes: u64, dir: PathBuf, keeps_old: bool) -> Self {
        if is_disk_full(&error) {
            return Self::DiskFull { needed_bytes, dir, keeps_old };
        }
        Self::Write { error, dir, keeps_old }
    }

    /// Error for a checkpoint that exceeds the address space.
    pub(super) fn too_large(error: impl Into<Box<dyn std::error::Error + Send + Sync>>, dir: &Path) -> Self {
        Self::Folder { error: io::Error::other(error), dir: dir.to_path_buf() }
    }

    #[cfg(test)]
    #[must_use]
    pub const fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
    }

    /// Whether the cause is I/O: the system refused a file or directory, or a named one does not exist.
    #[must_use]
    pub fn is_input_output(&self) -> bool {
        use CheckpointError::{DiskFull, FileLimit, Folder, NoRoom, NotFound, PyTorch, Read, Write};
        if let PyTorch { error, .. } = self {
            return error.is_input_output();
        }
        matches!(
            self,
            NotFound { .. }
                | DiskFull { .. }
                | NoRoom { .. }
                | FileLimit { .. }
                | Write { .. }
                | Folder { .. }
                | Read { .. }
        )
    }

    /// Suggested remedy.
    #[must_use]
    pub fn hint(&self) -> Option<Text> {
        Some(match self {
            Self::DiskFull { needed_bytes, dir, .. } => {
                text::try_free(text::size(*needed_bytes), dir.display().to_string())
            }
            Self::NoRoom { missing_bytes, free_bytes, dir, .. } => {
                let size = text::size(missing_bytes.saturating_sub(*free_bytes));
                text::try_free_or_out_dir(size, dir.display().to_string())
            }
            Self::FileLimit { .. } => text::TRY_FILE_LIMIT.into(),
            Self::Exists { path } if path.ends_with(pytorch::FILE) => text::TRY_RESUME_OR_BESIDE.into(),
            Self::Exists { .. } => text::TRY_RESUME_OR_FORCE.into(),
            Self::PyTorch { error, path } if matches!(**error, PytorchError::Legacy) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                text::as_is(format!(
                    "load it and save it again with a newer PyTorch: torch.save(torch.load({name:?}, \
                     weights_only=False), {name:?})"
                ))
            }
            Self::PyTorch { .. } => text::TRY_CONVERT_CKPT.into(),
            Self::Busy { .. } => text::TRY_OWN_OUT_DIR.into(),
            Self::Folder { error, dir } | Self::Write { error, dir, .. } => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    text::try_writable(dir.display().to_string())
                }
                _ if matches!(self, Self::Folder { .. }) => text::TRY_OTHER_OUT_DIR.into(),
                _ => return None,
            },
            Self::Broken { error, .. } => error.hint()?.into(),
            Self::NotFound { .. } => text::as_is("give the output folder of a run"),
            Self::NotOurs { .. } => text::as_is("--init_from=gpt2 starts a new run from such weights"),
            Self::Checksum { .. } => text::TRY_OLDER_COPY.into(),
            Self::NotFinite { .. } => {
                text::as_is("use an older copy, or start a new run with a lower --learning_rate= or --grad_clip=")
            }
            Self::Version { .. } => text::as_is("use the version of headroom that wrote it"),
            Self::Read { .. } | Self::Meta { .. } | Self::OutOfMemory { .. } => return None,
        })
    }
}
