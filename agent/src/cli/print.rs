//! The one place that writes to standard output and standard error.
//!
//! Data goes to standard output, whole and at once; everything a person should know beside it goes to standard error.

use std::io::{self, ErrorKind, Write};

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

/// Writes to standard error. Where that fails there is no one left to tell.
pub fn note(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
