//! Disk space for a run's checkpoints, computed before the start.

use std::path::Path;

use super::{BEST, CheckpointError, FILE, Meta, format::FileHeader};
use headroom_agent_core::platform;

use headroom_kernels::layout::Layout;

/// Maximum number of checkpoints in a directory at one time: the last one, the best one, and one that is being written.
pub(super) const FILES_MAX: usize = 3;

/// Disk space for a run's checkpoints, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpaceNeeded {
    /// Maximum size of one checkpoint. Only the digits of the run's state vary.
    pub file_bytes: u64,
    /// Total of all checkpoints at one time.
    pub total_bytes: u64,
    /// Part of the total that is not on disk yet.
    pub missing_bytes: u64,
}

impl DiskSpaceNeeded {
    /// Checks that a disk with `free_bytes` has room for the checkpoints in `dir`, and that files of `limit_bytes` are
    /// long enough. `None` means an unknown space, or no limit.
    ///
    /// # Errors
    /// [`CheckpointError::NoRoom`], [`CheckpointError::FileLimit`].
    pub fn check(self, dir: &Path, free_bytes: Option<u64>, limit_bytes: Option<u64>) -> Result<(), CheckpointError> {
        let Self { file_bytes, total_bytes, missing_bytes } = self;
        if let Some(limit_bytes) = limit_bytes.filter(|limit_bytes| *limit_bytes < file_bytes) {
            return Err(CheckpointError::FileLimit { file_bytes, limit_bytes, dir: dir.to_path_buf() });
        }
        match free_bytes.filter(|free_bytes| *free_bytes < missing_bytes) {
            Some(free_bytes) => {
                Err(CheckpointError::NoRoom { total_bytes, missing_bytes, free_bytes, dir: dir.to_path_buf() })
            }
            None => Ok(()),
        }
    }
}

/// Computes the disk space for checkpoints in a directory. The state in `meta` should have the maximum number of
/// digits.
///
/// # Errors
/// The model has more parameters than this machine can address.
pub fn needed(dir: &Path, meta: &Meta) -> Result<DiskSpaceNeeded, CheckpointError> {
    let layout = Layout::new(&meta.gpt).map_err(|error| CheckpointError::too_large(error, dir))?;
    let beginning = FileHeader::of(meta, &layout).map_err(|error| CheckpointError::too_large(error, dir))?;
    let file_bytes = beginning.file_bytes;
    let total_bytes = file_bytes.saturating_mul(FILES_MAX as u64);
    let in_place = [FILE, BEST].map(|name| dir.join(name).metadata().map_or(0, |metadata| metadata.len()));
    let in_place: u64 = in_place.into_iter().map(|bytes| bytes.min(file_bytes)).sum();
    Ok(DiskSpaceNeeded { file_bytes, total_bytes, missing_bytes: total_bytes.saturating_sub(in_place) })
}

/// Free space of the disk that contains a directory, which may not exist yet. `None` if the system has no answer.
#[must_use]
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let absolute = std::path::absolute(dir).ok()?;
    let existing = absolute.ancestors().find(|folder| folder.is_dir())?;
    Some(platform::disk(existing)?.free_bytes)
}
