//! The one place that writes to standard output and standard error.
//!
//! Data goes to standard output, whole and at once; everything a person should know beside it goes to standard error.
//! `--quiet` silences notes there, never errors.

use std::{
    io::{self, ErrorKind, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use thiserror::Error;

/// Standard output did not take what was written.
#[derive(Debug, Error)]
#[error("standard output cannot be written: {0}")]
pub struct Error(#[from] io::Error);

impl Error {
    /// Whether the reader has gone, which is its right.
    pub fn is_closed_pipe(&self) -> bool {
        self.0.kind() == ErrorKind::BrokenPipe
    }
}

/// Writes data to standard output.
///
/// # Errors
/// It is closed, or full.
pub fn data(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Writes data to standard output piece by piece.
///
/// # Errors
/// It is closed, or full, or what `write` says.
pub fn data_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    // A terminal's buffer ends at each line.
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    write(&mut stdout)?;
    Ok(stdout.flush()?)
}

/// Whether notes are silenced.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Silences notes from here on, for the whole process.
pub fn silence_notes() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Writes a note to standard error: progress, or what to know beside the result. `--quiet` silences it.
pub fn note(text: &str) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        error(text);
    }
}

/// Writes an error or a warning of lost work to standard error, with `--quiet` too. A failure to write is ignored:
/// there is no other stream to report it on.
pub fn error(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
