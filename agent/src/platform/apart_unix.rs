//! Unix: a program that outlives the one that starts it, and how it is asked to end.

use std::{
    fs::File,
    process::{Child, Command},
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Signal, kill_process, setsid},
};

/// Whether a signal can ask a program to end.
pub const CAN_ASK_TO_END: bool = true;

/// Whether a program of its own can pass a child's output on to our terminal.
pub const CAN_RELAY: bool = true;

/// Gives this process a name in the system's list, of 15 bytes at most.
pub fn name_process(name: &str) {
    #[cfg(target_os = "linux")]
    if let Ok(name) = std::ffi::CString::new(name) {
        // It is a name, and nothing hangs on it.
        let _ = rustix::thread::set_name(&name);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = name;
}

/// Sets a program apart that is to be started: it does that itself, by [`own_session`].
pub fn apart(_: &mut Command) {}

/// Makes this process the first of a session of its own: what a terminal sends, and its end, reach it no more.
pub fn own_session() {
    // Where it is one already, it is one.
    let _ = setsid();
}

/// Lets every program that this one starts from now on have a file open as well.
pub fn hand_on(file: &File) {
    // Without it the file is ours alone.
    let _ = fcntl_setfd(file, FdFlags::empty());
}

/// Asks a child to end.
pub fn ask_to_end(child: &Child) {
    // As long as nobody waited for it the number is its own.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
}
