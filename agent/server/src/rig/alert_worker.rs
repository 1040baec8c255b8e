//! The thread that evaluates the owner's alerts. Fired alerts are stored in history, which notifies viewers, and sent
//! to the owner's webhook, if there is one.

use std::{
    collections::BTreeMap,
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use headroom_protocol::{
    alert::{Alert, FiredAlert, Settings},
    event::{Event, EventKind},
    run::Run,
};

use super::alert_queue::{AlertInput, AlertQueue};
use crate::{
    alerts::{AlertEvent, Alerts},
    secrets,
    webhook::{Message, Names, Webhook},
};
use headroom_agent_core::{
    clock::now_ms,
    logging::{ALERTS, LastError},
    store::{Store, StoredAlert},
    telemetry::{self, TelemetryEvent},
};

/// Interval between evaluations of telemetry, checks of runs without progress, and retries of reading history. A value
/// must exceed its limit for longer than this to fire an alert.
const TICK: Duration = Duration::from_secs(1);
/// Interval for reading the owner's settings without a change event, because history may be unreadable at the event.
const SETTINGS_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of events that are read to determine a run's progress since the agent ended.
const EVENTS_MAX: usize = 200;
/// Maximum number of remembered dismissed alerts, as in history.
const DISMISSED_MAX: usize = 1000;
/// Maximum number of stored names of runs, and of GPUs. Older ones are replaced by the ID.
const NAMES_MAX: usize = 256;

/// The thread, which ends when this value is dropped.
#[derive(Debug)]
pub struct AlertWorker {
    news: Arc<AlertQueue>,
    handle: Option<JoinHandle<()>>,
}

impl AlertWorker {
    /// Starts evaluating alerts for the items in the queue.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start(news: Arc<AlertQueue>, store: Store, rig: String, webhook: Option<Webhook>) -> io::Result<Self> {
        Self::watch(news, Watch::new(store, rig, webhook))
    }

    fn watch(news: Arc<AlertQueue>, mut watch: Watch) -> io::Result<Self> {
        let looked_at = Arc::clone(&news);
        let handle = thread::Builder::new().name("alerts".to_owned()).spawn(move || watch.run(&looked_at))?;
        Ok(Self { news, handle: Some(handle) })
    }
}

impl Drop for AlertWorker {
    fn drop(&mut self) {
        self.news.close();
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

struct Watch {
    store: Store,
    rig: String,
    webhook: Option<Webhook>,
    alerts: Alerts,
    /// Whether rules and active alerts were read from history. Until then, no alert fires or ends.
    is_restored: bool,
    /// Dismissed alerts. Their end is not sent to the webhook.
    dismissed: Vec<FiredAlert>,
    gpu_names: BTreeMap<String, String>,
    run_names: BTreeMap<String, String>,
    /// The last error of reading the rules.
    last_error: LastError,
    settings_every: Duration,
}

impl Watch {
    fn new(store: Store, rig: String, webhook: Option<Webhook>) -> Self {
        let (gpu_names, run_names) = Default::default();
        let (alerts, dismissed) = Default::default();
        Self {
            store,
            rig,
            webhook,
            alerts,
            is_restored: false,
            dismissed,
            gpu_names,
            run_names,
            last_error: LastError::default(),
            settings_every: SETTINGS_EVERY,
        }
    }

    fn run(&mut self, news: &AlertQueue) {
        self.restore();
        let mut next_tick = Instant::now() + TICK;
        let mut next_settings = Instant::now() + self.settings_every;
        loop {
            let mut wait = next_tick.saturating_duration_since(Instant::now());
            if self.alerts.is_rising() {
                // An alert that is about to fire must fire without delay.
                wait = wait.min(telemetry::PERIOD);
            }
            let Some(news) = news.wait(wait) else { return };
            for news in news {
                let raised = match news {
                    AlertInput::TelemetryEvent(observed) => self.observed(&observed),
                    AlertInput::Event(event) => self.event(&event),
                };
                self.tell_all(raised);
            }
            if Instant::now() < next_tick {
                continue;
            }
            next_tick = Instant::now() + TICK;
            if !self.is_restored {
                self.restore();
            }
            let raised = self.alerts.tick(now_ms());
            self.tell_all(raised);
            if Instant::now() >= next_settings {
                next_settings = Instant::now() + self.settings_every;
                let raised = self.read_rules();
                self.tell_all(raised);
            }
        }
    }

    fn observed(&mut self, observed: &TelemetryEvent) -> Vec<AlertEvent> {
        if let TelemetryEvent::Inventory(gpus) = observed {
            gpus.iter().for_each(|gpu| keep_name(&mut self.gpu_names, &gpu.uuid, &gpu.name));
        }
        self.alerts.observe(observed)
    }

    /// Restores the state from history, once history is readable.
    fn restore(&mut self) {
        let read = || Ok((self.store.settings()?, self.store.kept_alerts()?, self.store.runs(NAMES_MAX)?));
        let read: Result<(Settings, Vec<StoredAlert>, Vec<Run>), headroom_agent_core::store::Error> = read();
        let (settings, kept, runs) = match read {
            Ok(read) => read,
            Err(error) => {
                if self.last_error.is_new(&error) {
                    tracing::warn!(target: ALERTS, %error, "cannot read the alert rules yet: no alert fires");
                }
                return;
            }
        };
        self.last_error.clear();
        self.is_restored = true;
        for run in &runs {
            keep_name(&mut self.run_names, &run.id, &run.name);
        }
        let mut fired = Vec::new();
        for StoredAlert { fired: one, is_dismissed } in kept {
            if let (Some(uuid), Some(name)) = (&one.gpu, &one.gpu_name) {
                keep_name(&mut self.gpu_names, uuid, name);
            }
            if is_dismissed {
                self.dismissed.push(one.clone());
            }
            fired.push(one);
        }
        let runs: Vec<(Run, u64)> = runs.into_iter().map(|run| self.with_progress(run)).collect();
        let mut raised = self.alerts.restore(&settings.alerts, &fired, &runs);
        for one in fired {
            let (Alert::NoProgress { .. }, Some(run)) = (one.alert, &one.run) else { continue };
            for event in or_default(self.store.events(Some(run), one.event, EVENTS_MAX)) {
                raised.extend(self.alerts.event(&event));
            }
        }
        self.tell_all(raised);
    }

    /// Returns a run with the time of its last progress from history, at most the current time, because the clock may
    /// have been set back.
    fn with_progress(&self, run: Run) -> (Run, u64) {
        let progress_ms =
            if run.status.has_ended() { None } else { or_default(self.store.archive().last_progress(&run.id)) };
        let progress_ms = progress_ms.unwrap_or(run.started_ms).min(now_ms());
        (run, progress_ms)
    }

    fn event(&mut self, event: &Event) -> Vec<AlertEvent> {
        self.name(event);
        match &event.what {
            EventKind::SettingsChanged => return self.read_rules(),
            EventKind::AlertDismissed { alert, gpu } if *alert != Alert::RunFailed => {
                self.forget_dismissed(alert, gpu.as_deref(), event.run.as_deref());
                if self.dismissed.len() >= DISMISSED_MAX {
                    self.dismissed.remove(0);
                }
                let what = EventKind::Alert { alert: *alert, gpu: gpu.clone(), value: None, status: None };
                self.dismissed.extend(FiredAlert::of(&Event { what, ..event.clone() }));
            }
            _ => {}
        }
        self.alerts.event(event)
    }

    /// Reads the current rules. If history is unreadable, the rules remain unchanged.
    fn read_rules(&mut self) -> Vec<AlertEvent> {
        match self.store.settings() {
            Ok(settings) if self.is_restored => {
                self.last_error.clear();
                self.alerts.set(&settings.alerts)
            }
            Ok(_) => vec![],
            Err(error) => {
                if self.last_error.is_new(&error) {
                    tracing::warn!(target: ALERTS, %error, "cannot read the alert rules: they remain as they were");
                }
                vec![]
            }
        }
    }

    /// Returns whether the alert was dismissed, and forgets the dismissal.
    fn forget_dismissed(&mut self, alert: &Alert, gpu: Option<&str>, run: Option<&str>) -> bool {
        let n_before = self.dismissed.len();
        self.dismissed.retain(|fired| !fired.is(alert, gpu, run));
        self.dismissed.len() < n_before
    }

    fn name(&mut self, event: &Event) {
        if let (Some(id), EventKind::RunStarted { run }) = (&event.run, &event.what) {
            keep_name(&mut self.run_names, id, &run.name);
        }
    }

    fn tell_all(&mut self, raised: Vec<AlertEvent>) {
        raised.into_iter().for_each(|raised| self.tell(raised));
    }

    fn tell(&mut self, AlertEvent { run, what }: AlertEvent) {
        let (alert, gpu) = match &what {
            EventKind::Alert { alert, gpu, .. } | EventKind::AlertOver { alert, gpu } => (*alert, gpu.clone()),
            _ => return,
        };
        let change = if matches!(what, EventKind::Alert { .. }) { "an alert fired" } else { "an alert is over" };
        tracing::info!(target: ALERTS, ?alert, gpu, run, "{change}");
        let was_dismissed = self.forget_dismissed(&alert, gpu.as_deref(), run.as_deref());
        let is_quiet = was_dismissed && matches!(what, EventKind::AlertOver { .. });
        if let Some(webhook) = self.webhook.as_ref().filter(|_| !is_quiet) {
            // Readers of a channel do not have a token with the scope `control`.
            let run_name = run.as_ref().and_then(|id| self.run_names.get(id)).map(|name| secrets::text(name));
            let names = Names {
                rig: &self.rig,
                gpu: gpu.and_then(|uuid| self.gpu_names.get(&uuid)).map(String::as_str),
                run: run_name.as_deref(),
            };
            if let Some(message) = Message::new(names, run.as_deref(), &what, now_ms()) {
                webhook.send(message);
            }
        }
        self.store.append(run.as_deref(), what);
    }
}

/// Returns what was read. If history cannot be read, logs the cause and returns the default.
fn or_default<T: Default>(read: Result<T, headroom_agent_core::store::Error>) -> T {
    read.unwrap_or_else(|error| {
        tracing::warn!(target: ALERTS, %error, "cannot read a run's progress");
        T::default()
    })
}

/// Stores a name in a bounded map.
fn keep_name(names: &mut BTreeMap<String, String>, id: &str, name: &str) {
    if names.len() >= NAMES_MAX && !names.contains_key(id) {
        names.pop_first();
    }
    names.insert(id.to_owned(), name.to_owned());
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use headroom_protocol::{Telemetry, run::RunStatus};

    use super::*;
    use headroom_agent_core::store::{RetentionLimits, StoreEvent};

    /// A timeout that no passing test reaches.
    const LONG: Duration = Duration::from_secs(60);

    /// Sets the owner's rules as soon as the history is open.
    fn set_rules(store: &Store, rules: &[Alert]) {
        let settings = Settings { alerts: rules.to_vec(), ..Settings::default() };
        let since = Instant::now();
        while store.set_settings(&settings, |_| true).is_err() {
            assert!(since.elapsed() < LONG, "the history opens");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The thread does not read the rules on its own here, so only the event of the change can end the alert.
    #[test]
    fn alert_of_removed_rule_ends_at_the_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, reported) = mpsc::channel();
        let queue = Arc::new(AlertQueue::default());
        let news = Arc::clone(&queue);
        let store = Store::open(folder.path(), RetentionLimits::default(), move |event| {
            let StoreEvent::Event(event) = event else { return };
            if matches!(event.what, EventKind::Alert { .. } | EventKind::AlertOver { .. }) {
                let _ = sender.send(event.what.clone());
            }
            news.put(AlertInput::Event(event));
        });
        let store = store.expect("a thread");
        set_rules(&store, &[Alert::GpuLost]);
        let mut watch = Watch::new(store.clone(), "rig".to_owned(), None);
        watch.settings_every = Duration::from_secs(24 * 60 * 60);
        let worker = AlertWorker::watch(Arc::clone(&queue), watch).expect("a thread");
        queue.put(AlertInput::TelemetryEvent(TelemetryEvent::GpuLost("GPU-0".to_owned())));
        let fired = reported.recv_timeout(LONG).expect("an alert");
        assert!(matches!(fired, EventKind::Alert { alert: Alert::GpuLost, .. }), "{fired:?}");
        set_rules(&store, &[]);
        let over = EventKind::AlertOver { alert: Alert::GpuLost, gpu: Some("GPU-0".to_owned()) };
        assert_eq!(reported.recv_timeout(LONG), Ok(over));
        drop(worker);
    }

    #[test]
    fn full_queue_still_raises_alerts() {
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, raised) = mpsc::channel();
        let store = Store::open(folder.path(), RetentionLimits::default(), move |event| {
            if let StoreEvent::Event(Event { run, what: EventKind::Alert { alert, gpu, .. }, .. }) = event {
                let _ = sender.send((alert, run.or(gpu)));
            }
        });
        let store = store.expect("a thread");
        set_rules(&store, &[Alert::RunFailed, Alert::GpuLost]);
        // Nothing reads the queue yet. Telemetry and progress arrive before and after the events that matter.
        let queue = Arc::new(AlertQueue::default());
        let n_dropped = std::cell::Cell::new(0);
        let flood = || {
            for i in 0..10_000 {
                let telemetry = Arc::new(Telemetry { seq: i, time_ms: i, gpus: vec![] });
                let is_dropped = queue.put(AlertInput::TelemetryEvent(TelemetryEvent::Telemetry(telemetry)));
                n_dropped.set(n_dropped.get() + u64::from(is_dropped));
                let what = EventKind::RunEvaluating { done: i, of: 10_000 };
                queue.put(AlertInput::Event(Event { id: i, time_ms: i, run: Some("other".to_owned()), what }));
            }
        };
        flood();
        let what = EventKind::RunStatus { status: RunStatus::Lost, energy_joules: None };
        queue.put(AlertInput::Event(Event { id: 1, time_ms: 1, run: Some("ab".to_owned()), what }));
        queue.put(AlertInput::TelemetryEvent(TelemetryEvent::GpuLost("GPU-0".to_owned())));
        flood();
        assert!(n_dropped.get() > 19_000, "the queue overflows, and drops are counted: {}", n_dropped.get());
        let worker = AlertWorker::start(queue, store.clone(), "rig".to_owned(), None).expect("a thread");
        let mut alerts: Vec<_> = (0..2).map(|_| raised.recv_timeout(LONG).expect("an alert")).collect();
        alerts.sort_by_key(|(_, of)| of.clone());
        let of = |of: &str| Some(of.to_owned());
        assert_eq!(alerts, [(Alert::GpuLost, of("GPU-0")), (Alert::RunFailed, of("ab"))]);
        drop(worker);
    }
}
