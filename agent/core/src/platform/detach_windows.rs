//! Windows: starting programs that outlive this one. They have no console, so no signal can end them.

use std::{
    fs::File,
    os::windows::process::CommandExt,
    process::{Child, Command},
};

/// Whether a detached program can pass a child's output on: without a console it has nothing to write to.
pub const CAN_RELAY: bool = false;

/// Does nothing: a Windows process has no name to set.
pub fn name_process(_: &str) {}

/// `CREATE_NEW_PROCESS_GROUP` and `CREATE_NO_WINDOW`.
const APART: u32 = 0x0000_0200 | 0x0800_0000;

/// Prepares a program to be started detached.
pub fn apart(command: &mut Command) {
    command.creation_flags(APART);
}

/// Does nothing: the program is detached from its start.
pub fn own_session() {}

/// Does nothing: Windows does not support it, and the file is not inherited.
pub fn hand_on(_: &File) {}

/// Returns `false`: Windows has no signal that a program without a console receives.
pub fn terminate(_: &Child) -> bool {
    false
}
