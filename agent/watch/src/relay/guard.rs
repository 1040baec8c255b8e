//! Guard: a process that replaces a relay that was killed after its watcher.
//!
//! The watcher itself replaces a killed relay. A relay without a watcher starts a guard, which holds the stream open and
//! waits. If the relay ends without a farewell, the guard becomes the relay, and starts a guard of its own.

use std::{
    ffi::OsString,
    fs::File,
    io::{Read as _, Write as _},
    process::{Child, Command},
};

use super::{COMMAND, this_program};
use headroom_agent_core::platform::pipe;

/// Option of a relay that waits as a guard.
pub const OPTION: &str = "--guard";
/// Process name, distinct so that killing all relays by name spares guards.
pub const NAME: &str = "hr-guard";
/// Last byte of a relay whose stream has ended.
const FAREWELL: u8 = b'E';

/// Guard of this relay.
#[derive(Debug)]
pub struct Guard {
    /// Arguments of a relay for the same stream.
    words: Vec<OsString>,
    process: Option<(Child, File)>,
}

impl Guard {
    /// Creates the guard of a relay with these arguments. It does not start yet.
    pub const fn new(words: Vec<OsString>) -> Self {
        Self { words, process: None }
    }

    /// Starts the guard if it does not run. On failure the next call tries again.
    pub fn keep(&mut self) {
        if let Some((child, _)) = &mut self.process
            && matches!(child.try_wait(), Ok(None))
        {
            return;
        }
        self.process = self.start();
    }

    fn start(&self) -> Option<(Child, File)> {
        let (theirs, ours) = pipe().ok()?;
        // The guard inherits the stream and its destination.
        let mut command = Command::new(this_program().ok()?);
        command.arg(COMMAND).args(&self.words).arg(OPTION).stderr(theirs);
        Some((command.spawn().ok()?, ours))
    }

    /// Ends the guard: the stream has ended.
    pub fn end(self) {
        if let Some((mut child, mut lifeline)) = self.process {
            let _ = lifeline.write_all(&[FAREWELL]);
            drop(lifeline);
            let _ = child.wait();
        }
    }
}

/// Waits for the end of the guarded relay at the other end of `lifeline`. Returns whether it was killed.
pub fn is_needed(mut lifeline: File) -> bool {
    let mut last = [0];
    !matches!(lifeline.read(&mut last), Ok(1)) || last[0] != FAREWELL
}
