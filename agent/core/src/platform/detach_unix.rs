//! Unix: starting and ending programs that outlive this one.

use std::{
    fs::File,
    process::{Child, Command},
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Signal, kill_process, setsid},
};

/// Whether a detached program can pass a child's output on to this terminal.
pub const CAN_RELAY: bool = true;

/// Sets this process's name in the system's list, at most 15 bytes.
pub fn name_process(name: &str) {
    #[cfg(target_os = "linux")]
    if let Ok(name) = std::ffi::CString::new(name) {
        // The name is informative only, so errors are ignored.
        let _ = rustix::thread::set_name(&name);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = name;
}

/// Prepares a program to be started detached. Nothing is needed here: the program itself calls [`own_session`].
pub fn apart(_: &mut Command) {}

/// Makes this process the leader of a new session, out of reach of its terminal's signals and hang-up.
pub fn own_session() {
    // Fails only if the process already leads a session.
    let _ = setsid();
}

/// Lets every program started from now on inherit an open file.
pub fn hand_on(file: &File) {
    // On failure the file is only not inherited.
    let _ = fcntl_setfd(file, FdFlags::empty());
}

/// Sends SIGTERM to a child and returns whether it was sent.
pub fn terminate(child: &Child) -> bool {
    // The process id is valid until the child has been waited for.
    kill_process(Pid::from_child(child), Signal::TERM).is_ok()
}
