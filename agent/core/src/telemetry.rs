//! Telemetry of the GPUs and the machine, read through NVML in separate threads.
//!
//! NVML stays private to this module: readings leave it as values of the protocol, by a callback on the thread that
//! read them. A missing GPU or driver is a state, and is retried until it is back. One thread reads cheap readings ten
//! times per second; another reads the rest once per second, so that slow calls delay nothing. Each is a loop around a
//! function that reads one moment. A third thread polls the events that the driver reports.

mod call;
mod clock;
pub mod energy;
mod facts;
mod faults;
mod gpus;
mod handles;
mod holders;
mod host;
mod library;
pub mod measure;
mod names;
mod nvml_errors;
mod processes;
mod reader;
mod sample;
mod scan;
mod shared;
mod slow;
#[cfg(test)]
mod tests;

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use headroom_protocol::{SlowReadings, Telemetry, gpu::Gpu, state::DriverState};

use crate::clock::Timestamp;
pub use clock::Step;
use clock::Ticks;
pub use holders::holders;
use host::Host;
use reader::Reader;
use shared::Shared;
use slow::SlowReader;

/// The period of [`Telemetry`].
pub const PERIOD: Duration = Duration::from_millis(100);
/// The period of [`SlowReadings`].
pub const SLOW_PERIOD: Duration = Duration::from_secs(1);
/// The longest wait for the threads to end. A call into a hung driver never returns, and the program must end anyway.
const END_MAX: Duration = Duration::from_secs(2);

/// The sources of telemetry.
#[derive(Clone, Debug)]
pub struct Options {
    /// The path of NVML's library, if not the system's.
    pub library: Option<PathBuf>,
    /// The directory whose disk is reported.
    pub disk_folder: PathBuf,
}

/// An observation of a telemetry thread.
#[derive(Clone, Debug, PartialEq)]
pub enum TelemetryEvent {
    /// The driver's state changed.
    Driver(DriverState),
    /// The list of GPUs changed; the complete list.
    Inventory(Vec<Gpu>),
    /// The readings of ten times per second, while a driver responds. Shared by several receivers.
    Telemetry(Arc<Telemetry>),
    /// The readings of once per second, with or without a driver.
    Slow(SlowReadings),
    /// The machine's clock was set, forward or back.
    ClockSet(Step),
    /// A GPU stopped responding: its UUID.
    GpuLost(String),
    /// A GPU responds again: its UUID.
    GpuRecovered(String),
    /// The driver reported an error of a GPU.
    Xid {
        /// The GPU's UUID.
        gpu: String,
        /// NVIDIA's number of the error; 0 if the driver does not know it.
        xid: u64,
    },
}

/// The telemetry threads, which end when this is dropped.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<Stop>,
    /// Carries no values; closes when all threads have ended.
    ended: Receiver<()>,
    end_max: Duration,
}

/// Starts the telemetry threads.
///
/// # Errors
/// A thread cannot be started.
pub fn start(options: Options, tell: impl Fn(TelemetryEvent) + Send + Sync + 'static) -> io::Result<Sampler> {
    let shared = Arc::new(Shared::default());
    let mut reader = Reader::new(options.library, Arc::clone(&shared));
    let mut slow = SlowReader::new(Arc::clone(&shared), Host::new(options.disk_folder));
    let tell = Arc::new(tell);
    let start = Instant::now();
    let (running, ended) = channel();
    let sampler = Sampler { stop: Arc::default(), ended, end_max: END_MAX };
    let (tell_fast, tell_faults) = (Arc::clone(&tell), Arc::clone(&tell));
    sampler.repeat("telemetry", PERIOD, start, running.clone(), move |now| {
        reader.read(now).into_iter().for_each(&*tell_fast);
    })?;
    let listening = running.clone();
    sampler.repeat("telemetry, slow", SLOW_PERIOD, start, running, move |now| {
        let read = slow.read(now);
        // Only this thread reports clock steps, because it runs with or without a driver.
        if let Some(step) = slow.take_step() {
            tell(TelemetryEvent::ClockSet(step));
        }
        tell(TelemetryEvent::Slow(read));
    })?;
    let stop = Arc::clone(&sampler.stop);
    thread::Builder::new().name("telemetry, faults".to_owned()).spawn(move || {
        faults::watch(&shared, &stop, &*tell_faults);
        // Shuts NVML down before the thread counts as ended.
        drop(shared);
        drop(listening);
    })?;
    Ok(sampler)
}

/// A stop signal for the threads. Polling a channel at each moment would cost as much as reading a GPU.
#[derive(Debug, Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for `timeout` or until the signal is set, and returns whether it is set.
    fn wait(&self, timeout: Duration) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_set, timeout, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Sampler {
    fn repeat(
        &self,
        name: &str,
        period: Duration,
        start: Instant,
        running: Sender<()>,
        mut read: impl FnMut(Timestamp) + Send + 'static,
    ) -> io::Result<()> {
        let stop = Arc::clone(&self.stop);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut ticks = Ticks::new(start, period);
            loop {
                read(Timestamp::now());
                if stop.wait(ticks.wait(Instant::now())) {
                    break;
                }
            }
            // Shuts NVML down before the thread counts as ended.
            drop(read);
            drop(running);
        })?;
        Ok(())
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.set();
        let _ = self.ended.recv_timeout(self.end_max);
    }
}
