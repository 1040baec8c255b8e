//! Watches a training run that the user starts: a child process whose output passes through unchanged and is parsed.
//!
//! Watching must not affect the child. Its output never waits for the parser: the journal runs on another thread, on a
//! copy that is dropped if the journal falls behind. Missing telemetry or history does not prevent the start. If this
//! process is killed, relays continue to forward the child's output.

mod child;
pub mod continued;
mod contradiction;
mod gpus;
mod journal;
mod ledger;
mod log;
pub mod oom_retry;
pub mod pattern;
pub mod prediction;
pub mod relay;
pub mod run_folder;
mod spool;
mod tee;
mod xid;

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::Child,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use headroom_planner::nanogpt::Source;
use headroom_protocol::{event::EventKind, run::Run};

use gpus::{RunGpus, descendants};
use headroom_agent_core::{
    clock,
    platform::{self, CAN_RELAY, ChildSupervisor, Process, ProgramEnding},
    random,
    store::{Archive, Mark, Recorder, printed::Figures},
    telemetry,
};
use headroom_train::status;
use journal::{Journal, Settings};
use ledger::Ledger;
use pattern::Pattern;
use prediction::{Config, PlannedGpu};
use run_folder::{CommandEnd, Description, Position, RunFolder};
use tee::OutputBuffer;

pub use journal::{Record, RunEnd};

/// Interval of a journal's ticks.
const TICK: Duration = Duration::from_millis(100);
/// Maximum delay between a run's end and the driver's report of the error that caused it.
const FAULT_LATE_MAX: Duration = Duration::from_secs(1);
/// Message for a command that has ended while its output is still open.
const STILL_READ: &str = "headroom: the command has ended; programs that it started still hold its output open. \
    This waits until they close it or print nothing for 10 s; Ctrl-C ends the wait and leaves them running\n";
/// Length of a run's ID in bytes. IDs do not collide in practice.
const ID_BYTES: usize = 8;
/// Limit of a name derived from a command, in characters.
const NAME_CHARS_MAX: usize = 60;

/// The command to run and how to watch it.
#[derive(Debug)]
pub struct Task {
    /// Name given by the user.
    pub name: Option<String>,
    /// Words of the command.
    pub command: Vec<OsString>,
    /// Additional environment variables.
    pub variables: Vec<(String, String)>,
    /// Config named by the user.
    pub given: Vec<Source>,
    /// GPU named by the user.
    pub gpu: Option<String>,
    /// Pattern for the output of trainers other than nanoGPT.
    pub pattern: Option<Pattern>,
    /// Time without progress after which the run counts as stalled. `None` for never.
    pub stall: Option<Duration>,
    /// Data directory, whose disk is part of the telemetry.
    pub folder: Option<PathBuf>,
    /// Details of a run that the agent starts.
    pub owned: Option<ManagedRun>,
}

/// A run that the agent starts. The history already contains it.
#[derive(Clone, Debug)]
pub struct ManagedRun {
    /// Log file for the output.
    pub log: PathBuf,
    /// Checkpoint directory.
    pub out: PathBuf,
    /// GPU of the run, as in `CUDA_VISIBLE_DEVICES`.
    pub visible: Option<String>,
}

/// Result of watching a run.
pub struct WatchResult {
    /// ID of the run.
    pub id: String,
    /// What the journal recorded. `None` if no thread could be started.
    pub ended: Option<RunEnd>,
    /// How the command ended.
    pub ending: ProgramEnding,
    /// Whether the user asked for the end, by a signal to this process or at the terminal.
    pub asked_to_end: bool,
    /// Record that received the events, for the next run.
    pub record: Option<Box<dyn Record>>,
    /// Signal that arrived while the remaining output passed.
    pub stop_signal: Option<i32>,
    /// Directory of the run, until the history has received all events.
    pub folder: Option<RunFolder>,
}

/// Creates a random ID for a new run.
pub fn new_id() -> String {
    // Without a random source, the time and the process ID replace it.
    random::hex(ID_BYTES).unwrap_or_else(|_| format!("{:x}{:x}", clock::now_ms(), std::process::id()))
}

/// Runs a command to its end, and keeps its journal in a record. `say` receives messages for the user.
///
/// # Errors
/// The command cannot be started.
pub fn run(
    id: String,
    task: &Task,
    attendant: &mut ChildSupervisor,
    record: Box<dyn Record>,
    say: impl FnOnce(&str),
) -> io::Result<WatchResult> {
    let mailbox = OutputBuffer::new();
    let started = Instant::now();
    let started_ms = clock::now_ms();
    let log = task.owned.as_ref().map(|owned| &*owned.log);
    let folder = task.folder.as_deref().and_then(|data| RunFolder::create(data, &id).ok()).map(Arc::new);
    let lines_before = match (&task.owned, &task.folder) {
        (Some(_), Some(data)) => Archive::new(data).n_printed(&id).unwrap_or(0),
        _ => 0,
    };
    let status_file = folder.as_ref().map(|folder| folder.status());
    let mut command = child::command(&task.command, &task.variables)?;
    if let Some(status_file) = &status_file {
        command.env(status::VARIABLE, status_file);
    }
    let spool = folder.as_ref().map(|folder| folder.path());
    let mut child = match child::start(command, log, spool, attendant, &mailbox) {
        Ok(child) => child,
        Err(error) => {
            if let Some(folder) = folder.and_then(Arc::into_inner) {
                folder.remove();
            }
            return Err(error);
        }
    };
    if let Some(folder) = &folder {
        // Without the description no other watcher can continue.
        let _ = folder.describe(&description(&id, task, &child, started_ms));
    }
    let gpus = Arc::new(Mutex::new(RunGpus::default()));
    record.append(
        &id,
        match task.owned {
            Some(_) => EventKind::RunResumed { pid: Some(child.id()), command: words(task) },
            None => EventKind::RunStarted { run: Box::new(started_run(&id, task, &child, started_ms)) },
        },
    );
    let settings = Settings {
        id: Arc::from(&*id),
        command: task.command.clone(),
        given: given(task),
        gpu: task.gpu.clone().map(PlannedGpu::Named),
        visible: match &task.owned {
            Some(owned) => owned.visible.clone(),
            None => env::var("CUDA_VISIBLE_DEVICES").ok(),
        },
        out: task.owned.as_ref().map(|owned| owned.out.clone()),
        status_file,
        energy_joules_before: None,
        pattern: task.pattern.clone(),
        stall: task.stall,
        started_ms,
    };
    let ledger = folder.clone().map(|folder| (folder, Ledger::new(Position::default(), lines_before)));
    let reader = read(Journal::new(settings, record, Arc::clone(&gpus)), &mailbox, started, ledger);
    if reader.is_none() {
        // There is no reader for the copies.
        mailbox.close();
    }
    let status = {
        // Telemetry ends with the child.
        let disk_folder = task.folder.clone().unwrap_or_else(|| Path::new(".").to_owned());
        let _sampler = sample_gpus(&disk_folder, child.id(), &gpus);
        let status = attendant.wait(&mut child)?;
        if platform::ending(status) != ProgramEnding::Exited(0) {
            wait_for_fault(&gpus);
        }
        status
    };
    let ending = platform::ending(status);
    let mut stop_signal = None;
    let interrupted = || {
        stop_signal = stop_signal.or_else(|| attendant.stop_signal());
        stop_signal.is_some()
    };
    mailbox.rest(interrupted, || say(STILL_READ));
    let is_open = mailbox.is_open();
    mailbox.close();
    let asked_to_end = attendant.was_asked_to_end();
    let journal = reader.and_then(|reader| reader.join().ok());
    // A launcher that succeeded: its run lasts until the processes that it left behind end.
    if is_open && CAN_RELAY && ending == ProgramEnding::Exited(0) && folder.is_some() {
        let energy_joules = journal.as_ref().and_then(Journal::energy_joules);
        let end = CommandEnd { code: 0, energy_joules };
        if let Some(journal) = journal {
            // The spool keeps data that the history does not accept yet.
            journal.hand_over(started.elapsed()).finish();
        }
        let is_kept = folder.as_ref().is_some_and(|folder| folder.keep_end(&end).is_ok());
        // Releases the lock for the continuing watcher.
        drop(folder);
        if let (true, Some(data)) = (is_kept, &task.folder) {
            // Otherwise the next command that looks for such runs continues.
            let _ = continued::start(data, &id);
        }
        return Ok(WatchResult { id, ended: None, ending, asked_to_end, record: None, stop_signal, folder: None });
    }
    // An interrupt during the wait drops the data that a relay still holds.
    let is_cut = stop_signal.is_some() && is_open;
    let end = |mut journal: Journal| {
        if is_cut {
            journal.lines_left_out();
        }
        journal.end(ending, started.elapsed())
    };
    let (ended, record) = journal.map(end).unzip();
    Ok(WatchResult { id, ended, ending, asked_to_end, record, stop_signal, folder: folder.and_then(Arc::into_inner) })
}

/// Closes a mailbox when its reading thread ends, also by a panic, so that writers never block on it.
struct CloseOnDrop(Arc<OutputBuffer>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Spawns a thread that reads the copies until the mailbox closes.
fn read(
    mut journal: Journal,
    mailbox: &Arc<OutputBuffer>,
    started: Instant,
    mut ledger: Option<(Arc<RunFolder>, Ledger)>,
) -> Option<JoinHandle<Journal>> {
    let mailbox = CloseOnDrop(Arc::clone(mailbox));
    let reading = move || {
        let CloseOnDrop(mailbox) = &mailbox;
        while let Some([out, err]) = mailbox.take(TICK) {
            let now = started.elapsed();
            journal.bytes(tee::Stream::Out, &out, now);
            journal.bytes(tee::Stream::Err, &err, now);
            journal.tick(now);
            if let (Some((folder, ledger)), Some(record)) = (&mut ledger, journal.record_in_step()) {
                ledger.turn(record, folder, [out.end, err.end]);
            }
        }
        journal
    };
    thread::Builder::new().name("journal".to_owned()).spawn(reading).ok()
}

/// Samples the GPUs for a process and its descendants.
fn sample_gpus(disk_folder: &Path, pid: u32, gpus: &Arc<Mutex<RunGpus>>) -> Option<telemetry::Sampler> {
    let disk_folder = disk_folder.to_owned();
    let gpus = Arc::clone(gpus);
    let options = telemetry::Options { library: None, disk_folder };
    let tell = move |observed| {
        let is_ours = |pids: &_| descendants(pid, pids);
        gpus.lock().unwrap_or_else(PoisonError::into_inner).observe(&observed, is_ours);
    };
    telemetry::start(options, tell).ok()
}

/// Waits briefly for a driver error of the GPUs on which a run died. The driver may report it after the run's end.
fn wait_for_fault(gpus: &Mutex<RunGpus>) {
    let start = Instant::now();
    let is_awaited = || {
        let gpus = gpus.lock().unwrap_or_else(PoisonError::into_inner);
        gpus.was_seen() && gpus.fault(None).is_none()
    };
    while is_awaited() && start.elapsed() < FAULT_LATE_MAX {
        thread::sleep(TICK);
    }
}

fn given(task: &Task) -> Option<Config> {
    (!task.given.is_empty()).then(|| Config::given(&task.command, task.given.clone()))
}

fn words(task: &Task) -> Vec<String> {
    task.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Description for a watcher that continues.
fn description(id: &str, task: &Task, child: &Child, started_ms: u64) -> Description {
    Description {
        run: started_run(id, task, child, started_ms),
        process: Process::of(child.id()).map(|process| process.to_string()),
        given: task.given.iter().map(Into::into).collect(),
        gpu: task.gpu.clone(),
        pattern: task.pattern.as_ref().map(ToString::to_string),
        stall_seconds: task.stall.map(|stall| stall.as_secs()),
        visible: match &task.owned {
            Some(owned) => owned.visible.clone(),
            None => env::var("CUDA_VISIBLE_DEVICES").ok(),
        },
        out: task.owned.as_ref().map(|owned| owned.out.clone()),
    }
}

fn started_run(id: &str, task: &Task, child: &Child, started_ms: u64) -> Run {
    let given = given(task);
    Run {
        id: id.to_owned(),
        name: task.name.clone().unwrap_or_else(|| name_of(&task.command)),
        started_ms,
        command: words(task),
        max_iters: given.as_ref().and_then(|config| config.max_iters),
        config: given.map(|config| config.text),
        pid: Some(child.id()),
        ..Run::default()
    }
}

/// Default name of a run: the stem of its config file, else of its script, else of its program.
fn name_of(command: &[OsString]) -> String {
    let stem = |word: &OsString| Path::new(word).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let is_script =
        |word: &&OsString| word.to_string_lossy().ends_with(".py") && !word.to_string_lossy().starts_with('-');
    let script = command.iter().rfind(is_script).or_else(|| command.first());
    let name = script.and_then(stem).unwrap_or_default();
    name.chars().take(NAME_CHARS_MAX).collect()
}

impl Record for Recorder {
    fn append(&self, run: &str, what: EventKind) {
        Self::append(self, clock::now_ms(), run, what);
    }

    fn printed(&self, run: &Arc<str>, figures: Figures) {
        Self::printed(self, clock::now_ms(), run, figures);
    }

    fn mark(&self) -> Mark {
        Self::mark(self)
    }

    fn has_kept(&self, mark: &Mark) -> bool {
        Self::has_kept(self, mark)
    }

    fn finish(self: Box<Self>) -> u64 {
        Self::finish(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_called_by_what_it_trains() {
        for (command, name) in [
            ("python train.py config/train_gpt2.py --batch_size=4", "train_gpt2"),
            ("torchrun --nproc_per_node=2 train.py --out_dir=x.py", "train"),
            ("/usr/bin/make all", "make"),
            ("", ""),
        ] {
            let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
            assert_eq!(name_of(&words), name, "{command}");
        }
    }
}
