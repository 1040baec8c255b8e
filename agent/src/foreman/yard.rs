//! Starts what waits: a thread that looks when it is rung for, and while something waits or a watcher of ours lives.

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

use headroom_shared::protocol::run::Run;

use super::{Bell, Foreman, Inner, place};
use crate::{clock::now_ms, store};

/// How often it looks while something waits: what frees a device rings too, except where a process is killed.
const LOOK: Duration = Duration::from_millis(500);
/// How often it looks all the same: a ring may be lost where history could not be read.
const IDLE: Duration = Duration::from_secs(30);
/// A run that could not be started is tried again after so long,
const AGAIN: Duration = Duration::from_secs(2);
/// and so often; then it has ended.
const TRIES_MAX: u32 = 5;
/// Characters of what a watcher said that are kept.
const SAID_CHARS_MAX: usize = 1000;
/// What a run ends with that could not be started.
const NOT_STARTED: i32 = 1;

/// The thread; it ends when this is dropped, and what it started goes on.
#[derive(Debug)]
pub struct Yard {
    stop: Arc<AtomicBool>,
    bell: Bell,
    handle: Option<JoinHandle<()>>,
}

impl Yard {
    /// Begins to look after a foreman's queue.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(foreman: &Foreman, rung: Receiver<()>) -> io::Result<Self> {
        let inner = Arc::clone(&foreman.0);
        let (stop, bell) = (Arc::new(AtomicBool::new(false)), inner.bell.clone());
        let stopped = Arc::clone(&stop);
        let mut turns = Turns { inner, tried: BTreeMap::new() };
        let handle = thread::Builder::new().name("runs".to_owned()).spawn(move || {
            let mut wait = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                match rung.recv_timeout(wait) {
                    Ok(()) | Err(RecvTimeoutError::Timeout) if !stopped.load(Ordering::Relaxed) => {}
                    _ => return,
                }
                wait = if turns.turn(Instant::now()) { LOOK } else { IDLE };
            }
        })?;
        Ok(Self { stop, bell, handle: Some(handle) })
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.ring();
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

/// What is known from one turn to the next.
struct Turns {
    inner: Arc<Inner>,
    /// Runs that could not be started: how often, and when that is tried again.
    tried: BTreeMap<String, (u32, Instant)>,
}

impl Turns {
    /// Starts what can be; gives whether there is something to look after.
    fn turn(&mut self, now: Instant) -> bool {
        self.bury();
        let Ok(queue) = self.inner.archive.queued() else { return true };
        self.tried.retain(|id, _| queue.iter().any(|run| run.id == *id));
        if !queue.is_empty() {
            // Where it cannot be read, a later turn does.
            let _ = self.start(&queue, now);
        }
        !queue.is_empty() || !self.inner.children().is_empty()
    }

    /// Lets go of watchers that have ended. One that ended without taking its run is tried again.
    fn bury(&self) {
        self.inner.children().retain(|_, child| matches!(child.try_wait(), Ok(None)));
    }

    fn start(&mut self, queue: &[Run], now: Instant) -> Result<(), store::Error> {
        // Without the owner's folder they wait until it is named again.
        let Ok(allowed) = self.inner.allowed() else { return Ok(()) };
        // The first of each device has its turn, whether it can be started or not.
        let mut busy: BTreeSet<String> = self.inner.archive.going_on()?.iter().map(device).collect();
        for run in queue {
            let device = device(run);
            if self.inner.children().contains_key(&run.id) {
                busy.insert(device);
                continue;
            }
            if !busy.insert(device.clone()) || !self.is_free(&device) {
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
                    self.inner.children().insert(run.id.clone(), child);
                }
                // A try is one all the same.
                Err(error) => self.inner.archive.explain(&run.id, error.to_string(), now_ms())?,
            }
        }
        Ok(())
    }

    /// Whether no process has the device that history does not know of.
    fn is_free(&self, device: &str) -> bool {
        matches!(place::take(&self.inner.data, device), Ok(Some(_)))
    }
}

impl Inner {
    /// Ends a run that cannot be started, with what its watcher said.
    fn not_started(&self, run: &Run) -> Result<(), store::Error> {
        let said = place::watcher_log(&self.data, &run.id).and_then(fs::read_to_string).unwrap_or_default();
        let said: String = said.chars().take(SAID_CHARS_MAX).collect();
        if !said.trim().is_empty() {
            self.archive.explain(&run.id, said.trim().to_owned(), now_ms())?;
        }
        self.archive.not_started(&run.id, NOT_STARTED, now_ms())
    }
}

fn device(run: &Run) -> String {
    run.order.as_ref().and_then(|order| order.device.clone()).unwrap_or_default()
}
