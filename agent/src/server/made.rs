//! A past that is made up, and a state around it, for tests.

use std::{
    collections::BTreeMap,
    fs::File,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use headroom_shared::protocol::{
    Scope, Telemetry,
    alert::{Alert, Fired, Settings},
    event::{Event, What},
    gpu::Gpu,
    history::History,
    reading::{Reading, Why},
    run::{Iteration, Order, Run, RunStatus, Training},
};

use super::{
    State,
    access::{Access, file::AccessFile},
    archive::{Archive, IsExpected},
    assets::Assets,
    host::{Given, Hosts},
    hub::Hub,
    orders::Orders,
};
use crate::{
    foreman,
    store::{
        Card, Error, Subject,
        printed::{Cursor, Page, Printed},
    },
};

/// What is made up.
#[derive(Debug, Default)]
pub struct Made {
    pub telemetry: Mutex<Vec<Telemetry>>,
    pub events: Mutex<Vec<Event>>,
    /// Lines of figures by their run, and by the pages that they are read in.
    pub printed: Mutex<BTreeMap<String, Vec<Vec<Printed>>>>,
    pub runs: Mutex<Vec<Run>>,
    pub cards: Mutex<Vec<Card>>,
    pub settings: Mutex<Settings>,
    pub alerts: Mutex<Vec<Fired>>,
    /// What was ordered.
    pub ordered: Mutex<Vec<Order>>,
    /// The checkpoint of every run that has an order.
    pub checkpoint: Mutex<Option<PathBuf>>,
    /// Nothing can be read or written.
    pub broken: Mutex<bool>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Made {
    fn check(&self) -> Result<(), Error> {
        if *locked(&self.broken) { Err(Error::Unusable("disk I/O error".to_owned())) } else { Ok(()) }
    }
}

impl Archive for Made {
    fn runs(&self, n_max: usize) -> Result<Vec<Run>, Error> {
        self.check()?;
        Ok(locked(&self.runs).iter().take(n_max).cloned().collect())
    }

    fn run(&self, id: &str) -> Result<Run, Error> {
        self.check()?;
        locked(&self.runs).iter().find(|run| run.id == id).cloned().ok_or_else(|| Error::NoRun(id.to_owned()))
    }

    fn events(&self, run: Option<&str>, after: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.check()?;
        let is_asked = |event: &&Event| event.id > after && run.is_none_or(|run| event.run.as_deref() == Some(run));
        Ok(locked(&self.events).iter().filter(is_asked).take(n_max).cloned().collect())
    }

    fn printed(&self, run: &str, after: Cursor) -> Result<Page, Error> {
        self.check()?;
        Ok(locked(&self.printed).get(run).map(|pages| Cursor::page_of(pages, after)).unwrap_or_default())
    }

    fn last_event(&self) -> Result<u64, Error> {
        self.check()?;
        Ok(locked(&self.events).last().map_or(0, |event| event.id))
    }

    fn delete_run(&self, id: &str) -> Result<(), Error> {
        if !self.run(id)?.status.has_ended() {
            return Err(Error::NotEnded(id.to_owned()));
        }
        locked(&self.runs).retain(|run| run.id != id);
        Ok(())
    }

    fn telemetry_after(&self, time_ms: u64, n_max: usize) -> Result<Vec<Telemetry>, Error> {
        self.check()?;
        Ok(locked(&self.telemetry).iter().filter(|moment| moment.time_ms > time_ms).take(n_max).cloned().collect())
    }

    fn cards(&self) -> Result<Vec<Card>, Error> {
        self.check()?;
        Ok(locked(&self.cards).clone())
    }

    fn history(&self, subject: Subject<'_>, from_ms: u64, to_ms: u64, _: u64) -> Result<History, Error> {
        self.check()?;
        Ok(History { gpu: subject.gpu.to_owned(), from_ms, to_ms, step_ms: 100, times_ms: vec![], series: vec![] })
    }

    fn settings(&self) -> Result<Settings, Error> {
        self.check()?;
        Ok(locked(&self.settings).clone())
    }

    fn set_settings(&self, settings: &Settings, is_expected: IsExpected<'_>) -> Result<(), Error> {
        self.check()?;
        let mut kept = locked(&self.settings);
        if !is_expected(Some(&kept)) {
            return Err(Error::Changed);
        }
        *kept = settings.clone();
        Ok(())
    }

    fn alerts(&self) -> Result<Vec<Fired>, Error> {
        self.check()?;
        Ok(locked(&self.alerts).clone())
    }

    fn dismiss(&self, event: u64) -> Result<(), Error> {
        self.check()?;
        let mut alerts = locked(&self.alerts);
        let at = alerts.iter().position(|fired| fired.event == event).ok_or(Error::NoAlert(event))?;
        alerts.remove(at);
        Ok(())
    }

    fn newest(&self, up_to: u64, after_ms: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.check()?;
        let events = locked(&self.events);
        let is_asked = |event: &&Event| event.id <= up_to && event.time_ms > after_ms && event.what.has_line();
        let mut newest: Vec<Event> = events.iter().rev().filter(is_asked).take(n_max).cloned().collect();
        newest.reverse();
        Ok(newest)
    }
}

/// A server's state in a folder of its own, and tokens of both scopes.
pub struct Place {
    pub _folder: tempfile::TempDir,
    pub file: AccessFile,
    pub state: Arc<State>,
    pub made: Arc<Made>,
    pub view: String,
    pub control: String,
}

impl Place {
    pub fn at(address: SocketAddr, assets: Assets, given: Given) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = AccessFile::of(folder.path());
        let token = |name: &str, scope| file.change(|book| book.add(name, scope, 1)).expect("a token");
        let (view, control) = (token("viewer", Scope::View), token("owner", Scope::Control));
        let access = Access::open(folder.path()).expect("tokens");
        let made = Arc::new(Made::default());
        let asked: (Arc<dyn Archive>, Arc<dyn Orders>) = (Arc::<Made>::clone(&made), Arc::<Made>::clone(&made));
        let hosts = Hosts::of(address, given);
        let state = State::new(assets, hosts, access, Hub::default(), asked, ("rig".into(), "session".into()));
        Self { _folder: folder, file, state: Arc::new(state), made, view, control }
    }
}

impl Made {
    /// A run of the agent's.
    fn own(&self, id: &str) -> Result<Run, foreman::Error> {
        let run = self.run(id)?;
        if run.order.is_some() { Ok(run) } else { Err(Error::NotOurs(id.to_owned()).into()) }
    }
}

impl Orders for Made {
    fn training(&self) -> Result<Training, foreman::Error> {
        self.check()?;
        Ok(Training { datasets: vec!["builtin".to_owned()], ..Training::default() })
    }

    fn order(&self, order: Order) -> Result<Run, foreman::Error> {
        if order.config != "stories" {
            return Err(foreman::Error::not_allowed(foreman::Named::Config, &order.config, &["stories".to_owned()]));
        }
        locked(&self.ordered).push(order.clone());
        let run = Run { order: Some(order), status: RunStatus::Queued, ..run("ef") };
        locked(&self.runs).push(run.clone());
        Ok(run)
    }

    fn stop(&self, id: &str) -> Result<Run, foreman::Error> {
        self.own(id)
    }

    fn resume(&self, id: &str) -> Result<Run, foreman::Error> {
        self.own(id)
    }

    fn checkpoint(&self, id: &str) -> Result<File, foreman::Error> {
        self.own(id)?;
        let path = locked(&self.checkpoint).clone();
        path.and_then(|path| File::open(path).ok()).ok_or_else(|| foreman::Error::NoCheckpoint(id.to_owned()))
    }

    fn deleted(&self, _: &Run) -> Result<(), foreman::Error> {
        *locked(&self.checkpoint) = None;
        Ok(())
    }
}

/// A moment without cards.
pub fn moment(seq: u64, time_ms: u64) -> Telemetry {
    Telemetry { seq, time_ms, gpus: vec![] }
}

/// An event of an iteration.
pub fn event(id: u64, run: &str) -> Event {
    let iteration = Iteration {
        iter: id,
        loss: Some(2.5),
        time_ms: 100.0,
        tokens_per_second: None,
        mfu_printed_percent: None,
        mfu_percent: None,
        ..Iteration::default()
    };
    Event { id, time_ms: id, run: Some(run.to_owned()), what: What::RunIteration(iteration) }
}

/// A failed run's alert.
pub fn fired(event: u64) -> Fired {
    let what = What::Alert { alert: Alert::RunFailed, gpu: None, value: Some(1.0), status: None };
    let event = Event { id: event, time_ms: event, run: Some("ab".to_owned()), what };
    Fired::of(&event).expect("an alert")
}

/// A run that goes on.
pub fn run(id: &str) -> Run {
    Run { id: id.to_owned(), name: "a \"run\"\\\n".to_owned(), started_ms: 1500, pid: None, ..Run::default() }
}

/// A card that gives nothing but its name.
pub fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-{index}"),
        name: "NVIDIA GeForce RTX 4070".to_owned(),
        present: true,
        memory_total_bytes: Reading::Is(12 << 30),
        compute_capability: Reading::missing(Why::NotSupported),
        power_limit_watts: Reading::missing(Why::NotSupported),
        power_limit_max_watts: Reading::missing(Why::NotSupported),
        temperature_slowdown_celsius: Reading::missing(Why::NotSupported),
        temperature_shutdown_celsius: Reading::missing(Why::NotSupported),
        clock_sm_max_mhz: Reading::missing(Why::NotSupported),
        clock_memory_max_mhz: Reading::missing(Why::NotSupported),
        mig_enabled: Reading::missing(Why::NotSupported),
        nvlinks_active: Reading::missing(Why::NotSupported),
        pci_bus_id: Reading::missing(Why::NotSupported),
        listed_as: None,
    }
}
