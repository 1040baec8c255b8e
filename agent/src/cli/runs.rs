//! `headroom runs`: recorded runs and telemetry, with or without a running agent.

mod delete;
mod export;
mod output;
mod standing;
mod table;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use headroom_protocol::{metric::Group, run::Run};
use headroom_text::Text;
use serde::Serialize;
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InDataFolder, InvalidValue, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::{Command, Words},
    print, set_aside,
    style::Style,
};
use headroom_agent_core::{
    clock::now_ms,
    folders,
    store::{self, Archive, BackupError},
};
use headroom_watch::continued;
pub use standing::StatusWord;

/// Version of the JSON schema.
const SCHEMA: u32 = 1;
/// Limit of listed runs.
const RUNS_MAX: usize = 10_000;

/// Hint for a history that cannot be used.
const DAMAGED_HINT: &str = "`headroom serve` renames a damaged file and recovers what it can into a new one";
/// Hint for a history that the system denies.
const DENIED_HINT: &str = "also to read, SQLite writes a log to the folder: run this as the folder's owner, or name a \
                           copy of the folder with --data-dir";

/// Why the command failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The data directory is unavailable.
    #[error(transparent)]
    Folder(#[from] folders::Error),
    /// The named directory does not exist.
    #[error("cannot read the history in the data folder {}: it does not exist", .0.display())]
    NoHistory(PathBuf),
    /// The history cannot be opened.
    #[error("cannot open the history {}: {why}", file.display())]
    Open {
        /// Path of the history file.
        file: PathBuf,
        /// The cause.
        why: Text,
        /// Whether the system denies access.
        is_denied: bool,
    },
    /// The history cannot be used.
    #[error(transparent)]
    History(#[from] store::Error),
    /// The backup failed.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The GPU is unknown.
    #[error("history has no GPU {given:?}; it has {known}")]
    NoGpu {
        /// Name as given.
        given: String,
        /// List of known GPUs, for the message.
        known: String,
    },
    /// The file of `--out` exists.
    #[error("cannot write {}: it exists already", .0.display())]
    Exists(PathBuf),
    /// The output file cannot be written.
    #[error("cannot write {}: {error}", file.display())]
    Write {
        file: PathBuf,
        /// What the system reports.
        error: io::Error,
    },
    /// A value cannot be serialized.
    #[error("cannot write the answer as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Error {
    /// Suggested remedy.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Folder(error) => Some(error.hint()),
            Self::NoHistory(_) => Some(format!(
                "--data-dir and the variable {} name the data folder; `headroom serve` and `headroom watch` create it",
                folders::VARIABLE
            )),
            Self::History(error) | Self::Backup(BackupError::History(error)) => match error {
                store::Error::NoRun(_) => Some("`headroom runs` lists them".to_owned()),
                store::Error::Ambiguous(..) => Some("give one of these numbers".to_owned()),
                store::Error::NotEnded(_) => {
                    Some("end it first; a run whose watcher is gone counts as lost some seconds later".to_owned())
                }
                // These errors do not occur in this command.
                store::Error::NoAlert(_)
                | store::Error::Changed
                | store::Error::HasEnded(_)
                | store::Error::NotOurs(_)
                | store::Error::QueueFull(_) => None,
                store::Error::Unusable(_) => Some(DAMAGED_HINT.to_owned()),
                store::Error::Denied(_) => Some(DENIED_HINT.to_owned()),
            },
            Self::Open { is_denied, .. } => Some(if *is_denied { DENIED_HINT } else { DAMAGED_HINT }.to_owned()),
            Self::Backup(BackupError::Exists(_)) => Some("give another name, or move the file away".to_owned()),
            Self::Exists(_) => Some("--force replaces it".to_owned()),
            Self::NoGpu { .. } => {
                Some("pass the index of one of these GPUs, from 0, or a prefix of its UUID".to_owned())
            }
            Self::Backup(_) | Self::Write { .. } | Self::Json(_) => None,
        }
    }
}

/// Arguments of the subcommands.
#[derive(Debug, Default)]
struct Request {
    data_dir: Option<PathBuf>,
    json: bool,
    /// A run or a file.
    word: Option<OsString>,
    /// Runs, for subcommands that accept several.
    words: Vec<OsString>,
    /// Only runs that ended before this time, in Unix milliseconds.
    older_than_ms: Option<u64>,
    /// Whether to skip the confirmation.
    yes: bool,
    csv: bool,
    out: Option<PathBuf>,
    force: bool,
    gpu: Option<String>,
    group: Option<Group>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    /// Statuses to list. Empty for all.
    statuses: Vec<StatusWord>,
    limit: Option<usize>,
}

impl Request {
    /// Archive of the named data directory. A missing directory is not created, as a query must leave nothing behind.
    fn archive(&self) -> Result<Archive, Error> {
        let folder = folders::named(self.data_dir.as_deref())?;
        let is_missing = match folder.metadata() {
            Ok(metadata) => !metadata.is_dir(),
            Err(error) => error.kind() != io::ErrorKind::PermissionDenied,
        };
        if self.data_dir.is_some() && is_missing {
            return Err(Error::NoHistory(folder));
        }
        continued::all(&folder);
        let archive = Archive::new(&folder);
        archive.check().map_err(|error| match error {
            store::Error::Unusable(why) => Error::Open { file: archive.path(), why, is_denied: false },
            store::Error::Denied(why) => Error::Open { file: archive.path(), why, is_denied: true },
            error => Error::History(error),
        })?;
        // Printed until the damaged file is gone, as it may contain the requested data.
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
    doc: "Only runs with this status: queued, running, stalled, done,\nstopped, failed or lost; repeatable",
    set: |request, word| {
        let status = StatusWord::named(word);
        request.statuses.push(status.ok_or_else(|| InvalidValue::not_one_of(word, &StatusWord::NAMES))?);
        Ok(())
    },
};
const SINCE: Flag<Request> = Flag {
    name: "since",
    value: Some("TIME"),
    doc: "Only runs that started at this time or later: 2026-11-22,\n\"2026-11-22 14:30\", or a duration ago such as 90m, 24h,\n30d",
    set: |request, time| {
        request.from_ms = Some(export::time(time)?);
        Ok(())
    },
};
const LIMIT: Flag<Request> = Flag {
    name: "limit",
    value: Some("N"),
    doc: "Only the newest N runs [default: all]",
    set: |request, n| {
        let limit = n.parse().ok().filter(|n| *n > 0);
        request.limit = Some(limit.ok_or_else(|| format!("{n:?} is not a number of runs, 1 or more"))?);
        Ok(())
    },
};

const OLDER_THAN: Flag<Request> = Flag {
    name: "older-than",
    value: Some("TIME"),
    doc: "Only runs that ended before this time: 30d, 24h,\n2026-11-22",
    set: |request, time| {
        request.older_than_ms = Some(export::time(time)?);
        Ok(())
    },
};
const DELETED_STATUS: Flag<Request> =
    Flag { doc: "Only runs with this status: done, stopped, failed or lost;\nrepeatable", ..STATUS };
const YES: Flag<Request> = Flag {
    name: "yes",
    value: None,
    doc: "Delete several runs without confirmation",
    set: |request, _| {
        request.yes = true;
        Ok(())
    },
};

const DELETE_FLAGS: &[Flag<Request>] = &[DELETED_STATUS, OLDER_THAN, YES, DATA_DIR];
const LIST_FLAGS: &[Flag<Request>] = &[STATUS, SINCE, LIMIT, JSON, DATA_DIR];
const SHOW_FLAGS: &[Flag<Request>] = &[JSON, DATA_DIR];
const PLAIN_FLAGS: &[Flag<Request>] = &[DATA_DIR];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "runs",
    summary: "Manage recorded runs",
    about: "\
Lists, shows, exports and deletes recorded runs, and backs up the history. Without a
subcommand it lists the runs. `headroom serve` may run at the same time.",
    usage: &["headroom runs [OPTIONS]", "headroom runs COMMAND [ARGUMENTS]"],
    subcommands: &[&LIST, &SHOW, &export::COMMAND, &DELETE, &BACKUP],
    options: || shown(LIST_FLAGS),
    exits: EXITS,
    examples: &["headroom runs --status failed --since 24h", "headroom runs export 3f2a --out losses.csv"],
    run: |args| COMMAND.dispatch(args, Some(&LIST)),
    ..Command::EMPTY
};

const EXITS: &[(u8, &str)] = &[(0, "done"), (1, "no run or GPU matches, or it cannot be done now")];
/// Help text on run IDs.
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
    words: Words::Run,
    exits: EXITS,
    examples: &["headroom runs show 3f2a"],
    run: |args| run(&SHOW, SHOW_FLAGS, Some("ID"), args, show),
    ..Command::EMPTY
};

const DELETE: Command = Command {
    name: "runs delete",
    summary: "Delete runs that have ended",
    about: "\
Deletes the records of ended runs, and the folders of runs that the agent started. Several
runs need a confirmation, or --yes.",
    usage: &["headroom runs delete ID…", "headroom runs delete [--status STATUS] [--older-than TIME] [--yes]"],
    arguments: ID,
    options: || shown(DELETE_FLAGS),
    words: Words::Runs,
    exits: &[(0, "the runs are deleted"), (1, "no run matches, one has not ended, or the answer is no")],
    examples: &["headroom runs delete 3f2a", "headroom runs delete --status failed --older-than 30d"],
    run: |args| run(&DELETE, DELETE_FLAGS, None, args, delete::delete),
    ..Command::EMPTY
};

const BACKUP: Command = Command {
    name: "runs backup",
    summary: "Copy the history database",
    about: "\
Copies the history database as a consistent snapshot, also while other programs write to
it. The copy contains unredacted commands and configs; only you can read it.",
    usage: &["headroom runs backup FILE"],
    arguments: "  FILE  A new file",
    options: || shown(PLAIN_FLAGS),
    words: Words::Files,
    exits: &[(0, "the copy is complete"), (1, "there is no history, or the file exists")],
    examples: &["headroom runs backup history-backup.sqlite"],
    run: |args| run(&BACKUP, PLAIN_FLAGS, Some("FILE"), args, backup),
    ..Command::EMPTY
};

/// Parses the arguments of a subcommand and runs it. `needs` is the name of its required argument.
fn run(
    command: &Command,
    flags: &[Flag<Request>],
    needs: Option<&'static str>,
    args: Vec<OsString>,
    act: fn(&Request) -> Result<Exit, super::Error>,
) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    let take = |request: &mut Request, word| match word {
        Word::Plain(word) if command.name == DELETE.name => {
            request.words.push(word);
            Ok(())
        }
        Word::Plain(word) if request.word.is_none() && command.words != Words::None => {
            request.word = Some(word);
            Ok(())
        }
        other => Err(refusal(command.name, flags, other)),
    };
    if parse(command.name, flags, args, &mut request, take)? == ParsedArgs::Help {
        return command.print_help();
    }
    if let (Some(what), None) = (needs, &request.word) {
        return Err(UsageError::Missing { command: command.name, what }.into());
    }
    act(&request)
}

/// Finds the run that the arguments name.
fn found(archive: &Archive, request: &Request) -> Result<Run, Error> {
    let id = request.word.as_ref().map(|word| word.to_string_lossy()).unwrap_or_default();
    // A name that is not UTF-8 matches no run.
    Ok(archive.find(&id)?)
}

/// JSON output of the list.
#[derive(Debug, Serialize)]
struct RunList {
    schema: u32,
    runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
struct RunDetails {
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
        let has_status = request.statuses.is_empty() || request.statuses.contains(&StatusWord::of(run.status));
        has_status && request.from_ms.is_none_or(|from_ms| run.started_ms >= from_ms)
    });
    runs.truncate(request.limit.unwrap_or(RUNS_MAX));
    if request.json {
        print::data(&json(&RunList { schema: SCHEMA, runs })?)?;
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
        json(&RunDetails { schema: SCHEMA, run })?
    } else {
        let settings = archive.settings().map_err(Error::from)?;
        table::sheet(&run, &settings, now_ms(), &Style::of_stdout())
    };
    print::data(&text)?;
    Ok(Exit::Success)
}

fn backup(request: &Request) -> Result<Exit, super::Error> {
    let file = Path::new(request.word.as_deref().unwrap_or_default());
    let bytes = request.archive()?.backup(file).map_err(Error::from)?;
    print::data(&format!("{}\n", file.display()))?;
    print::note(&format!("{}\n", headroom_text::units::human_size(bytes)));
    Ok(Exit::Success)
}
