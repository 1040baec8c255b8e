//! What the cards and the machine are doing, read through NVML in threads of their own.
//!
//! Nobody above sees NVML: what is read leaves as the protocol's values, by a call on the thread that read them. A card
//! or a driver that goes away is a state, and looked for until it is back. One thread reads ten times a second what is
//! quickly read, another once a second all else, so that what is slow delays nothing; each is a loop around a function
//! that reads one moment. A third waits for what the driver reports by itself.

mod answers;
mod cards;
mod clock;
pub mod energy;
mod facts;
mod faults;
mod handles;
mod holders;
mod host;
mod library;
pub mod measure;
mod names;
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

use headroom_shared::protocol::{Slow, Telemetry, gpu::Gpu, state::DriverState};

use crate::clock::Moment;
pub use clock::Step;
use clock::Ticks;
pub use holders::holders;
use host::Host;
use reader::Reader;
use shared::Shared;
use slow::SlowReader;

/// How often [`Telemetry`] is read.
pub const PERIOD: Duration = Duration::from_millis(100);
/// How often [`Slow`] is.
pub const SLOW_PERIOD: Duration = Duration::from_secs(1);
/// How long the end of reading is waited for. A call into a driver that hangs does not come back, and the program is to
/// end all the same.
const END_MAX: Duration = Duration::from_secs(2);

/// What is read, and from where.
#[derive(Clone, Debug)]
pub struct Options {
    /// NVML's library, where it is not the system's own.
    pub library: Option<PathBuf>,
    /// The folder whose disk is told.
    pub disk_folder: PathBuf,
}

/// What a thread of telemetry tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed {
    /// The driver's state changed.
    Driver(DriverState),
    /// The list of cards changed; the whole of it.
    Inventory(Vec<Gpu>),
    /// Ten times a second, while a driver answers. Several keep it.
    Telemetry(Arc<Telemetry>),
    /// Once a second, with a driver or without.
    Slow(Slow),
    /// The machine's clock was set, forward or back.
    ClockSet(Step),
    /// A card stopped answering: its UUID.
    CardLost(String),
    /// It answers again.
    CardBack(String),
    /// The driver reported an error of a card.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "NVML has no events elsewhere"))]
    Xid {
        /// Its UUID.
        gpu: String,
        /// NVIDIA's number of the error; 0 where the driver does not know it.
        xid: u64,
    },
}

/// Threads that read; they end when this is dropped.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<Stop>,
    /// Says nothing, and closes when all have ended.
    ended: Receiver<()>,
    end_max: Duration,
}

/// Starts reading.
///
/// # Errors
/// The system gives no thread.
pub fn start(options: Options, tell: impl Fn(Observed) + Send + Sync + 'static) -> io::Result<Sampler> {
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
        // By this thread alone, which reads with a driver or without.
        if let Some(step) = slow.take_step() {
            tell(Observed::ClockSet(step));
        }
        tell(Observed::Slow(read));
    })?;
    let stop = Arc::clone(&sampler.stop);
    thread::Builder::new().name("telemetry, faults".to_owned()).spawn(move || {
        faults::watch(&shared, &stop, &*tell_faults);
        // NVML ends before the thread is said to have.
        drop(shared);
        drop(listening);
    })?;
    Ok(sampler)
}

/// Tells the threads to end. A channel would do, and costs as much at each moment as to read a card.
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

    /// Waits so long, or until it is set; gives whether it is.
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
        mut read: impl FnMut(Moment) + Send + 'static,
    ) -> io::Result<()> {
        let stop = Arc::clone(&self.stop);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut ticks = Ticks::new(start, period);
            loop {
                read(Moment::now());
                if stop.wait(ticks.wait(Instant::now())) {
                    break;
                }
            }
            // NVML ends before the thread is said to have.
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
