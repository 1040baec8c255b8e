//! Soak test: two hours of eight GPUs at 10 Hz, as fast as possible, through everything that the agent keeps in memory.
//! That is the hub with viewers that read, do not read, or come and go; history; alerts; and runs. Memory must stay
//! within a limit.
//!
//! The test runs in its own process, since other tests of this program share its memory.

use std::{
    env, fs, thread,
    time::{Duration, Instant},
};

use headroom_harness::child_process;
use headroom_protocol::{
    SlowReadings, Telemetry,
    alert::{Alert, Settings},
    gpu::{Gpu, Process},
    metric::{HostSample, Sample, SlowSample},
    reading::{MissingReason, Reading},
    run::{Iteration, Run, RunStatus},
    state::HistoryState,
};

use super::*;

/// Environment variable with the directory for the measured process. Without it, that process's test does nothing.
const SOAKS_IN: &str = "HEADROOM_TEST_SOAKS_IN";

const N_GPUS: u32 = 8;
const N_PROCESSES: u32 = 16;
/// Number of telemetry moments per second.
const A_SECOND: u64 = 10;
const SECONDS: u64 = 2 * 60 * 60;
/// Simulated seconds between two measurements of memory.
const LOOK_EVERY: u64 = 10 * 60;
/// Time after which memory is settled: queues, SQLite's cache and the allocator's pools are then full. Later growth is
/// limited to the allocator's variation.
const SETTLED: u64 = 30 * 60;
const GROWTH_BYTES_MAX: u64 = 12 << 20;
/// Maximum resident memory, in a debug build.
const RESIDENT_BYTES_MAX: u64 = 96 << 20;

fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-8d3f0c4e-0000-4000-8000-{index:012}"),
        name: "NVIDIA GeForce RTX 4070".to_owned(),
        present: true,
        memory_total_bytes: Reading::Is(12 << 30),
        compute_capability: Reading::Is((8, 9)),
        power_limit_watts: Reading::Is(200.0),
        power_limit_max_watts: Reading::Is(215.0),
        temperature_slowdown_celsius: Reading::Is(90),
        temperature_shutdown_celsius: Reading::Is(95),
        clock_sm_max_mhz: Reading::Is(3105),
        clock_memory_max_mhz: Reading::Is(10_501),
        mig_enabled: Reading::Is(false),
        nvlinks_active: Reading::missing(MissingReason::NotSupported),
        pci_bus_id: Reading::Is(format!("0000:{index:02}:00.0")),
        listed_as: None,
    }
}

/// Returns a moment whose values rise and fall, and cross the alerts' limits each minute.
fn telemetry(seq: u64, time_ms: u64) -> Telemetry {
    let wave = seq % 600;
    let sample = |gpu| Sample {
        memory_used_bytes: Reading::Is((6 << 30) + wave * (10 << 20)),
        memory_free_bytes: Reading::Is((6 << 30) - wave * (10 << 20)),
        utilization_percent: Reading::Is(wave % 100),
        memory_utilization_percent: Reading::Is(wave % 50),
        power_watts: Reading::Is(100.0 + wave as f64 / 7.0),
        clock_sm_mhz: Reading::Is(2475),
        clock_memory_mhz: Reading::Is(10_501),
        temperature_celsius: Reading::Is(30 + wave / 10),
        throttle: Reading::Is(wave % 8),
        ..Sample::missing(gpu, MissingReason::NotSupported)
    };
    Telemetry { seq, time_ms, gpus: (0..N_GPUS).map(sample).collect() }
}

/// Returns the slow readings of a second; processes come and go.
fn slow(second: u64, time_ms: u64) -> SlowReadings {
    let process = |number: u32| Process {
        pid: 1000 + number + (second / 5 % 20_000) as u32,
        name: Reading::Is("python train.py".to_owned()),
        user: Reading::Is("ada".to_owned()),
        memory_used_bytes: Reading::Is(1 << 28),
        run: None,
    };
    let gpu_sample = |gpu| SlowSample {
        fan_percent: Reading::Is(40),
        pcie_link: Reading::Is((4, 16)),
        processes: Reading::Is((0..N_PROCESSES).map(process).collect()),
        ..SlowSample::example(gpu, second)
    };
    let host = HostSample::example(second);
    SlowReadings { time_ms, gpus: (0..N_GPUS).map(gpu_sample).collect(), host }
}

/// Adds the run events of a second: one run starts each minute, prints continuously, and ends within that minute.
fn happens(store: &Store, second: u64) {
    let id = format!("{:016x}", second / 60);
    if second.is_multiple_of(60) {
        let run = Run { id: id.clone(), name: "soak".to_owned(), pid: Some(1), ..Run::default() };
        store.append(Some(&id), EventKind::RunStarted { run: Box::new(run) });
    }
    let (loss, time_ms) = (Some(2.0), 100.0);
    let iteration = Iteration {
        iter: second,
        loss,
        time_ms,
        tokens_per_second: None,
        mfu_printed_percent: None,
        mfu_percent: None,
        ..Iteration::default()
    };
    store.append(Some(&id), EventKind::RunIteration(iteration));
    if second % 60 == 59 {
        let status = RunStatus::exited(0);
        store.append(Some(&id), EventKind::RunStatus { status, energy_joules: Some(1.0) });
    }
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

/// Simulates two hours, and returns the used memory at each measurement.
fn two_hours(folder: &Path) -> Vec<u64> {
    let tellers = Notifiers::new(SchedulerWaker::new().0);
    let sinks = tellers.clone();
    let store = Store::open(folder, RetentionLimits::default(), move |what| match what {
        StoreEvent::State(state) => sinks.hub.history(state),
        StoreEvent::Event(event) => sinks.event(event),
    });
    let store = store.expect("a thread");
    // The first write creates the file.
    store.append(None, EventKind::AgentStarted { version: "0.1.0".to_owned() });
    let until = Instant::now() + Duration::from_secs(60);
    while !matches!(tellers.hub.state().history, HistoryState::Kept { .. }) && Instant::now() < until {
        thread::yield_now();
    }
    let alerts = vec![Alert::TemperatureAbove { celsius: 60 }, Alert::MemoryAbove { percent: 90 }, Alert::GpuLost];
    store.set_settings(&Settings { alerts, ..Settings::default() }, |_| true).expect("a folder");
    let alert_worker =
        AlertWorker::start(Arc::clone(&tellers.news), store.clone(), "rig".to_owned(), None).expect("a thread");
    tellers.observe(TelemetryEvent::Inventory((0..N_GPUS).map(gpu).collect()), &store);

    let start_ms = now_ms();
    let mut reads = tellers.hub.subscribe();
    let never_reads = tellers.hub.subscribe();
    let mut comes_and_goes = tellers.hub.subscribe();
    let mut looks = Vec::new();
    for second in 0..SECONDS {
        for moment in 0..A_SECOND {
            let seq = second * A_SECOND + moment;
            tellers.observe(TelemetryEvent::Telemetry(Arc::new(telemetry(seq, start_ms + seq * 100))), &store);
        }
        tellers.observe(TelemetryEvent::Slow(slow(second, start_ms + second * 1000)), &store);
        happens(&store, second);
        while reads.live.try_recv().is_ok() {}
        while reads.events.try_recv().is_ok() {}
        if second % 60 == 0 {
            comes_and_goes = tellers.hub.subscribe();
        }
        if second % LOOK_EVERY == LOOK_EVERY - 1 {
            looks.push(resident_bytes());
        }
    }
    assert!(tellers.hub.latest().telemetry.is_some_and(|last| last.seq == SECONDS * A_SECOND - 1), "all was reported");
    drop((never_reads, comes_and_goes));
    store.close();
    let kept = store.runs(1000).expect("history can be read").len();
    assert!(kept as u64 >= SECONDS / 60 / 2, "history kept up with runs: {kept}");
    drop(alert_worker);
    looks
}

#[test]
#[ignore = "the child process of two_hours_at_fast_forward_stay_within_memory"]
fn child_that_soaks() {
    let folder = env::var_os(SOAKS_IN).expect("its parent sets it");
    let since = Instant::now();
    for bytes in two_hours(Path::new(&folder)) {
        println!("\nresident {bytes}");
    }
    println!("\ntook {} s", since.elapsed().as_secs());
}

#[test]
fn two_hours_at_fast_forward_stay_within_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = child_process(module_path!(), "child_that_soaks");
    let output = command.env(SOAKS_IN, folder.path()).output().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let looks: Vec<u64> = said.lines().filter_map(|line| line.strip_prefix("resident ")?.parse().ok()).collect();
    assert_eq!(looks.len() as u64, SECONDS / LOOK_EVERY, "{said}");
    let mib: Vec<u64> = looks.iter().map(|bytes| bytes >> 20).collect();
    println!(
        "resident MiB each ten minutes: {mib:?}; {}",
        said.lines().find(|line| line.starts_with("took")).unwrap_or("")
    );
    let settled = (SETTLED / LOOK_EVERY) as usize - 1;
    let (first, most) = (looks[settled], looks[settled..].iter().max().copied().unwrap_or(u64::MAX));
    assert!(most <= first + GROWTH_BYTES_MAX, "memory grows after half an hour: {mib:?} MiB");
    assert!(most <= RESIDENT_BYTES_MAX, "{mib:?} MiB");
}
