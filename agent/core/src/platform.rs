//! System-specific code: terminals, signals and exit statuses for `headroom watch`, and limits of this process.
//!
//! [`ChildSupervisor`] waits for a child and forwards signals; [`screen`] gives a child a terminal of its own.
//! [`apart`] detaches a program that outlives this one. Functions that a system does not support return `None`
//! there. Other modules name a system only where a single call differs: a file's owner and mode, the signals that end
//! the server, a directory's disk.

#[cfg(unix)]
mod detach_unix;
#[cfg(windows)]
mod detach_windows;
mod disk;
mod limits;
mod process;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub use detach_unix::{CAN_RELAY, apart, hand_on, name_process, own_session, terminate};
#[cfg(unix)]
pub use unix::{
    ChildSupervisor, end_by_signal, ending, hang_up, identity, is_hung_up, is_same, our_outputs, parent_id, pipe,
    screen,
};

#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub use detach_windows::{CAN_RELAY, apart, hand_on, name_process, own_session, terminate};
#[cfg(windows)]
pub use windows::{
    ChildSupervisor, end_by_signal, ending, hang_up, identity, is_hung_up, is_same, our_outputs, parent_id, pipe,
    screen,
};

pub use disk::{check_writable, disk};
pub use limits::{file_bytes_max, raise_open_files};
pub use process::Process;

use std::fs::File;

/// Returns the exit status by which shells report that a signal ended a program: 128 plus its number.
pub const fn status_of_signal(signal: i32) -> u8 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "signals are 1 to 64")]
    let status = (128 + signal) as u8;
    status
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnding {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

/// A pseudoterminal for a child, with the settings of an existing terminal.
#[derive(Debug)]
pub struct Screen {
    /// The controller's side, from which the child's output is read.
    pub ours: File,
    /// The child's side.
    pub theirs: File,
    /// The terminal whose settings and size it copies.
    pub like: File,
}
