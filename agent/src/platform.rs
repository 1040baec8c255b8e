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

use std::fs::File;

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
