//! Stop requests without a signal: a file that the run polls.
//!
//! Windows has no signal that reaches a program without a console. Elsewhere the agent may not know the process id of a
//! run that an earlier agent started. Any process with write access to the run's directory can stop the run.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::status::{End, ProgramEnd, Reporter, Status};

/// The environment variable with the file's path; without it a run polls nothing.
pub const VARIABLE: &str = "HEADROOM_STOP_FILE";

/// The polling interval: short for an interactive user, and negligible beside an iteration.
const LOOK: Duration = Duration::from_millis(250);
/// The content of the file if the iteration is not to be finished.
const AT_ONCE: &[u8] = b"now";
/// The exit status of a run that ends immediately; progress since its last checkpoint is lost.
const ENDED_AT_ONCE: i32 = 1;

/// Requests that a run stops: after its iteration and a checkpoint, or immediately if `at_once`.
///
/// # Errors
/// The file cannot be written.
pub fn request(file: &Path, at_once: bool) -> io::Result<()> {
    fs::write(file, if at_once { AT_ONCE } else { b"" })
}

/// Returns the time since the last request; `None` without a request. It is zero if the clock was set back.
pub fn age(file: &Path) -> Option<Duration> {
    let requested = fs::metadata(file).and_then(|metadata| metadata.modified()).ok()?;
    Some(requested.elapsed().unwrap_or_default())
}

/// Withdraws a request, for example before the run is resumed.
///
/// # Errors
/// The file exists and cannot be removed.
pub fn forget(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Polls the file until this process ends, and sets `stop` once it exists.
///
/// # Errors
/// The thread cannot be started.
pub fn follow(file: PathBuf, stop: Arc<AtomicBool>, reporter: Reporter) -> io::Result<()> {
    let looking = move || loop {
        match fs::read(&file) {
            Ok(wish) if wish == AT_ONCE => {
                reporter.report(Status::Ended(ProgramEnd::new(End::Interrupted)));
                process::exit(ENDED_AT_ONCE)
            }
            Ok(_) => stop.store(true, Ordering::Relaxed),
            // It does not exist, or cannot be read now.
            Err(_) => {}
        }
        thread::sleep(LOOK);
    };
    thread::Builder::new().name("stop".to_owned()).spawn(looking).map(drop)
}
