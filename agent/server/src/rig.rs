//! Connects the parts of `headroom serve`: telemetry, history, alerts and the hub. Telemetry and history are
//! independent of each other.
//!
//! Notifications are sent on the thread where they arise, and no sender waits for a viewer, an alert or the disk.

mod alert_queue;
mod alert_worker;
mod process_runs;
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

use headroom_protocol::{
    event::{Event, EventKind},
    state::HistoryState,
};

use crate::{
    hub::Hub,
    run_manager::{RunManager, Scheduler, SchedulerWaker, SharedGpus},
    webhook::Webhook,
};
use alert_queue::{AlertInput, AlertQueue};
use alert_worker::AlertWorker;
use headroom_agent_core::{
    clock::now_ms,
    logging,
    store::{RetentionLimits, Store, StoreEvent},
    telemetry::{self, Sampler, Step, TelemetryEvent},
};
use process_runs::ProcessRuns;

/// Maximum number of runs that may still have processes, more than a machine runs at once. They precede runs that have
/// ended.
const RUNS_MAX: usize = 1000;

/// The running agent. Dropping it stops all parts.
#[derive(Debug)]
pub struct Rig {
    /// Notifies viewers.
    pub hub: Hub,
    // Fields are dropped in this order: reading stops before the store writes its remaining data.
    sampler: Option<Sampler>,
    /// Starts queued runs.
    scheduler: Option<Scheduler>,
    alert_worker: Option<AlertWorker>,
    /// Manages the agent's own runs.
    pub run_manager: RunManager,
    /// The history.
    pub store: Store,
}

/// Receivers of notifications.
#[derive(Clone)]
struct Notifiers {
    hub: Hub,
    news: Arc<AlertQueue>,
    owners: Arc<Mutex<ProcessRuns>>,
    gpus: SharedGpus,
    waker: SchedulerWaker,
}

impl Rig {
    /// Opens the history in a directory and starts reading GPUs. `say` is called with events, for owners without a
    /// page.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start(
        folder: &Path,
        keep: RetentionLimits,
        name: &str,
        webhook: Option<Webhook>,
        train: Option<&Path>,
        say: impl Fn(&EventKind) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (waker, rung) = SchedulerWaker::new();
        let tellers = Notifiers::new(waker.clone());
        let gpus = Arc::clone(&tellers.gpus);
        let hub = tellers.hub.clone();
        let sinks = tellers.clone();
        let is_paused = AtomicBool::new(false);
        let store = Store::open(folder, keep, move |what| match what {
            StoreEvent::State(state) => {
                // Immediately: the event is sent only when it can be written.
                let reason = if let HistoryState::Paused { reason, .. } = &state { Some(reason) } else { None };
                match (is_paused.swap(reason.is_some(), Ordering::Relaxed), reason) {
                    (false, Some(reason)) => say(&EventKind::HistoryPaused { reason: reason.clone() }),
                    (true, None) => say(&EventKind::HistoryResumed),
                    _ => {}
                }
                sinks.hub.history(state);
            }
            StoreEvent::Event(event) => {
                if !matches!(event.what, EventKind::HistoryPaused { .. } | EventKind::HistoryResumed) {
                    say(&event.what);
                }
                sinks.event(event);
            }
        })?;
        match store.runs(RUNS_MAX) {
            Ok(runs) => *tellers.owners() = ProcessRuns::new(&runs),
            Err(error) => tracing::warn!(target: logging::HISTORY, %error, "cannot assign processes to earlier runs"),
        }
        store.append(None, EventKind::AgentStarted { version: env!("CARGO_PKG_VERSION").to_owned() });
        let alert_worker = AlertWorker::start(Arc::clone(&tellers.news), store.clone(), name.to_owned(), webhook)?;
        let run_manager = RunManager::new(folder, train, &store, gpus, waker);
        let scheduler = Scheduler::start(&run_manager, rung)?;
        let options = telemetry::Options { library: None, disk_folder: folder.to_owned() };
        let kept = store.clone();
        let sampler = telemetry::start(options, move |what| tellers.observe(what, &kept))?;
        Ok(Self {
            hub,
            sampler: Some(sampler),
            scheduler: Some(scheduler),
            alert_worker: Some(alert_worker),
            run_manager,
            store,
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.sampler = None;
        self.scheduler = None;
        // The store notifies the keeper, and must end first. Later notifications are dropped with the store.
        self.store.close();
        self.alert_worker = None;
    }
}

impl Notifiers {
    fn new(waker: SchedulerWaker) -> Self {
        let (hub, news) = (Hub::default(), Arc::default());
        Self { hub, news, owners: Arc::default(), gpus: Arc::default(), waker }
    }

    /// No change is left incomplete if a thread panics.
    fn owners(&self) -> std::sync::MutexGuard<'_, ProcessRuns> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, event: Event) {
        self.owners().event(event.run.as_deref(), &event.what);
        // A device is free, or a run is queued.
        if matches!(
            event.what,
            EventKind::RunStarted { .. } | EventKind::RunStatus { .. } | EventKind::RunDeleted { .. }
        ) {
            self.waker.ring();
        }
        self.news.put(AlertInput::Event(event.clone()));
        self.hub.event(event);
    }

    fn observe(&self, what: TelemetryEvent, store: &Store) {
        let concerns_alerts = !matches!(what, TelemetryEvent::Slow(_) | TelemetryEvent::Driver(_));
        if concerns_alerts && self.news.put(AlertInput::TelemetryEvent(what.clone())) {
            let n = self.hub.dropped_for_alerts();
            if logging::is_logged(n) {
                tracing::warn!(target: logging::ALERTS, n, "the alert thread is too slow: telemetry was dropped");
            }
        }
        match what {
            TelemetryEvent::Driver(driver) => {
                tracing::info!(target: logging::TELEMETRY, ?driver, "the driver's state changed");
                self.hub.driver(driver);
            }
            TelemetryEvent::Inventory(gpus) => {
                store.inventory(&gpus);
                self.gpus.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&gpus);
                self.hub.gpus(gpus);
            }
            TelemetryEvent::Telemetry(telemetry) => {
                store.telemetry(Arc::clone(&telemetry));
                self.hub.telemetry(telemetry);
            }
            TelemetryEvent::Slow(mut slow) => {
                self.owners().mark(&mut slow);
                let slow = Arc::new(slow);
                store.slow(Arc::clone(&slow));
                self.hub.slow(slow);
            }
            TelemetryEvent::ClockSet(Step { from_ms, to_ms }) => {
                store.append(None, EventKind::ClockSet { from_ms, to_ms });
            }
            TelemetryEvent::GpuLost(gpu) => store.append(None, EventKind::GpuLost { gpu }),
            TelemetryEvent::GpuRecovered(gpu) => store.append(None, EventKind::GpuRecovered { gpu }),
            // The watcher of a run that fails because of it reports it as well.
            TelemetryEvent::Xid { gpu, xid } => {
                if self.hub.fault(&gpu, xid, now_ms()) {
                    store.append(None, EventKind::GpuXid { gpu, xid });
                }
            }
        }
    }
}
