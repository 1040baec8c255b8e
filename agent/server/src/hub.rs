//! The distribution of live data to all viewers. Each message is encoded once.
//!
//! Telemetry goes through a queue of a few seconds, from which slow viewers lose the oldest messages. Events go through
//! their own queue; a viewer that lags reads missing events from the history by their numbers. State and inventory have
//! only a current value, so a viewer that missed one receives the next.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::extract::ws::Utf8Bytes;
use headroom_protocol::{
    ServerMessage, SlowReadings, Telemetry,
    event::Event,
    gpu::Gpu,
    state::{DriverState, HistoryState, State},
};
use headroom_text as text;
use tokio::sync::{broadcast, watch};

use super::faults::{Fault, Faults};
use super::wire::{EncodedMessage, encoded, encoded_in};

/// The capacity of the telemetry queue in messages: six seconds. The history has older telemetry. All viewers share
/// each message.
const LIVE_MESSAGES_MAX: usize = 64;
/// The capacity of the event queue: a minute of iterations of several runs at their highest rate.
const EVENTS_MAX: usize = 2048;
/// The number of recent moments kept for new viewers. The history is written once a second, and a disk may take a few.
const RECENT_MAX: usize = 100;
/// The estimated size in bytes of a telemetry message without GPUs, and of each GPU: a sample has about 270 bytes.
const HEAD_BYTES: usize = 128;
const SAMPLE_BYTES: usize = 320;

/// An event as it is sent to viewers.
#[derive(Clone, Debug)]
pub struct Broadcast {
    /// The number of the event; 0 if the history could not assign one.
    pub id: u64,
    /// The encoded message.
    pub encoded: EncodedMessage,
}

/// A current value and its message.
#[derive(Clone, Debug)]
pub struct CurrentMessage<T> {
    /// The value.
    pub value: T,
    /// The encoded message.
    pub encoded: EncodedMessage,
}

/// The latest readings.
#[derive(Clone, Debug, Default)]
pub struct Latest {
    /// The readings of ten times a second.
    pub telemetry: Option<Arc<Telemetry>>,
    /// The readings of once a second.
    pub slow: Option<Arc<SlowReadings>>,
}

/// A viewer's subscription to all data from one moment on.
#[derive(Debug)]
pub struct Subscription {
    /// Telemetry and slow readings.
    pub live: broadcast::Receiver<Utf8Bytes>,
    /// Events.
    pub events: broadcast::Receiver<Broadcast>,
    /// The state of the driver and the history.
    pub state: watch::Receiver<CurrentMessage<State>>,
    /// The list of GPUs.
    pub gpus: watch::Receiver<CurrentMessage<Vec<Gpu>>>,
    /// The moments before the subscription, oldest first.
    pub recent: Vec<Arc<Telemetry>>,
    /// The newest slow readings before the subscription.
    pub slow: Option<Arc<SlowReadings>>,
}

/// Numbers of messages that were dropped because a receiver was too slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Live messages, added up over all viewers.
    pub viewers: u64,
    /// Moments of telemetry for the alert thread.
    pub alerts: u64,
}

#[derive(Debug, Default)]
struct RecentMessages {
    telemetry: VecDeque<Arc<Telemetry>>,
    slow: Option<Arc<SlowReadings>>,
}

#[derive(Debug)]
struct HubState {
    /// Locked during each send, so that a new viewer gets each moment exactly once: from `recent` or from the queue.
    recent: Mutex<RecentMessages>,
    live: broadcast::Sender<Utf8Bytes>,
    events: broadcast::Sender<Broadcast>,
    state: watch::Sender<CurrentMessage<State>>,
    gpus: watch::Sender<CurrentMessage<Vec<Gpu>>>,
    n_viewers: AtomicU64,
    /// Numbers of dropped messages and moments, for [`Dropped`].
    n_dropped_for_viewers: AtomicU64,
    n_dropped_for_alerts: AtomicU64,
    faults: Mutex<Faults>,
}

/// The sender of all live data. Clones share their state.
#[derive(Clone, Debug)]
pub struct Hub(Arc<HubState>);

impl Default for Hub {
    fn default() -> Self {
        let state = State {
            driver: DriverState::Starting,
            history: HistoryState::Paused { reason: text::HISTORY_NOT_OPENED.into(), since_ms: 0 },
        };
        let now = CurrentMessage { encoded: EncodedMessage::new(&ServerMessage::State(state.clone())), value: state };
        let gpus =
            CurrentMessage { encoded: EncodedMessage::new(&ServerMessage::Inventory { gpus: vec![] }), value: vec![] };
        Self(Arc::new(HubState {
            recent: Mutex::default(),
            live: broadcast::Sender::new(LIVE_MESSAGES_MAX),
            events: broadcast::Sender::new(EVENTS_MAX),
            state: watch::Sender::new(now),
            gpus: watch::Sender::new(gpus),
            n_viewers: AtomicU64::new(0),
            n_dropped_for_viewers: AtomicU64::new(0),
            n_dropped_for_alerts: AtomicU64::new(0),
            faults: Mutex::default(),
        }))
    }
}

impl Hub {
    /// Locks the recent data. A poisoned lock is safe to use: no update leaves the data inconsistent.
    fn recent(&self) -> MutexGuard<'_, RecentMessages> {
        self.0.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a moment of telemetry.
    pub fn telemetry(&self, telemetry: Arc<Telemetry>) {
        let encode = || {
            let bytes = HEAD_BYTES + SAMPLE_BYTES * telemetry.gpus.len();
            // Copying the numbers is cheaper than maintaining a borrowing variant of the message.
            encoded_in(bytes, &ServerMessage::Telemetry(Telemetry::clone(&telemetry)))
        };
        let text = (self.0.live.receiver_count() > 0).then(encode);
        let mut recent = self.recent();
        if self.0.live.receiver_count() > 0 {
            // A viewer may have subscribed before the lock was taken; the message is then encoded here.
            let _ = self.0.live.send(text.unwrap_or_else(encode));
        }
        // If the clock was set back, the recent moments are in the future.
        if recent.telemetry.back().is_some_and(|last| last.time_ms > telemetry.time_ms) {
            recent.telemetry.clear();
        }
        if recent.telemetry.len() == RECENT_MAX {
            recent.telemetry.pop_front();
        }
        recent.telemetry.push_back(telemetry);
    }

    /// Sends the slow readings.
    pub fn slow(&self, slow: Arc<SlowReadings>) {
        let text = encoded(&ServerMessage::Slow(SlowReadings::clone(&slow)));
        let mut recent = self.recent();
        recent.slow = Some(slow);
        // Sending without viewers is not an error.
        let _ = self.0.live.send(text);
    }

    /// Sends an event.
    pub fn event(&self, event: Event) {
        let id = event.id;
        let encoded = EncodedMessage::new(&ServerMessage::Event(event));
        let _recent = self.recent();
        let _ = self.0.events.send(Broadcast { id, encoded });
    }

    /// Updates the driver's state.
    pub fn driver(&self, driver: DriverState) {
        self.change_state(|state| state.driver = driver);
    }

    /// Updates the history's state.
    pub fn history(&self, history: HistoryState) {
        self.change_state(|state| state.history = history);
    }

    fn change_state(&self, change: impl FnOnce(&mut State)) {
        self.0.state.send_if_modified(|now| {
            let mut value = now.value.clone();
            change(&mut value);
            let changed = value != now.value;
            if changed {
                *now = CurrentMessage { encoded: EncodedMessage::new(&ServerMessage::State(value.clone())), value };
            }
            changed
        });
    }

    /// Updates the list of GPUs.
    pub fn gpus(&self, gpus: Vec<Gpu>) {
        let encoded = EncodedMessage::new(&ServerMessage::Inventory { gpus: gpus.clone() });
        self.0.gpus.send_replace(CurrentMessage { value: gpus, encoded });
    }

    /// Subscribes to all data.
    pub fn subscribe(&self) -> Subscription {
        let recent = self.recent();
        Subscription {
            live: self.0.live.subscribe(),
            events: self.0.events.subscribe(),
            state: self.0.state.subscribe(),
            gpus: self.0.gpus.subscribe(),
            recent: recent.telemetry.iter().cloned().collect(),
            slow: recent.slow.clone(),
        }
    }

    /// Subscribes to events only.
    pub fn events(&self) -> broadcast::Receiver<Broadcast> {
        self.0.events.subscribe()
    }

    /// Returns the state of the driver and the history.
    pub fn state(&self) -> State {
        self.0.state.borrow().value.clone()
    }

    /// Returns the list of GPUs.
    pub fn inventory(&self) -> Vec<Gpu> {
        self.0.gpus.borrow().value.clone()
    }

    /// Returns the latest readings.
    pub fn latest(&self) -> Latest {
        let recent = self.recent();
        Latest { telemetry: recent.telemetry.back().cloned(), slow: recent.slow.clone() }
    }

    /// Counts an error that the driver reported for a GPU, and returns whether to report it.
    pub fn fault(&self, gpu: &str, xid: u64, now_ms: u64) -> bool {
        self.0.faults.lock().unwrap_or_else(PoisonError::into_inner).add(gpu, xid, now_ms)
    }

    /// Returns the errors of GPUs since the start of the agent.
    pub fn faults(&self) -> Vec<Fault> {
        self.0.faults.lock().unwrap_or_else(PoisonError::into_inner).all()
    }

    /// Counts messages that were dropped because a viewer was too slow.
    pub fn dropped_for_viewer(&self, n_messages: u64) {
        self.0.n_dropped_for_viewers.fetch_add(n_messages, Ordering::Relaxed);
    }

    /// Counts a moment of telemetry that was dropped because the alert thread was too slow. Returns their number.
    pub fn dropped_for_alerts(&self) -> u64 {
        self.0.n_dropped_for_alerts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns how much live telemetry was dropped since the agent started.
    pub fn dropped(&self) -> Dropped {
        Dropped {
            viewers: self.0.n_dropped_for_viewers.load(Ordering::Relaxed),
            alerts: self.0.n_dropped_for_alerts.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of viewers.
    pub fn n_viewers(&self) -> u64 {
        self.0.n_viewers.load(Ordering::Relaxed)
    }

    /// Counts a viewer for the lifetime of the returned value.
    pub fn viewer(&self) -> Viewer {
        self.0.n_viewers.fetch_add(1, Ordering::Relaxed);
        Viewer(self.clone())
    }
}

/// A counted viewer.
#[derive(Debug)]
pub struct Viewer(Hub);

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.0.n_viewers.fetch_sub(1, Ordering::Relaxed);
    }
}
