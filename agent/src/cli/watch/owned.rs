//! `headroom watch --run-id`: the watcher of a run that the agent starts, and that waits in its queue.
//!
//! It outlives the agent, so it stands in a session of its own. It has the device as long as it or the command lives,
//! and takes the run out of the queue itself: whoever starts a second one by mistake starts nothing.

use std::{ffi::OsString, io, time::Duration};

use headroom_shared::text;

use super::{Error, Request, end};
use crate::{
    cli::{Exit, print},
    clock, folders,
    foreman::{self, place},
    platform::{self, Attendant, Process},
    store::{Archive, Recorder},
    watch::{self, Owned, Task},
};

/// What is given where the run does not wait, or its device is somebody's: try again later (EX_TEMPFAIL).
const NOT_NOW: Exit = Exit::Of(75);

/// Runs the command of a run that waits.
///
/// # Errors
/// History or the device cannot be had, or the command cannot be started; the run says so then.
pub fn watch_it(id: &str, request: Request, command: Vec<OsString>) -> Result<Exit, crate::cli::Error> {
    platform::own_session();
    let program = command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let cannot = |error| Error::Start { command: program.clone(), error };
    let folder = folders::data(request.folder.as_deref()).map_err(|error| cannot(io::Error::other(error)))?;
    // From here on a signal that asks for the end is the command's.
    let mut attendant = Attendant::new().map_err(cannot)?;
    let archive = Archive::new(&folder);
    let not_now = |why: String| {
        print::error(&format!("{}\n", text::watcher_said(why)));
        Ok(NOT_NOW)
    };
    let device = match archive.run(id) {
        Ok(run) => run.order.and_then(|order| order.device).unwrap_or_default(),
        Err(error) => return not_now(error.to_string()),
    };
    let log = place::log(&folder, id).map_err(cannot)?;
    let Some(taken) = place::take(&folder, &device).map_err(cannot)? else {
        return not_now(text::device_still_taken(device.as_str()).to_string());
    };
    platform::hand_on(&taken.0);
    let run = match archive.claim(id, Process::this().as_ref(), clock::now_ms()) {
        Ok(Some(run)) => run,
        Ok(None) => return not_now(text::run_waits_no_more(id).to_string()),
        Err(error) => return not_now(error.to_string()),
    };
    let owned = Owned { log, out: foreman::out_dir(&run).unwrap_or_default(), visible: foreman::visible(&device) };
    let task = Task {
        name: request.name,
        command,
        variables: vec![],
        given: vec![],
        gpu: None,
        pattern: None,
        stall: (request.stall_minutes > 0).then(|| Duration::from_secs(request.stall_minutes * 60)),
        folder: Some(folder.clone()),
        owned: Some(owned),
    };
    let started = Recorder::go_on(&folder, Some(foreman::begun(run)))
        .and_then(|record| watch::run(id.to_owned(), &task, &mut attendant, Box::new(record), print::note));
    match started {
        Ok(watched) => Ok(end(watched)),
        Err(error) => {
            let error = cannot(error);
            let code = if let Exit::Of(code) = error.exit() { i32::from(code) } else { 1 };
            // What history does not take now is lost with its watcher, and is called so.
            let _ = archive.not_started(id, code, clock::now_ms());
            Err(error.into())
        }
    }
}
