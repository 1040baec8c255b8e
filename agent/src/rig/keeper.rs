//! Looks after the owner's alerts, on a thread of its own: what goes off is kept in history, shown by that, and sent to
//! the owner's address where there is one.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use headroom_shared::protocol::{
    alert::{Alert, Fired, Settings},
    event::{Event, What},
    run::Run,
};

use crate::{
    alerts::{Alerts, Raised},
    clock::now_ms,
    store::{Kept, Store},
    telemetry::Observed,
    webhook::{Message, Names, Webhook},
};

/// What waits to be looked at: some seconds of telemetry and a burst of events. What comes while it is full is not
/// looked at, as the next moment says it again.
const NEWS_MAX: usize = 256;
/// How often time passes for runs that tell nothing, and what history could not say at first is asked again.
const TICK: Duration = Duration::from_secs(1);
/// How often the owner's settings are read though nobody said that they changed: what was said while the queue was full
/// is lost.
const SETTINGS_EVERY: Duration = Duration::from_secs(60);
/// Events that are read of a run that made no progress when the agent ended: whether it made any since.
const EVENTS_MAX: usize = 200;
/// Dismissed alerts that are remembered: as many as history keeps.
const DISMISSED_MAX: usize = 1000;
/// Runs, and cards, whose names are kept; of an older one the number is said.
const NAMES_MAX: usize = 256;

/// Something to look at.
#[derive(Debug)]
pub enum News {
    /// Of a card.
    Observed(Observed),
    /// Of a run.
    Event(Event),
}

/// The thread; it ends when this is dropped. A thread of telemetry that hangs in a driver may hold its sender for ever.
#[derive(Debug)]
pub struct Keeper {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts looking after what a receiver of [`channel`] gets.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(news: Receiver<News>, store: Store, rig: String, webhook: Option<Webhook>) -> io::Result<Self> {
        let mut watch = Watch::new(store, rig, webhook);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let handle = thread::Builder::new().name("alerts".to_owned()).spawn(move || watch.run(&news, &stopped))?;
        Ok(Self { stop, handle: Some(handle) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

/// Where news come in.
pub fn channel() -> (SyncSender<News>, Receiver<News>) {
    sync_channel(NEWS_MAX)
}

struct Watch {
    store: Store,
    rig: String,
    webhook: Option<Webhook>,
    alerts: Alerts,
    /// Whether history said what is on and what the rules are. Until it did nothing goes off and nothing is over.
    is_restored: bool,
    /// Alerts that somebody dismissed: nobody is sent that they are over.
    dismissed: Vec<Fired>,
    gpu_names: BTreeMap<String, String>,
    run_names: BTreeMap<String, String>,
}

impl Watch {
    fn new(store: Store, rig: String, webhook: Option<Webhook>) -> Self {
        let (gpu_names, run_names) = Default::default();
        let (alerts, dismissed) = Default::default();
        Self { store, rig, webhook, alerts, is_restored: false, dismissed, gpu_names, run_names }
    }

    fn run(&mut self, news: &Receiver<News>, stop: &AtomicBool) {
        self.restore();
        let mut next_tick = Instant::now() + TICK;
        let mut next_settings = Instant::now() + SETTINGS_EVERY;
        while !stop.load(Ordering::Relaxed) {
            let raised = match news.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
                Ok(News::Observed(observed)) => {
                    if let Observed::Inventory(gpus) = &observed {
                        gpus.iter().for_each(|gpu| keep_name(&mut self.gpu_names, &gpu.uuid, &gpu.name));
                    }
                    self.alerts.observe(&observed)
                }
                Ok(News::Event(event)) => self.event(&event),
                Err(RecvTimeoutError::Timeout) => {
                    next_tick = Instant::now() + TICK;
                    if !self.is_restored {
                        self.restore();
                    }
                    let mut raised = self.alerts.tick(now_ms());
                    if Instant::now() >= next_settings {
                        next_settings = Instant::now() + SETTINGS_EVERY;
                        raised.extend(self.read_rules());
                    }
                    raised
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for raised in raised {
                self.tell(raised);
            }
        }
    }

    /// Goes on where the agent before ended, once history says where that was.
    fn restore(&mut self) {
        let read = || Ok((self.store.settings()?, self.store.kept_alerts()?, self.store.runs(NAMES_MAX)?));
        let read: Result<(Settings, Vec<Kept>, Vec<Run>), crate::store::Error> = read();
        let Ok((settings, kept, runs)) = read else { return };
        self.is_restored = true;
        for run in &runs {
            keep_name(&mut self.run_names, &run.id, &run.name);
        }
        let mut fired = Vec::new();
        for Kept { fired: one, is_dismissed } in kept {
            if let (Some(uuid), Some(name)) = (&one.gpu, &one.gpu_name) {
                keep_name(&mut self.gpu_names, uuid, name);
            }
            if is_dismissed {
                self.dismissed.push(one.clone());
            }
            fired.push(one);
        }
        let mut raised = self.alerts.restore(&settings.alerts, &fired, &runs, now_ms());
        for one in fired {
            let (Alert::NoProgress { .. }, Some(run)) = (one.alert, &one.run) else { continue };
            for event in self.store.events(Some(run), one.event, EVENTS_MAX).unwrap_or_default() {
                raised.extend(self.alerts.event(&event));
            }
        }
        for raised in raised {
            self.tell(raised);
        }
    }

    fn event(&mut self, event: &Event) -> Vec<Raised> {
        self.name(event);
        match &event.what {
            What::SettingsChanged => return self.read_rules(),
            What::AlertDismissed { alert, gpu } if *alert != Alert::RunFailed => {
                self.forget_dismissed(alert, gpu.as_deref(), event.run.as_deref());
                if self.dismissed.len() >= DISMISSED_MAX {
                    self.dismissed.remove(0);
                }
                let what = What::Alert { alert: *alert, gpu: gpu.clone(), value: None };
                self.dismissed.extend(Fired::of(&Event { what, ..event.clone() }));
            }
            _ => {}
        }
        self.alerts.event(event)
    }

    /// Takes the rules as they are now. Where history cannot be read they stay as they are.
    fn read_rules(&mut self) -> Vec<Raised> {
        match self.store.settings() {
            Ok(settings) if self.is_restored => self.alerts.set(&settings.alerts),
            _ => vec![],
        }
    }

    /// Gives whether somebody had dismissed it.
    fn forget_dismissed(&mut self, alert: &Alert, gpu: Option<&str>, run: Option<&str>) -> bool {
        let n_before = self.dismissed.len();
        self.dismissed.retain(|fired| !fired.is(alert, gpu, run));
        self.dismissed.len() < n_before
    }

    fn name(&mut self, event: &Event) {
        if let (Some(id), What::RunStarted { run }) = (&event.run, &event.what) {
            keep_name(&mut self.run_names, id, &run.name);
        }
    }

    fn tell(&mut self, Raised { run, what }: Raised) {
        let (alert, gpu) = match &what {
            What::Alert { alert, gpu, .. } | What::AlertOver { alert, gpu } => (*alert, gpu.clone()),
            _ => return,
        };
        let was_dismissed = self.forget_dismissed(&alert, gpu.as_deref(), run.as_deref());
        let is_quiet = was_dismissed && matches!(what, What::AlertOver { .. });
        if let Some(webhook) = self.webhook.as_ref().filter(|_| !is_quiet) {
            let names = Names {
                rig: &self.rig,
                card: gpu.and_then(|uuid| self.gpu_names.get(&uuid)).map(String::as_str),
                run: run.as_ref().and_then(|id| self.run_names.get(id)).map(String::as_str),
            };
            if let Some(message) = Message::new(names, run.as_deref(), &what, now_ms()) {
                webhook.send(message);
            }
        }
        self.store.append(run.as_deref(), what);
    }
}

/// Keeps what something is called, within a bound.
fn keep_name(names: &mut BTreeMap<String, String>, id: &str, name: &str) {
    if names.len() >= NAMES_MAX && !names.contains_key(id) {
        names.pop_first();
    }
    names.insert(id.to_owned(), name.to_owned());
}
