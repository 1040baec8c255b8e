//! Scheduler thread: starts queued runs when notified, and polls while a run is queued or a watcher is alive.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use headroom_protocol::{message::Message, run::Run};

use super::{RunManager, RunManagerState, SchedulerWaker, run_dir};
use headroom_agent_core::{
    clock::now_ms,
    logging::{LastError, RUNS},
    store,
};

/// Polling interval while a run is queued. A freed device sends a notification too, unless its process was killed.
const LOOK: Duration = Duration::from_millis(500);
/// Polling interval otherwise: a notification may be lost while the history is unreadable.
const IDLE: Duration = Duration::from_secs(30);
/// Delay before another attempt to start a run.
const AGAIN: Duration = Duration::from_secs(2);
/// Limit of attempts, after which the run has ended.
const TRIES_MAX: u32 = 5;
/// Limit of a recorded watcher message, in characters.
const SAID_CHARS_MAX: usize = 1000;
/// Exit status of a run that could not be started.
const NOT_STARTED: i32 = 1;

/// Handle to the thread, which ends on drop. Started runs continue.
#[derive(Debug)]
pub struct Scheduler {
    stop: Arc<AtomicBool>,
    waker: SchedulerWaker,
    handle: Option<JoinHandle<()>>,
}

impl Scheduler {
    /// Starts the scheduler of a run manager.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(run_manager: &RunManager, rung: Receiver<()>) -> io::Result<Self> {
        let inner = Arc::clone(&run_manager.0);
        let (stop, waker) = (Arc::new(AtomicBool::new(false)), inner.waker.clone());
        let stopped = Arc::clone(&stop);
        let mut state = SchedulerState {
            inner,
            tried: BTreeMap::new(),
            last_error: LastError::default(),
            last_lack: LastError::default(),
        };
        let handle = thread::Builder::new().name("runs".to_owned()).spawn(move || {
            let mut wait = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                match rung.recv_timeout(wait) {
                    Ok(()) | Err(RecvTimeoutError::Timeout) if !stopped.load(Ordering::Relaxed) => {}
                    _ => return,
                }
                wait = if state.turn(Instant::now()) { LOOK } else { IDLE };
            }
        })?;
        Ok(Self { stop, waker, handle: Some(handle) })
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.ring();
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

/// State between scheduling turns.
struct SchedulerState {
    inner: Arc<RunManagerState>,
    /// Runs that could not be started: the number of attempts, and the time of the next one.
    tried: BTreeMap<String, (u32, Instant)>,
    /// The last error of reading the queue.
    last_error: LastError,
    /// The last reason why runs wait, other than a busy device.
    last_lack: LastError,
}

impl SchedulerState {
    /// Starts all runs that can start. Returns whether to keep polling.
    fn turn(&mut self, now: Instant) -> bool {
        self.bury();
        let queue = match self.inner.archive.queued() {
            Ok(queue) => queue,
            Err(error) => {
                self.log_new(&error);
                return true;
            }
        };
        self.tried.retain(|id, _| queue.iter().any(|run| run.id == *id));
        if !queue.is_empty() {
            // If the history is unreadable, a later turn retries.
            match self.start(&queue, now) {
                Ok(()) => drop(self.last_error.clear()),
                Err(error) => self.log_new(&error),
            }
        }
        !queue.is_empty() || !self.inner.children().is_empty()
    }

    fn log_new(&mut self, error: &store::Error) {
        if self.last_error.is_new(error) {
            tracing::warn!(target: RUNS, %error, "cannot start queued runs");
        }
    }

    /// Removes watchers that have ended. If one ended without taking its run from the queue, the run is retried.
    fn bury(&self) {
        self.inner.children().retain(|_, child| matches!(child.try_wait(), Ok(None)));
    }

    fn start(&mut self, queue: &[Run], now: Instant) -> Result<(), store::Error> {
        // Without the training directory, runs stay queued until it is configured again.
        let allowed = match self.inner.allowed() {
            Ok(allowed) => allowed,
            Err(error) => {
                if self.last_lack.is_new(&error) {
                    tracing::warn!(target: RUNS, %error, "runs wait in the queue");
                }
                return Ok(());
            }
        };
        // Only the first run of each device is considered, whether it can start or not.
        let mut busy: BTreeSet<String> = self.inner.archive.going_on()?.iter().map(device).collect();
        for run in queue {
            let device = device(run);
            if self.inner.children().contains_key(&run.id) {
                busy.insert(device);
                continue;
            }
            let is_first = busy.insert(device.clone());
            let is_free = if is_first { self.is_free(&device) } else { Ok(false) };
            if let Err(error) = &is_free
                && self.last_lack.is_new(error)
            {
                tracing::warn!(target: RUNS, device, %error, "cannot lock a device: its runs wait in the queue");
            }
            if !is_free.unwrap_or(false) {
                continue;
            }
            let (n_tried, next) = self.tried.get(&run.id).copied().unwrap_or((0, now));
            if n_tried >= TRIES_MAX {
                self.inner.not_started(run)?;
                continue;
            }
            if now < next {
                continue;
            }
            self.tried.insert(run.id.clone(), (n_tried + 1, now + AGAIN));
            match self.inner.start(allowed, run) {
                Ok(child) => {
                    tracing::info!(target: RUNS, run = run.id, device, "a run starts");
                    self.last_lack.clear();
                    self.inner.children().insert(run.id.clone(), child);
                }
                // A failed attempt counts too.
                Err(error) => {
                    tracing::warn!(target: RUNS, run = run.id, %error, "cannot start a run");
                    self.inner.archive.explain(&run.id, error.text().into(), now_ms())?;
                }
            }
        }
        Ok(())
    }

    /// Whether the device lock is free, also of processes unknown to the history.
    ///
    /// # Errors
    /// The lock file cannot be created.
    fn is_free(&self, device: &str) -> io::Result<bool> {
        Ok(run_dir::take(&self.inner.data, device)?.is_some())
    }
}

impl RunManagerState {
    /// Ends a run that cannot be started, with its watcher's message.
    fn not_started(&self, run: &Run) -> Result<(), store::Error> {
        let printed = || {
            let said = run_dir::watcher_log(&self.data, &run.id).and_then(fs::read_to_string).unwrap_or_default();
            Message::plain(said.trim().chars().take(SAID_CHARS_MAX).collect::<String>())
        };
        let message = run_dir::read_reason(&self.data, &run.id).unwrap_or_else(printed);
        // The message may quote the run's command, so it is in the history only.
        tracing::warn!(target: RUNS, run = run.id, "a run was not started; its events have the reason");
        if !message.en.is_empty() {
            self.archive.explain(&run.id, message, now_ms())?;
        }
        self.archive.not_started(&run.id, NOT_STARTED, now_ms())
    }
}

fn device(run: &Run) -> String {
    run.order.as_ref().and_then(|order| order.device.clone()).unwrap_or_default()
}
