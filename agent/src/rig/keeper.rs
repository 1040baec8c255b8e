//! Looks after the owner's alerts, on a thread of its own: what goes off is kept in history, shown by that, and sent to
//! the owner's address where there is one.

use std::{
    collections::BTreeMap,
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use headroom_shared::protocol::{
    alert::{Alert, Fired, Settings},
    event::{Event, What},
    run::Run,
};

use super::inbox::{Inbox, News};
use crate::{
    alerts::{Alerts, Raised},
    clock::now_ms,
    store::{Kept, Store},
    telemetry::{self, Observed},
    webhook::{Message, Names, Webhook},
};

/// How often telemetry is looked at, time passes for runs that tell nothing, and what history could not say at first is
/// asked again. A value has to stay beyond its bound for longer than this to set an alert off.
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

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    news: Arc<Inbox>,
    handle: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts looking after what comes in.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(news: Arc<Inbox>, store: Store, rig: String, webhook: Option<Webhook>) -> io::Result<Self> {
        let mut watch = Watch::new(store, rig, webhook);
        let looked_at = Arc::clone(&news);
        let handle = thread::Builder::new().name("alerts".to_owned()).spawn(move || watch.run(&looked_at))?;
        Ok(Self { news, handle: Some(handle) })
    }
}

impl Drop for Keeper {
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

    fn run(&mut self, news: &Inbox) {
        self.restore();
        let mut next_tick = Instant::now() + TICK;
        let mut next_settings = Instant::now() + SETTINGS_EVERY;
        loop {
            let mut wait = next_tick.saturating_duration_since(Instant::now());
            if self.alerts.is_rising() {
                // What is about to go off does so with the moment that sets it off.
                wait = wait.min(telemetry::PERIOD);
            }
            let Some(news) = news.wait(wait) else { return };
            for news in news {
                let raised = match news {
                    News::Observed(observed) => self.observed(&observed),
                    News::Event(event) => self.event(&event),
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
                next_settings = Instant::now() + SETTINGS_EVERY;
                let raised = self.read_rules();
                self.tell_all(raised);
            }
        }
    }

    fn observed(&mut self, observed: &Observed) -> Vec<Raised> {
        if let Observed::Inventory(gpus) = observed {
            gpus.iter().for_each(|gpu| keep_name(&mut self.gpu_names, &gpu.uuid, &gpu.name));
        }
        self.alerts.observe(observed)
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
        let runs: Vec<(Run, u64)> = runs.into_iter().map(|run| self.with_progress(run)).collect();
        let mut raised = self.alerts.restore(&settings.alerts, &fired, &runs);
        for one in fired {
            let (Alert::NoProgress { .. }, Some(run)) = (one.alert, &one.run) else { continue };
            for event in self.store.events(Some(run), one.event, EVENTS_MAX).unwrap_or_default() {
                raised.extend(self.alerts.event(&event));
            }
        }
        self.tell_all(raised);
    }

    /// A run with when it last made progress, as far as history says; no later than now, by a clock that was put back.
    fn with_progress(&self, run: Run) -> (Run, u64) {
        let progress_ms =
            if run.status.has_ended() { None } else { self.store.archive().last_progress(&run.id).unwrap_or_default() };
        let progress_ms = progress_ms.unwrap_or(run.started_ms).min(now_ms());
        (run, progress_ms)
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
                let what = What::Alert { alert: *alert, gpu: gpu.clone(), value: None, status: None };
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

    fn tell_all(&mut self, raised: Vec<Raised>) {
        raised.into_iter().for_each(|raised| self.tell(raised));
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
