//! The disk space that a run's checkpoints take, known before the run starts.

use std::path::Path;

use super::{BEST, CheckpointError, FILE, Meta, format::Beginning};
use crate::platform;

use headroom_kernels::layout::Layout;

/// Checkpoints that lie in a folder at once, at most: the last one, the best one, and the one that is being written.
const FILES_MAX: u64 = 3;

/// Disk space for a run's checkpoints, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// One checkpoint, at most: only the digits of the run's state vary.
    pub file_bytes: u64,
    /// All checkpoints that lie in the folder at once.
    pub total_bytes: u64,
    /// What of that is not there yet.
    pub missing_bytes: u64,
}

/// Computes the disk space for checkpoints in a folder. The state in `meta` should have as many digits as any of the run.
///
/// # Errors
/// The model has more parameters than this machine can address.
pub fn needed(dir: &Path, meta: &Meta) -> Result<Needed, CheckpointError> {
    let layout = Layout::new(&meta.gpt).map_err(|error| CheckpointError::too_large(error, dir))?;
    let beginning = Beginning::of(meta, &layout).map_err(|error| CheckpointError::too_large(error, dir))?;
    let file_bytes = beginning.file_bytes;
    let total_bytes = file_bytes.saturating_mul(FILES_MAX);
    let in_place = [FILE, BEST].map(|name| dir.join(name).metadata().map_or(0, |metadata| metadata.len()));
    let in_place: u64 = in_place.into_iter().map(|bytes| bytes.min(file_bytes)).sum();
    Ok(Needed { file_bytes, total_bytes, missing_bytes: total_bytes.saturating_sub(in_place) })
}

/// The free space of the disk that a folder is on, or would be on once it is made; `None` where the system has no answer.
#[must_use]
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let absolute = std::path::absolute(dir).ok()?;
    let existing = absolute.ancestors().find(|folder| folder.is_dir())?;
    Some(platform::disk(existing)?.free_bytes)
}
