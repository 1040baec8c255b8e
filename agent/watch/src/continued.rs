//! Continuation of a run whose watcher is gone. Another process reads the rest of its output from the [`spool`],
//! continues its history, and records its end.
//!
//! The output is read from its beginning, so that the journal knows the config. Events that the history already
//! contains are skipped. Nothing is recorded before the noted position. After it, as many lines of figures are skipped
//! as the history contains.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use headroom_protocol::{
    event::EventKind,
    run::{Run, RunStatus},
};

use super::{
    TICK,
    gpus::RunGpus,
    journal::{Journal, Record, Settings},
    ledger::Ledger,
    pattern::Pattern,
    prediction::{Config, PlannedGpu},
    run_folder::{Description, OrphanedRun, Position, RunFolder, orphans},
    sample_gpus,
    spool::{Reader, SpoolRead},
    tee::{Stream, StreamCopy},
};
use headroom_agent_core::{
    clock::now_ms,
    folders,
    logging::{LastError, RUNS},
    platform::{self, Process},
    store::{self, Archive, Mark, Recorder, printed::Figures},
};

/// Hidden option of `headroom watch` that continues a run.
pub const OPTION: &str = "continue";
/// Interval at which an agent looks for such runs.
const LOOK: Duration = Duration::from_secs(1);
/// Limit of attempts for one run.
const TRIES_MAX: u32 = 5;
/// Time limit for a continuing process to lock its run.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

/// Continues all runs of a data directory without watchers. Runs with complete output are continued in this process,
/// the others each in a process of its own. The next caller retries failures.
pub fn all(data: &Path) {
    let mut started = vec![];
    for orphan in orphans(data) {
        if !orphan.is_open {
            let _ = run(data, &orphan.id, || false);
        } else if start(data, &orphan.id).is_ok() {
            started.push(orphan.id);
        }
    }
    let mut waited = Duration::ZERO;
    let is_lost = |id: &String| Archive::new(data).run(id).is_ok_and(|run| run.status == RunStatus::Lost);
    while waited < TAKEN_WITHIN && started.iter().any(is_lost) {
        thread::sleep(TICK);
        waited += TICK;
    }
}

/// Starts a process for each run of a data directory without a watcher, and does not wait.
pub fn start_all(data: &Path) {
    for orphan in orphans(data) {
        // The next caller retries.
        let _ = start(data, &orphan.id);
    }
}

/// Thread that looks for runs without watchers and starts processes that continue them. Ends on drop.
#[derive(Debug)]
pub struct OrphanSearch {
    stop: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl OrphanSearch {
    /// Starts the thread for a data directory.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new(data: &Path) -> io::Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let data = data.to_owned();
        let look = move || {
            let mut children: BTreeMap<String, (u32, Child)> = BTreeMap::new();
            let mut last_error = LastError::default();
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                for OrphanedRun { id, .. } in orphans(&data) {
                    let n_tried = children.get(&id).map_or(0, |(n_tried, _)| *n_tried);
                    let is_at_work = |(_, child): &mut (u32, Child)| matches!(child.try_wait(), Ok(None));
                    if n_tried >= TRIES_MAX || children.get_mut(&id).is_some_and(is_at_work) {
                        continue;
                    }
                    match start(&data, &id) {
                        Ok(child) => {
                            tracing::info!(target: RUNS, run = id, "a process continues to watch a run");
                            children.insert(id, (n_tried + 1, child));
                        }
                        Err(error) if last_error.is_new(&error) => {
                            tracing::warn!(target: RUNS, run = id, %error, "cannot continue to watch a run");
                        }
                        Err(_) => {}
                    }
                }
                // Runs that ended have no directory any more.
                children.retain(|id, (_, child)| {
                    matches!(child.try_wait(), Ok(None)) || folders::watched(&data, id).exists()
                });
            }
        };
        let thread = thread::Builder::new().name("continued".to_owned()).spawn(look)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for OrphanSearch {
    fn drop(&mut self) {
        let _ = self.stop.try_send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts a process that continues a run and outlives this one.
///
/// # Errors
/// The process cannot be started.
pub fn start(data: &Path, id: &str) -> io::Result<Child> {
    let mut command = Command::new(super::relay::this_program()?);
    command.args(["watch", "--data-dir"]).arg(data).arg(format!("--{OPTION}")).arg(id);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    platform::apart(&mut command);
    command.spawn()
}

/// Continues a run to its end. `is_stop_requested` returns whether to ask the command to end.
///
/// # Errors
/// Another process watches the run, or the history cannot be read or written. A later process can then continue the
/// run.
pub fn run(data: &Path, id: &str, is_stop_requested: impl FnMut() -> bool) -> io::Result<()> {
    let folder = RunFolder::take(data, id)?;
    let Some(description) = folder.description() else { return Ok(()) };
    let archive = Archive::new(data);
    let kept = match archive.run(id) {
        Ok(run) => Some(run),
        Err(store::Error::NoRun(_)) => None,
        Err(error) => return Err(io::Error::other(error)),
    };
    match kept.as_ref().map(|run| run.status) {
        // The run is queued, and its next watcher continues it.
        Some(RunStatus::Queued) => return Ok(()),
        // The watcher was killed after it had recorded the end.
        Some(status) if status.has_ended() && status != RunStatus::Lost => {
            folder.remove();
            return Ok(());
        }
        _ => {}
    }
    let n_lines = archive.n_printed(id).map_err(io::Error::other)?;
    let run = kept.unwrap_or_else(|| description.run.clone());
    let run = Run { status: RunStatus::Running, ended_ms: None, ..run };
    let recorder = Recorder::go_on(data, Some(run))?;
    ContinuedRun::new(data, folder, description, recorder, n_lines).run(is_stop_requested)
}

/// State of the filter for events that the history already contains.
#[derive(Debug)]
struct Filter {
    is_muted: bool,
    /// Lines of figures in the history that are still to be skipped.
    n_skipped: u64,
    /// Lines of figures since the position, including those in the history.
    n_lines: u64,
}

/// Record that stores new events, with the time at which they were printed.
struct Filtered {
    recorder: Recorder,
    time_ms: Arc<AtomicU64>,
    filter: Arc<Mutex<Filter>>,
}

impl Filtered {
    fn with<T>(&self, act: impl FnOnce(&mut Filter) -> T) -> T {
        act(&mut self.filter.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Record for Filtered {
    fn append(&self, run: &str, what: EventKind) {
        if self.with(|filter| !filter.is_muted && filter.n_skipped == 0) {
            self.recorder.append(self.time_ms.load(Ordering::Relaxed), run, what);
        }
    }

    fn printed(&self, run: &Arc<str>, figures: Figures) {
        let is_new = self.with(|filter| {
            let is_line = !matches!(figures, Figures::LeftOut(_));
            let is_known = filter.n_skipped > 0;
            if filter.is_muted {
                return false;
            }
            filter.n_lines += u64::from(is_line);
            filter.n_skipped -= u64::from(is_line && is_known);
            !is_known
        });
        if is_new {
            self.recorder.printed(self.time_ms.load(Ordering::Relaxed), run, figures);
        }
    }

    fn mark(&self) -> Mark {
        Mark { figures: self.with(|filter| filter.n_lines), ..self.recorder.mark() }
    }

    fn has_kept(&self, mark: &Mark) -> bool {
        self.recorder.has_kept(mark)
    }

    fn finish(self: Box<Self>) -> u64 {
        self.recorder.finish()
    }
}

/// A run that this process continues.
struct ContinuedRun {
    folder: RunFolder,
    journal: Journal,
    ledger: Ledger,
    position: Position,
    ends: [u64; 2],
    filter: Arc<Mutex<Filter>>,
    time_ms: Arc<AtomicU64>,
    started_ms: u64,
    process: Option<Process>,
    _sampler: Option<headroom_agent_core::telemetry::Sampler>,
}

impl ContinuedRun {
    fn new(data: &Path, folder: RunFolder, description: Description, recorder: Recorder, n_lines: u64) -> Self {
        let Description { run, process, given, gpu, pattern, stall_seconds, visible, out } = description;
        let command: Vec<_> = run.command.iter().map(Into::into).collect();
        let given: Vec<_> = given.into_iter().map(Into::into).collect();
        let settings = Settings {
            id: Arc::from(&*run.id),
            given: (!given.is_empty()).then(|| Config::given(&command, given)),
            command,
            gpu: gpu.map(PlannedGpu::Named),
            visible,
            out,
            status_file: Some(folder.status()),
            pattern: pattern.and_then(|pattern| Pattern::new(&pattern).ok()),
            stall: stall_seconds.map(Duration::from_secs),
            started_ms: run.started_ms,
            energy_joules_before: folder.end().and_then(|end| end.energy_joules),
        };
        let position = folder.position();
        let n_skipped = n_lines.saturating_sub(position.lines);
        let filter = Arc::new(Mutex::new(Filter { is_muted: true, n_skipped, n_lines: 0 }));
        let time_ms = Arc::new(AtomicU64::new(run.started_ms));
        let record = Filtered { recorder, time_ms: Arc::clone(&time_ms), filter: Arc::clone(&filter) };
        let gpus = Arc::new(Mutex::new(RunGpus::default()));
        let sampler = run.pid.and_then(|pid| sample_gpus(data, pid, &gpus));
        Self {
            journal: Journal::new(settings, Box::new(record), gpus),
            ledger: Ledger::new(position, position.lines),
            position,
            ends: [0; 2],
            filter,
            time_ms,
            started_ms: run.started_ms,
            process: process.and_then(|process| process.parse().ok()),
            _sampler: sampler,
            folder,
        }
    }

    fn run(mut self, mut is_stop_requested: impl FnMut() -> bool) -> io::Result<()> {
        let mut readers = [Stream::Out, Stream::Err].map(|stream| Reader::new(self.folder.path(), stream));
        let (mut next, mut is_reported) = ([const { None }; 2], false);
        loop {
            for (next, reader) in next.iter_mut().zip(&mut readers) {
                if !matches!(next, Some(SpoolRead::Output(..))) {
                    *next = Some(reader.next());
                }
            }
            if let (Some(process), true) = (&self.process, is_stop_requested()) {
                process.terminate();
            }
            let time = |next: &Option<SpoolRead>| match next {
                Some(SpoolRead::Output(time_ms, _)) => Some(*time_ms),
                _ => None,
            };
            let earliest = (0..2).filter(|i| time(&next[*i]).is_some()).min_by_key(|i| time(&next[*i]));
            if let Some(i) = earliest
                && let Some(SpoolRead::Output(time_ms, copied)) = next[i].take()
            {
                self.output(if i == 0 { Stream::Out } else { Stream::Err }, time_ms, copied);
            } else if next.iter().all(|next| *next == Some(SpoolRead::End)) {
                break;
            } else {
                self.tick(now_ms());
                if !std::mem::replace(&mut is_reported, true) {
                    // Records the process that watches the run now.
                    self.journal.runs_on();
                }
                thread::sleep(TICK);
            }
        }
        let ended_ms = readers.iter().map(|reader| reader.time_ms).max().filter(|time_ms| *time_ms > 0);
        let now = self.at(ended_ms.unwrap_or_else(now_ms));
        self.mute(false);
        let Self { folder, journal, .. } = self;
        let record = match folder.end() {
            Some(end) => journal.end(end.ending(), now).1,
            None => journal.end_unseen(now),
        };
        if record.finish() == 0 {
            folder.remove();
        }
        Ok(())
    }

    /// Parses output. The part before the position only restores the journal's state.
    fn output(&mut self, stream: Stream, time_ms: u64, mut copied: StreamCopy) {
        let (end, known) = (copied.end, self.position.ends[stream as usize]);
        let n_new = end.saturating_sub(known).min(copied.bytes.len() as u64);
        let rest = copied.bytes.split_off(copied.bytes.len() - usize::try_from(n_new).unwrap_or(0));
        let now = self.at(time_ms);
        let is_all_new = copied.bytes.is_empty();
        for (bytes, is_muted, gap) in [(copied.bytes, true, copied.gap), (rest, false, copied.gap && is_all_new)] {
            if !bytes.is_empty() {
                self.mute(is_muted);
                self.journal.bytes(stream, &StreamCopy { gap, bytes, end }, now);
            }
        }
        self.ends[stream as usize] = end;
        self.tick(time_ms);
    }

    fn tick(&mut self, time_ms: u64) {
        let is_known = self.ends.iter().zip(self.position.ends).any(|(end, known)| *end < known);
        self.mute(is_known);
        let now = self.at(time_ms);
        self.journal.tick(now);
        if let Some(record) = self.journal.record_in_step().filter(|_| !is_known) {
            self.ledger.turn(record, &self.folder, self.ends);
        }
    }

    fn mute(&self, is_muted: bool) {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner).is_muted = is_muted;
    }

    /// Sets the time of recorded events. Returns the time since the start of the run.
    fn at(&self, time_ms: u64) -> Duration {
        self.time_ms.store(time_ms, Ordering::Relaxed);
        Duration::from_millis(time_ms.saturating_sub(self.started_ms))
    }
}
