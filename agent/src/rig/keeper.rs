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
    event::{Event, What},
    gpu::Gpu,
    run::Run,
};

use crate::{
    alerts::{Alerts, Raised},
    clock::now_ms,
    store::Store,
    telemetry::Observed,
    webhook::{Message, Names, Webhook},
};

/// What waits to be looked at: some seconds of telemetry and a burst of events. What comes while it is full is not
/// looked at, as the next moment says it again.
const NEWS_MAX: usize = 256;
/// How often time passes for runs that tell nothing, and changes to the owner's settings are looked for.
const TICK: Duration = Duration::from_secs(1);
/// Ticks after which settings are read though nobody changed them here: another file may have history's name by then.
/// To open the file each second would cost as much as reading all cards.
const READ_TICKS: u32 = 60;
/// Runs whose names are kept; of an older one the number is said.
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
    gpus: Vec<Gpu>,
    run_names: BTreeMap<String, String>,
    /// [`Store::n_settings`] of what the rules were made of, and how many ticks ago.
    n_settings: u64,
    n_ticks: u32,
}

impl Watch {
    fn new(store: Store, rig: String, webhook: Option<Webhook>) -> Self {
        let n_settings = store.n_settings();
        let settings = store.settings().unwrap_or_default();
        let runs = store.runs(NAMES_MAX).unwrap_or_default();
        let alerts = Alerts::new(&settings.alerts, &runs, now_ms());
        let run_names = runs.into_iter().map(|run: Run| (run.id, run.name)).collect();
        Self { store, rig, webhook, alerts, gpus: vec![], run_names, n_settings, n_ticks: 0 }
    }

    fn run(&mut self, news: &Receiver<News>, stop: &AtomicBool) {
        let mut next_tick = Instant::now() + TICK;
        while !stop.load(Ordering::Relaxed) {
            let raised = match news.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
                Ok(News::Observed(observed)) => {
                    if let Observed::Inventory(gpus) = &observed {
                        self.gpus.clone_from(gpus);
                    }
                    self.alerts.observe(&observed)
                }
                Ok(News::Event(event)) => {
                    self.name(&event);
                    self.alerts.event(&event)
                }
                Err(RecvTimeoutError::Timeout) => {
                    next_tick = Instant::now() + TICK;
                    let mut raised = self.alerts.tick(now_ms());
                    raised.extend(self.follow_settings());
                    raised
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for raised in raised {
                self.tell(raised);
            }
        }
    }

    /// Takes the owner's rules where they may have changed. Where history cannot be read they stay as they are, and are
    /// asked for again.
    fn follow_settings(&mut self) -> Vec<Raised> {
        let n_settings = self.store.n_settings();
        self.n_ticks += 1;
        if n_settings == self.n_settings && self.n_ticks < READ_TICKS {
            return vec![];
        }
        let Ok(settings) = self.store.settings() else { return vec![] };
        (self.n_settings, self.n_ticks) = (n_settings, 0);
        self.alerts.set(&settings.alerts)
    }

    fn name(&mut self, event: &Event) {
        if let (Some(id), What::RunStarted { run }) = (&event.run, &event.what) {
            if self.run_names.len() >= NAMES_MAX {
                self.run_names.pop_first();
            }
            self.run_names.insert(id.clone(), run.name.clone());
        }
    }

    fn tell(&self, Raised { run, what }: Raised) {
        if let Some(webhook) = &self.webhook {
            let gpu = match &what {
                What::Alert { gpu, .. } | What::AlertOver { gpu, .. } => gpu.as_ref(),
                _ => None,
            };
            let card = gpu.and_then(|uuid| self.gpus.iter().find(|gpu| gpu.uuid == *uuid));
            let names = Names {
                rig: &self.rig,
                card: card.map(|gpu| gpu.name.as_str()),
                run: run.as_ref().and_then(|id| self.run_names.get(id)).map(String::as_str),
            };
            if let Some(message) = Message::new(names, run.as_deref(), &what, now_ms()) {
                webhook.send(message);
            }
        }
        self.store.append(run.as_deref(), what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Keep;
    use headroom_shared::protocol::alert::{Alert, Settings};

    #[test]
    fn rules_are_taken_when_they_change_and_else_now_and_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path(), Keep::default(), |_| {}).expect("a thread");
        // Its end writes everything, and begins the file.
        store.close();
        let mut watch = Watch::new(store.clone(), "rig".to_owned(), None);
        watch.alerts.observe(&Observed::CardLost("GPU-0".to_owned()));
        let mut n_raised = |alerts: Vec<Alert>, store: &Store| {
            store.set_settings(&Settings { alerts, ..Settings::default() }).expect("it is kept");
            watch.follow_settings().len()
        };
        assert_eq!(n_raised(vec![Alert::CardLost], &store), 1, "at the next tick");
        // Another program's change is found when all is read again.
        let other = crate::store::Archive::new(folder.path());
        other.set_settings(&Settings::default()).expect("it is kept");
        let raised: Vec<usize> = (1..=READ_TICKS).map(|_| watch.follow_settings().len()).collect();
        assert_eq!(raised.iter().position(|n| *n == 1), Some(READ_TICKS as usize - 1), "{raised:?}");
    }
}
