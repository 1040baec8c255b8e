//! `headroom runs delete`: deletes named runs, or all that match a filter.

use std::io::{self, IsTerminal as _, Write as _};

use headroom_protocol::run::Run;

use super::{Error, RUNS_MAX, Request, standing::StatusWord, table};
use crate::cli::{Exit, args::UsageError, print};
use headroom_agent_core::{
    clock::now_ms,
    folders,
    store::{self, Archive},
};
use headroom_server::run_manager;

/// Limit of runs listed in the confirmation.
const SHOWN_MAX: usize = 10;

/// Deletes the runs that the arguments and options select.
///
/// # Errors
/// Nothing is selected, a name matches no run or several, deletion is not confirmed, or the history cannot be written.
pub fn delete(request: &Request) -> Result<Exit, crate::cli::Error> {
    let has_filter = !request.statuses.is_empty() || request.older_than_ms.is_some();
    if request.words.is_empty() && !has_filter {
        return Err(UsageError::Missing { command: "runs delete", what: "ID, --status or --older-than" }.into());
    }
    let archive = request.archive()?;
    let runs = selected(&archive, request, has_filter)?;
    if runs.is_empty() {
        print::note("No run matches.\n");
        return Ok(Exit::Failure);
    }
    // Either all are deleted or none.
    if let Some(run) = runs.iter().find(|run| !run.status.has_ended()) {
        return Err(Error::from(store::Error::NotEnded(run.id.clone())).into());
    }
    // A single named run needs no confirmation.
    let is_named = runs.len() == 1 && !has_filter;
    if !is_named && !request.yes && !confirmed(&runs)? {
        print::note("Nothing is deleted.\n");
        return Ok(Exit::Failure);
    }
    let data = folders::named(request.data_dir.as_deref()).map_err(Error::from)?;
    for run in &runs {
        archive.delete_run(&run.id, now_ms()).map_err(Error::from)?;
        // The run is deleted from the history, even if files remain.
        if let Err(error) = run_manager::deleted(&data, run) {
            print::error(&format!("headroom: {error}\n"));
        }
        print::note(&format!("run {} ({}) is deleted\n", run.id, table::printable(&run.name)));
    }
    Ok(Exit::Success)
}

/// The named runs, or all ended runs that match the filter. With both, the named runs that match.
fn selected(archive: &Archive, request: &Request, has_filter: bool) -> Result<Vec<Run>, Error> {
    let mut runs = vec![];
    for word in &request.words {
        // A name that is not UTF-8 matches no run.
        let run = archive.find(&word.to_string_lossy())?;
        if !runs.iter().any(|known: &Run| known.id == run.id) {
            runs.push(run);
        }
    }
    if request.words.is_empty() {
        runs = archive.runs(RUNS_MAX)?;
    }
    if has_filter {
        runs.retain(|run| {
            let has_status = request.statuses.is_empty() || request.statuses.contains(&StatusWord::of(run.status));
            let is_old =
                request.older_than_ms.is_none_or(|before_ms| run.ended_ms.unwrap_or(run.started_ms) < before_ms);
            run.status.has_ended() && has_status && is_old
        });
    }
    Ok(runs)
}

/// Asks for confirmation at the terminal.
fn confirmed(runs: &[Run]) -> Result<bool, UsageError> {
    if !io::stdin().is_terminal() {
        return Err(UsageError::Missing { command: "runs delete", what: "--yes to delete several runs" });
    }
    let mut text = String::new();
    for run in runs.iter().take(SHOWN_MAX) {
        text.push_str(&format!("  {}  {}\n", run.id, table::printable(&run.name)));
    }
    if runs.len() > SHOWN_MAX {
        text.push_str(&format!("  and {} more\n", runs.len() - SHOWN_MAX));
    }
    let noun = if runs.len() == 1 { "run" } else { "runs" };
    print::note(&format!("{text}Delete {} {noun}? [y/N] ", runs.len()));
    let _ = io::stderr().flush();
    let mut answer = String::new();
    // A read error counts as no.
    let _ = io::stdin().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
