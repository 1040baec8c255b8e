//! Checkpoint files of a directory.

use std::path::{Path, PathBuf};

use super::{BEST, FILE, pytorch};

/// Path of the checkpoint that a new run in the directory would replace. `None` without one.
#[must_use]
pub fn find(dir: &Path) -> Option<PathBuf> {
    [FILE, BEST].map(|name| dir.join(name)).into_iter().find(|path| path.is_file())
}

/// Path of a checkpoint in a directory, which a new run there would replace or hide. `None` without one.
#[must_use]
pub fn existing(dir: &Path) -> Option<PathBuf> {
    find(dir).or_else(|| of_nanogpt(dir))
}

/// Path of nanoGPT's checkpoint in a directory. `None` without one.
#[must_use]
pub fn of_nanogpt(dir: &Path) -> Option<PathBuf> {
    Some(dir.join(pytorch::FILE)).filter(|path| path.is_file())
}
