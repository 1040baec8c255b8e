//! A training run that somebody starts by himself, watched: a child process whose output passes through untouched, and
//! what is read from it.
//!
//! Nothing here may change the child's life. Its output waits for nobody but who reads ours; its journal is written on
//! another thread, from a copy that is given up where that does not keep up; telemetry or history that cannot be had are
//! missing, and no reason not to start. If this program is killed, relays still pass the child's output on.

mod cards;
mod child;
mod contradiction;
mod journal;
mod log;
mod passing;
pub mod pattern;
pub mod planned;
pub mod relay;
pub mod remedy;
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

use headroom_shared::{
    nanogpt::Source,
    protocol::{event::What, run::Run},
};

use crate::{
    clock, platform,
    platform::{Attendant, Ending},
    random,
    store::{Recorder, printed::Figures},
    telemetry,
};
use cards::{Cards, descendants};
use journal::{Journal, Settings};
use passing::Mailbox;
use pattern::Pattern;
use planned::{Card, Config};

pub use journal::{Ended, Record};

/// How often time passes for a journal.
const TICK: Duration = Duration::from_millis(100);
/// A driver's error of a card is told within this after the run's end that it brought about.
const FAULT_LATE_MAX: Duration = Duration::from_secs(1);
/// What is said where the command has ended and its output has not.
const STILL_READ: &str = "headroom: the command has ended; programs that it started still hold its output open. \
    It is read until it ends or is silent for 10 s; Ctrl-C ends the wait and leaves them running\n";
/// Bytes of a run's number: nobody makes two alike.
const ID_BYTES: usize = 8;
/// Characters of a name that is made of a command.
const NAME_CHARS_MAX: usize = 60;

/// What to run, and how to watch it.
#[derive(Debug)]
pub struct Task {
    /// As its owner calls it.
    pub name: Option<String>,
    /// Its words.
    pub command: Vec<OsString>,
    /// Variables beside those of this program.
    pub variables: Vec<(String, String)>,
    /// The configuration that its owner named.
    pub given: Vec<Source>,
    /// The card that its owner named.
    pub gpu: Option<String>,
    /// For lines of other trainers than nanoGPT.
    pub pattern: Option<Pattern>,
    /// After so long without progress it stalls; `None` for never.
    pub stall: Option<Duration>,
    /// The data folder, whose disk telemetry looks at.
    pub folder: Option<PathBuf>,
    /// What it is as a run of the agent's.
    pub owned: Option<Owned>,
}

/// A run that the agent starts: history has it already.
#[derive(Clone, Debug)]
pub struct Owned {
    /// Where its output goes.
    pub log: PathBuf,
    /// Where its checkpoint lies.
    pub out: PathBuf,
    /// The card that it trains on, as CUDA's variable would name it.
    pub visible: Option<String>,
}

/// What is left of a run.
pub struct Watched {
    /// Its number.
    pub id: String,
    /// What was read of it; `None` where the system had no thread for that.
    pub ended: Option<Ended>,
    /// How it ended.
    pub ending: Ending,
    /// Somebody asked for the end, by a signal to us or at the terminal.
    pub asked_to_end: bool,
    /// Where its events went; for the next run.
    pub record: Option<Box<dyn Record>>,
    /// A signal that came while the rest of its output passed.
    pub told_to_end: Option<i32>,
}

/// A number for a run that is to be.
pub fn new_id() -> String {
    // Where the system has no chance left, time and process make it.
    random::hex(ID_BYTES).unwrap_or_else(|_| format!("{:x}{:x}", clock::now_ms(), std::process::id()))
}

/// Runs a command to its end, and keeps its journal in a record. `say` takes what a person should know meanwhile.
///
/// # Errors
/// The command cannot be started.
pub fn run(
    id: String,
    task: &Task,
    attendant: &mut Attendant,
    record: Box<dyn Record>,
    say: impl FnOnce(&str),
) -> io::Result<Watched> {
    let mailbox = Mailbox::new();
    let started = Instant::now();
    let started_ms = clock::now_ms();
    let log = task.owned.as_ref().map(|owned| &*owned.log);
    let mut child = child::start(&task.command, &task.variables, log, attendant, &mailbox)?;
    let cards = Arc::new(Mutex::new(Cards::default()));
    record.append(
        &id,
        match task.owned {
            Some(_) => What::RunResumed { pid: Some(child.id()), command: words(task) },
            None => What::RunStarted { run: Box::new(started_run(&id, task, &child, started_ms)) },
        },
    );
    let settings = Settings {
        id: Arc::from(&*id),
        command: task.command.clone(),
        given: given(task),
        card: task.gpu.clone().map(Card::Named),
        visible: match &task.owned {
            Some(owned) => owned.visible.clone(),
            None => env::var("CUDA_VISIBLE_DEVICES").ok(),
        },
        out: task.owned.as_ref().map(|owned| owned.out.clone()),
        pattern: task.pattern.clone(),
        stall: task.stall,
        started_ms,
    };
    let reader = read(Journal::new(settings, record, Arc::clone(&cards)), &mailbox, started);
    if reader.is_none() {
        // Nobody takes the copies.
        mailbox.close();
    }
    let status = {
        // Telemetry ends with the child.
        let _sampler = watch_cards(task, &child, &cards);
        let status = attendant.wait(&mut child)?;
        if platform::ending(status) != Ending::Exited(0) {
            wait_for_fault(&cards);
        }
        status
    };
    let ending = platform::ending(status);
    let mut told_to_end = None;
    let interrupted = || {
        told_to_end = told_to_end.or_else(|| attendant.told_to_end());
        told_to_end.is_some()
    };
    mailbox.rest(interrupted, || say(STILL_READ));
    // Whoever interrupts the wait leaves what a relay still has.
    let is_cut = told_to_end.is_some() && mailbox.is_open();
    mailbox.close();
    let end = |mut journal: Journal| {
        if is_cut {
            journal.lines_left_out();
        }
        journal.end(ending, started.elapsed())
    };
    let left = reader.and_then(|reader| reader.join().ok()).map(end);
    let (ended, record) = left.unzip();
    let asked_to_end = attendant.was_asked_to_end();
    Ok(Watched { id, ended, ending, asked_to_end, record, told_to_end })
}

/// Reads what comes on a thread of its own, until nothing comes any more.
fn read(mut journal: Journal, mailbox: &Arc<Mailbox>, started: Instant) -> Option<JoinHandle<Journal>> {
    let mailbox = Arc::clone(mailbox);
    let reading = move || {
        while let Some([out, err]) = mailbox.take(TICK) {
            let now = started.elapsed();
            journal.bytes(passing::Stream::Out, &out, now);
            journal.bytes(passing::Stream::Err, &err, now);
            journal.tick(now);
        }
        journal
    };
    thread::Builder::new().name("journal".to_owned()).spawn(reading).ok()
}

fn watch_cards(task: &Task, child: &Child, cards: &Arc<Mutex<Cards>>) -> Option<telemetry::Sampler> {
    let disk_folder = task.folder.clone().unwrap_or_else(|| Path::new(".").to_owned());
    let pid = child.id();
    let cards = Arc::clone(cards);
    let options = telemetry::Options { library: None, disk_folder };
    let tell = move |observed| {
        let is_ours = |pids: &_| descendants(pid, pids);
        cards.lock().unwrap_or_else(PoisonError::into_inner).observe(&observed, is_ours);
    };
    telemetry::start(options, tell).ok()
}

/// Waits a moment for what the driver has to say of the cards that a run died on: it may say it after the run's end.
fn wait_for_fault(cards: &Mutex<Cards>) {
    let start = Instant::now();
    let is_awaited = || {
        let cards = cards.lock().unwrap_or_else(PoisonError::into_inner);
        cards.was_seen() && cards.fault(None).is_none()
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

/// What a run is called whose owner does not say: its config's file, else its script's, else its program's.
fn name_of(command: &[OsString]) -> String {
    let stem = |word: &OsString| Path::new(word).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let is_script =
        |word: &&OsString| word.to_string_lossy().ends_with(".py") && !word.to_string_lossy().starts_with('-');
    let script = command.iter().rfind(is_script).or_else(|| command.first());
    let name = script.and_then(stem).unwrap_or_default();
    name.chars().take(NAME_CHARS_MAX).collect()
}

impl Record for Recorder {
    fn append(&self, run: &str, what: What) {
        Self::append(self, run, what);
    }

    fn printed(&self, run: &Arc<str>, figures: Figures) {
        Self::printed(self, run, figures);
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
