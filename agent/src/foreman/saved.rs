//! Which checkpoint a folder has, by its header alone: the file may have gigabytes.

use std::{fs::File, io, path::Path};

use headroom_kernels::weights::{keys, read_header};
use headroom_shared::protocol::run::Checkpoint;

use super::place;
use crate::train::checkpoint::State;

/// The checkpoint of a run's folder; none where there is none, or none of ours.
pub fn read(folder: &Path) -> Option<Checkpoint> {
    let mut file = open(folder).ok()?;
    let bytes = file.metadata().ok()?.len();
    let header = read_header(&mut file).ok()?;
    let state: State = serde_json::from_str(header.metadata().get(keys::STATE)?).ok()?;
    Some(Checkpoint { iter: state.iter_num, bytes })
}

/// The file itself. Whoever has it open reads on in it when another is put in its place.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn open(folder: &Path) -> io::Result<File> {
    let path = place::checkpoint(folder);
    // A link would lead to a file of somebody's choice, and a pipe would hold its reader.
    if !path.symlink_metadata()?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    File::open(path)
}
