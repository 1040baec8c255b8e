//! An in-memory archive with made-up data, and a server state around it, for tests.

use std::{
    collections::BTreeMap,
    fs::File,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use headroom_protocol::{
    Scope, Telemetry,
    alert::{Alert, FiredAlert, Settings},
    event::{Event, EventKind},
    gpu::Gpu,
    history::History,
    reading::{MissingReason, Reading},
    run::{Iteration, Run, RunRequest, RunStatus, Training},
};

use super::{
    State,
    access::{Access, file::AccessFile},
    archive::{Archive, IsExpected},
    assets::Assets,
    host::{HostOptions, HostPolicy},
    hub::Hub,
    orders::Orders,
};
use crate::run_manager;
use headroom_agent_core::store::{
    ArchivedGpu, Dropped, Error, Subject,
    printed::{Cursor, Page, PrintedLine},
};

/// Made-up data.
#[derive(Debug, Default)]
pub struct FakeBackend {
    pub telemetry: Mutex<Vec<Telemetry>>,
    pub events: Mutex<Vec<Event>>,
    /// Pages of printed figures by run.
    pub printed: Mutex<BTreeMap<String, Vec<Vec<PrintedLine>>>>,
    pub runs: Mutex<Vec<Run>>,
    pub gpus: Mutex<Vec<ArchivedGpu>>,
    pub settings: Mutex<Settings>,
    pub alerts: Mutex<Vec<FiredAlert>>,
    /// Orders received.
    pub ordered: Mutex<Vec<RunRequest>>,
    /// The checkpoint of every run that has an order.
    pub checkpoint: Mutex<Option<PathBuf>>,
    /// Makes every read and write fail.
    pub broken: Mutex<bool>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeBackend {
    fn check(&self) -> Result<(), Error> {
        if *locked(&self.broken) { Err(Error::Unusable(headroom_text::as_is("disk I/O error"))) } else { Ok(()) }
    }
}

impl Archive for FakeBackend {
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

    fn gpus(&self) -> Result<Vec<ArchivedGpu>, Error> {
        self.check()?;
        Ok(locked(&self.gpus).clone())
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

    fn alerts(&self) -> Result<Vec<FiredAlert>, Error> {
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

    fn dropped(&self) -> Dropped {
        Dropped::default()
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

/// A server state in a temporary directory, and tokens of both scopes.
pub struct TestServer {
    pub _folder: tempfile::TempDir,
    pub file: AccessFile,
    pub state: Arc<State>,
    pub made: Arc<FakeBackend>,
    pub view: String,
    pub control: String,
}

impl TestServer {
    pub fn at(address: SocketAddr, assets: Assets, given: HostOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = AccessFile::of(folder.path());
        let token = |name: &str, scope| file.change(|book| book.add(name, scope, 1)).expect("a token");
        let (view, control) = (token("viewer", Scope::View), token("owner", Scope::Control));
        let access = Access::open(folder.path()).expect("tokens");
        let made = Arc::new(FakeBackend::default());
        let asked: (Arc<dyn Archive>, Arc<dyn Orders>) =
            (Arc::<FakeBackend>::clone(&made), Arc::<FakeBackend>::clone(&made));
        let hosts = HostPolicy::of(address, given);
        let state = State::new(assets, hosts, access, Hub::default(), asked, ("rig".into(), "session".into()));
        Self { _folder: folder, file, state: Arc::new(state), made, view, control }
    }
}

impl FakeBackend {
    /// Returns a run if the agent started it.
    fn own(&self, id: &str) -> Result<Run, run_manager::Error> {
        let run = self.run(id)?;
        if run.order.is_some() { Ok(run) } else { Err(Error::NotOurs(id.to_owned()).into()) }
    }
}

impl Orders for FakeBackend {
    fn training(&self) -> Result<Training, run_manager::Error> {
        self.check()?;
        Ok(Training { datasets: vec!["builtin".to_owned()], ..Training::default() })
    }

    fn order(&self, order: RunRequest) -> Result<Run, run_manager::Error> {
        if order.config != "stories" {
            return Err(run_manager::Error::not_allowed(
                run_manager::RequestedName::Config,
                &order.config,
                &["stories".to_owned()],
            ));
        }
        locked(&self.ordered).push(order.clone());
        let run = Run { order: Some(order), status: RunStatus::Queued, ..run("ef") };
        locked(&self.runs).push(run.clone());
        Ok(run)
    }

    fn stop(&self, id: &str) -> Result<Run, run_manager::Error> {
        self.own(id)
    }

    fn resume(&self, id: &str) -> Result<Run, run_manager::Error> {
        self.own(id)
    }

    fn checkpoint(&self, id: &str) -> Result<File, run_manager::Error> {
        self.own(id)?;
        let path = locked(&self.checkpoint).clone();
        path.and_then(|path| File::open(path).ok()).ok_or_else(|| run_manager::Error::NoCheckpoint(id.to_owned()))
    }

    fn deleted(&self, _: &Run) -> Result<(), run_manager::Error> {
        *locked(&self.checkpoint) = None;
        Ok(())
    }
}

/// A moment of telemetry without GPUs.
pub fn moment(seq: u64, time_ms: u64) -> Telemetry {
    Telemetry { seq, time_ms, gpus: vec![] }
}

/// An iteration event.
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
    Event { id, time_ms: id, run: Some(run.to_owned()), what: EventKind::RunIteration(iteration) }
}

/// The alert of a failed run.
pub fn fired(event: u64) -> FiredAlert {
    let what = EventKind::Alert { alert: Alert::RunFailed, gpu: None, value: Some(1.0), status: None };
    let event = Event { id: event, time_ms: event, run: Some("ab".to_owned()), what };
    FiredAlert::of(&event).expect("an alert")
}

/// A running run.
pub fn run(id: &str) -> Run {
    Run { id: id.to_owned(), name: "a \"run\"\\\n".to_owned(), started_ms: 1500, pid: None, ..Run::default() }
}

/// A GPU that reports only its name and memory size.
pub fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-{index}"),
        name: "NVIDIA GeForce RTX 4070".to_owned(),
        present: true,
        memory_total_bytes: Reading::Is(12 << 30),
        compute_capability: Reading::missing(MissingReason::NotSupported),
        power_limit_watts: Reading::missing(MissingReason::NotSupported),
        power_limit_max_watts: Reading::missing(MissingReason::NotSupported),
        temperature_slowdown_celsius: Reading::missing(MissingReason::NotSupported),
        temperature_shutdown_celsius: Reading::missing(MissingReason::NotSupported),
        clock_sm_max_mhz: Reading::missing(MissingReason::NotSupported),
        clock_memory_max_mhz: Reading::missing(MissingReason::NotSupported),
        mig_enabled: Reading::missing(MissingReason::NotSupported),
        nvlinks_active: Reading::missing(MissingReason::NotSupported),
        pci_bus_id: Reading::missing(MissingReason::NotSupported),
        listed_as: None,
    }
}
