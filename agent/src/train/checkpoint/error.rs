//! Why a checkpoint was not written or not read, for the person whose run it is.

use std::{fmt, io, path::PathBuf};

use headroom_kernels::weights::WeightsError;
use headroom_shared::units::human_size;
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
    #[error("there is no checkpoint: {} does not exist", .path.display())]
    NotFound {
        /// Where it would be.
        path: PathBuf,
    },
    /// Another run writes here.
    #[error("another run writes its checkpoints to {}", .dir.display())]
    Busy {
        /// The folder.
        dir: PathBuf,
    },
    /// No space.
    #[error(
        "the disk is full: a checkpoint of {} could not be written to {}; {}",
        human_size(*.needed_bytes), .dir.display(), old(*.keeps_old)
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
    #[error("a checkpoint could not be written to {}: {error}; {}", .dir.display(), old(*.keeps_old))]
    Write {
        /// What the system says.
        error: io::Error,
        /// The folder.
        dir: PathBuf,
        /// Whether there is an older one, which is whole.
        keeps_old: bool,
    },
    /// The folder cannot be used.
    #[error("checkpoints cannot be written to {}: {error}", .dir.display())]
    Folder {
        /// What the system says.
        error: io::Error,
        /// The folder.
        dir: PathBuf,
    },
    /// The file cannot be read.
    #[error("the checkpoint {} cannot be read: {error}", .path.display())]
    Read {
        /// What the system says.
        error: io::Error,
        /// The file.
        path: PathBuf,
    },
    /// It is cut, or no checkpoint's header.
    #[error("the checkpoint {} is broken: {error}", .path.display())]
    Broken {
        /// What is wrong.
        error: Box<WeightsError>,
        /// The file.
        path: PathBuf,
    },
    /// A file of weights that no run of ours wrote.
    #[error("{} has weights, but is no checkpoint of this program: there is nothing to go on from", .path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// From a later program.
    #[error("the checkpoint {} has version {found}, and this program reads {known}", .path.display())]
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
    #[error("nothing can go on from the checkpoint {}: {error}", .path.display())]
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

fn old(keeps_old: bool) -> &'static str {
    if keeps_old { "the one before it is whole" } else { "there is none yet" }
}

impl CheckpointError {
    /// What the system said of a write, as what it means to a person.
    pub(super) fn of_write(error: io::Error, needed_bytes: u64, dir: PathBuf, keeps_old: bool) -> Self {
        if is_disk_full(&error) {
            return Self::DiskFull { needed_bytes, dir, keeps_old };
        }
        Self::Write { error, dir, keeps_old }
    }

    /// Whether space is all that is missing.
    #[cfg(test)]
    #[must_use]
    pub const fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
    }

    /// What to try.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::DiskFull { needed_bytes, .. } => {
                format!("free {}, or name another folder with --out_dir=", human_size(*needed_bytes))
            }
            Self::Busy { .. } => "give each run an --out_dir= of its own".to_owned(),
            Self::Folder { error, .. } | Self::Write { error, .. } => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    "name a folder that you may write to with --out_dir=".to_owned()
                }
                _ => return None,
            },
            Self::Broken { error, .. } => error.hint()?.to_string(),
            Self::NotFound { .. } => "name the folder that the run wrote to".to_owned(),
            Self::NotOurs { .. } => "--init_from=gpt2 starts anew from such weights".to_owned(),
            Self::Checksum { .. } => "copy it again from where it came, or go back to an older copy".to_owned(),
            Self::NotFinite { .. } => {
                "go back to an older copy, or begin anew with a lower --learning_rate= or --grad_clip=".to_owned()
            }
            Self::Version { .. } => "use the program that wrote it".to_owned(),
            Self::Read { .. } | Self::Meta { .. } | Self::OutOfMemory { .. } => return None,
        })
    }
}
