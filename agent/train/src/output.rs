//! Outputs of a watched run that remain open although a relay was killed.
//!
//! The watcher notes the identity of the run's output streams beside the status file. A relay removes the note when its
//! destination is closed. While the note exists, a write error on such a stream does not end `headroom train`.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use headroom_agent_core::{folders::private_file, platform::identity};

/// File with one identity per line.
const FILE: &str = "outputs";

/// Notes the output streams of a run in its directory.
pub fn keep_open(folder: &Path, outputs: [&File; 2]) {
    let text: String = outputs.into_iter().filter_map(identity).map(|identity| identity + "\n").collect();
    // Without the note a run ends as it would without a watcher.
    if let Ok(mut file) = private_file().truncate(true).open(folder.join(FILE)) {
        let _ = io::Write::write_all(&mut file, text.as_bytes());
    }
}

/// Removes the note: the destination of the output is closed.
pub fn close(folder: &Path) {
    let _ = fs::remove_file(folder.join(FILE));
}

/// Whether the standard output of this process is noted in the directory.
pub fn is_kept_open(folder: &Path) -> bool {
    let text = fs::read_to_string(folder.join(FILE)).unwrap_or_default();
    identity(&io::stdout()).is_some_and(|ours| text.lines().any(|line| line == ours))
}
