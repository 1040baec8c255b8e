//! `headroom watch --run-id`: the watcher of a queued run that the agent starts.
//!
//! The watcher has its own session, so it outlives the agent. The watcher and the command hold the device lock. The
//! watcher takes the run out of the queue itself, so an accidental second watcher starts nothing.

use std::{ffi::OsString, io, path::Path, time::Duration};

use headroom_protocol::message::Message;
use headroom_text::{self as text, Text};

use super::{Error, Request, end};
use crate::cli::{Exit, print};
use headroom_agent_core::{
    clock, folders,
    platform::{self, ChildSupervisor, Process},
    store::{Archive, Recorder},
};
use headroom_server::run_manager::{self, run_dir};
use headroom_watch::{self as watch, ManagedRun, Task, continued};

/// Exit status if the run is not queued, or its device is locked: try again later (EX_TEMPFAIL).
const NOT_NOW: Exit = Exit::Of(75);

/// Continues a run whose watcher is gone. A signal to end is passed to the command.
///
/// # Errors
/// The data directory is unavailable, or the run cannot be continued now.
pub fn continue_it(id: &str, folder: Option<&Path>) -> Result<Exit, crate::cli::Error> {
    platform::own_session();
    let cannot = |error| Error::Start { command: id.to_owned(), error };
    let folder = folders::data(folder).map_err(|error| cannot(io::Error::other(error)))?;
    let mut attendant = ChildSupervisor::new().map_err(cannot)?;
    continued::run(&folder, id, || attendant.stop_signal().is_some()).map_err(cannot)?;
    Ok(Exit::Success)
}

/// Runs the command of a queued run.
///
/// # Errors
/// The history or the device is unavailable, or the command cannot be started, which the run records.
pub fn watch_it(id: &str, request: Request, command: Vec<OsString>) -> Result<Exit, crate::cli::Error> {
    platform::own_session();
    let program = command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let cannot = |error| Error::Start { command: program.clone(), error };
    let folder = folders::data(request.folder.as_deref()).map_err(|error| cannot(io::Error::other(error)))?;
    // From here on, a signal to end is passed to the command.
    let mut attendant = ChildSupervisor::new().map_err(cannot)?;
    let archive = Archive::new(&folder);
    let not_now = |why: Text| {
        let reason = Message::from(text::watcher_said(why));
        print::error(&format!("{reason}\n"));
        // If this fails, the agent reads the printed message.
        let _ = run_dir::write_reason(&folder, id, &reason);
        Ok(NOT_NOW)
    };
    let device = match archive.run(id) {
        Ok(run) => run.order.and_then(|order| order.device).unwrap_or_default(),
        Err(error) => return not_now(error.text()),
    };
    let log = run_dir::log(&folder, id).map_err(cannot)?;
    let Some(taken) = run_dir::take(&folder, &device).map_err(cannot)? else {
        return not_now(text::device_still_taken(device.as_str()));
    };
    platform::hand_on(&taken.0);
    let run = match archive.claim(id, Process::this().as_ref(), clock::now_ms()) {
        Ok(Some(run)) => run,
        Ok(None) => return not_now(text::run_waits_no_more(id)),
        Err(error) => return not_now(error.text()),
    };
    let owned =
        ManagedRun { log, out: run_manager::out_dir(&run).unwrap_or_default(), visible: run_manager::visible(&device) };
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
    let started = Recorder::go_on(&folder, Some(run_manager::begun(run)))
        .and_then(|record| watch::run(id.to_owned(), &task, &mut attendant, Box::new(record), print::note));
    match started {
        Ok(mut watched) => {
            let folders = watched.folder.take().into_iter().collect();
            Ok(end(watched, folders))
        }
        Err(error) => {
            let error = cannot(error);
            let code = if let Exit::Of(code) = error.exit() { i32::from(code) } else { 1 };
            // If the history cannot be written now, the run counts as lost.
            let _ = archive.not_started(id, code, clock::now_ms());
            Err(error.into())
        }
    }
}
