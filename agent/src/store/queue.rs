//! What waits to be written. Who puts something in never waits; what is in stays until it is in the file, within bounds.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use headroom_shared::protocol::{
    Slow, Telemetry,
    event::{Event, What},
    gpu::Gpu,
};

use super::printed::{Figures, Printed, Unwritten};

/// Moments of telemetry that wait at most: a minute's, in which a disk comes back or does not. The oldest go first.
const TELEMETRY_MAX: usize = 600;
/// Slow readings that wait at most: a minute's too.
const SLOW_MAX: usize = 60;
/// Bytes of events that wait at most: some hundred thousand iterations, the days that somebody needs to make room.
const EVENTS_BYTES_MAX: usize = 64 << 20;
/// Iterations leave this much of it to how the run ended.
const ITERATIONS_BYTES_MAX: usize = EVENTS_BYTES_MAX / 4 * 3;
/// Lines of figures that wait at most: what the fastest program prints in seconds. They take 64 MB.
const PRINTED_MAX: usize = 400_000;
/// How long a line waits for room at most while nothing is written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);
/// What an event takes beside its text.
const EVENT_BYTES: usize = 256;

/// An event that has no number yet.
#[derive(Debug)]
pub struct Waiting {
    /// When it happened.
    pub time_ms: u64,
    /// The run it belongs to.
    pub run: Option<String>,
    /// What.
    pub what: What,
    /// The same as it is kept.
    pub json: String,
    /// Whether it was told already, without a number.
    pub told: AtomicBool,
}

/// Items in their order, each with a number, so that they can be looked at now and taken out when they are written.
#[derive(Debug)]
struct Lane<T> {
    items: VecDeque<T>,
    n_gone: u64,
}

impl<T: Clone> Lane<T> {
    const fn new() -> Self {
        Self { items: VecDeque::new(), n_gone: 0 }
    }

    /// The first of them, and the number of the one that follows.
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

/// Readings that wait.
#[derive(Debug)]
pub struct Waits<T> {
    /// The readings, with their time by the wall clock.
    pub read: Arc<T>,
    /// Milliseconds that the program had run then.
    pub since_start_ms: u64,
}

impl<T> Clone for Waits<T> {
    fn clone(&self) -> Self {
        Self { read: Arc::clone(&self.read), since_start_ms: self.since_start_ms }
    }
}

#[derive(Debug)]
struct Inner {
    telemetry: Lane<Waits<Telemetry>>,
    slow: Lane<Waits<Slow>>,
    /// Telemetry of the last minute, written or not.
    recent: VecDeque<Arc<Telemetry>>,
    events: Lane<Arc<Waiting>>,
    events_bytes: usize,
    printed: VecDeque<Unwritten>,
    /// Nothing was written for as long as a line waits.
    is_stuck: bool,
    inventory: Arc<Vec<Gpu>>,
    n_lost: u64,
    suspect: bool,
    stop: bool,
}

/// Up to where each lane is written, by the numbers that came with what was looked at; 0 where nothing of it was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    /// Telemetry.
    pub telemetry: u64,
    /// Slow readings.
    pub slow: u64,
    /// Events.
    pub events: u64,
}

/// Between those that have something to keep and the thread that writes.
#[derive(Debug)]
pub struct Queue {
    inner: Mutex<Inner>,
    stopped: Condvar,
    written: Condvar,
    /// How long the program has run.
    clock: Option<fn() -> Duration>,
}

impl Queue {
    /// An empty one, of readings whose times are by a clock that is never set.
    pub fn new() -> Self {
        let inner = Inner {
            telemetry: Lane::new(),
            slow: Lane::new(),
            recent: VecDeque::new(),
            events: Lane::new(),
            events_bytes: 0,
            printed: VecDeque::new(),
            is_stuck: false,
            inventory: Arc::default(),
            n_lost: 0,
            suspect: false,
            stop: false,
        };
        Self { inner: Mutex::new(inner), stopped: Condvar::new(), written: Condvar::new(), clock: None }
    }

    /// Of readings that are put in as they are read, with a clock that only goes on: the wall clock may be set.
    pub fn with_clock(self, since_start: fn() -> Duration) -> Self {
        Self { clock: Some(since_start), ..self }
    }

    fn waits<T>(&self, read: Arc<T>, time_ms: u64) -> Waits<T> {
        let since_start = self.clock.map(|since_start| since_start().as_millis());
        Waits { read, since_start_ms: since_start.map_or(time_ms, |ms| u64::try_from(ms).unwrap_or(u64::MAX)) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here panics half way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cards, by their places.
    pub fn set_inventory(&self, gpus: Vec<Gpu>) {
        self.lock().inventory = Arc::new(gpus);
    }

    /// The cards as they were given last.
    pub fn inventory(&self) -> Arc<Vec<Gpu>> {
        Arc::clone(&self.lock().inventory)
    }

    /// Puts telemetry in; the oldest makes room.
    pub fn push_telemetry(&self, telemetry: Arc<Telemetry>) {
        let waits = self.waits(Arc::clone(&telemetry), telemetry.time_ms);
        let mut inner = self.lock();
        // The clock was set back: what is kept is of times that are yet to come.
        if inner.recent.back().is_some_and(|last| last.time_ms > telemetry.time_ms) {
            inner.recent.clear();
        }
        if inner.recent.len() == TELEMETRY_MAX {
            inner.recent.pop_front();
        }
        inner.recent.push_back(telemetry);
        if inner.telemetry.items.len() == TELEMETRY_MAX {
            inner.telemetry.pop();
        }
        inner.telemetry.items.push_back(waits);
    }

    /// Puts slow readings in; the oldest make room.
    pub fn push_slow(&self, slow: Arc<Slow>) {
        let time_ms = slow.time_ms;
        let waits = self.waits(slow, time_ms);
        let mut inner = self.lock();
        if inner.slow.items.len() == SLOW_MAX {
            inner.slow.pop();
        }
        inner.slow.items.push_back(waits);
    }

    /// Puts an event in; where there is no room it is counted as lost.
    pub fn push_event(&self, time_ms: u64, run: Option<&str>, what: What) {
        let json = serde_json::to_string(&what);
        let mut inner = self.lock();
        let Ok(json) = json else {
            inner.n_lost += 1;
            return;
        };
        // The text, and the value that it was made of.
        let bytes = bytes(&json);
        let is_iteration = matches!(what, What::RunIteration(_));
        let bytes_max = if is_iteration { ITERATIONS_BYTES_MAX } else { EVENTS_BYTES_MAX };
        if inner.events_bytes + bytes > bytes_max {
            inner.n_lost += 1;
            return;
        }
        inner.events_bytes += bytes;
        let told = AtomicBool::new(false);
        inner.events.items.push_back(Arc::new(Waiting { time_ms, run: run.map(str::to_owned), what, json, told }));
    }

    /// Puts a line of figures in. Where there is no room it waits as long as history is written, and counts the line as
    /// left out otherwise: who reads what a run printed may wait, and the run does not.
    pub fn push_printed(&self, at_ms: u64, run: &Arc<str>, figures: Figures) {
        let mut inner = self.lock();
        if inner.printed.len() >= PRINTED_MAX && !inner.is_stuck {
            let is_full = |inner: &mut Inner| inner.printed.len() >= PRINTED_MAX;
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
            inner.printed.push_back(Unwritten { run: Arc::clone(run), printed: Printed { at_ms, figures } });
            return;
        }
        inner.n_lost = inner.n_lost.saturating_add(left_out);
        if let Some(Unwritten { run: last, printed: Printed { figures: Figures::LeftOut(n), .. } }) =
            inner.printed.back_mut()
            && *last == *run
        {
            *n = n.saturating_add(left_out);
        } else {
            let figures = Figures::LeftOut(left_out);
            inner.printed.push_back(Unwritten { run: Arc::clone(run), printed: Printed { at_ms, figures } });
        }
    }

    /// Takes out the lines of figures that wait, at most so many.
    pub fn take_printed(&self, n_max: usize) -> Vec<Unwritten> {
        let mut inner = self.lock();
        let n = inner.printed.len().min(n_max);
        inner.printed.drain(..n).collect()
    }

    /// Puts lines back that could not be written, before those that came meanwhile.
    pub fn put_back(&self, lines: Vec<Unwritten>) {
        let mut inner = self.lock();
        for line in lines.into_iter().rev() {
            inner.printed.push_front(line);
        }
    }

    /// Telemetry that waits, and what [`Queue::wrote`] is told when it is written.
    pub fn telemetry(&self) -> (Vec<Waits<Telemetry>>, u64) {
        self.lock().telemetry.first(TELEMETRY_MAX)
    }

    /// Slow readings that wait, and the same.
    pub fn slow(&self) -> (Vec<Waits<Slow>>, u64) {
        self.lock().slow.first(SLOW_MAX)
    }

    /// Events that wait, at most so many, and what [`Queue::wrote`] is told when they are written.
    pub fn events(&self, n_max: usize) -> (Vec<Arc<Waiting>>, u64) {
        self.lock().events.first(n_max)
    }

    /// Takes out what is written.
    pub fn wrote(&self, written: Written) {
        let mut inner = self.lock();
        inner.is_stuck = false;
        self.written.notify_all();
        while inner.telemetry.n_gone < written.telemetry && inner.telemetry.pop().is_some() {}
        while inner.slow.n_gone < written.slow && inner.slow.pop().is_some() {}
        while inner.events.n_gone < written.events {
            let Some(event) = inner.events.pop() else { break };
            inner.events_bytes -= bytes(&event.json);
        }
    }

    /// Telemetry of the last minute after a time, oldest first.
    pub fn recent_after(&self, time_ms: u64) -> Vec<Arc<Telemetry>> {
        self.lock().recent.iter().filter(|telemetry| telemetry.time_ms > time_ms).cloned().collect()
    }

    /// Events that wait and were not told; they count as told then.
    pub fn untold(&self) -> Vec<Arc<Waiting>> {
        let inner = self.lock();
        inner.events.items.iter().filter(|event| !event.told.swap(true, Ordering::Relaxed)).cloned().collect()
    }

    /// Alerts that wait, and what ends them, without their numbers.
    pub fn alerts(&self) -> Vec<Event> {
        let is_of_alert = |what: &What| matches!(what, What::Alert { .. } | What::AlertOver { .. });
        let inner = self.lock();
        let waiting = inner.events.items.iter().filter(|event| is_of_alert(&event.what));
        waiting
            .map(|event| Event { id: 0, time_ms: event.time_ms, run: event.run.clone(), what: event.what.clone() })
            .collect()
    }

    /// Events that were lost, and those that wait still.
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

    /// A reader found the file damaged.
    pub fn suspect(&self) {
        self.lock().suspect = true;
    }

    /// Whether one did, since this was asked last.
    pub fn take_suspicion(&self) -> bool {
        std::mem::take(&mut self.lock().suspect)
    }

    /// Nothing more will come.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.stopped.notify_all();
    }

    /// Waits for so long, or until nothing more will come; gives whether that is so.
    pub fn wait(&self, timeout: Duration) -> bool {
        let inner = self.lock();
        let waited = self.stopped.wait_timeout_while(inner, timeout, |inner| !inner.stop);
        waited.unwrap_or_else(PoisonError::into_inner).0.stop
    }
}

fn bytes(json: &str) -> usize {
    2 * json.len() + EVENT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telemetry(time_ms: u64) -> Arc<Telemetry> {
        Arc::new(Telemetry { seq: time_ms, time_ms, gpus: vec![] })
    }

    #[test]
    fn telemetry_loses_its_oldest_and_keeps_its_order() {
        let queue = Queue::new();
        let n = TELEMETRY_MAX as u64;
        for time_ms in 0..n + 5 {
            queue.push_telemetry(telemetry(time_ms));
        }
        let (waiting, next) = queue.telemetry();
        assert_eq!((waiting.len(), waiting[0].read.time_ms), (TELEMETRY_MAX, 5));
        // While those were being written, one more came and pushed out the first of them.
        queue.push_telemetry(telemetry(n + 5));
        queue.wrote(Written { telemetry: next, ..Written::default() });
        let (waiting, _) = queue.telemetry();
        assert_eq!(waiting.iter().map(|waits| waits.read.time_ms).collect::<Vec<_>>(), [n + 5]);
        assert_eq!(queue.recent_after(n + 3).len(), 2);
    }

    #[test]
    fn events_wait_within_a_bound_that_iterations_leave_room_in() {
        let queue = Queue::new();
        let oom = || What::RunOom { message: "x".repeat(1 << 20) };
        for time_ms in 0..100 {
            queue.push_event(time_ms, None, oom());
        }
        let (waiting, next) = queue.events(usize::MAX);
        assert_eq!(waiting.len(), 31, "31 of them and their texts are under {EVENTS_BYTES_MAX} bytes");
        assert_eq!(queue.n_unwritten(), 100);
        queue.wrote(Written { events: next, ..Written::default() });
        assert_eq!(queue.n_unwritten(), 69, "those are lost");
        for time_ms in 0..24 {
            queue.push_event(time_ms, None, oom());
        }
        let iteration = r#"{"kind":"run_iteration","iter":1,"loss":null,"time_ms":1.0}"#;
        queue.push_event(0, None, serde_json::from_str(iteration).expect("an iteration"));
        assert_eq!(queue.events(usize::MAX).0.len(), 24, "no room for it");
        queue.push_event(0, None, What::RunDeleted { name: None });
        assert_eq!(queue.events(usize::MAX).0.len(), 25);
    }

    #[test]
    fn an_event_counts_as_told_once() {
        let queue = Queue::new();
        queue.push_event(1, None, What::HistoryResumed);
        assert_eq!((queue.untold().len(), queue.untold().len()), (1, 0));
    }
}
