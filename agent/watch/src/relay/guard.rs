//! Guard: a process that replaces a relay that was killed after its watcher.
//!
//! The watcher itself replaces a killed relay. Both may be killed at once, so each relay starts its guard at once. The
//! guard holds the stream open and waits. If the relay ends without a farewell and the watcher is gone, the guard
//! becomes the relay, and starts a guard of its own.
//!
//! The lock of the [`super::spool`] shows a guard that another relay has the stream. A guard inherits the shared lock of
//! the stream, so that readers of the spool wait for what it will write.
//!
//! A relay without a spool, or on a system that does not identify processes, starts its guard when its watcher is gone.

use std::{
    ffi::OsString,
    fs::File,
    io::{Read as _, Write as _},
    process::{self, Child, Command},
    thread,
    time::Duration,
};

use super::{COMMAND, this_program};
use headroom_agent_core::platform::{Process, parent_id, pipe};

/// Option of a relay that waits as a guard. Its value is the process ID of the guarded relay.
pub const OPTION: &str = "--guard";
/// Process name, distinct so that killing all relays by name spares guards.
pub const NAME: &str = "hr-guard";
/// Last byte of a relay whose stream has ended.
const FAREWELL: u8 = b'E';
/// Time between two checks whether a killed relay was replaced.
const PAUSE: Duration = Duration::from_millis(10);

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
        command.arg(COMMAND).args(&self.words).arg(OPTION).arg(process::id().to_string()).stderr(theirs);
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

/// Waits for the end of the guarded relay at the other end of `lifeline`. Returns whether this process replaces it: the
/// relay was killed, and so was its watcher before it could replace the relay. `is_replaced` states whether another
/// relay has the stream.
pub fn is_needed(
    mut lifeline: File,
    relay: Option<u32>,
    watcher: Option<&Process>,
    is_replaced: impl Fn() -> bool,
) -> bool {
    let mut last = [0];
    if matches!(lifeline.read(&mut last), Ok(1)) && last[0] == FAREWELL {
        return false;
    }
    // Until then, the lock that `is_replaced` finds may be that of the killed relay.
    while relay.is_some() && relay == parent_id() {
        thread::sleep(PAUSE);
    }
    loop {
        // In this order: a watcher that died after it had started a relay has replaced the killed one.
        let is_watched = watcher.is_some_and(|watcher| watcher.lives() == Some(true));
        if is_replaced() {
            return false;
        }
        if !is_watched {
            return true;
        }
        thread::sleep(PAUSE);
    }
}
