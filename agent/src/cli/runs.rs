//! `headroom runs`: what is kept of training runs and cards, with or without an agent beside it.

mod export;
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
    args::{Flag, InDataFolder, Parsed, UsageError, Word, nearest, options_help, parse},
    print, set_aside,
    style::Style,
};
use crate::{
    clock::now_ms,
    folders, foreman,
    store::{self, Archive, BackupError},
};

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
            print::note(&said);
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

const LIST_FLAGS: &[Flag<Request>] = &[JSON, DATA_DIR];
const PLAIN_FLAGS: &[Flag<Request>] = &[DATA_DIR];

/// One of the commands.
struct Verb {
    name: &'static str,
    /// As it is said where something is wrong.
    command: &'static str,
    flags: &'static [Flag<Request>],
    /// The word it takes, where it cannot do without.
    needs: Option<&'static str>,
    run: fn(&Request) -> Result<Exit, super::Error>,
}

const LIST: Verb = Verb { name: "", command: "runs", flags: LIST_FLAGS, needs: None, run: list };
const VERBS: [Verb; 4] = [
    Verb { name: "show", command: "runs show", flags: LIST_FLAGS, needs: Some("ID"), run: show },
    Verb { name: "export", command: "runs export", flags: export::FLAGS, needs: None, run: export::run },
    Verb { name: "delete", command: "runs delete", flags: PLAIN_FLAGS, needs: Some("ID"), run: delete },
    Verb { name: "backup", command: "runs backup", flags: PLAIN_FLAGS, needs: Some("FILE"), run: backup },
];

/// The help of this command.
pub fn help() -> String {
    format!(
        "\
Lists, shows, exports and deletes what is kept of training runs, and copies history.
Works beside a running `headroom serve` and without one.

Usage: headroom runs [--json]
       headroom runs show ID [--json]
       headroom runs export [ID] [--format csv|json] [--out FILE] [--force]
       headroom runs export --gpu CARD [--readings fast|slow] [--from TIME] [--to TIME] [--format csv|json] [--out FILE]
       headroom runs export --readings host [--from TIME] [--to TIME] [--format csv|json] [--out FILE]
       headroom runs delete ID
       headroom runs backup FILE

  ID    A run's number, a beginning of it, or its name, where no other run has that
  FILE  A new file: history as it is at one moment, whole, while others write to it

Options:
{}
Export gives every iteration and evaluation that a run printed, up to 10,000,000 lines, or the
telemetry of a card or of the machine as it is kept: full rate for the newest hour, 10 s for two
days, minutes beyond. A reading that the card did not give is empty, or null.

A run's CSV, here and from the server: printed_at_unix_ms is the time of day when a line was
printed, iteration_time_ms how long the iteration took. A row of the kind left_out stands for
lines_left_out lines or more that were printed there and not kept.

A TIME is 2026-11-22, \"2026-11-22 14:30\", the same with a Z in UTC, or so long ago: 90m, 24h, 30d.

Exit status: 0 done, 1 not done, 2 the command line cannot be used.

Examples:
  headroom runs export 3f2a --out losses.csv
  headroom runs export --gpu 0 --from 24h --format json
",
        options_help(export::HELP)
    )
}

/// Runs the command.
///
/// # Errors
/// The words cannot be used, there is no such run, or history cannot be read or written.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut args = args.into_iter().peekable();
    let named = |word: &OsString| VERBS.iter().find(|verb| *word == *verb.name);
    let verb = args.peek().and_then(named);
    if verb.is_some() {
        args.next();
    }
    let verb = verb.unwrap_or(&LIST);
    let mut request = Request::default();
    let take = |request: &mut Request, word| take_word(verb, request, word);
    if parse(verb.command, verb.flags, args, &mut request, take)? == Parsed::Help {
        print::data(&help())?;
        return Ok(Exit::Success);
    }
    if let (Some(what), None) = (verb.needs, &request.word) {
        return Err(UsageError::Missing { command: verb.command, what }.into());
    }
    (verb.run)(&request)
}

fn take_word(verb: &Verb, request: &mut Request, word: Word) -> Result<(), UsageError> {
    match word {
        Word::Plain(word) if request.word.is_none() && !verb.name.is_empty() => {
            request.word = Some(word);
            Ok(())
        }
        Word::Plain(word) => {
            Err(UsageError::UnexpectedWord { command: verb.command, word: word.to_string_lossy().into_owned() })
        }
        Word::Other(option) => {
            Err(UsageError::UnknownOption { command: verb.command, near: nearest(verb.flags, &option), option })
        }
    }
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
    let runs = request.archive()?.runs(RUNS_MAX).map_err(Error::from)?;
    if request.json {
        print::data(&json(&Listed { schema: SCHEMA, runs })?)?;
    } else if runs.is_empty() {
        print::note("No run was kept yet.\n");
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
        print::note(&format!("headroom: {error}\n"));
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
