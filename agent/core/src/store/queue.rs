//! The queue of data to be written. Adding never blocks, except for printed lines. Data remains in the queue until it
//! is in the file, within limits.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use headroom_protocol::{
    SlowReadings, Telemetry,
    event::{Event, EventKind},
    gpu::Gpu,
};

use super::printed::{Figures, PendingLine, PrintedLine};
use crate::logging::{HISTORY, is_logged};

/// Maximum number of queued telemetry moments: one minute, for short disk problems. The oldest are dropped first.
const TELEMETRY_MAX: usize = 600;
/// Maximum number of queued slow readings: also one minute.
const SLOW_MAX: usize = 60;
/// Maximum bytes of queued events: some hundred thousand iterations, or days in which the owner can free disk space.
const EVENTS_BYTES_MAX: usize = 64 << 20;
/// Part of that limit for iterations. The rest is reserved for more important events, such as the end of a run.
const ITERATIONS_BYTES_MAX: usize = EVENTS_BYTES_MAX / 4 * 3;
/// Maximum number of queued lines: seconds of output of the fastest program. They take 64 MB.
const PRINTED_MAX: usize = 400_000;
/// Maximum time that a line waits for space while nothing is written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);
/// Size of an event apart from its text.
const EVENT_BYTES: usize = 256;

/// An event that has no number yet.
#[derive(Debug)]
pub struct PendingEvent {
    /// Time of the event.
    pub time_ms: u64,
    /// ID of the run that the event belongs to.
    pub run: Option<String>,
    /// Kind of the event and its data.
    pub what: EventKind,
    /// The event as JSON, as it is stored.
    pub json: String,
    /// Whether a notification without a number was already sent.
    pub reported: AtomicBool,
}

/// A sequence of items with consecutive numbers. Items can be read first and removed after they are written.
#[derive(Debug)]
struct Lane<T> {
    items: VecDeque<T>,
    n_gone: u64,
}

impl<T: Clone> Lane<T> {
    const fn new() -> Self {
        Self { items: VecDeque::new(), n_gone: 0 }
    }

    /// Returns the first items and the number of the item after them.
    fn first(&self, n_max: usize) -> (Vec<T>, u64) {
        let items: Vec<T> = self.items.iter().take(n_max).cloned().collect();
        let next = self.n_gone + items.len() as u64;
        (items, next)
    }

    fn pop(&mut self) -> Option<T> {
        let item = self.items.pop_front()?;
        self.n_gone += 1;
        Some(item)
    }
}

/// Queued readings.
#[derive(Debug)]
pub struct Waits<T> {
    /// The readings, with their wall-clock time.
    pub read: Arc<T>,
    /// Milliseconds since the start of the program, at the time of the readings.
    pub since_start_ms: u64,
}

impl<T> Clone for Waits<T> {
    fn clone(&self) -> Self {
        Self { read: Arc::clone(&self.read), since_start_ms: self.since_start_ms }
    }
}

#[derive(Debug)]
struct QueueState {
    telemetry: Lane<Waits<Telemetry>>,
    slow: Lane<Waits<SlowReadings>>,
    /// Telemetry of the last minute, written or not.
    recent: VecDeque<Arc<Telemetry>>,
    events: Lane<Arc<PendingEvent>>,
    events_bytes: usize,
    printed: VecDeque<PendingLine>,
    /// Number of lines that were taken for writing, and number of lines that were written.
    n_taken: u64,
    n_written: u64,
    /// Total number of lines with figures that were added.
    n_figures: u64,
    /// Nothing was written while a line waited for the maximum time.
    is_stuck: bool,
    inventory: Arc<Vec<Gpu>>,
    n_lost: u64,
    /// Number of readings that newer ones replaced before they were written.
    n_replaced: u64,
    suspect: bool,
    stop: bool,
}

/// Numbers up to which each lane is written, as returned when reading the lanes; 0 for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct WrittenCounts {
    /// Telemetry.
    pub telemetry: u64,
    /// Slow readings.
    pub slow: u64,
    /// Events.
    pub events: u64,
}

/// Amount of a run's output that was queued up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Number of lines with figures.
    pub figures: u64,
    /// Number of rows for these lines and for omitted lines.
    pub rows: u64,
    /// Number of events.
    pub events: u64,
    /// Number of items that were dropped because the queue was full.
    pub lost: u64,
}

/// Numbers of items that were dropped because the queue was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Moments of telemetry, and slow readings.
    pub readings: u64,
    /// Events, and a run's lines of figures.
    pub events: u64,
}

/// The queue between producers and the writer thread.
#[derive(Debug)]
pub struct Queue {
    inner: Mutex<QueueState>,
    stopped: Condvar,
    written: Condvar,
    /// Monotonic clock: time since the start of the program.
    clock: Option<fn() -> Duration>,
}

impl Queue {
    /// Creates an empty queue that uses the readings' own times as monotonic clock.
    pub fn new() -> Self {
        let inner = QueueState {
            telemetry: Lane::new(),
            slow: Lane::new(),
            recent: VecDeque::new(),
            events: Lane::new(),
            events_bytes: 0,
            printed: VecDeque::new(),
            n_taken: 0,
            n_written: 0,
            n_figures: 0,
            is_stuck: false,
            inventory: Arc::default(),
            n_lost: 0,
            n_replaced: 0,
            suspect: false,
            stop: false,
        };
        Self { inner: Mutex::new(inner), stopped: Condvar::new(), written: Condvar::new(), clock: None }
    }

    /// Sets a monotonic clock for readings that are queued as they are taken, because the wall clock may change.
    pub fn with_clock(self, since_start: fn() -> Duration) -> Self {
        Self { clock: Some(since_start), ..self }
    }

    fn waits<T>(&self, read: Arc<T>, time_ms: u64) -> Waits<T> {
        let since_start = self.clock.map(|since_start| since_start().as_millis());
        Waits { read, since_start_ms: since_start.map_or(time_ms, |ms| u64::try_from(ms).unwrap_or(u64::MAX)) }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the GPUs, by index.
    pub fn set_inventory(&self, gpus: Vec<Gpu>) {
        self.lock().inventory = Arc::new(gpus);
    }

    /// Returns the GPUs that were set last.
    pub fn inventory(&self) -> Arc<Vec<Gpu>> {
        Arc::clone(&self.lock().inventory)
    }

    /// Adds telemetry; drops the oldest if the queue is full.
    pub fn push_telemetry(&self, telemetry: Arc<Telemetry>) {
        let waits = self.waits(Arc::clone(&telemetry), telemetry.time_ms);
        let mut inner = self.lock();
        // The clock was set back, so the buffered moments are in the future.
        if inner.recent.back().is_some_and(|last| last.time_ms > telemetry.time_ms) {
            inner.recent.clear();
        }
        if inner.recent.len() == TELEMETRY_MAX {
            inner.recent.pop_front();
        }
        inner.recent.push_back(telemetry);
        if inner.telemetry.items.len() == TELEMETRY_MAX {
            inner.telemetry.pop();
            inner.n_replaced += 1;
        }
        inner.telemetry.items.push_back(waits);
    }

    /// Adds slow readings; drops the oldest if the queue is full.
    pub fn push_slow(&self, slow: Arc<SlowReadings>) {
        let time_ms = slow.time_ms;
        let waits = self.waits(slow, time_ms);
        let mut inner = self.lock();
        if inner.slow.items.len() == SLOW_MAX {
            inner.slow.pop();
            inner.n_replaced += 1;
        }
        inner.slow.items.push_back(waits);
    }

    /// Adds an event; counts it as lost if the queue is full. An event that starts, ends or may raise an alert is added
    /// in any case: each reports a change of state, so their number is bounded by what happens.
    pub fn push_event(&self, time_ms: u64, run: Option<&str>, what: EventKind) {
        let json = serde_json::to_string(&what);
        let mut inner = self.lock();
        let Ok(json) = json else {
            inner.n_lost += 1;
            return;
        };
        // Size of the text and of the value.
        let bytes = bytes(&json);
        let is_iteration = matches!(what, EventKind::RunIteration(_));
        let bytes_max = if is_iteration { ITERATIONS_BYTES_MAX } else { EVENTS_BYTES_MAX };
        if inner.events_bytes + bytes > bytes_max && !concerns_alert(&what) {
            inner.n_lost += 1;
            let n = inner.n_lost;
            drop(inner);
            if is_logged(n) {
                tracing::warn!(target: HISTORY, n, "too much is waiting for history: an event was dropped");
            }
            return;
        }
        inner.events_bytes += bytes;
        let reported = AtomicBool::new(false);
        inner.events.items.push_back(Arc::new(PendingEvent {
            time_ms,
            run: run.map(str::to_owned),
            what,
            json,
            reported,
        }));
    }

    /// Adds a line of figures. If the queue is full, the call waits while history is being written, and otherwise
    /// counts the line as omitted. The reader of a run's output may wait; the run itself does not.
    pub fn push_printed(&self, at_ms: u64, run: &Arc<str>, figures: Figures) {
        let mut inner = self.lock();
        if inner.printed.len() >= PRINTED_MAX && !inner.is_stuck {
            let is_full = |inner: &mut QueueState| inner.printed.len() >= PRINTED_MAX;
            let waited = self.written.wait_timeout_while(inner, WRITTEN_WITHIN, is_full);
            let (now, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            inner = now;
            inner.is_stuck = waited.timed_out();
        }
        let has_room = inner.printed.len() < PRINTED_MAX;
        let left_out = match figures {
            Figures::LeftOut(n) => n,
            Figures::Iteration(_) | Figures::Evaluation(_) if has_room => 0,
            Figures::Iteration(_) | Figures::Evaluation(_) => 1,
        };
        if left_out == 0 {
            inner.n_figures += 1;
            inner.printed.push_back(PendingLine { run: Arc::clone(run), printed: PrintedLine { at_ms, figures } });
            return;
        }
        inner.n_lost = inner.n_lost.saturating_add(left_out);
        if let Some(PendingLine { run: last, printed: PrintedLine { figures: Figures::LeftOut(n), .. } }) =
            inner.printed.back_mut()
            && *last == *run
        {
            *n = n.saturating_add(left_out);
        } else {
            let figures = Figures::LeftOut(left_out);
            inner.printed.push_back(PendingLine { run: Arc::clone(run), printed: PrintedLine { at_ms, figures } });
        }
    }

    /// Removes at most `n_max` queued lines of figures.
    pub fn take_printed(&self, n_max: usize) -> Vec<PendingLine> {
        let mut inner = self.lock();
        let n = inner.printed.len().min(n_max);
        inner.n_taken += n as u64;
        inner.printed.drain(..n).collect()
    }

    /// Puts back lines that could not be written, before newer lines.
    pub fn put_back(&self, lines: Vec<PendingLine>) {
        let mut inner = self.lock();
        inner.n_taken -= lines.len() as u64;
        for line in lines.into_iter().rev() {
            inner.printed.push_front(line);
        }
    }

    /// Returns queued telemetry, and the number to pass to [`Queue::wrote`] after writing.
    pub fn telemetry(&self) -> (Vec<Waits<Telemetry>>, u64) {
        self.lock().telemetry.first(TELEMETRY_MAX)
    }

    /// Returns queued slow readings, and the number to pass to [`Queue::wrote`] after writing.
    pub fn slow(&self) -> (Vec<Waits<SlowReadings>>, u64) {
        self.lock().slow.first(SLOW_MAX)
    }

    /// Returns at most `n_max` queued events, and the number to pass to [`Queue::wrote`] after writing.
    pub fn events(&self, n_max: usize) -> (Vec<Arc<PendingEvent>>, u64) {
        self.lock().events.first(n_max)
    }

    /// Removes written data.
    pub fn wrote(&self, written: WrittenCounts) {
        let mut inner = self.lock();
        inner.is_stuck = false;
        inner.n_written += std::mem::take(&mut inner.n_taken);
        self.written.notify_all();
        while inner.telemetry.n_gone < written.telemetry && inner.telemetry.pop().is_some() {}
        while inner.slow.n_gone < written.slow && inner.slow.pop().is_some() {}
        while inner.events.n_gone < written.events {
            let Some(event) = inner.events.pop() else { break };
            inner.events_bytes -= bytes(&event.json);
        }
    }

    /// Returns telemetry of the last minute after a time, oldest first.
    pub fn recent_after(&self, time_ms: u64) -> Vec<Arc<Telemetry>> {
        self.lock().recent.iter().filter(|telemetry| telemetry.time_ms > time_ms).cloned().collect()
    }

    /// Returns queued events without a notification, and marks them as notified.
    pub fn unreported(&self) -> Vec<Arc<PendingEvent>> {
        let inner = self.lock();
        inner.events.items.iter().filter(|event| !event.reported.swap(true, Ordering::Relaxed)).cloned().collect()
    }

    /// Returns queued events that start or end alerts, without numbers.
    pub fn alerts(&self) -> Vec<Event> {
        let is_of_alert = |what: &EventKind| matches!(what, EventKind::Alert { .. } | EventKind::AlertOver { .. });
        let inner = self.lock();
        let waiting = inner.events.items.iter().filter(|event| is_of_alert(&event.what));
        waiting
            .map(|event| Event { id: 0, time_ms: event.time_ms, run: event.run.clone(), what: event.what.clone() })
            .collect()
    }

    /// Returns how much of a run's output was queued so far.
    pub fn mark(&self) -> Mark {
        let inner = self.lock();
        Mark {
            figures: inner.n_figures,
            rows: inner.n_written + inner.n_taken + inner.printed.len() as u64,
            events: inner.events.n_gone + inner.events.items.len() as u64,
            lost: inner.n_lost,
        }
    }

    /// Whether everything up to a mark is written.
    pub fn has_written(&self, mark: &Mark) -> bool {
        let inner = self.lock();
        inner.n_written >= mark.rows && inner.events.n_gone >= mark.events && inner.n_lost == mark.lost
    }

    /// Returns the numbers of readings and of other items that were dropped because the queue was full.
    pub fn dropped(&self) -> Dropped {
        let inner = self.lock();
        Dropped { readings: inner.n_replaced, events: inner.n_lost }
    }

    /// Returns the number of lost and of still queued items.
    pub fn n_unwritten(&self) -> u64 {
        let inner = self.lock();
        inner.n_lost + inner.events.items.len() as u64 + inner.printed.len() as u64
    }

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.events.items.is_empty()
            && inner.printed.is_empty()
            && inner.telemetry.items.is_empty()
            && inner.slow.items.is_empty()
    }

    /// Reports that a reader found the file damaged.
    pub fn suspect(&self) {
        self.lock().suspect = true;
    }

    /// Returns and clears the report of damage.
    pub fn take_suspicion(&self) -> bool {
        std::mem::take(&mut self.lock().suspect)
    }

    /// Announces that no more data will come.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.stopped.notify_all();
    }

    /// Waits for a timeout or for the end of data. Returns whether data has ended.
    pub fn wait(&self, timeout: Duration) -> bool {
        let inner = self.lock();
        let waited = self.stopped.wait_timeout_while(inner, timeout, |inner| !inner.stop);
        waited.unwrap_or_else(PoisonError::into_inner).0.stop
    }
}

/// Whether an event starts or ends an alert, or may raise one.
const fn concerns_alert(what: &EventKind) -> bool {
    matches!(
        what,
        EventKind::Alert { .. }
            | EventKind::AlertOver { .. }
            | EventKind::GpuLost { .. }
            | EventKind::GpuRecovered { .. }
            | EventKind::RunStatus { .. }
    )
}

fn bytes(json: &str) -> usize {
    2 * json.len() + EVENT_BYTES
}
