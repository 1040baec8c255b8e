//! The queue of the alert thread. Adding never blocks. Telemetry does not wake the thread: it arrives ten times per
//! second, and one check per second handles all of it.
//!
//! Telemetry is bounded: the oldest is dropped and counted. Everything else may raise or end an alert and is never
//! dropped. Its number is bounded by its sources: between two other events of a run, only the newest sign of progress
//! is queued, and the inventory and a change of settings are queued once. What remains are changes of state, such as
//! the end of a run or the loss of a GPU.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use headroom_protocol::{
    Telemetry,
    event::{Event, EventKind},
};

use headroom_agent_core::telemetry::TelemetryEvent;

/// Maximum number of queued telemetry moments, which arrive in 25 s. Newer values replace older ones, so the oldest
/// moment is dropped.
const TELEMETRY_MAX: usize = 256;

/// An item to check.
#[derive(Debug)]
pub enum AlertInput {
    /// An observation of a GPU.
    TelemetryEvent(TelemetryEvent),
    /// An event.
    Event(Event),
}

#[derive(Debug, Default)]
struct AlertQueueState {
    /// Telemetry, with its position among all items.
    telemetry: VecDeque<(u64, Arc<Telemetry>)>,
    /// Everything else, with its position.
    changes: Vec<(u64, AlertInput)>,
    /// Indices in `changes` of the newest event of each run, if that event is replaceable progress.
    progress: HashMap<String, usize>,
    /// Indices in `changes` of the queued inventory and change of settings.
    inventory: Option<usize>,
    settings: Option<usize>,
    n_put: u64,
    is_urgent: bool,
    is_closed: bool,
}

impl AlertQueueState {
    /// Adds telemetry. Returns whether the oldest was dropped.
    fn put_telemetry(&mut self, telemetry: Arc<Telemetry>) -> bool {
        let is_full = self.telemetry.len() >= TELEMETRY_MAX;
        if is_full {
            self.telemetry.pop_front();
        }
        self.telemetry.push_back((self.n_put, telemetry));
        is_full
    }

    /// Adds a change, or replaces the queued one that it supersedes.
    fn put_change(&mut self, input: AlertInput) {
        let next = self.changes.len();
        let superseded = match &input {
            AlertInput::TelemetryEvent(TelemetryEvent::Inventory(_)) => self.inventory.replace(next),
            AlertInput::TelemetryEvent(_) => {
                // Progress before and after a change of the clock is on different clocks.
                self.progress.clear();
                None
            }
            AlertInput::Event(Event { what: EventKind::SettingsChanged, .. }) => self.settings.replace(next),
            AlertInput::Event(Event { run: Some(run), what, .. }) if is_replaceable(what) => {
                self.progress.insert(run.clone(), next)
            }
            AlertInput::Event(Event { run: Some(run), .. }) => {
                self.progress.remove(run);
                None
            }
            AlertInput::Event(_) => None,
        };
        let Some(at) = superseded else {
            self.changes.push((self.n_put, input));
            return;
        };
        // The queued item keeps its position and gets the newer content.
        match &input {
            AlertInput::TelemetryEvent(_) => self.inventory = Some(at),
            AlertInput::Event(Event { run: Some(run), .. }) => {
                self.progress.insert(run.clone(), at);
            }
            AlertInput::Event(_) => self.settings = Some(at),
        }
        self.changes[at].1 = input;
    }

    /// Removes all items, and returns them in the order in which they arrived.
    fn take(&mut self) -> Vec<AlertInput> {
        self.progress.clear();
        (self.inventory, self.settings) = (None, None);
        let mut items = std::mem::take(&mut self.changes);
        let telemetry = self.telemetry.drain(..);
        items.extend(telemetry.map(|(at, one)| (at, AlertInput::TelemetryEvent(TelemetryEvent::Telemetry(one)))));
        items.sort_by_key(|(at, _)| *at);
        items.into_iter().map(|(_, input)| input).collect()
    }
}

/// Whether an event is progress without other content. The start of a run also has its name, and is not replaced.
fn is_replaceable(what: &EventKind) -> bool {
    what.is_progress() && !matches!(what, EventKind::RunStarted { .. })
}

/// The queue between senders and the alert thread.
#[derive(Debug, Default)]
pub struct AlertQueue {
    inner: Mutex<AlertQueueState>,
    called: Condvar,
}

impl AlertQueue {
    /// No change is left incomplete if a thread panics.
    fn lock(&self) -> MutexGuard<'_, AlertQueueState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item. Returns whether the oldest telemetry was dropped.
    pub fn put(&self, input: AlertInput) -> bool {
        let mut inner = self.lock();
        if inner.is_closed {
            return false;
        }
        inner.n_put += 1;
        let (calls, is_dropped) = match input {
            AlertInput::TelemetryEvent(TelemetryEvent::Telemetry(telemetry)) => {
                let is_dropped = inner.put_telemetry(telemetry);
                // Unread telemetry wakes the thread before the queue is full.
                (inner.telemetry.len() > TELEMETRY_MAX / 2, is_dropped)
            }
            input => {
                inner.put_change(input);
                (true, false)
            }
        };
        inner.is_urgent |= calls;
        drop(inner);
        if calls {
            self.called.notify_one();
        }
        is_dropped
    }

    /// Closes the queue. Later items are dropped, and queued ones are not read.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.called.notify_all();
    }

    /// Waits for a timeout or an urgent item, and returns all items; `None` after the queue was closed.
    pub fn wait(&self, timeout: Duration) -> Option<Vec<AlertInput>> {
        let waits = |inner: &mut AlertQueueState| !inner.is_urgent && !inner.is_closed;
        let waited = self.called.wait_timeout_while(self.lock(), timeout, waits);
        let mut inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        inner.is_urgent = false;
        (!inner.is_closed).then(|| inner.take())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use headroom_protocol::run::{Iteration, Run, RunStatus};

    use super::*;

    /// A timeout that no test reaches: nextest ends one that hangs for five minutes.
    const LONG: Duration = Duration::from_secs(24 * 60 * 60);

    fn telemetry(seq: u64) -> AlertInput {
        AlertInput::TelemetryEvent(TelemetryEvent::Telemetry(Arc::new(Telemetry { seq, time_ms: 0, gpus: vec![] })))
    }

    fn event() -> AlertInput {
        AlertInput::Event(Event { id: 1, time_ms: 0, run: None, what: EventKind::HistoryResumed })
    }

    fn of_run(id: u64, run: &str, what: EventKind) -> AlertInput {
        AlertInput::Event(Event { id, time_ms: id, run: Some(run.to_owned()), what })
    }

    fn iteration(id: u64, run: &str) -> AlertInput {
        of_run(id, run, EventKind::RunIteration(Iteration { iter: id, ..Iteration::default() }))
    }

    fn ended(id: u64, run: &str) -> AlertInput {
        of_run(id, run, EventKind::RunStatus { status: RunStatus::Lost, energy_joules: None })
    }

    fn gpu_lost(uuid: &str) -> AlertInput {
        AlertInput::TelemetryEvent(TelemetryEvent::GpuLost(uuid.to_owned()))
    }

    /// The numbers of the events, and the sequence numbers of telemetry, in order.
    fn numbers(taken: Vec<AlertInput>) -> Vec<u64> {
        let number = |input| match input {
            AlertInput::Event(event) => Some(event.id),
            AlertInput::TelemetryEvent(TelemetryEvent::Telemetry(telemetry)) => Some(telemetry.seq),
            AlertInput::TelemetryEvent(_) => None,
        };
        taken.into_iter().filter_map(number).collect()
    }

    #[test]
    fn telemetry_waits_for_the_look_and_an_event_brings_it_along() {
        let inbox = Arc::new(AlertQueue::default());
        inbox.put(telemetry(1));
        let taken = inbox.wait(Duration::from_millis(1)).expect("it is open");
        assert_eq!(taken.len(), 1, "a scheduled look takes it without a wake-up");
        let sender = Arc::clone(&inbox);
        let teller = thread::spawn(move || {
            sender.put(telemetry(2));
            sender.put(event());
        });
        let taken = inbox.wait(LONG).expect("it is open");
        teller.join().expect("it ends");
        assert!(matches!(&*taken, [AlertInput::TelemetryEvent(_), AlertInput::Event(_)]), "in their order");
    }

    #[test]
    fn full_queue_drops_oldest_telemetry_and_no_change() {
        let queue = AlertQueue::default();
        let n_max = TELEMETRY_MAX as u64;
        assert!(!queue.put(gpu_lost("GPU-0")));
        let n_dropped = (0..n_max + 5).filter(|&seq| queue.put(telemetry(seq))).count();
        assert_eq!(n_dropped, 5, "each drop is reported");
        // Far more runs end than telemetry has room for.
        let n_runs = 10 * n_max;
        (0..n_runs).for_each(|run| assert!(!queue.put(ended(n_max + 5 + run, &format!("run {run}")))));
        let taken = queue.wait(Duration::ZERO).expect("it is open");
        let is_lost = |input: &AlertInput| matches!(input, AlertInput::TelemetryEvent(TelemetryEvent::GpuLost(_)));
        assert!(is_lost(&taken[0]), "the oldest change is first");
        assert_eq!(numbers(taken), (5..n_max + 5 + n_runs).collect::<Vec<_>>(), "the rest follows in its order");
    }

    #[test]
    fn progress_is_queued_once_between_other_events_of_its_run() {
        let queue = AlertQueue::default();
        let started = EventKind::RunStarted { run: Box::new(Run::default()) };
        queue.put(of_run(1, "a", started));
        for id in 2..1000 {
            queue.put(iteration(id, if id % 2 == 0 { "a" } else { "b" }));
        }
        queue.put(ended(1000, "a"));
        queue.put(iteration(1001, "a"));
        queue.put(AlertInput::TelemetryEvent(TelemetryEvent::GpuRecovered("GPU-0".to_owned())));
        queue.put(iteration(1002, "a"));
        queue.put(iteration(1003, "a"));
        let taken = queue.wait(Duration::ZERO).expect("it is open");
        assert_eq!(numbers(taken), [1, 998, 999, 1000, 1001, 1003]);
        queue.put(iteration(1004, "a"));
        assert_eq!(numbers(queue.wait(Duration::ZERO).expect("it is open")), [1004]);
    }

    #[test]
    fn inventory_and_settings_are_queued_once() {
        let queue = AlertQueue::default();
        let settings = |id| AlertInput::Event(Event { id, time_ms: 0, run: None, what: EventKind::SettingsChanged });
        for id in 0..100 {
            queue.put(settings(id));
            queue.put(AlertInput::TelemetryEvent(TelemetryEvent::Inventory(vec![])));
        }
        let taken = queue.wait(Duration::ZERO).expect("it is open");
        assert_eq!((taken.len(), numbers(taken)), (2, vec![99]));
    }

    #[test]
    fn closed_queue_returns_nothing() {
        let queue = AlertQueue::default();
        queue.put(event());
        queue.close();
        assert!(queue.wait(LONG).is_none());
        queue.put(event());
        assert!(queue.wait(LONG).is_none());
    }
}
