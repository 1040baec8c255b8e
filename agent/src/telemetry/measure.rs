//! What reading costs, on the cards that are here: for `headroom bench`. What they read is `headroom doctor`'s to tell.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use headroom_shared::protocol::{
    ServerMessage,
    reading::{Reading, Why},
    state::DriverState,
};
use nvml_wrapper::{
    Device,
    enum_wrappers::device::{Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor},
    error::NvmlError,
};
use serde::Serialize;

use super::{
    Observed, Options,
    answers::Answers,
    host::Host,
    reader::Reader,
    sample,
    shared::{Attached, Shared},
    slow::SlowReader,
    start,
};
use crate::clock::{Moment, now_ms};

/// How often a reading is asked for its cost.
const ROUNDS: usize = 21;
/// And one that takes as long as PCIe's counters.
const SLOW_ROUNDS: usize = 5;
/// Messages after which everything that happens once has happened.
const FIRST: usize = 3;
/// How long the first answers are waited for.
const START_MAX: Duration = Duration::from_secs(30);

/// What reading costs here.
#[derive(Debug, Serialize)]
pub struct Figures {
    driver_version: String,
    cards: usize,
    /// CPU time of the whole program, of one core: both threads at their pace, each message encoded as a viewer gets it.
    core_percent: f64,
    /// Over so long.
    seconds: f64,
    /// How many moments were read in it.
    moments: usize,
    /// All cards once, of the readings of ten times a second.
    moment_micros: f64,
    moment_micros_max: f64,
    /// All cards once, of those of once a second; the machine too.
    slow_moment_micros: f64,
    /// Of the first card.
    readings: Vec<Cost>,
}

/// What one reading costs.
#[derive(Debug, Serialize)]
struct Cost {
    name: &'static str,
    micros: f64,
    /// Why it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<Why>,
}

/// Measures for about so long; the first card's name, and the figures.
///
/// # Errors
/// There is no card, or no driver: why.
pub fn measure(library: Option<PathBuf>, seconds: u64) -> Result<(String, Figures), String> {
    let shared = Arc::new(Shared::default());
    let mut reader = Reader::new(library.clone(), Arc::clone(&shared));
    // Moments that are a tenth of a second apart for the reader, without waiting for them.
    let mut tenths = 0;
    let mut read = |reader: &mut Reader| {
        let since_start = Duration::from_millis(100 * tenths);
        tenths += 1;
        reader.read(Moment { wall_ms: now_ms(), since_start })
    };
    let first = read(&mut reader);
    let driver_version = driver_version(&first)?;
    let attached = shared.get().filter(|attached| !attached.targets.is_empty());
    let attached = attached.ok_or("the driver answers, and there is no card")?;
    let (name, readings) = readings(&attached)?;
    let cards = attached.targets.len();
    drop(attached);
    let (moment_micros, moment_micros_max) = rounds(ROUNDS, || drop(read(&mut reader)));
    let mut slow = SlowReader::new(shared, Host::new(PathBuf::from(".")));
    let mut read_slow = || slow.read(Moment::now());
    let (slow_moment_micros, _) = rounds(SLOW_ROUNDS, || drop(read_slow()));
    let (core_percent, seconds, moments) = at_its_pace(library, Duration::from_secs(seconds))?;
    let figures = Figures {
        driver_version,
        cards,
        core_percent,
        seconds,
        moments,
        moment_micros,
        moment_micros_max,
        slow_moment_micros,
        readings,
    };
    Ok((name, figures))
}

fn driver_version(told: &[Observed]) -> Result<String, String> {
    let state = told.iter().find_map(|told| if let Observed::Driver(state) = told { Some(state) } else { None });
    match state {
        Some(DriverState::Ready { driver_version, .. }) => Ok(driver_version.clone()),
        Some(DriverState::NoDriver { reason } | DriverState::Gone { reason }) => Err(reason.clone()),
        Some(DriverState::NoLibrary | DriverState::Starting) | None => {
            Err("no NVIDIA driver is installed: its library, libnvidia-ml, is not on this machine".to_owned())
        }
    }
}

type Call = fn(&Device<'_>) -> Result<(), NvmlError>;

/// Every call that is made again and again, by the names that the readings have.
const CALLS: &[(&str, usize, Call)] = &[
    ("memory", ROUNDS, |card| sample::memory(card).map(drop)),
    ("utilization", ROUNDS, |card| card.utilization_rates().map(drop)),
    ("power", ROUNDS, |card| card.power_usage().map(drop)),
    ("clock_sm", ROUNDS, |card| card.clock_info(Clock::SM).map(drop)),
    ("clock_memory", ROUNDS, |card| card.clock_info(Clock::Memory).map(drop)),
    ("temperature", ROUNDS, |card| card.temperature(TemperatureSensor::Gpu).map(drop)),
    ("throttle", ROUNDS, |card| card.current_throttle_reasons().map(drop)),
    ("fan", ROUNDS, |card| card.fan_speed(0).map(drop)),
    ("energy", ROUNDS, |card| card.total_energy_consumption().map(drop)),
    ("pcie_receive", SLOW_ROUNDS, |card| card.pcie_throughput(PcieUtilCounter::Receive).map(drop)),
    ("pcie_send", SLOW_ROUNDS, |card| card.pcie_throughput(PcieUtilCounter::Send).map(drop)),
    ("pcie_generation", ROUNDS, |card| card.current_pcie_link_gen().map(drop)),
    ("pcie_lanes", ROUNDS, |card| card.current_pcie_link_width().map(drop)),
    ("ecc_corrected", ROUNDS, |card| card.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile).map(drop)),
    ("ecc_uncorrected", ROUNDS, |card| card.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).map(drop)),
    ("compute_processes", ROUNDS, |card| card.running_compute_processes().map(drop)),
    ("graphics_processes", ROUNDS, |card| card.running_graphics_processes().map(drop)),
];

fn readings(attached: &Attached) -> Result<(String, Vec<Cost>), String> {
    let nvml = &attached.library.nvml;
    let first = attached.targets.first().ok_or("there is no card")?;
    let handle = || first.address.device(nvml).map_err(|error| error.to_string());
    let device = handle()?;
    let name = device.name().unwrap_or_else(|_| "an NVIDIA card".to_owned());
    let (micros, _) = rounds(ROUNDS, || drop(handle()));
    let mut costs = vec![Cost { name: "handle", micros, missing: None }];
    costs.extend(CALLS.iter().map(|&(name, n_rounds, call)| {
        let missing = match Answers::default().reading(call(&device)) {
            Reading::Is(()) => None,
            Reading::Missing { missing } => Some(missing),
        };
        let (micros, _) = rounds(n_rounds, || drop(call(&device)));
        Cost { name, micros, missing }
    }));
    Ok((name, costs))
}

/// Microseconds of the median round, and of the worst.
fn rounds(n_rounds: usize, mut round: impl FnMut()) -> (f64, f64) {
    let mut micros: Vec<f64> = (0..n_rounds.max(1))
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    micros.sort_by(f64::total_cmp);
    (micros[micros.len() / 2], micros[micros.len() - 1])
}

/// Both threads as they run in the agent: percent of a core, over how many seconds, and how many moments.
fn at_its_pace(library: Option<PathBuf>, length: Duration) -> Result<(f64, f64, usize), String> {
    let (tell, told) = mpsc::channel();
    let counted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&counted);
    let take = move |observed| {
        let encoded = match observed {
            Observed::Telemetry(telemetry) => {
                serde_json::to_vec(&ServerMessage::Telemetry(Arc::unwrap_or_clone(telemetry)))
            }
            Observed::Slow(slow) => serde_json::to_vec(&ServerMessage::Slow(slow)),
            _ => return,
        };
        // Only the first wake this thread, whose time is none of theirs.
        if encoded.is_ok() && count.fetch_add(1, Ordering::Relaxed) < FIRST {
            let _ = tell.send(());
        }
    };
    let options = Options { library, disk_folder: PathBuf::from(".") };
    let sampler = start(options, take).map_err(|error| error.to_string())?;
    // To load the library and to read what a card is happens once.
    for _ in 0..FIRST {
        told.recv_timeout(START_MAX).map_err(|_| "the cards do not answer in time")?;
    }
    let before = counted.load(Ordering::Relaxed);
    let (cpu, begin) = (process_time().ok_or("the system does not tell this program's time")?, Instant::now());
    while let Some(left) = length.checked_sub(begin.elapsed()) {
        thread::sleep(left);
    }
    let moments = counted.load(Ordering::Relaxed) - before;
    let passed = begin.elapsed().as_secs_f64();
    let cpu = process_time().unwrap_or_default().saturating_sub(cpu).as_secs_f64();
    drop(sampler);
    Ok((100.0 * cpu / passed, passed, moments))
}

/// What all threads of this program took of the processors.
#[cfg(unix)]
fn process_time() -> Option<Duration> {
    rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).try_into().ok()
}

#[cfg(not(unix))]
fn process_time() -> Option<Duration> {
    let own = sysinfo::get_current_pid().ok()?;
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_processes(sysinfo::ProcessesToUpdate::Some(&[own]), false);
    Some(Duration::from_millis(system.process(own)?.accumulated_cpu_time()))
}
