//! A wish for a run's end that comes without a signal: a file that somebody puts where the run looks for it.
//!
//! Windows has no signal that reaches a program without a console, and elsewhere the number of a process that an agent
//! before started may be unknown. Whoever may write the run's folder may end it.

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

/// Names the file to a run; without it there is none.
pub const VARIABLE: &str = "HEADROOM_STOP_FILE";

/// The exit status of a run that was asked to stop, whether it could save or not: what shells give a program that Ctrl-C
/// ends, so that `train && export` goes no further.
pub const EXIT_STATUS: u8 = 130;

/// How often it is looked for: soon for who pressed a button, and nothing beside an iteration.
const LOOK: Duration = Duration::from_millis(250);
/// What it holds where the iteration is not to be finished.
const AT_ONCE: &[u8] = b"now";
/// Exit status of a run that ends so: what it did since it saved last is lost.
const ENDED_AT_ONCE: i32 = 1;

/// Asks the run that looks for a file to end: to finish its iteration and save, or at once.
///
/// # Errors
/// The file cannot be written.
pub fn ask(file: &Path, at_once: bool) -> io::Result<()> {
    fs::write(file, if at_once { AT_ONCE } else { b"" })
}

/// Takes a wish back, as before the run goes on.
///
/// # Errors
/// The file is there and cannot be removed.
pub fn forget(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Looks for the file from now on, as long as this program runs; sets `stop` where it is there.
///
/// # Errors
/// The system gives no thread.
pub fn follow(file: PathBuf, stop: Arc<AtomicBool>) -> io::Result<()> {
    let looking = move || loop {
        match fs::read(&file) {
            Ok(wish) if wish == AT_ONCE => process::exit(ENDED_AT_ONCE),
            Ok(_) => stop.store(true, Ordering::Relaxed),
            // It is not there, or not to be read now.
            Err(_) => {}
        }
        thread::sleep(LOOK);
    };
    thread::Builder::new().name("stop".to_owned()).spawn(looking).map(drop)
}
