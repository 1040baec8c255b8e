//! `headroom watch`: runs the user's training command with unchanged output, and records what it prints.

mod managed;
mod oom_report;

use std::{ffi::OsString, io, path::Path, sync::Arc, time::Duration};

use headroom_planner::hardware;
use headroom_protocol::event::EventKind;
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InDataFolder, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::{Command, Words},
    plan::{self, options::NanogptArgument},
    print,
};
use headroom_agent_core::{
    folders,
    platform::{ChildSupervisor, ProgramEnding, end_by_signal, status_of_signal},
    store::{Mark, Recorder, printed::Figures},
};
use headroom_train::files::{self, Disk};
use headroom_watch::{
    self as watch, Record, Task, WatchResult, continued, oom_retry::remedy, pattern::Pattern, run_folder::RunFolder,
};

/// Default time without progress after which a run counts as stalled. It exceeds an evaluation or compilation of
/// nanoGPT.
const STALL_MINUTES: u64 = 10;
/// Limit of the stall time, over a year. Larger values are typing errors.
const STALL_MINUTES_MAX: u64 = 600_000;
/// Limit of starts, with the first included. Each retry applies another change; a fourth would bring nothing new.
const STARTS_MAX: usize = 4;

/// Exit status of a shell for a missing program.
const NOT_FOUND: u8 = 127;
/// Exit status of a shell for a program that cannot be executed.
const NOT_RUN: u8 = 126;

/// Why the command failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The command cannot be started.
    #[error("cannot run {command}: {error}")]
    Start {
        /// First word of the command.
        command: String,
        /// What the system reports.
        error: io::Error,
    },
}

impl Error {
    /// Exit status that a shell would return.
    pub fn exit(&self) -> Exit {
        let Self::Start { error, .. } = self;
        match error.kind() {
            io::ErrorKind::NotFound => Exit::Of(NOT_FOUND),
            io::ErrorKind::PermissionDenied => Exit::Of(NOT_RUN),
            // Shells use this status for all other causes.
            _ => Exit::Of(NOT_RUN),
        }
    }

    /// Suggested remedy.
    pub fn hint(&self) -> Option<String> {
        let Self::Start { command, error } = self;
        match error.kind() {
            io::ErrorKind::NotFound if command.contains(' ') => {
                Some("give the command as separate words, without quotes around all of them".to_owned())
            }
            io::ErrorKind::NotFound => Some("after `--`, write the command as you would without headroom".to_owned()),
            io::ErrorKind::PermissionDenied if command.ends_with(".py") => Some(format!("python {command}")),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Request {
    name: Option<String>,
    given: Vec<NanogptArgument>,
    gpu: Option<String>,
    pattern: Option<Pattern>,
    stall_minutes: u64,
    retry: bool,
    folder: Option<std::path::PathBuf>,
    /// ID of a run that the agent started.
    run_id: Option<String>,
    /// ID of a run to continue, whose watcher is gone.
    continued: Option<String>,
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
        doc: "Name of the run [default: name of its config or script]",
        set: |request, name| {
            request.name = Some(name.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "config",
        value: Some("CONFIG.py"),
        doc: "Config of the run, if the command prints none; repeatable",
        set: |request, path| {
            request.given.push(NanogptArgument::Config(path.into()));
            Ok(())
        },
    },
    Flag {
        name: "gpu",
        value: Some("NAME"),
        doc: "GPU model of the plan [default: the GPU that the run uses]",
        set: |request, name| {
            hardware::find(name).map_err(|error| error.to_string())?;
            request.gpu = Some(name.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "retry-with-fix",
        value: None,
        doc: "After an out-of-memory error, restart with the best fix\nthat does not change the training result",
        set: |request, _| {
            request.retry = true;
            Ok(())
        },
    },
    Flag {
        name: "pattern",
        value: Some("REGEX"),
        doc: "Pattern of another trainer's lines: a regular expression\nwith any of the groups (?<iter>…) (?<loss>…)\n(?<val_loss>…) (?<time_ms>…) (?<tokens_per_second>…)",
        set: |request, text| {
            request.pattern = Some(Pattern::new(text).map_err(|error| error.to_string())?);
            Ok(())
        },
    },
    Flag {
        name: "stall-minutes",
        value: Some("N"),
        doc: "Minutes without progress after which a run counts as\nstalled; 0 for never [default: 10]",
        set: |request, minutes| {
            let minutes = minutes.parse().ok().filter(|minutes| *minutes <= STALL_MINUTES_MAX);
            request.stall_minutes = minutes.ok_or_else(|| format!("it is minutes, 0 to {STALL_MINUTES_MAX}"))?;
            Ok(())
        },
    },
    Flag::DATA_DIR,
    // Hidden option, used by the agent for a run from its queue.
    Flag {
        name: "run-id",
        value: Some("ID"),
        doc: "",
        set: |request, id| {
            request.run_id = Some(id.to_owned());
            Ok(())
        },
    },
    // Hidden option, for internal use too.
    Flag {
        name: continued::OPTION,
        value: Some("ID"),
        doc: "",
        set: |request, id| {
            request.continued = Some(id.to_owned());
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
It parses the output of nanoGPT's train.py: settings, parameters, losses, speed and
checkpoints. `headroom serve` shows them, live or later; it need not run during training.

The command keeps its input, signals and exit status, and its output passes byte for byte.
If the output is a terminal, the command gets a terminal too, with colours and progress
bars. Otherwise it writes to a pipe, and Python buffers several KB unless you use
`python -u` or PYTHONUNBUFFERED. On Windows it always writes to a pipe.

Every printed iteration is stored, up to 10,000,000 lines per run. A chart shows the
extremes of each quarter of a second. If watch itself is killed (SIGKILL), the command
continues and its output still passes. `headroom serve`, or the next `headroom runs` or
`headroom watch`, continues its record; the exit status is then unknown, except for
`headroom train`. On Windows the command's next output fails instead. Programs that a
successful command leaves running keep the run open until they close its output. watch
waits for them until they are silent for 10 s, or Ctrl-C.

The exit status is the command's; watch itself adds:",
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
/// The arguments are invalid, or the command cannot be started.
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
        continued: None,
    };
    if parse(COMMAND.name, FLAGS, options, &mut request, refuse)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    if let Some(id) = request.continued {
        return managed::continue_it(&id, request.folder.as_deref());
    }
    let command = command.filter(|command| !command.is_empty());
    let command = command.ok_or(UsageError::Missing { command: "watch", what: "a command behind `--`" })?;
    match request.run_id.take() {
        Some(id) => managed::watch_it(&id, request, command),
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
    if let Ok(folder) = &folder {
        continued::start_all(folder);
    }
    let (mut record, why_not_kept) = record(&folder);
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
    let mut attendant = ChildSupervisor::new().map_err(cannot)?;
    let mut id = watch::new_id();
    let mut folders = vec![];
    for start in 1.. {
        let mut watched = watch::run(id, &task, &mut attendant, record, print::note).map_err(cannot)?;
        // Kept until the history is complete.
        folders.extend(watched.folder.take());
        let ended = watched.ended.as_ref();
        let remedy = ended.and_then(|ended| remedy(ended, &task.command, &task.variables, watched.asked_to_end));
        let next = remedy.as_ref().and_then(|remedy| remedy.retry.as_ref().ok());
        let next = next.filter(|_| request.retry && start < STARTS_MAX).cloned();
        if let Some(remedy) = &remedy {
            print::error(&oom_report::remedy(remedy, request.retry, next.is_some()));
            if let Some(record) = &watched.record {
                record.append(&watched.id, EventKind::RunDiagnosed { diagnosis: oom_report::diagnosis(remedy) });
            }
        }
        let (Some(next), true) = (next, watched.record.is_some()) else {
            let exit = end(watched, folders);
            if let Some(why) = why_not_kept {
                // The output of the run hides the warning at its start.
                print::error(&format!("headroom: this run was not kept: {why}\n"));
            }
            return Ok(exit);
        };
        let next_id = watch::new_id();
        if let Some(record) = &watched.record {
            let (next, changes) = (next_id.clone(), next.changes);
            record.append(&watched.id, EventKind::RunRetried { next, changes });
        }
        (id, record) = (next_id, watched.record.unwrap_or_else(|| Box::new(Nowhere)));
        (task.command, task.variables) = (next.command, next.variables);
    }
    Ok(Exit::Failure)
}

/// Opens the history for the events. If that fails, prints the cause, discards events and returns the cause.
fn record(folder: &Result<std::path::PathBuf, folders::Error>) -> (Box<dyn Record>, Option<String>) {
    let said = match folder {
        Ok(folder) => {
            match check_writable(folder).and_then(|()| Recorder::open(folder).map_err(|error| error.to_string())) {
                Ok(recorder) => return (Box::new(recorder), None),
                Err(error) => error,
            }
        }
        Err(error) => format!("{error}\n\nhint: {}", error.hint()),
    };
    print::error(&format!("headroom: this run is not kept: {said}\n"));
    (Box::new(Nowhere), Some(said))
}

/// Checks that history can be written to a folder. A full disk may have space later.
fn check_writable(folder: &Path) -> Result<(), String> {
    match files::probe(&Disk::new(folder), "history.sqlite", 1) {
        Err(error) if !files::is_disk_full(&error) => {
            let variable = folders::VARIABLE;
            Err(format!(
                "cannot write to the data folder {}: {error}\n\nhint: --data-dir FOLDER, or the variable {variable}, names \
                 another one",
                folder.display()
            ))
        }
        _ => Ok(()),
    }
}

/// Record that discards everything. The run is still parsed, for the messages at its end.
struct Nowhere;

impl Record for Nowhere {
    fn append(&self, _: &str, _: EventKind) {}

    fn printed(&self, _: &Arc<str>, _: Figures) {}

    fn mark(&self) -> Mark {
        Mark::default()
    }

    fn has_kept(&self, _: &Mark) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> u64 {
        0
    }
}

/// Finishes the history, and exits as the command did.
fn end(watched: WatchResult, folders: Vec<RunFolder>) -> Exit {
    let lost = watched.record.map_or(0, Record::finish);
    if lost == 0 {
        folders.into_iter().for_each(RunFolder::remove);
    } else {
        let events = if lost == 1 { "1 event".to_owned() } else { format!("{lost} events") };
        print::error(&format!("headroom: {events} of this run could not be stored\n"));
    }
    if let Some(signal) = watched.stop_signal {
        end_by_signal(signal);
    }
    match watched.ending {
        ProgramEnding::Exited(code) => Exit::Of(u8::try_from(code & 0xff).unwrap_or(1)),
        ProgramEnding::Killed(signal) => {
            end_by_signal(signal);
            Exit::Of(status_of_signal(signal))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_watch::pattern::GROUPS;

    #[test]
    fn the_help_names_every_group() {
        let help = COMMAND.help();
        assert!(GROUPS.iter().all(|group| help.contains(&format!("(?<{group}>"))), "{help}");
    }
}
