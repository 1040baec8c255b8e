//! Runs that the agent starts itself, and what may be asked of them: order, stop, go on, fetch what was saved.
//!
//! Each is a child process, `headroom watch` around `headroom train`, in a session of its own: no fault in it takes the
//! agent along, and no end of the agent ends it. What waits and what runs is history's to know, so that an agent that
//! starts anew goes on where the one before was. [`yard`] starts what waits; a device has one process at a time.

mod allowed;
mod check;
pub mod driver;
mod error;
pub mod place;
pub mod saved;
mod start;
#[cfg(test)]
mod tests;
mod yard;

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Child,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use headroom_shared::{
    protocol::{
        gpu::Gpu,
        run::{AllowedConfig, Cause, Device, Order, Run, RunStatus, Training},
    },
    text,
};

use crate::{
    clock::now_ms,
    platform::{self, Process},
    store::{Archive, Asked, Store},
    train::{device::Wanted, stop},
    watch::new_id,
};
use allowed::{Allowed, Config};
use check::{New, check};
use driver::Driver;
pub use error::{Error, Named};
pub use yard::Yard;

/// Runs that wait at most: a night's for a machine with many cards, and a page that is read at a glance.
pub const QUEUED_MAX: u64 = 64;
/// A run that was asked to end has so long to finish its iteration and save; who asks again after it ends it at once.
pub const STOP_MS: u64 = 30_000;
/// Characters of a run's name.
const NAME_CHARS_MAX: usize = 60;

/// What rings where something happened that the yard should look at. One ring waits for it; more say no more.
#[derive(Clone, Debug)]
pub struct Bell(SyncSender<()>);

impl Bell {
    /// One, and where it is heard.
    pub fn new() -> (Self, Receiver<()>) {
        let (ring, rung) = sync_channel(1);
        (Self(ring), rung)
    }

    /// Rings it.
    pub fn ring(&self) {
        let _ = self.0.try_send(());
    }
}

/// The machine's cards, as they were told last.
pub type Cards = Arc<Mutex<Vec<Gpu>>>;

/// What is asked. A clone is the same.
#[derive(Clone, Debug)]
pub struct Foreman(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Where history is.
    data: PathBuf,
    /// This program.
    program: io::Result<PathBuf>,
    /// What the owner allowed; why it cannot be used.
    allowed: Result<Allowed, String>,
    archive: Archive,
    cards: Cards,
    driver: Driver,
    bell: Bell,
    /// Watchers that this agent started, by their runs.
    children: Mutex<BTreeMap<String, Child>>,
}

impl Foreman {
    /// Of a rig whose owner named a folder, or none.
    pub fn new(data: &Path, folder: Option<&Path>, store: &Store, cards: Cards, bell: Bell) -> Self {
        let allowed = match folder {
            None => Err(text::NO_FOLDER_ALLOWED.to_string()),
            Some(folder) => Allowed::new(folder).map_err(|error| unusable(folder, &error)),
        };
        Self(Arc::new(Inner {
            data: data.to_owned(),
            // Now: an update may put another program in its place, which then is the one to start.
            program: env::current_exe(),
            allowed,
            archive: store.archive().clone(),
            cards,
            driver: Driver::default(),
            bell,
            children: Mutex::default(),
        }))
    }

    /// What may be started.
    pub fn training(&self) -> Training {
        match self.0.allowed() {
            Err(why) => Training { unavailable: Some(why), ..Training::default() },
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

    /// Takes an order: its run is the queue's last.
    ///
    /// # Errors
    /// Nothing may be started, a name is not among those that are allowed, the device cannot train, the trainer would not
    /// take the config, so many wait already, or its folder or history cannot be written.
    pub fn order(&self, order: Order) -> Result<Run, Error> {
        let inner = &self.0;
        let allowed = inner.allowed().map_err(Error::Unavailable)?;
        let (config, order) = inner.resolved(allowed, order)?;
        let id = new_id();
        let folder = place::of_run(allowed.root(), &id);
        let command = inner.words(allowed, &folder, &order, false)?;
        let dataset = order.dataset.as_deref().and_then(|name| allowed.dataset(name));
        let new = New { config: &config, words: &command, dataset: dataset.as_deref(), root: allowed.root() };
        let config_notes = check(new)?;
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
        let made = fs::create_dir(&folder).and_then(|()| fs::write(folder.join(place::CONFIG), &config.text));
        let kept = made.map_err(|error| Error::Folder { folder: folder.clone(), error }).and_then(|()| {
            inner.archive.queue(&run, QUEUED_MAX, now_ms())?;
            Ok(run)
        });
        if kept.is_err() {
            // Nobody knows of it.
            let _ = place::remove(&folder);
        }
        inner.bell.ring();
        kept
    }

    /// Asks for a run's end: it finishes its iteration and saves. One that waits has ended.
    ///
    /// # Errors
    /// It is not the agent's, has ended, or cannot be told: its folder cannot be written.
    pub fn stop(&self, id: &str) -> Result<Run, Error> {
        let inner = &self.0;
        let now_ms = now_ms();
        let run = inner.archive.run(id)?;
        if inner.outlives_its_watcher(&run) {
            ask_by_file(&own_folder(&run)?, false)?;
            return Ok(run);
        }
        match inner.archive.stop(id, now_ms)? {
            Asked::Runs { before_ms: Some(before_ms), .. } if now_ms.saturating_sub(before_ms) < STOP_MS => {}
            Asked::Runs { watcher, before_ms } => inner.ask_to_end(id, watcher.as_ref(), before_ms.is_some())?,
            Asked::Waited => inner.bell.ring(),
        }
        Ok(inner.archive.run(id)?)
    }

    /// Resumes a run from its checkpoint, or queues one again that was stopped before it started: it is the queue's last.
    ///
    /// # Errors
    /// It is not the agent's, has not ended or has no checkpoint, nothing may be started, or its device cannot train.
    pub fn resume(&self, id: &str) -> Result<Run, Error> {
        let inner = &self.0;
        let allowed = inner.allowed().map_err(Error::Unavailable)?;
        let run = inner.archive.run(id)?;
        let folder = own_folder(&run)?;
        if !run.status.has_ended() {
            return Err(crate::store::Error::NotEnded(id.to_owned()).into());
        }
        if folder.parent() != Some(allowed.root()) {
            return Err(Error::Elsewhere { folder });
        }
        let is_saved = saved::read(&folder).is_some();
        if !is_saved && run.status.cause() != Some(Cause::Unqueued) {
            return Err(Error::NothingSaved(id.to_owned()));
        }
        if inner.outlives_its_watcher(&run) {
            // It saves and ends, which gives its device to the run that goes on from there.
            ask_by_file(&folder, false)?;
        }
        let order = run.order.clone().unwrap_or_default();
        can_train(&inner.devices(), order.device.as_deref().unwrap_or_default())?;
        let command = inner.words(allowed, &folder, &order, is_saved)?;
        let run = inner.archive.queue_again(id, command, QUEUED_MAX, now_ms())?;
        inner.bell.ring();
        Ok(run)
    }

    /// A run's checkpoint, open.
    ///
    /// # Errors
    /// There is none, or no such run.
    pub fn checkpoint(&self, id: &str) -> Result<File, Error> {
        let folder = own_folder(&self.0.archive.run(id)?)?;
        saved::open(&folder).map_err(|_| Error::NoCheckpoint(id.to_owned()))
    }

    /// Takes away what lies beside history of a run that was deleted.
    ///
    /// # Errors
    /// Its folder cannot be removed.
    pub fn deleted(&self, run: &Run) -> Result<(), Error> {
        deleted(&self.0.data, run)
    }
}

impl Inner {
    fn allowed(&self) -> Result<&Allowed, String> {
        let allowed = self.allowed.as_ref().map_err(Clone::clone)?;
        allowed.check().map_err(|error| unusable(allowed.root(), &error))?;
        Ok(allowed)
    }

    fn children(&self) -> MutexGuard<'_, BTreeMap<String, Child>> {
        // A child is in it or not.
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the process of a run to end, by a signal where the system has one and it is known whom it goes to, else by
    /// the file that the run looks for.
    fn ask_to_end(&self, id: &str, watcher: Option<&Process>, is_again: bool) -> Result<(), Error> {
        if platform::CAN_ASK_TO_END {
            if let Some(watcher) = watcher {
                watcher.ask_to_end();
                return Ok(());
            }
            if let Some(child) = self.children().get(id) {
                platform::ask_to_end(child);
                return Ok(());
            }
        }
        ask_by_file(&own_folder(&self.archive.run(id)?)?, is_again)
    }

    /// Whether a run trains on though its watcher is gone: its device is taken, which the trainer holds as well.
    fn outlives_its_watcher(&self, run: &Run) -> bool {
        let device = run.order.as_ref().and_then(|order| order.device.as_deref());
        let is_taken = |device| matches!(place::take(&self.data, device), Ok(None));
        run.status == RunStatus::Lost && device.is_some_and(is_taken)
    }

    /// What can train, cards first, and then what cannot. Waits where the driver has to be asked.
    fn devices(&self) -> Vec<Device> {
        let gpus = self.cards.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let cards = seen_by_cuda(&gpus, env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
        // Without a program nothing is started at all, which is said then.
        self.driver.devices(self.program.as_deref().unwrap_or(Path::new("")), &cards)
    }

    /// What an order means: its config, and the order with every name filled in.
    fn resolved(&self, allowed: &Allowed, order: Order) -> Result<(Config, Order), Error> {
        let (configs, datasets, devices) = (allowed.configs(), allowed.datasets(), self.devices());
        let names = || configs.iter().map(|config| config.name.clone()).collect::<Vec<_>>();
        let config = configs.iter().find(|config| config.name == order.config);
        let config = config.ok_or_else(|| Error::not_allowed(Named::Config, &order.config, &names()))?.clone();
        let dataset = order.dataset.unwrap_or_else(|| config.dataset.clone());
        if !datasets.contains(&dataset) {
            return Err(Error::not_allowed(Named::Dataset, &dataset, &datasets));
        }
        let names: Vec<String> = devices.iter().map(|device| device.name.clone()).collect();
        let first = devices.iter().find(|device| device.unavailable.is_none());
        let own = config.device.clone().filter(|device| names.contains(device));
        let device = order.device.or(own).or_else(|| first.map(|device| device.name.clone())).unwrap_or_default();
        if !names.contains(&device) {
            return Err(Error::not_allowed(Named::Device, &device, &names));
        }
        can_train(&devices, &device)?;
        let name = order.name.unwrap_or_else(|| config.name.trim_end_matches(".py").to_owned());
        let name = name.trim().to_owned();
        if !(1..=NAME_CHARS_MAX).contains(&name.chars().count()) || name.chars().any(char::is_control) {
            return Err(Error::Name { chars_max: NAME_CHARS_MAX });
        }
        let order = Order { config: order.config, dataset: Some(dataset), device: Some(device), name: Some(name) };
        Ok((config, order))
    }
}

/// Asks a run for its end by the file that it looks for in its folder.
fn ask_by_file(folder: &Path, at_once: bool) -> Result<(), Error> {
    stop::ask(&place::stop(folder), at_once).map_err(|error| Error::Folder { folder: folder.to_owned(), error })
}

/// Refuses a device that is there and cannot train.
fn can_train(devices: &[Device], name: &str) -> Result<(), Error> {
    let why = devices.iter().find(|device| device.name == name).and_then(|device| device.unavailable.clone());
    why.map_or(Ok(()), |why| Err(Error::Device { device: name.to_owned(), why }))
}

/// Why nothing of the owner's folder can be started.
/// Whether a folder can be one whose configs and data sets may be trained.
///
/// # Errors
/// It cannot be opened, or its name is not UTF-8.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    Allowed::new(folder).map(drop)
}

fn unusable(folder: &Path, error: &io::Error) -> String {
    text::folder_unusable(folder.display().to_string(), error.to_string()).to_string()
}

/// Takes away what lies beside history of a run that was deleted from the history of a data folder.
///
/// # Errors
/// Its folder cannot be removed.
pub fn deleted(data: &Path, run: &Run) -> Result<(), Error> {
    let Ok(folder) = own_folder(run) else { return Ok(()) };
    place::remove_logs(data, &run.id);
    place::remove(&folder).map_err(|error| Error::Folder { folder, error })
}

/// The folder of a run of the agent's, as its command has it; one that is not called as we call them is not ours to
/// read or remove.
fn own_folder(run: &Run) -> Result<PathBuf, Error> {
    let not_ours = || Error::Store(crate::store::Error::NotOurs(run.id.clone()));
    let folder = out_dir(run).filter(|_| run.order.is_some()).ok_or_else(not_ours)?;
    let root = folder.parent().ok_or_else(not_ours)?;
    if place::of_run(root, &run.id) == folder && folder.is_absolute() { Ok(folder) } else { Err(not_ours()) }
}

/// Where a run of the agent's saves.
pub fn out_dir(run: &Run) -> Option<PathBuf> {
    run.command.iter().find_map(|word| word.strip_prefix("--out_dir=")).map(PathBuf::from)
}

/// A run that waited, as it begins.
pub fn begun(run: Run) -> Run {
    Run { status: RunStatus::Running, ended_ms: None, ..run }
}

/// The card of a device, as `CUDA_VISIBLE_DEVICES` would name it alone.
pub fn visible(device: &str) -> Option<String> {
    let Some(Wanted::Cuda(Some(i))) = Wanted::read(device) else { return None };
    match env::var("CUDA_VISIBLE_DEVICES") {
        Ok(visible) => visible.split(',').nth(i as usize).map(|word| word.trim().to_owned()),
        Err(_) => Some(i.to_string()),
    }
}

/// The cards that a program of ours sees through CUDA, in its order, which is NVML's as we start it.
fn seen_by_cuda<'a>(gpus: &'a [Gpu], visible: Option<&str>) -> Vec<&'a Gpu> {
    let Some(visible) = visible else { return gpus.iter().collect() };
    let named = |word: &str| {
        let by_place = word.parse::<u32>().ok();
        gpus.iter().find(|gpu| by_place == Some(gpu.index) || (word.starts_with("GPU-") && gpu.uuid.starts_with(word)))
    };
    // CUDA ends the list at the first that means nothing.
    visible.split(',').map(|word| named(word.trim())).take_while(Option::is_some).flatten().collect()
}
