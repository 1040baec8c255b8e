//! Windows: a program that outlives the one that starts it has no console that could end it: no signal asks it to end.

use std::{
    fs::File,
    os::windows::process::CommandExt,
    process::{Child, Command},
};

/// Whether a signal can ask a program to end: Ctrl-C goes to those of one console alone.
pub const CAN_ASK_TO_END: bool = false;

/// Whether a program of its own can pass a child's output on: one that no Ctrl-C reaches has no console to write to.
pub const CAN_RELAY: bool = false;

/// Not known here.
pub fn name_process(_: &str) {}

/// `CREATE_NEW_PROCESS_GROUP` and `CREATE_NO_WINDOW`.
const APART: u32 = 0x0000_0200 | 0x0800_0000;

/// Sets a program apart that is to be started.
pub fn apart(command: &mut Command) {
    command.creation_flags(APART);
}

/// It is so from its start.
pub fn own_session() {}

/// Not known here: the file is ours alone.
pub fn hand_on(_: &File) {}

/// Not known here.
pub fn ask_to_end(_: &Child) {}
