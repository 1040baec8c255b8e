//! What each system does in its own way: terminals, signals and how a program ended, for `headroom watch`, and the files
//! that a program may have open.
//!
//! [`Attendant`] waits for a child and hands signals on; [`screen`] gives a child a terminal of its own in the place of
//! ours. A program that is to outlive this one stands [`apart`]. Where a system has no such thing the twin says so by `None`. Besides, a system is named only where one call
//! differs: a file's owner and mode, the signals that end the server, the disk of a folder.

#[cfg(unix)]
mod apart_unix;
#[cfg(windows)]
mod apart_windows;
mod disk;
mod limits;
mod process;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub use apart_unix::{CAN_ASK_TO_END, CAN_RELAY, apart, ask_to_end, hand_on, name_process, own_session};
#[cfg(unix)]
pub use unix::{Attendant, end_by_signal, ending, is_same, our_outputs, pipe, screen};

#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub use apart_windows::{CAN_ASK_TO_END, CAN_RELAY, apart, ask_to_end, hand_on, name_process, own_session};
#[cfg(windows)]
pub use windows::{Attendant, end_by_signal, ending, is_same, our_outputs, pipe, screen};

pub use disk::disk;
pub use limits::raise_open_files;
pub use process::Process;

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
};

/// Whether a command's first word starts this program, under whatever name: by a link, by another name of its file, or by
/// the search path.
pub fn is_this_program(word: &OsStr) -> bool {
    let Ok(this) = env::current_exe() else { return false };
    let path = Path::new(word);
    let folders = || env::var_os("PATH").map(|list| env::split_paths(&list).collect::<Vec<PathBuf>>());
    let found = match path.components().count() {
        1 => folders().unwrap_or_default().into_iter().map(|folder| folder.join(path)).find(|path| path.is_file()),
        _ => Some(path.to_owned()),
    };
    let Some(found) = found else { return false };
    let is_one_path = || fs::canonicalize(&found).ok().is_some_and(|found| fs::canonicalize(&this).ok() == Some(found));
    let is_one_file = || match (File::open(&found), File::open(&this)) {
        (Ok(found), Ok(this)) => is_same(&found, &this),
        _ => false,
    };
    is_one_path() || is_one_file()
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with a status.
    Exited(i32),
    /// By a signal.
    Killed(i32),
}

/// A terminal made for a child, which looks like one of ours.
#[derive(Debug)]
pub struct Screen {
    /// What is written to it comes out here.
    pub ours: File,
    /// The child's side.
    pub theirs: File,
    /// The terminal that it looks like.
    #[cfg_attr(windows, expect(dead_code, reason = "no such terminal is made there"))]
    pub like: File,
}
