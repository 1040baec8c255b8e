//! The readings of ten times per second, and the driver's state. One moment is one call, so that a test can step
//! through hours.

use std::{
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use headroom_protocol::{Telemetry, message::Message, metric::Sample, state::DriverState};
use headroom_text as text;
use nvml_wrapper::{cuda_driver_version_major, cuda_driver_version_minor};

use crate::clock::Timestamp;

use super::{
    TelemetryEvent,
    clock::Times,
    gpus::{GpuEntry, GpuTable},
    handles::Handles,
    library::{self, Library, NvmlUnavailable},
    nvml_errors::{NvmlErrors, NvmlFailure, refused},
    sample,
    scan::Scan,
    shared::{AttachedGpus, Shared, Target},
};

/// The interval of retries while the driver does not respond.
pub const RETRY: Duration = Duration::from_secs(2);
/// The interval of checks whether GPUs have come or gone.
pub const LOOK: Duration = Duration::from_secs(1);
/// The delay before NVML is restarted for a lost GPU. A GPU that left the bus and is back is listed only after a
/// restart, which interrupts the other GPUs' readings.
pub const RENEW: Duration = Duration::from_secs(20);
/// The longest delay; it doubles with each restart.
pub const RENEW_MAX: Duration = Duration::from_secs(640);

/// Reads the GPUs and the driver's state, one moment per call.
#[derive(Debug)]
pub struct Reader {
    named: Option<PathBuf>,
    shared: Arc<Shared>,
    /// The library in use, with its handles.
    handles: Option<Handles>,
    /// The previous library. It must be closed before another can be loaded, and the other thread may still use it.
    closing: Weak<Library>,
    driver: DriverState,
    gpus: GpuTable,
    /// NVML's last count of GPUs; `None` before the first check.
    n_gpus: Option<u32>,
    next_try: Duration,
    next_look: Duration,
    renewal: Option<Renewal>,
    times: Times,
    seq: u64,
}

#[derive(Clone, Copy, Debug)]
struct Renewal {
    at: Duration,
    wait: Duration,
}

impl Reader {
    /// Creates a reader with a named library or the system's, shared with the other thread through `shared`.
    pub fn new(named: Option<PathBuf>, shared: Arc<Shared>) -> Self {
        Self {
            named,
            shared,
            handles: None,
            closing: Weak::new(),
            driver: DriverState::Starting,
            gpus: GpuTable::default(),
            n_gpus: None,
            next_try: Duration::ZERO,
            next_look: Duration::ZERO,
            renewal: None,
            times: Times::default(),
            seq: 0,
        }
    }

    /// Reads one moment and returns its observations.
    pub fn read(&mut self, now: Timestamp) -> Vec<TelemetryEvent> {
        let mut events = Vec::new();
        self.renew(now);
        if self.handles.is_none() && now.since_start >= self.next_try {
            self.load(now, &mut events);
        }
        let Some(mut handles) = self.handles.take() else { return events };
        let is_due = now.since_start >= self.next_look;
        if is_due {
            self.next_look = now.since_start + LOOK;
        }
        let read = self.look_and_sample(&mut handles, is_due, &mut events);
        self.handles = Some(handles);
        match read {
            Ok(gpus) => {
                self.plan_renewal(now);
                self.seq += 1;
                let telemetry = Telemetry { seq: self.seq, time_ms: self.times.time_ms(now), gpus };
                events.push(TelemetryEvent::Telemetry(Arc::new(telemetry)));
            }
            Err(reason) => self.gone(reason, now, &mut events),
        }
        events
    }

    fn load(&mut self, now: Timestamp, events: &mut Vec<TelemetryEvent>) {
        if self.closing.strong_count() > 0 {
            return;
        }
        match library::load(self.named.as_deref()) {
            Ok(library) => {
                self.tell_driver(ready(&library), events);
                self.handles = Some(Handles::new(Arc::new(library)));
                self.next_look = now.since_start;
            }
            Err(absent) => {
                self.next_try = now.since_start + RETRY;
                self.absent(absent, events);
            }
        }
    }

    /// A driver that never responded is absent; one that did is gone.
    fn absent(&mut self, absent: NvmlUnavailable, events: &mut Vec<TelemetryEvent>) {
        let answered = matches!(self.driver, DriverState::Ready { .. } | DriverState::Gone { .. });
        let state = match (absent, answered) {
            (NvmlUnavailable::Library, false) => DriverState::NoLibrary,
            (NvmlUnavailable::Driver(reason), false) => DriverState::NoDriver { reason },
            (NvmlUnavailable::Library, true) => DriverState::Gone { reason: text::DRIVER_LIBRARY_GONE.into() },
            (NvmlUnavailable::Driver(reason), true) => DriverState::Gone { reason },
        };
        self.tell_driver(state, events);
        self.lose_all(events);
    }

    fn gone(&mut self, reason: Message, now: Timestamp, events: &mut Vec<TelemetryEvent>) {
        self.close();
        self.next_try = now.since_start + RETRY;
        self.tell_driver(DriverState::Gone { reason }, events);
        self.lose_all(events);
    }

    fn close(&mut self) {
        self.shared.set(None);
        self.n_gpus = None;
        self.closing = self.handles.take().map_or_else(Weak::new, |handles| Arc::downgrade(handles.library()));
    }

    /// Restarts NVML if that may find a lost GPU.
    fn renew(&mut self, now: Timestamp) {
        if self.handles.is_some()
            && let Some(renewal) = self.renewal.filter(|renewal| now.since_start >= renewal.at)
        {
            let wait = RENEW_MAX.min(2 * renewal.wait);
            self.renewal = Some(Renewal { at: now.since_start + wait, wait });
            self.close();
            self.next_try = now.since_start;
        }
    }

    fn plan_renewal(&mut self, now: Timestamp) {
        if !self.gpus.is_one_lost() {
            self.renewal = None;
        } else if self.renewal.is_none() {
            self.renewal = Some(Renewal { at: now.since_start + RENEW, wait: RENEW });
        }
    }

    /// Samples the GPUs that respond; an error is the driver's.
    fn look_and_sample(
        &mut self,
        handles: &mut Handles,
        is_due: bool,
        events: &mut Vec<TelemetryEvent>,
    ) -> Result<Vec<Sample>, Message> {
        if is_due {
            self.look(handles, false, events)?;
        }
        let (samples, lost) = self.sample(handles)?;
        if lost.is_empty() {
            return Ok(samples);
        }
        // When a GPU leaves, the others may be renumbered, so the samples may belong to other GPUs.
        self.look(handles, true, events)?;
        let (samples, lost) = self.sample(handles)?;
        if !lost.is_empty() {
            let uuids: Vec<_> = lost.into_iter().filter_map(|position| self.gpus.lose(position)).collect();
            self.tell_lost(uuids, events);
            self.share(handles.library());
        }
        Ok(samples)
    }

    /// Checks whether GPUs have come or gone; an error is the driver's. Unless `closely` or something has changed, it
    /// only counts them.
    fn look(&mut self, handles: &mut Handles, closely: bool, events: &mut Vec<TelemetryEvent>) -> Result<(), Message> {
        handles.clear();
        let library = handles.library();
        let n_gpus = match library.nvml.device_count() {
            Ok(n_gpus) => n_gpus,
            Err(error) => match refused(&error) {
                NvmlFailure::Driver(reason) => return Err(reason),
                // The known GPUs are read as before.
                NvmlFailure::Gpu => self.n_gpus.unwrap_or(0),
            },
        };
        let as_before = self.n_gpus == Some(n_gpus) && !self.gpus.is_one_lost() && !self.gpus.is_one_split();
        if as_before && !closely {
            return Ok(());
        }
        let is_first = self.n_gpus.replace(n_gpus).is_none();
        let mut scan = Scan::new(library, &mut self.gpus);
        scan.all(n_gpus)?;
        let (scan_events, changed) = scan.finish();
        if changed || is_first {
            events.push(TelemetryEvent::Inventory(self.gpus.inventory()));
            self.share(library);
        }
        events.extend(scan_events);
        Ok(())
    }

    /// Returns the samples, and the indices of GPUs that no longer respond.
    fn sample(&self, handles: &mut Handles) -> Result<(Vec<Sample>, Vec<usize>), Message> {
        let mut samples = Vec::with_capacity(self.gpus.entries().len());
        let mut lost = Vec::new();
        for (position, entry) in self.gpus.entries().iter().enumerate().filter(|(_, entry)| entry.gpu.present) {
            match sample_of(handles, position, entry) {
                Ok(sample) => samples.push(sample),
                Err(NvmlFailure::Gpu) => lost.push(position),
                Err(NvmlFailure::Driver(reason)) => return Err(reason),
            }
        }
        Ok((samples, lost))
    }

    fn share(&self, library: &Arc<Library>) {
        let present = self.gpus.entries().iter().filter(|entry| entry.gpu.present);
        let targets = present.map(|entry| Target {
            gpu: entry.gpu.index,
            address: entry.address,
            split: entry.gpu.mig_enabled.get() == Some(&true),
        });
        self.shared.set(Some(AttachedGpus { library: Arc::clone(library), targets: targets.collect() }));
    }

    fn lose_all(&mut self, events: &mut Vec<TelemetryEvent>) {
        let lost: Vec<_> = (0..self.gpus.entries().len()).filter_map(|position| self.gpus.lose(position)).collect();
        self.tell_lost(lost, events);
    }

    fn tell_lost(&self, uuids: Vec<String>, events: &mut Vec<TelemetryEvent>) {
        if !uuids.is_empty() {
            events.push(TelemetryEvent::Inventory(self.gpus.inventory()));
            events.extend(uuids.into_iter().map(TelemetryEvent::GpuLost));
        }
    }

    fn tell_driver(&mut self, driver: DriverState, events: &mut Vec<TelemetryEvent>) {
        if self.driver != driver {
            self.driver = driver.clone();
            events.push(TelemetryEvent::Driver(driver));
        }
    }
}

fn sample_of(handles: &mut Handles, position: usize, entry: &GpuEntry) -> Result<Sample, NvmlFailure> {
    let device = handles.device(position, entry.address).map_err(|error| refused(&error))?;
    let mut answers = NvmlErrors::default();
    let sample = sample::read(device, &entry.gpu, &mut answers);
    answers.trouble().map_or(Ok(sample), Err)
}

fn ready(library: &Library) -> DriverState {
    let nvml = &library.nvml;
    let cuda = nvml.sys_cuda_driver_version().ok();
    DriverState::Ready {
        driver_version: nvml.sys_driver_version().unwrap_or_else(|_| "of an unknown version".to_owned()),
        cuda_version: cuda.and_then(|version| {
            let [major, minor] = [cuda_driver_version_major(version), cuda_driver_version_minor(version)];
            Some((u32::try_from(major).ok()?, u32::try_from(minor).ok()?))
        }),
        windows: library.windows,
    }
}
