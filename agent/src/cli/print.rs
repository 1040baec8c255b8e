//! Output: the only module that writes to standard output and standard error.
//!
//! Data goes to standard output in one piece; messages for the user go to standard error. `--quiet` silences notes
//! there, never errors.

use std::{
    io::{self, ErrorKind, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use thiserror::Error;

/// Standard output cannot be written.
#[derive(Debug, Error)]
#[error("cannot write to standard output: {0}")]
pub struct Error(#[from] io::Error);

impl Error {
    /// Whether the reader has closed the pipe, which is not an error.
    pub fn is_closed_pipe(&self) -> bool {
        self.0.kind() == ErrorKind::BrokenPipe
    }
}

/// Writes data to standard output.
///
/// # Errors
/// Standard output is closed or full.
pub fn data(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Writes data to standard output piece by piece.
///
/// # Errors
/// Standard output is closed or full, or `write` fails.
pub fn data_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    // Standard output itself is line-buffered.
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    write(&mut stdout)?;
    Ok(stdout.flush()?)
}

/// Whether notes are silenced.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Silences notes for the rest of the process.
pub fn silence_notes() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Writes a note to standard error: progress, or a remark on the result. `--quiet` silences it.
pub fn note(text: &str) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        error(text);
    }
}

/// Writes lines of the log to standard error. A failure to write is ignored.
pub fn log(lines: &[u8]) {
    let _ = io::stderr().lock().write_all(lines);
}

/// Writes an error or a warning of lost work to standard error, with `--quiet` too. A failure to write is ignored:
/// there is no other stream to report it on.
pub fn error(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
