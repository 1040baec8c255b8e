//! Run manager: starts, queues, stops and resumes runs, and serves their checkpoints.
//!
//! Each run is a child process, `headroom watch` around `headroom train`, in a session of its own. A fault in a run
//! does not affect the agent, and the agent's end does not end a run. The history stores which runs are queued or
//! running, so a restarted agent continues from there. [`scheduler`] starts queued runs; each device runs one process
//! at a time.

mod allowlist;
pub mod cuda_probe;
mod error;
pub mod run_dir;
mod scheduler;
mod start;
#[cfg(test)]
mod tests;
mod validate;

use std::{
    collections::BTreeMap,
    env,
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Child,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use headroom_protocol::{
    gpu::Gpu,
    run::{AllowedConfig, Device, Run, RunRequest, RunStatus, STOP_MS, Training},
};
use headroom_text::{self as text, Text};

use allowlist::{Allowlist, Config};
use cuda_probe::CudaProbe;
pub use error::{Error, RequestedName};
use headroom_agent_core::{
    clock::now_ms,
    logging::RUNS,
    platform::{self, Process},
    store::{self, Archive, StopRequest, Store},
};
use headroom_train::{checkpoint, device::DeviceSpec, stop};
use headroom_watch::{new_id, run_folder};
pub use scheduler::Scheduler;
use validate::{NewRun, validate_run};

/// Limit of queued runs: enough for a night on a machine with many GPUs, and few enough to list on one page.
pub const QUEUED_MAX: u64 = 64;
/// Limit of a run's name, in characters.
const NAME_CHARS_MAX: usize = 60;

/// Wakes the scheduler thread [`scheduler`]. Notifications coalesce.
#[derive(Clone, Debug)]
pub struct SchedulerWaker(SyncSender<()>);

impl SchedulerWaker {
    /// Creates a waker and the receiver of its notifications.
    pub fn new() -> (Self, Receiver<()>) {
        let (ring, rung) = sync_channel(1);
        (Self(ring), rung)
    }

    /// Notifies the receiver.
    pub fn ring(&self) {
        let _ = self.0.try_send(());
    }
}

/// Last known GPUs of the machine.
pub type SharedGpus = Arc<Mutex<Vec<Gpu>>>;

/// Handle to the run manager. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RunManager(Arc<RunManagerState>);

#[derive(Debug)]
struct RunManagerState {
    /// Data directory, which contains the history.
    data: PathBuf,
    /// Path of this executable.
    program: io::Result<PathBuf>,
    /// Allow-list of the owner's training directory, or why it is unavailable.
    allowed: Result<Allowlist, Text>,
    archive: Archive,
    gpus: SharedGpus,
    driver: CudaProbe,
    waker: SchedulerWaker,
    /// Watchers that this agent started, by run.
    children: Mutex<BTreeMap<String, Child>>,
    /// Times of delivered stop requests that the history does not contain yet, by run.
    unrecorded_stops: Mutex<BTreeMap<String, u64>>,
}

impl RunManager {
    /// Creates the run manager. Without `folder`, no run can be started.
    pub fn new(data: &Path, folder: Option<&Path>, store: &Store, gpus: SharedGpus, waker: SchedulerWaker) -> Self {
        let allowed = match folder {
            None => Err(text::NO_FOLDER_ALLOWED.into()),
            Some(folder) => Allowlist::new(folder).map_err(|error| unusable(folder, &error)),
        };
        Self(Arc::new(RunManagerState {
            data: data.to_owned(),
            // Resolved at startup: an update may replace the executable, and runs then start from the new one.
            program: env::current_exe(),
            allowed,
            archive: store.archive().clone(),
            gpus,
            driver: CudaProbe::default(),
            waker,
            children: Mutex::default(),
            unrecorded_stops: Mutex::default(),
        }))
    }

    /// Configs, data sets and devices that a run can be started with.
    pub fn training(&self) -> Training {
        match self.0.allowed() {
            Err(why) => Training { unavailable: Some(why.into()), ..Training::default() },
            Ok(allowed) => {
                let devices = self.0.devices();
                let datasets = allowed.datasets();
                let configs = allowed.configs().into_iter().map(|config| AllowedConfig {
                    dataset: datasets.contains(&config.dataset).then_some(config.dataset),
                    device: config.device.filter(|name| {
                        devices.iter().any(|device| device.name == *name && device.unavailable.is_none())
                    }),
                    name: config.name,
                    max_iters: config.max_iters,
                });
                Training { unavailable: None, configs: configs.collect(), datasets, devices }
            }
        }
    }

    /// Queues a new run.
    ///
    /// # Errors
    /// Training is unavailable, the queue is full, a name is not on the allow-list, or the device cannot train. The
    /// trainer rejects the config. The run's directory or the history cannot be written.
    pub fn order(&self, order: RunRequest) -> Result<Run, Error> {
        let inner = &self.0;
        let allowed = inner.allowed().map_err(Error::Unavailable)?;
        let (config, order) = inner.resolved(allowed, order)?;
        let id = new_id();
        let folder = run_dir::of_run(allowed.root(), &id);
        let command = inner.words(allowed, &folder, &order, false)?;
        let dataset = order.dataset.as_deref().and_then(|name| allowed.dataset(name));
        let new = NewRun { config: &config, words: &command, dataset: dataset.as_deref(), root: allowed.root() };
        let config_notes = validate_run(new)?;
        let run = Run {
            name: order.name.clone().unwrap_or_default(),
            started_ms: now_ms(),
            status: RunStatus::Queued,
            command,
            config_notes,
            config: Some(config.text.clone()),
            max_iters: config.max_iters,
            order: Some(order),
            id,
            ..Run::default()
        };
        let made = run_dir::make(&folder, &config.text);
        let kept = made.map_err(|error| Error::Folder { folder: folder.clone(), error }).and_then(|()| {
            inner.archive.queue(&run, QUEUED_MAX, now_ms())?;
            Ok(run)
        });
        if kept.is_err() {
            // The run is not in the history, so its directory has no use.
            if let Err(error) = run_dir::remove(&folder) {
                tracing::debug!(target: RUNS, %error, "cannot remove the directory of a run that was not queued");
            }
        }
        inner.waker.ring();
        if let Ok(run) = &kept {
            tracing::info!(target: RUNS, run = run.id, "a run was queued");
        }
        kept
    }

    /// Stops a run after its iteration and a checkpoint. Removes a queued run. A second request ends the run at once;
    /// within 30 s after the first it has no effect. This needs no training folder.
    ///
    /// A request that fails has no effect and no record. A delivered request succeeds, even if history cannot record it.
    ///
    /// # Errors
    /// The run does not exist, was not started by the agent, or has ended. History cannot be used, or the run's
    /// directory cannot be written.
    pub fn stop(&self, id: &str) -> Result<Run, Error> {
        let inner = &self.0;
        let now_ms = now_ms();
        let run = inner.archive.run(id)?;
        if inner.outlives_its_watcher(&run) {
            stop_orphan(&own_folder(&run)?)?;
            return Ok(run);
        }
        let outcome = inner.archive.stop(id, now_ms, |StopRequest { watcher, first_ms }| {
            let first_ms = first_ms.or_else(|| inner.unrecorded_stops().get(id).copied());
            match first_ms {
                Some(first_ms) if now_ms.saturating_sub(first_ms) < STOP_MS => {}
                _ => inner.request_stop(&run, watcher.as_ref(), first_ms.is_some())?,
            }
            inner.unrecorded_stops().entry(id.to_owned()).or_insert(now_ms);
            Ok::<_, Error>(())
        })?;
        if let Some(error) = outcome.unrecorded {
            tracing::error!(target: RUNS, run = id, %error, "a run was requested to stop, which history does not record");
        } else {
            inner.unrecorded_stops().remove(id);
            tracing::info!(target: RUNS, run = id, "a run was requested to stop");
        }
        inner.waker.ring();
        Ok(outcome.run)
    }

    /// Queues a run again. It resumes from its checkpoint; without one, it starts over with the same settings.
    ///
    /// # Errors
    /// The run is not the agent's, has not ended, or its checkpoint or its config cannot be read. Training is
    /// unavailable, or the device cannot train.
    pub fn resume(&self, id: &str) -> Result<Run, Error> {
        let inner = &self.0;
        let allowed = inner.allowed().map_err(Error::Unavailable)?;
        let run = inner.archive.run(id)?;
        let folder = own_folder(&run)?;
        if !run.status.has_ended() {
            return Err(store::Error::NotEnded(id.to_owned()).into());
        }
        if folder.parent() != Some(allowed.root()) {
            return Err(Error::Elsewhere { folder });
        }
        let is_saved = checkpoint::progress(&folder).is_some();
        if !is_saved && !run_dir::can_start_over(&folder) {
            return Err(Error::NothingSaved(id.to_owned()));
        }
        if inner.outlives_its_watcher(&run) {
            // The orphaned trainer saves and ends, which frees the device for the resumed run.
            request_stop_by_file(&folder, false)?;
        }
        let order = run.order.clone().unwrap_or_default();
        can_train(&inner.devices(), order.device.as_deref().unwrap_or_default())?;
        let command = inner.words(allowed, &folder, &order, is_saved)?;
        let run = inner.archive.queue_again(id, command, QUEUED_MAX, now_ms())?;
        inner.unrecorded_stops().remove(id);
        tracing::info!(target: RUNS, run = id, "a run was queued to resume");
        inner.waker.ring();
        Ok(run)
    }

    /// Opens a run's checkpoint.
    ///
    /// # Errors
    /// The run or its checkpoint does not exist.
    pub fn checkpoint(&self, id: &str) -> Result<File, Error> {
        let folder = own_folder(&self.0.archive.run(id)?)?;
        checkpoint::open_last(&folder).map_err(|error| {
            // A missing file is expected before the first checkpoint.
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(target: RUNS, run = id, %error, "cannot open a checkpoint");
            }
            Error::NoCheckpoint(id.to_owned())
        })
    }

    /// Removes the files of a deleted run.
    ///
    /// # Errors
    /// The run's directory cannot be removed.
    pub fn deleted(&self, run: &Run) -> Result<(), Error> {
        self.0.unrecorded_stops().remove(&run.id);
        deleted(&self.0.data, run)
    }
}

impl RunManagerState {
    fn allowed(&self) -> Result<&Allowlist, Text> {
        let allowed = self.allowed.as_ref().map_err(Clone::clone)?;
        allowed.check().map_err(|error| unusable(allowed.root(), &error))?;
        Ok(allowed)
    }

    fn children(&self) -> MutexGuard<'_, BTreeMap<String, Child>> {
        // The map is consistent even after a panic.
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unrecorded_stops(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        // The map is consistent even after a panic.
        self.unrecorded_stops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that a run stops. Sends a signal to its watcher; where that is not possible, writes the file that the
    /// run polls.
    fn request_stop(&self, run: &Run, watcher: Option<&Process>, at_once: bool) -> Result<(), Error> {
        let is_signalled =
            watcher.map_or_else(|| self.children().get(&run.id).is_some_and(platform::terminate), Process::terminate);
        if is_signalled { Ok(()) } else { request_stop_by_file(&own_folder(run)?, at_once) }
    }

    /// Whether the trainer of a lost run may still be active: a process holds the lock of the run's device. That can be
    /// another run on the same device.
    fn outlives_its_watcher(&self, run: &Run) -> bool {
        let device = run.order.as_ref().and_then(|order| order.device.as_deref());
        let is_taken = |device| matches!(run_dir::take(&self.data, device), Ok(None));
        run.status == RunStatus::Lost && device.is_some_and(is_taken)
    }

    /// Devices that can train, GPUs first, followed by devices that cannot. Blocks while the driver is queried.
    fn devices(&self) -> Vec<Device> {
        let gpus = self.gpus.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let gpus = seen_by_cuda(&gpus, env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
        // Without an executable no run can be started, which is reported then.
        self.driver.devices(self.program.as_deref().unwrap_or(Path::new("")), &gpus)
    }

    /// Resolves an order: its config, and the order with every default filled in.
    fn resolved(&self, allowed: &Allowlist, order: RunRequest) -> Result<(Config, RunRequest), Error> {
        let (configs, datasets, devices) = (allowed.configs(), allowed.datasets(), self.devices());
        let names = || configs.iter().map(|config| config.name.clone()).collect::<Vec<_>>();
        let config = configs.iter().find(|config| config.name == order.config);
        let config = config.ok_or_else(|| Error::not_allowed(RequestedName::Config, &order.config, &names()))?.clone();
        let dataset = order.dataset.unwrap_or_else(|| config.dataset.clone());
        if !datasets.contains(&dataset) {
            return Err(Error::not_allowed(RequestedName::Dataset, &dataset, &datasets));
        }
        let names: Vec<String> = devices.iter().map(|device| device.name.clone()).collect();
        let first = devices.iter().find(|device| device.unavailable.is_none());
        let own = config.device.clone().filter(|device| names.contains(device));
        let device = order.device.or(own).or_else(|| first.map(|device| device.name.clone())).unwrap_or_default();
        if !names.contains(&device) {
            return Err(Error::not_allowed(RequestedName::Device, &device, &names));
        }
        can_train(&devices, &device)?;
        let name = order.name.unwrap_or_else(|| config.name.trim_end_matches(".py").to_owned());
        let name = name.trim().to_owned();
        if !(1..=NAME_CHARS_MAX).contains(&name.chars().count()) || name.chars().any(char::is_control) {
            return Err(Error::Name { chars_max: NAME_CHARS_MAX });
        }
        let order = RunRequest { config: order.config, dataset: Some(dataset), device: Some(device), name: Some(name) };
        Ok((config, order))
    }
}

/// Requests that a run stops, by the stop file in its directory.
fn request_stop_by_file(folder: &Path, at_once: bool) -> Result<(), Error> {
    stop::request(&run_dir::stop(folder), at_once).map_err(|error| Error::Folder { folder: folder.to_owned(), error })
}

/// Stops a trainer that outlived its watcher. Its process ID is unknown, so only the file reaches it. As for other
/// runs, a request within [`STOP_MS`] after the first has no effect, and a later one ends the run at once.
fn stop_orphan(folder: &Path) -> Result<(), Error> {
    match stop::age(&run_dir::stop(folder)) {
        Some(age) if age < Duration::from_millis(STOP_MS) => Ok(()),
        age => request_stop_by_file(folder, age.is_some()),
    }
}

/// Rejects a device that exists and cannot train.
fn can_train(devices: &[Device], name: &str) -> Result<(), Error> {
    let why = devices.iter().find(|device| device.name == name).and_then(|device| device.unavailable.clone());
    why.map_or(Ok(()), |why| Err(Error::Device { device: name.to_owned(), why }))
}

/// Checks whether a directory can be used as the training directory.
///
/// # Errors
/// The directory cannot be opened, or its name is not UTF-8.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    Allowlist::new(folder).map(drop)
}

fn unusable(folder: &Path, error: &io::Error) -> Text {
    text::folder_unusable(folder.display().to_string(), error.to_string())
}

/// Removes the files of a run that was deleted from the history of the data directory `data`.
///
/// # Errors
/// The run's directory cannot be removed.
pub fn deleted(data: &Path, run: &Run) -> Result<(), Error> {
    run_folder::remove(data, &run.id);
    let Ok(folder) = own_folder(run) else { return Ok(()) };
    run_dir::remove_logs(data, &run.id);
    run_dir::remove(&folder).map_err(|error| Error::Folder { folder, error })
}

/// Directory of a run that the agent started, from its command. A directory with an unexpected name is neither read nor
/// removed.
fn own_folder(run: &Run) -> Result<PathBuf, Error> {
    let not_ours = || Error::Store(store::Error::NotOurs(run.id.clone()));
    let folder = out_dir(run).filter(|_| run.order.is_some()).ok_or_else(not_ours)?;
    let root = folder.parent().ok_or_else(not_ours)?;
    if run_dir::of_run(root, &run.id) == folder && folder.is_absolute() { Ok(folder) } else { Err(not_ours()) }
}

/// Output directory of a run that the agent started.
pub fn out_dir(run: &Run) -> Option<PathBuf> {
    run.command.iter().find_map(|word| word.strip_prefix("--out_dir=")).map(PathBuf::from)
}

/// A queued run with the status `Running`.
pub fn begun(run: Run) -> Run {
    Run { status: RunStatus::Running, ended_ms: None, ..run }
}

/// GPU of a device, as the only entry of `CUDA_VISIBLE_DEVICES`.
pub fn visible(device: &str) -> Option<String> {
    let Some(DeviceSpec::Cuda(Some(i))) = DeviceSpec::read(device) else { return None };
    match env::var("CUDA_VISIBLE_DEVICES") {
        Ok(visible) => visible.split(',').nth(i as usize).map(|word| word.trim().to_owned()),
        Err(_) => Some(i.to_string()),
    }
}

/// GPUs that are visible through CUDA, in CUDA's order. Runs are started with an order that matches NVML's.
fn seen_by_cuda<'a>(gpus: &'a [Gpu], visible: Option<&str>) -> Vec<&'a Gpu> {
    let Some(visible) = visible else { return gpus.iter().collect() };
    let named = |word: &str| {
        let by_place = word.parse::<u32>().ok();
        gpus.iter().find(|gpu| by_place == Some(gpu.index) || (word.starts_with("GPU-") && gpu.uuid.starts_with(word)))
    };
    // CUDA ends the list at the first invalid entry.
    visible.split(',').map(|word| named(word.trim())).take_while(Option::is_some).flatten().collect()
}
