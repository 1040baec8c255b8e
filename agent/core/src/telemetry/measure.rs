//! Benchmark of telemetry on this machine's GPUs, for `headroom bench`. `headroom doctor` shows the readings
//! themselves.

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

use headroom_protocol::{
    ServerMessage,
    reading::{MissingReason, Reading},
    state::DriverState,
};
use serde::Serialize;

use super::{
    Options, TelemetryEvent,
    call::Call,
    host::Host,
    nvml_errors::NvmlErrors,
    reader::Reader,
    sample,
    shared::{AttachedGpus, Shared},
    slow::{self, SlowReader},
    start,
};
use crate::clock::{Timestamp, now_ms};

/// Rounds per reading.
const ROUNDS: usize = 21;
/// Rounds of a call that takes milliseconds.
const SLOW_ROUNDS: usize = 5;
/// Messages after which all one-time work is done.
const FIRST: usize = 3;
/// The longest wait for the first messages.
const START_MAX: Duration = Duration::from_secs(30);

/// The cost of telemetry on this machine.
#[derive(Debug, Serialize)]
pub struct Figures {
    driver_version: String,
    #[serde(rename = "cards")]
    gpus: usize,
    /// CPU time of the whole process, in percent of one core: both threads at their rate, with each message encoded as
    /// for a viewer.
    core_percent: f64,
    /// The length of the measurement of `core_percent`, in seconds.
    seconds: f64,
    /// The number of moments in that time.
    moments: usize,
    /// The time to read all GPUs once, for the readings of ten times per second.
    moment_micros: f64,
    moment_micros_max: f64,
    /// The time to read all GPUs and the machine once, for the readings of once per second.
    slow_moment_micros: f64,
    /// The cost of each reading, on the first GPU.
    readings: Vec<Cost>,
}

/// The cost of one reading.
#[derive(Debug, Serialize)]
struct Cost {
    name: &'static str,
    micros: f64,
    /// Why it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<MissingReason>,
}

/// Measures for about `seconds`, and returns the first GPU's name and the figures.
///
/// # Errors
/// No GPU or no driver, with the reason.
pub fn measure(library: Option<PathBuf>, seconds: u64) -> Result<(String, Figures), String> {
    let shared = Arc::new(Shared::default());
    let mut reader = Reader::new(library.clone(), Arc::clone(&shared));
    // Simulated moments a tenth of a second apart, without waiting.
    let mut tenths = 0;
    let mut read = |reader: &mut Reader| {
        let since_start = Duration::from_millis(100 * tenths);
        tenths += 1;
        reader.read(Timestamp { wall_ms: now_ms(), since_start })
    };
    let first = read(&mut reader);
    let driver_version = driver_version(&first)?;
    let attached = shared.get().filter(|attached| !attached.targets.is_empty());
    let attached = attached.ok_or("the driver responds and reports no GPU")?;
    let (name, readings) = readings(&attached)?;
    let gpus = attached.targets.len();
    drop(attached);
    let (moment_micros, moment_micros_max) = rounds(ROUNDS, || drop(read(&mut reader)));
    let mut slow = SlowReader::new(shared, Host::new(PathBuf::from(".")));
    let mut read_slow = || slow.read(Timestamp::now());
    let (slow_moment_micros, _) = rounds(SLOW_ROUNDS, || drop(read_slow()));
    let (core_percent, seconds, moments) = at_its_pace(library, Duration::from_secs(seconds))?;
    let figures = Figures {
        driver_version,
        gpus,
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

fn driver_version(events: &[TelemetryEvent]) -> Result<String, String> {
    let state =
        events.iter().find_map(|event| if let TelemetryEvent::Driver(state) = event { Some(state) } else { None });
    match state {
        Some(DriverState::Ready { driver_version, .. }) => Ok(driver_version.clone()),
        Some(DriverState::NoDriver { reason } | DriverState::Gone { reason }) => Err(reason.en.clone()),
        Some(DriverState::NoLibrary | DriverState::Starting) | None => {
            Err("no NVIDIA driver is installed: its library, libnvidia-ml, is not on this machine".to_owned())
        }
    }
}

fn readings(attached: &AttachedGpus) -> Result<(String, Vec<Cost>), String> {
    let nvml = &attached.library.nvml;
    let first = attached.targets.first().ok_or("there is no GPU")?;
    let handle = || first.address.device(nvml).map_err(|error| error.to_string());
    let device = handle()?;
    let name = device.name().unwrap_or_else(|_| "an NVIDIA GPU".to_owned());
    let (micros, _) = rounds(ROUNDS, || drop(handle()));
    let mut costs = vec![Cost { name: "handle", micros, missing: None }];
    costs.extend(sample::CALLS.iter().chain(slow::CALLS).map(|&Call { name, is_slow, make }| {
        let missing = match NvmlErrors::default().reading(make(&device)) {
            Reading::Is(()) => None,
            Reading::Missing { missing } => Some(missing),
        };
        let (micros, _) = rounds(if is_slow { SLOW_ROUNDS } else { ROUNDS }, || drop(make(&device)));
        Cost { name, micros, missing }
    }));
    Ok((name, costs))
}

/// Returns the microseconds of the median round and of the slowest.
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

/// Runs both threads as the agent does, and returns percent of a core, seconds, and the number of moments.
fn at_its_pace(library: Option<PathBuf>, length: Duration) -> Result<(f64, f64, usize), String> {
    let (tell, receiver) = mpsc::channel();
    let counted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&counted);
    let take = move |observed| {
        let encoded = match observed {
            TelemetryEvent::Telemetry(telemetry) => {
                serde_json::to_vec(&ServerMessage::Telemetry(Arc::unwrap_or_clone(telemetry)))
            }
            TelemetryEvent::Slow(slow) => serde_json::to_vec(&ServerMessage::Slow(slow)),
            _ => return,
        };
        // Only the first messages wake this thread, so that its time does not count.
        if encoded.is_ok() && count.fetch_add(1, Ordering::Relaxed) < FIRST {
            let _ = tell.send(());
        }
    };
    let options = Options { library, disk_folder: PathBuf::from(".") };
    let sampler = start(options, take).map_err(|error| error.to_string())?;
    // Loading the library and reading the static properties happen once, before the measurement.
    for _ in 0..FIRST {
        receiver.recv_timeout(START_MAX).map_err(|_| "the GPUs do not respond in time")?;
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

/// Returns the CPU time of all threads of this process.
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

#[cfg(test)]
mod tests {
    use headroom_protocol::metric::{Group, Metric};

    use super::*;

    #[test]
    fn the_call_of_every_reading_is_measured() {
        let calls: Vec<&str> = sample::CALLS.iter().chain(slow::CALLS).map(|call| call.name).collect();
        for metric in Group::Fast.readings().chain(Group::Slow.readings()) {
            let name = match metric {
                Metric::MemoryUsed | Metric::MemoryFree | Metric::MemoryReserved => "memory",
                Metric::MemoryUtilization => Metric::Utilization.id(),
                _ => metric.id(),
            };
            assert!(calls.contains(&name), "{metric:?} has no call of that name");
        }
    }
}
