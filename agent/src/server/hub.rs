//! What goes to all viewers, encoded once for all of them; what is seldom and has sentences, once a language.
//!
//! Telemetry goes through a queue of a few seconds that the slow lose the old end of. Events go through one of their
//! own: who falls behind in it reads what is missing from history, by its numbers. State and cards are what they are
//! now, and a viewer that missed one takes the next.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::extract::ws::Utf8Bytes;
use headroom_shared::{
    protocol::{
        ServerMessage, Slow, Telemetry,
        event::Event,
        gpu::Gpu,
        state::{DriverState, HistoryState, State},
    },
    text,
};
use serde::Serialize;
use tokio::sync::{broadcast, watch};

use super::faults::{Fault, Faults};
use super::spoken::Texts;

/// Messages of telemetry that wait for a viewer: six seconds of them. What is older than that is for history, and a
/// thousand viewers share each.
const LIVE_MESSAGES_MAX: usize = 64;
/// Events that wait for a viewer: a minute of several runs' iterations at their highest rate.
const EVENTS_MAX: usize = 2048;
/// Moments of telemetry kept for who comes now: history is written once a second, and a disk may take a few.
const RECENT_MAX: usize = 100;
/// Room for a message of telemetry beside its cards, and for each card: a sample is some 270 bytes.
const HEAD_BYTES: usize = 128;
const SAMPLE_BYTES: usize = 320;

/// An event as it goes to viewers.
#[derive(Clone, Debug)]
pub struct Told {
    /// Its number; 0 where history could not give it one.
    pub id: u64,
    /// The message.
    pub texts: Texts,
}

/// A value that is what it is now, and the message that says so.
#[derive(Clone, Debug)]
pub struct Now<T> {
    /// The value.
    pub value: T,
    /// The message.
    pub texts: Texts,
}

/// The last of everything that is read off cards.
#[derive(Clone, Debug, Default)]
pub struct Latest {
    /// Ten times a second.
    pub telemetry: Option<Arc<Telemetry>>,
    /// Once a second.
    pub slow: Option<Arc<Slow>>,
}

/// What a viewer follows from one moment on.
#[derive(Debug)]
pub struct Subscription {
    /// Telemetry and slow readings.
    pub live: broadcast::Receiver<Utf8Bytes>,
    /// Events.
    pub events: broadcast::Receiver<Told>,
    /// Driver and history.
    pub state: watch::Receiver<Now<State>>,
    /// Cards.
    pub gpus: watch::Receiver<Now<Vec<Gpu>>>,
    /// The moments before it, oldest first.
    pub recent: Vec<Arc<Telemetry>>,
    /// The newest slow readings before it.
    pub slow: Option<Arc<Slow>>,
}

#[derive(Debug, Default)]
struct Recent {
    telemetry: VecDeque<Arc<Telemetry>>,
    slow: Option<Arc<Slow>>,
}

#[derive(Debug)]
struct Inner {
    /// Held while something is told, so that a viewer who comes has each moment either behind or before it.
    recent: Mutex<Recent>,
    live: broadcast::Sender<Utf8Bytes>,
    events: broadcast::Sender<Told>,
    state: watch::Sender<Now<State>>,
    gpus: watch::Sender<Now<Vec<Gpu>>>,
    n_viewers: AtomicU64,
    faults: Mutex<Faults>,
}

/// The place where everything is told. A clone is the same.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Inner>);

impl Default for Hub {
    fn default() -> Self {
        let state = State {
            driver: DriverState::Starting,
            history: HistoryState::Paused { reason: text::HISTORY_NOT_OPENED.to_string(), since_ms: 0 },
        };
        let now = Now { texts: Texts::of(&ServerMessage::State(state.clone())), value: state };
        let gpus = Now { texts: Texts::of(&ServerMessage::Inventory { gpus: vec![] }), value: vec![] };
        Self(Arc::new(Inner {
            recent: Mutex::default(),
            live: broadcast::Sender::new(LIVE_MESSAGES_MAX),
            events: broadcast::Sender::new(EVENTS_MAX),
            state: watch::Sender::new(now),
            gpus: watch::Sender::new(gpus),
            n_viewers: AtomicU64::new(0),
            faults: Mutex::default(),
        }))
    }
}

/// The same of a message that is about so long: room for it is made once, ten times a second.
fn encoded_in<T: Serialize>(bytes: usize, message: &T) -> Utf8Bytes {
    let mut text = Vec::with_capacity(bytes);
    let written = serde_json::to_writer(&mut text, message);
    written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default().into()
}

/// A message as it is sent.
pub fn encoded<T: Serialize>(message: &T) -> Utf8Bytes {
    // The protocol's values have no maps with odd keys, which are all that JSON cannot say.
    serde_json::to_string(message).unwrap_or_default().into()
}

impl Hub {
    /// Nothing in it is left half changed where a thread panics.
    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.0.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a moment of all cards.
    pub fn telemetry(&self, telemetry: Arc<Telemetry>) {
        let encode = || {
            let bytes = HEAD_BYTES + SAMPLE_BYTES * telemetry.gpus.len();
            // A copy of some numbers costs less than a message that borrows would in code.
            encoded_in(bytes, &ServerMessage::Telemetry(Telemetry::clone(&telemetry)))
        };
        let text = (self.0.live.receiver_count() > 0).then(encode);
        let mut recent = self.recent();
        if self.0.live.receiver_count() > 0 {
            // Whoever came since waits for it too.
            let _ = self.0.live.send(text.unwrap_or_else(encode));
        }
        // The clock was set back: what is kept is of times that are yet to come.
        if recent.telemetry.back().is_some_and(|last| last.time_ms > telemetry.time_ms) {
            recent.telemetry.clear();
        }
        if recent.telemetry.len() == RECENT_MAX {
            recent.telemetry.pop_front();
        }
        recent.telemetry.push_back(telemetry);
    }

    /// Tells the slow readings.
    pub fn slow(&self, slow: Arc<Slow>) {
        let text = encoded(&ServerMessage::Slow(Slow::clone(&slow)));
        let mut recent = self.recent();
        recent.slow = Some(slow);
        // With no viewers there is nobody to take it, which is no error.
        let _ = self.0.live.send(text);
    }

    /// Tells an event.
    pub fn event(&self, event: Event) {
        let id = event.id;
        let texts = Texts::of(&ServerMessage::Event(event));
        let _recent = self.recent();
        let _ = self.0.events.send(Told { id, texts });
    }

    /// Tells the driver's state.
    pub fn driver(&self, driver: DriverState) {
        self.change_state(|state| state.driver = driver);
    }

    /// Tells history's state.
    pub fn history(&self, history: HistoryState) {
        self.change_state(|state| state.history = history);
    }

    fn change_state(&self, change: impl FnOnce(&mut State)) {
        self.0.state.send_if_modified(|now| {
            let mut value = now.value.clone();
            change(&mut value);
            let changed = value != now.value;
            if changed {
                *now = Now { texts: Texts::of(&ServerMessage::State(value.clone())), value };
            }
            changed
        });
    }

    /// Tells which cards there are.
    pub fn gpus(&self, gpus: Vec<Gpu>) {
        let texts = Texts::of(&ServerMessage::Inventory { gpus: gpus.clone() });
        self.0.gpus.send_replace(Now { value: gpus, texts });
    }

    /// Follows from now on.
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

    /// Follows events alone, from now on.
    pub fn events(&self) -> broadcast::Receiver<Told> {
        self.0.events.subscribe()
    }

    /// How driver and history are.
    pub fn state(&self) -> State {
        self.0.state.borrow().value.clone()
    }

    /// Which cards there are.
    pub fn inventory(&self) -> Vec<Gpu> {
        self.0.gpus.borrow().value.clone()
    }

    /// What was read last.
    pub fn latest(&self) -> Latest {
        let recent = self.recent();
        Latest { telemetry: recent.telemetry.back().cloned(), slow: recent.slow.clone() }
    }

    /// Counts an error that the driver reported of a card; gives whether it is to be told.
    pub fn fault(&self, gpu: &str, xid: u64, now_ms: u64) -> bool {
        self.0.faults.lock().unwrap_or_else(PoisonError::into_inner).add(gpu, xid, now_ms)
    }

    /// Errors of cards so far.
    pub fn faults(&self) -> Vec<Fault> {
        self.0.faults.lock().unwrap_or_else(PoisonError::into_inner).all()
    }

    /// How many watch.
    pub fn n_viewers(&self) -> u64 {
        self.0.n_viewers.load(Ordering::Relaxed)
    }

    /// Counts a viewer as long as the value lives.
    pub fn viewer(&self) -> Viewer {
        self.0.n_viewers.fetch_add(1, Ordering::Relaxed);
        Viewer(self.clone())
    }
}

/// One that is counted.
#[derive(Debug)]
pub struct Viewer(Hub);

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.0.n_viewers.fetch_sub(1, Ordering::Relaxed);
    }
}
