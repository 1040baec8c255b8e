//! Progress of a directory's checkpoint, read from its header alone, as the file may be gigabytes long.

use std::{fs::File, io, path::Path};

use headroom_kernels::weights::{keys, read_header};
use headroom_protocol::run;

use super::{FILE, State};

/// Reads the iteration and the length of the last checkpoint. `None` if it is missing or not this trainer's.
#[must_use]
pub fn progress(dir: &Path) -> Option<run::Checkpoint> {
    let mut file = open_last(dir).ok()?;
    let bytes = file.metadata().ok()?.len();
    let header = read_header(&mut file).ok()?;
    let state: State = serde_json::from_str(header.metadata().get(keys::STATE)?).ok()?;
    Some(run::Checkpoint { iter: state.iter_num, bytes })
}

/// Opens the last checkpoint. The open file stays readable when a newer one replaces it.
///
/// # Errors
/// The checkpoint is missing or cannot be read.
pub fn open_last(dir: &Path) -> io::Result<File> {
    let path = dir.join(FILE);
    // A link could lead to any file, and opening a pipe would block.
    if !path.symlink_metadata()?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    File::open(path)
}
