//! `headroom watch`: somebody's own training as a child, its output untouched, and what is read of it kept.

mod owned;
mod said;

use std::{ffi::OsString, io, sync::Arc, time::Duration};

use headroom_shared::{hardware, protocol::event::What};
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InDataFolder, Parsed, UsageError, Word, parse, refusal, shown},
    command::{Command, Words},
    plan::{self, options::Given},
    print,
};
use crate::{
    folders,
    platform::{Attendant, Ending, end_by_signal},
    store::{Recorder, printed::Figures},
    watch::{self, Record, Task, Watched, pattern::Pattern, remedy::remedy},
};

/// Minutes without progress after which a run stalls, unless told otherwise: longer than an evaluation or a compilation
/// of nanoGPT's takes.
const STALL_MINUTES: u64 = 10;
/// More than a year is a typing error.
const STALL_MINUTES_MAX: u64 = 600_000;
/// Starts in all, the first included: each has another change, and a fourth would only try the same card again.
const STARTS_MAX: usize = 4;

/// What a shell's caller gets of a program that is not there,
const NOT_FOUND: u8 = 127;
/// and of one that cannot be run.
const NOT_RUN: u8 = 126;
/// Added to a signal's number where the program cannot end by it.
const BY_SIGNAL: i32 = 128;

/// Why nothing was run.
#[derive(Debug, Error)]
pub enum Error {
    /// The command cannot be started.
    #[error("cannot run {command}: {error}")]
    Start {
        /// Its first word.
        command: String,
        /// What the system says.
        error: io::Error,
    },
}

impl Error {
    /// As a shell would exit.
    pub fn exit(&self) -> Exit {
        let Self::Start { error, .. } = self;
        match error.kind() {
            io::ErrorKind::NotFound => Exit::Of(NOT_FOUND),
            io::ErrorKind::PermissionDenied => Exit::Of(NOT_RUN),
            // As a shell has it for every other reason.
            _ => Exit::Of(NOT_RUN),
        }
    }

    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        let Self::Start { command, error } = self;
        match error.kind() {
            io::ErrorKind::NotFound if command.contains(' ') => {
                Some("the command's words stand apart, without quotes around all of them".to_owned())
            }
            io::ErrorKind::NotFound => Some("behind `--` stands what is typed without headroom".to_owned()),
            io::ErrorKind::PermissionDenied if command.ends_with(".py") => Some(format!("python {command}")),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Request {
    name: Option<String>,
    given: Vec<Given>,
    gpu: Option<String>,
    pattern: Option<Pattern>,
    stall_minutes: u64,
    retry: bool,
    folder: Option<std::path::PathBuf>,
    /// It is a run of the agent's.
    run_id: Option<String>,
}

impl InDataFolder for Request {
    fn set_data_folder(&mut self, folder: std::path::PathBuf) {
        self.folder = Some(folder);
    }
}

const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "name",
        value: Some("NAME"),
        doc: "What to call the run [default: its config's or script's name]",
        set: |request, name| {
            request.name = Some(name.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "config",
        value: Some("CONFIG.py"),
        doc: "The run's config, where it prints none; may come several times",
        set: |request, path| {
            request.given.push(Given::Config(path.into()));
            Ok(())
        },
    },
    Flag {
        name: "gpu",
        value: Some("NAME"),
        doc: "The card to plan for [default: the one it is seen on]",
        set: |request, name| {
            hardware::find(name).map_err(|error| error.to_string())?;
            request.gpu = Some(name.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "retry-with-fix",
        value: None,
        doc: "When it ends for want of memory, start it again with the\nbest change that leaves the training as it is",
        set: |request, _| {
            request.retry = true;
            Ok(())
        },
    },
    Flag {
        name: "pattern",
        value: Some("REGEX"),
        doc: "How another trainer prints: a regular expression with the\ngroups (?<iter>…) (?<loss>…) (?<val_loss>…) (?<time_ms>…)\n(?<tokens_per_second>…), or some of them",
        set: |request, text| {
            request.pattern = Some(Pattern::new(text).map_err(|error| error.to_string())?);
            Ok(())
        },
    },
    Flag {
        name: "stall-minutes",
        value: Some("N"),
        doc: "Minutes without progress after which it stalls; 0 is never\n[default: 10]",
        set: |request, minutes| {
            let minutes = minutes.parse().ok().filter(|minutes| *minutes <= STALL_MINUTES_MAX);
            request.stall_minutes = minutes.ok_or_else(|| format!("it is minutes, 0 to {STALL_MINUTES_MAX}"))?;
            Ok(())
        },
    },
    Flag::DATA_DIR,
    // For the agent alone, and in no help: the run is in its queue.
    Flag {
        name: "run-id",
        value: Some("ID"),
        doc: "",
        set: |request, id| {
            request.run_id = Some(id.to_owned());
            Ok(())
        },
    },
];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "watch",
    summary: "Run a training command and record it",
    about: "\
Runs a training command and records its losses, speed, memory and energy for the page.",
    usage: &["headroom watch [OPTIONS] -- COMMAND…"],
    options: || shown(FLAGS),
    words: Words::Program,
    notes: "\
What nanoGPT's train.py prints is read: its configuration, parameters, losses, speed and
checkpoints. `headroom serve` shows it, live or later; it need not run meanwhile.

The command runs as it would alone: input, signals and exit status are its own, and its
output passes byte for byte. Where that goes to a terminal the command gets a terminal
too, so that lines, colours and progress bars stay; to a pipe or a file it writes as to
any pipe, and Python keeps several KB back unless it is `python -u` (PYTHONUNBUFFERED is
not set for you). On Windows it always writes to a pipe.

Every printed iteration is kept, up to 10,000,000 lines of a run; a chart gets the extremes of
what comes in a quarter of a second. If watch itself is killed (-9), the command runs on and its
output still passes; the run is then called lost, except on Windows, where the command's next
output fails. Programs that the command leaves running are read until they close its output, are
silent for 10 s, or Ctrl-C.

The exit status is the command's own; these are watch's:",
    exits: &[(126, "the command cannot be run"), (127, "the command is not found")],
    examples: &[
        "headroom watch -- python train.py config/train_shakespeare_char.py",
        "headroom watch --retry-with-fix -- torchrun --nproc_per_node=2 train.py --batch_size=64",
        r"headroom watch --pattern 'step +(?<iter>\d+).* loss (?<loss>\S+).* (?<time_ms>\S+) ms' -- ./train_gpt2cu",
    ],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The words cannot be used, or the command cannot be started.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut options: Vec<OsString> = args.into_iter().collect();
    let command = options.iter().position(|word| word == "--").map(|at| {
        let command = options.split_off(at).into_iter().skip(1);
        command.collect::<Vec<OsString>>()
    });
    let mut request = Request {
        name: None,
        given: vec![],
        gpu: None,
        pattern: None,
        stall_minutes: STALL_MINUTES,
        retry: false,
        folder: None,
        run_id: None,
    };
    if parse(COMMAND.name, FLAGS, options, &mut request, refuse)? == Parsed::Help {
        return COMMAND.print_help();
    }
    let command = command.filter(|command| !command.is_empty());
    let command = command.ok_or(UsageError::Missing { command: "watch", what: "a command behind `--`" })?;
    match request.run_id.take() {
        Some(id) => owned::watch_it(&id, request, command),
        None => watch_it(request, command),
    }
}

fn refuse(_: &mut Request, word: Word) -> Result<(), UsageError> {
    Err(match word {
        Word::Plain(_) => UsageError::Missing { command: "watch", what: "`--` before the command" },
        other => refusal(COMMAND.name, FLAGS, other),
    })
}

fn watch_it(request: Request, command: Vec<OsString>) -> Result<Exit, super::Error> {
    let given = plan::sources(&request.given)?;
    let program = command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let cannot = |error| Error::Start { command: program.clone(), error };
    let folder = folders::data(request.folder.as_deref());
    let mut record = record(&folder);
    let stall = (request.stall_minutes > 0).then(|| Duration::from_secs(request.stall_minutes * 60));
    let mut task = Task {
        name: request.name,
        command,
        variables: vec![],
        given,
        gpu: request.gpu,
        pattern: request.pattern,
        stall,
        folder: folder.ok(),
        owned: None,
    };
    let mut attendant = Attendant::new().map_err(cannot)?;
    let mut id = watch::new_id();
    for start in 1.. {
        let watched = watch::run(id, &task, &mut attendant, record, print::note).map_err(cannot)?;
        let ended = watched.ended.as_ref();
        let remedy = ended.and_then(|ended| remedy(ended, &task.command, &task.variables, watched.asked_to_end));
        let next = remedy.as_ref().and_then(|remedy| remedy.retry.as_ref().ok());
        let next = next.filter(|_| request.retry && start < STARTS_MAX).cloned();
        if let Some(remedy) = &remedy {
            print::error(&said::remedy(remedy, request.retry, next.is_some()));
            if let Some(record) = &watched.record {
                record.append(&watched.id, What::RunDiagnosed { diagnosis: said::diagnosis(remedy) });
            }
        }
        let (Some(next), true) = (next, watched.record.is_some()) else { return Ok(end(watched)) };
        let next_id = watch::new_id();
        if let Some(record) = &watched.record {
            let (next, changes) = (next_id.clone(), next.changes);
            record.append(&watched.id, What::RunRetried { next, changes });
        }
        (id, record) = (next_id, watched.record.unwrap_or_else(|| Box::new(Nowhere)));
        (task.command, task.variables) = (next.command, next.variables);
    }
    Ok(Exit::Failure)
}

/// Where events go: history, or nowhere where that cannot be had, which is said.
fn record(folder: &Result<std::path::PathBuf, folders::Error>) -> Box<dyn Record> {
    let said = match folder {
        Ok(folder) => match Recorder::open(folder) {
            Ok(recorder) => return Box::new(recorder),
            Err(error) => error.to_string(),
        },
        Err(error) => format!("{error}\n\nhint: {}", error.hint()),
    };
    print::error(&format!("headroom: this run is not kept: {said}\n"));
    Box::new(Nowhere)
}

/// Keeps nothing; the run is read all the same, for what is said when it ends.
struct Nowhere;

impl Record for Nowhere {
    fn append(&self, _: &str, _: What) {}

    fn printed(&self, _: &Arc<str>, _: Figures) {}

    fn finish(self: Box<Self>) -> u64 {
        0
    }
}

/// Ends as the command ended.
fn end(watched: Watched) -> Exit {
    let lost = watched.record.map_or(0, Record::finish);
    if lost > 0 {
        print::error(&format!("headroom: {lost} events of this run could not be kept\n"));
    }
    if let Some(signal) = watched.told_to_end {
        end_by_signal(signal);
    }
    match watched.ending {
        Ending::Exited(code) => Exit::Of(u8::try_from(code & 0xff).unwrap_or(1)),
        Ending::Killed(signal) => {
            end_by_signal(signal);
            Exit::Of(u8::try_from((BY_SIGNAL + signal) & 0xff).unwrap_or(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::pattern::GROUPS;

    #[test]
    fn the_help_names_every_group() {
        let help = COMMAND.help();
        assert!(GROUPS.iter().all(|group| help.contains(&format!("(?<{group}>"))), "{help}");
    }
}
