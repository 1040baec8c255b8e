//! Which checkpoint of a folder to read: the best one or the last one.

use std::path::{Path, PathBuf};

use super::{BEST, FILE, load_meta};

/// The name of nanoGPT's own checkpoint, a pickle that this program does not read.
const NANOGPT_FILE: &str = "ckpt.pt";

/// A choice between the two checkpoints of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The one with the lowest validation loss.
    #[default]
    Best,
    /// The one saved last.
    Last,
}

/// The path of a folder's checkpoint; `None` where the folder has none.
#[must_use]
pub fn chosen(dir: &Path, which: Which) -> Option<PathBuf> {
    let [last, best] = [FILE, BEST].map(|name| dir.join(name));
    match (last.is_file(), best.is_file()) {
        (false, false) => None,
        (true, false) => Some(last),
        (false, true) => Some(best),
        (true, true) => Some(if which == Which::Best && !is_better(&last, &best) { best } else { last }),
    }
}

/// Whether a folder has a checkpoint that a new run would replace: its path.
#[must_use]
pub fn find(dir: &Path) -> Option<PathBuf> {
    chosen(dir, Which::Last)
}

/// nanoGPT's `ckpt.pt` of a folder, which has to be converted before anything reads it.
#[must_use]
pub fn unconverted(dir: &Path) -> Option<PathBuf> {
    Some(dir.join(NANOGPT_FILE)).filter(|path| path.is_file())
}

/// Whether the last checkpoint has a lower validation loss than the best one, as after a kill between saving the one and
/// removing the other.
fn is_better(last: &Path, best: &Path) -> bool {
    let [last, best] = [last, best].map(val_loss);
    last.is_some_and(|last| best.is_none_or(|best| last < best))
}

/// The validation loss that a checkpoint's header states; `None` where it states none or cannot be read.
pub(super) fn val_loss(path: &Path) -> Option<f64> {
    load_meta(path).ok()?.state.val_loss
}
