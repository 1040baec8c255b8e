//! Selection of a directory's checkpoint: the best one or the last one.

use std::path::{Path, PathBuf};

use super::{BEST, FILE, load_meta};

/// A choice between the two checkpoints of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointChoice {
    /// The checkpoint with the lowest validation loss.
    #[default]
    Best,
    /// The checkpoint that was saved last.
    Last,
}

/// Path of a directory's checkpoint. `None` if it has none.
#[must_use]
pub fn chosen(dir: &Path, which: CheckpointChoice) -> Option<PathBuf> {
    let [last, best] = [FILE, BEST].map(|name| dir.join(name));
    match (last.is_file(), best.is_file()) {
        (false, false) => None,
        (true, false) => Some(last),
        (false, true) => Some(best),
        (true, true) => Some(if which == CheckpointChoice::Best && !is_better(&last, &best) { best } else { last }),
    }
}

/// Whether the last checkpoint has a lower validation loss than the best one. This occurs after a kill between saving
/// the one and removing the other.
fn is_better(last: &Path, best: &Path) -> bool {
    let [last, best] = [last, best].map(val_loss);
    last.is_some_and(|last| best.is_none_or(|best| last < best))
}

/// Validation loss in a checkpoint's header. `None` if it is missing or unreadable.
pub(super) fn val_loss(path: &Path) -> Option<f64> {
    load_meta(path).ok()?.state.val_loss
}
