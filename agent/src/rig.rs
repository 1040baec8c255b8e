//! What `headroom serve` watches, tied together: telemetry and history, which do not know each other, the owner's
//! alerts, and the hub that viewers hang on.
//!
//! Everything is told on the thread where it happened, and no teller waits for a viewer, for an alert or for the disk.

mod inbox;
mod keeper;
mod owners;
#[cfg(all(test, target_os = "linux"))]
mod soak;

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use headroom_shared::protocol::{
    event::{Event, What},
    state::HistoryState,
};

use crate::{
    clock::now_ms,
    foreman::{Bell, Cards, Foreman, Yard},
    server::hub::Hub,
    store::{Keep, Store, Told},
    telemetry::{self, Observed, Sampler, Step},
    webhook::Webhook,
};
use inbox::{Inbox, News};
use keeper::Keeper;
use owners::Owners;

/// Runs that may still have processes, which come before those that have ended: more than a machine has going on.
const RUNS_MAX: usize = 1000;

/// All of it, as long as it lives.
#[derive(Debug)]
pub struct Rig {
    /// What viewers follow.
    pub hub: Hub,
    // Fields are dropped in this order: nothing is read any more when the store writes what is left.
    sampler: Option<Sampler>,
    /// Starts runs that wait.
    yard: Option<Yard>,
    keeper: Option<Keeper>,
    /// The agent's own runs.
    pub foreman: Foreman,
    /// What is kept.
    pub store: Store,
}

/// Whom what happens is told to.
#[derive(Clone)]
struct Tellers {
    hub: Hub,
    news: Arc<Inbox>,
    owners: Arc<Mutex<Owners>>,
    cards: Cards,
    bell: Bell,
}

impl Rig {
    /// Opens the history of a folder and begins to read cards. `say` is told what happens, for who reads no page.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        folder: &Path,
        keep: Keep,
        name: &str,
        webhook: Option<Webhook>,
        train: Option<&Path>,
        say: impl Fn(&What) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (bell, rung) = Bell::new();
        let tellers = Tellers::new(bell.clone());
        let cards = Arc::clone(&tellers.cards);
        let hub = tellers.hub.clone();
        let told = tellers.clone();
        let is_paused = AtomicBool::new(false);
        let store = Store::open(folder, keep, move |what| match what {
            Told::State(state) => {
                // At once: as an event it is told when it can be written.
                let reason = if let HistoryState::Paused { reason, .. } = &state { Some(reason) } else { None };
                match (is_paused.swap(reason.is_some(), Ordering::Relaxed), reason) {
                    (false, Some(reason)) => say(&What::HistoryPaused { reason: reason.clone() }),
                    (true, None) => say(&What::HistoryResumed),
                    _ => {}
                }
                told.hub.history(state);
            }
            Told::Event(event) => {
                if !matches!(event.what, What::HistoryPaused { .. } | What::HistoryResumed) {
                    say(&event.what);
                }
                told.event(event);
            }
        })?;
        if let Ok(runs) = store.runs(RUNS_MAX) {
            *tellers.owners() = Owners::new(&runs);
        }
        store.append(None, What::AgentStarted { version: env!("CARGO_PKG_VERSION").to_owned() });
        let keeper = Keeper::start(Arc::clone(&tellers.news), store.clone(), name.to_owned(), webhook)?;
        let foreman = Foreman::new(folder, train, &store, cards, bell);
        let yard = Yard::start(&foreman, rung)?;
        let options = telemetry::Options { library: None, disk_folder: folder.to_owned() };
        let kept = store.clone();
        let sampler = telemetry::start(options, move |what| tellers.observe(what, &kept))?;
        Ok(Self { hub, sampler: Some(sampler), yard: Some(yard), keeper: Some(keeper), foreman, store })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.sampler = None;
        self.yard = None;
        // The store tells the keeper, and goes first; what it tells is dropped with it.
        self.store.close();
        self.keeper = None;
    }
}

impl Tellers {
    fn new(bell: Bell) -> Self {
        let (hub, news) = (Hub::default(), Arc::default());
        Self { hub, news, owners: Arc::default(), cards: Arc::default(), bell }
    }

    /// Nothing in it is left half changed where a thread panics.
    fn owners(&self) -> std::sync::MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, event: Event) {
        self.owners().event(event.run.as_deref(), &event.what);
        // A device is free, or something waits.
        if matches!(event.what, What::RunStarted { .. } | What::RunStatus { .. } | What::RunDeleted { .. }) {
            self.bell.ring();
        }
        self.news.put(News::Event(event.clone()));
        self.hub.event(event);
    }

    fn observe(&self, what: Observed, store: &Store) {
        if !matches!(what, Observed::Slow(_) | Observed::Driver(_)) {
            self.news.put(News::Observed(what.clone()));
        }
        match what {
            Observed::Driver(driver) => self.hub.driver(driver),
            Observed::Inventory(gpus) => {
                store.inventory(&gpus);
                self.cards.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&gpus);
                self.hub.gpus(gpus);
            }
            Observed::Telemetry(telemetry) => {
                store.telemetry(Arc::clone(&telemetry));
                self.hub.telemetry(telemetry);
            }
            Observed::Slow(mut slow) => {
                self.owners().mark(&mut slow);
                let slow = Arc::new(slow);
                store.slow(Arc::clone(&slow));
                self.hub.slow(slow);
            }
            Observed::ClockSet(Step { from_ms, to_ms }) => store.append(None, What::ClockSet { from_ms, to_ms }),
            Observed::CardLost(gpu) => store.append(None, What::CardLost { gpu }),
            Observed::CardBack(gpu) => store.append(None, What::CardBack { gpu }),
            // The watcher of a run that dies of it says so besides.
            Observed::Xid { gpu, xid } => {
                if self.hub.fault(&gpu, xid, now_ms()) {
                    store.append(None, What::CardFault { gpu, xid });
                }
            }
        }
    }
}
