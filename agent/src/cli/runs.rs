//! `headroom runs`: what is kept of training runs and cards, with or without an agent beside it.

mod export;
mod standing;
mod table;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use headroom_shared::protocol::{history::Group, run::Run};
use serde::Serialize;
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InDataFolder, Parsed, UsageError, Word, parse, refusal, shown},
    command::{Command, Words},
    print, set_aside,
    style::Style,
};
use crate::{
    clock::now_ms,
    folders, foreman,
    store::{self, Archive, BackupError},
};
use standing::Standing;

/// The schema's number.
const SCHEMA: u32 = 1;
/// Runs of a list at most: a screenful of a year.
const RUNS_MAX: usize = 10_000;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum Error {
    /// The place of history.
    #[error(transparent)]
    Folder(#[from] folders::Error),
    /// The folder that was named is none.
    #[error("there is no history in {}: there is no such folder", .0.display())]
    NoHistory(PathBuf),
    /// History.
    #[error(transparent)]
    History(#[from] store::Error),
    /// A copy of it.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// No such card.
    #[error("history has no card {given:?}; it has {known}")]
    NoCard {
        /// As given.
        given: String,
        /// Those that there are, for people.
        known: String,
    },
    /// The file of `--out` exists.
    #[error("cannot write {}: it exists already", .0.display())]
    Exists(PathBuf),
    /// The file that was asked for.
    #[error("cannot write {}: {error}", file.display())]
    Write {
        /// Which.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A value of ours has no JSON.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Error {
    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Folder(error) => Some(error.hint()),
            Self::NoHistory(_) => Some(format!(
                "`headroom serve` and `headroom watch` begin one where --data-dir, or the variable {}, says",
                folders::VARIABLE
            )),
            Self::History(error) | Self::Backup(BackupError::History(error)) => match error {
                store::Error::NoRun(_) => Some("`headroom runs` lists them".to_owned()),
                store::Error::Ambiguous(..) => Some("give one of these numbers".to_owned()),
                store::Error::NotEnded(_) => {
                    Some("end it first; a run whose watcher is gone counts as lost some seconds later".to_owned())
                }
                // None of it is asked for here.
                store::Error::NoAlert(_)
                | store::Error::Changed
                | store::Error::HasEnded(_)
                | store::Error::NotOurs(_)
                | store::Error::QueueFull(_) => None,
                store::Error::Unusable(_) => Some(
                    "`headroom serve` sets a damaged file aside, and begins a new one with what can be read of it"
                        .to_owned(),
                ),
            },
            Self::Backup(BackupError::Exists(_)) => Some("give another name, or move the file away".to_owned()),
            Self::Exists(_) => Some("--force replaces it".to_owned()),
            Self::NoCard { .. } => {
                Some("give a card's number of these, from 0, or the beginning of its UUID".to_owned())
            }
            Self::Backup(_) | Self::Write { .. } | Self::Json(_) => None,
        }
    }
}

/// What the words of any of the commands come to.
#[derive(Debug, Default)]
struct Request {
    data_dir: Option<PathBuf>,
    json: bool,
    /// A run, or a file.
    word: Option<OsString>,
    csv: bool,
    out: Option<PathBuf>,
    force: bool,
    gpu: Option<String>,
    group: Option<Group>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    /// Those that are listed; all of them where none is named.
    statuses: Vec<Standing>,
    limit: Option<usize>,
}

impl Request {
    /// Of the folder that is named, which is not made: whoever only asks leaves nothing behind.
    fn archive(&self) -> Result<Archive, Error> {
        let folder = folders::named(self.data_dir.as_deref())?;
        if self.data_dir.is_some() && !folder.is_dir() {
            return Err(Error::NoHistory(folder));
        }
        let archive = Archive::new(&folder);
        // Said as long as the file lies there: what is asked for may be in it.
        let said = archive.set_aside().ok().flatten().and_then(|what| set_aside::said(&what));
        if let Some(said) = said {
            print::error(&said);
        }
        Ok(archive)
    }
}

impl InDataFolder for Request {
    fn set_data_folder(&mut self, folder: PathBuf) {
        self.data_dir = Some(folder);
    }
}

const DATA_DIR: Flag<Request> = Flag::DATA_DIR;

const JSON: Flag<Request> = Flag {
    name: "json",
    value: None,
    doc: "Print JSON, schema 1",
    set: |request, _| {
        request.json = true;
        Ok(())
    },
};

const STATUS: Flag<Request> = Flag {
    name: "status",
    value: Some("STATUS"),
    doc: "Only runs that are queued, running, stalled, done, stopped,\nfailed or lost; may be given more than once",
    set: |request, word| {
        let status = Standing::named(word);
        request.statuses.push(status.ok_or_else(|| format!("{word:?} is none of {}", Standing::NAMES.join(", ")))?);
        Ok(())
    },
};
const SINCE: Flag<Request> = Flag {
    name: "since",
    value: Some("TIME"),
    doc: "Only runs that began then or later: 2026-11-22,\n\"2026-11-22 14:30\", or a duration ago: 90m, 24h, 30d",
    set: |request, time| {
        request.from_ms = Some(export::time(time)?);
        Ok(())
    },
};
const LIMIT: Flag<Request> = Flag {
    name: "limit",
    value: Some("N"),
    doc: "At most N runs, the newest [default: all]",
    set: |request, n| {
        let limit = n.parse().ok().filter(|n| *n > 0);
        request.limit = Some(limit.ok_or_else(|| format!("{n:?} is not a number of runs, 1 or more"))?);
        Ok(())
    },
};

const LIST_FLAGS: &[Flag<Request>] = &[STATUS, SINCE, LIMIT, JSON, DATA_DIR];
const SHOW_FLAGS: &[Flag<Request>] = &[JSON, DATA_DIR];
const PLAIN_FLAGS: &[Flag<Request>] = &[DATA_DIR];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "runs",
    summary: "Manage recorded runs",
    about: "\
Lists, shows, exports and deletes recorded runs, and backs up the history. Without a
subcommand it lists them. It works beside a running `headroom serve` and without one.",
    usage: &["headroom runs [OPTIONS]", "headroom runs COMMAND [ARGUMENTS]"],
    subcommands: &[&LIST, &SHOW, &export::COMMAND, &DELETE, &BACKUP],
    options: || shown(LIST_FLAGS),
    exits: EXITS,
    examples: &["headroom runs --status failed --since 24h", "headroom runs export 3f2a --out losses.csv"],
    run: |args| COMMAND.dispatch(args, Some(&LIST)),
    ..Command::EMPTY
};

const EXITS: &[(u8, &str)] = &[(0, "done"), (1, "no run or GPU matches, or it cannot be done now")];
/// What an ID is, for every help.
const ID: &str = "  ID    Run ID, unique ID prefix, or unique name";

const LIST: Command = Command {
    name: "runs list",
    summary: "List recorded runs, the newest first",
    about: "Lists recorded runs, the newest first.",
    usage: &["headroom runs list [--status STATUS] [--since TIME] [--limit N] [--json]"],
    options: || shown(LIST_FLAGS),
    exits: &[(0, "the runs are listed; there may be none")],
    examples: &["headroom runs list --status failed --status lost", "headroom runs list --limit 5 --json"],
    run: |args| run(&LIST, LIST_FLAGS, None, args, list),
    ..Command::EMPTY
};

const SHOW: Command = Command {
    name: "runs show",
    summary: "Show one run",
    about: "Shows one run: command, losses, speed, memory, energy and how it ended.",
    usage: &["headroom runs show ID [--json]"],
    arguments: ID,
    options: || shown(SHOW_FLAGS),
    words: Words::Name,
    exits: EXITS,
    examples: &["headroom runs show 3f2a"],
    run: |args| run(&SHOW, SHOW_FLAGS, Some("ID"), args, show),
    ..Command::EMPTY
};

const DELETE: Command = Command {
    name: "runs delete",
    summary: "Delete a run that has ended",
    about: "\
Deletes a run that has ended: its record, and the folder of a run that the agent started.",
    usage: &["headroom runs delete ID"],
    arguments: ID,
    options: || shown(PLAIN_FLAGS),
    words: Words::Name,
    exits: EXITS,
    examples: &["headroom runs delete 3f2a"],
    run: |args| run(&DELETE, PLAIN_FLAGS, Some("ID"), args, delete),
    ..Command::EMPTY
};

const BACKUP: Command = Command {
    name: "runs backup",
    summary: "Copy the history database",
    about: "Copies the history database: a consistent snapshot, while other programs write to it.",
    usage: &["headroom runs backup FILE"],
    arguments: "  FILE  A new file",
    options: || shown(PLAIN_FLAGS),
    words: Words::Files,
    exits: &[(0, "the copy is complete"), (1, "there is no history, or the file exists")],
    examples: &["headroom runs backup history-backup.sqlite"],
    run: |args| run(&BACKUP, PLAIN_FLAGS, Some("FILE"), args, backup),
    ..Command::EMPTY
};

/// Reads the words of a subcommand and runs it; `needs` is the word that it cannot do without.
fn run(
    command: &Command,
    flags: &[Flag<Request>],
    needs: Option<&'static str>,
    args: Vec<OsString>,
    act: fn(&Request) -> Result<Exit, super::Error>,
) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    let take = |request: &mut Request, word| match word {
        Word::Plain(word) if request.word.is_none() && command.words != Words::None => {
            request.word = Some(word);
            Ok(())
        }
        other => Err(refusal(command.name, flags, other)),
    };
    if parse(command.name, flags, args, &mut request, take)? == Parsed::Help {
        return command.print_help();
    }
    if let (Some(what), None) = (needs, &request.word) {
        return Err(UsageError::Missing { command: command.name, what }.into());
    }
    act(&request)
}

/// The run that the words name.
fn found(archive: &Archive, request: &Request) -> Result<Run, Error> {
    let id = request.word.as_ref().map(|word| word.to_string_lossy()).unwrap_or_default();
    // What is no text is no run's number either.
    Ok(archive.find(&id)?)
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Listed {
    schema: u32,
    runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
struct Shown {
    schema: u32,
    run: Run,
}

fn json(document: &impl Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

fn list(request: &Request) -> Result<Exit, super::Error> {
    let mut runs = request.archive()?.runs(RUNS_MAX).map_err(Error::from)?;
    let has_any = !runs.is_empty();
    runs.retain(|run| {
        let has_status = request.statuses.is_empty() || request.statuses.contains(&Standing::of(run.status));
        has_status && request.from_ms.is_none_or(|from_ms| run.started_ms >= from_ms)
    });
    runs.truncate(request.limit.unwrap_or(RUNS_MAX));
    if request.json {
        print::data(&json(&Listed { schema: SCHEMA, runs })?)?;
    } else if runs.is_empty() {
        print::note(if has_any { "No run matches.\n" } else { "No run was kept yet.\n" });
    } else {
        print::data(&table::table(&runs, now_ms(), &Style::of_stdout()))?;
    }
    Ok(Exit::Success)
}

fn show(request: &Request) -> Result<Exit, super::Error> {
    let archive = request.archive()?;
    let run = found(&archive, request)?;
    let text = if request.json {
        json(&Shown { schema: SCHEMA, run })?
    } else {
        let settings = archive.settings().map_err(Error::from)?;
        table::sheet(&run, &settings, now_ms(), &Style::of_stdout())
    };
    print::data(&text)?;
    Ok(Exit::Success)
}

fn delete(request: &Request) -> Result<Exit, super::Error> {
    let archive = request.archive()?;
    let run = found(&archive, request)?;
    archive.delete_run(&run.id, now_ms()).map_err(Error::from)?;
    // History has it no more, whatever is left beside it.
    let data = folders::named(request.data_dir.as_deref()).map_err(Error::from)?;
    if let Err(error) = foreman::deleted(&data, &run) {
        print::error(&format!("headroom: {error}\n"));
    }
    print::note(&format!("run {} ({}) is deleted\n", run.id, table::printable(&run.name)));
    Ok(Exit::Success)
}

fn backup(request: &Request) -> Result<Exit, super::Error> {
    let file = Path::new(request.word.as_deref().unwrap_or_default());
    let bytes = request.archive()?.backup(file).map_err(Error::from)?;
    print::data(&format!("{}\n", file.display()))?;
    print::note(&format!("{}\n", headroom_shared::units::human_size(bytes)));
    Ok(Exit::Success)
}
