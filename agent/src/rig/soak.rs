//! Two hours of eight cards at 10 Hz as fast as it goes, through everything that the agent keeps in memory: the hub with
//! viewers that read, that do not, and that come and go; history; alerts; runs. Memory stays within a bound.
//!
//! Runs in a process of its own, since other tests of this program share its memory.

use std::{
    env, fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use headroom_shared::protocol::{
    Slow, Telemetry,
    alert::{Alert, Settings},
    gpu::{Gpu, Process, Sample, SlowSample},
    host::HostSample,
    reading::{Reading, Why},
    run::{Iteration, Run, RunStatus},
    state::HistoryState,
};

use super::*;

/// Names the folder for the process that is measured; without it, its test is none.
const SOAKS_IN: &str = "HEADROOM_TEST_SOAKS_IN";

const N_CARDS: u32 = 8;
const N_PROCESSES: u32 = 16;
/// Moments of telemetry in a second.
const A_SECOND: u64 = 10;
const SECONDS: u64 = 2 * 60 * 60;
/// Seconds of the two hours between two looks at memory.
const LOOK_EVERY: u64 = 10 * 60;
/// What the first half hour has filled is what there is: queues, SQLite's cache, what the allocator holds. From then on
/// this much more, for the allocator's moods.
const SETTLED: u64 = 30 * 60;
const GROWTH_BYTES_MAX: u64 = 12 << 20;
/// All of it, in a program that was built to be debugged.
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
        nvlinks_active: Reading::missing(Why::NotSupported),
        pci_bus_id: Reading::Is(format!("0000:{index:02}:00.0")),
        listed_as: None,
    }
}

/// A moment; values go up and down, and pass the alerts' bounds each minute.
fn telemetry(seq: u64, time_ms: u64) -> Telemetry {
    let wave = seq % 600;
    let sample = |gpu| Sample {
        gpu,
        memory_used_bytes: Reading::Is((6 << 30) + wave * (10 << 20)),
        memory_free_bytes: Reading::Is((6 << 30) - wave * (10 << 20)),
        memory_reserved_bytes: Reading::Is(300 << 20),
        utilization_percent: Reading::Is(wave % 100),
        memory_utilization_percent: Reading::Is(wave % 50),
        power_watts: Reading::Is(100.0 + wave as f64 / 7.0),
        clock_sm_mhz: Reading::Is(2475),
        clock_memory_mhz: Reading::Is(10_501),
        temperature_celsius: Reading::Is(30 + wave / 10),
        throttle: Reading::Is(wave % 8),
    };
    Telemetry { seq, time_ms, gpus: (0..N_CARDS).map(sample).collect() }
}

/// A second's; processes come and go.
fn slow(second: u64, time_ms: u64) -> Slow {
    let process = |number: u32| Process {
        pid: 1000 + number + (second / 5 % 20_000) as u32,
        name: Reading::Is("python train.py".to_owned()),
        user: Reading::Is("ada".to_owned()),
        memory_used_bytes: Reading::Is(1 << 28),
        run: None,
    };
    let card = |gpu| SlowSample {
        gpu,
        fan_percent: Reading::Is(40),
        energy_joules: Reading::Is(second as f64 * 200.0),
        pcie_receive_bytes_per_second: Reading::Is(12_000_000),
        pcie_send_bytes_per_second: Reading::Is(3_000_000),
        pcie_link: Reading::Is((4, 16)),
        ecc_corrected: Reading::Is(0),
        ecc_uncorrected: Reading::Is(0),
        processes: Reading::Is((0..N_PROCESSES).map(process).collect()),
    };
    let host = HostSample {
        cpu_percent: Reading::Is(12.5),
        memory_used_bytes: Reading::Is(9 << 30),
        memory_total_bytes: Reading::Is(32 << 30),
        disk_free_bytes: Reading::Is(100 << 30),
        disk_total_bytes: Reading::Is(500 << 30),
    };
    Slow { time_ms, gpus: (0..N_CARDS).map(card).collect(), host }
}

/// What happens to runs in a second: one begins each minute and ends within it, and prints all the time.
fn happens(store: &Store, second: u64) {
    let id = format!("{:016x}", second / 60);
    if second.is_multiple_of(60) {
        let run = Run { id: id.clone(), name: "soak".to_owned(), pid: Some(1), ..Run::default() };
        store.append(Some(&id), What::RunStarted { run: Box::new(run) });
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
    store.append(Some(&id), What::RunIteration(iteration));
    if second % 60 == 59 {
        let status = RunStatus::exited(0);
        store.append(Some(&id), What::RunStatus { status, energy_joules: Some(1.0) });
    }
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

/// Two hours, and what of memory is in use at each look.
fn two_hours(folder: &Path) -> Vec<u64> {
    let tellers = Tellers::new(Bell::new().0);
    let told = tellers.clone();
    let store = Store::open(folder, Keep::default(), move |what| match what {
        Told::State(state) => told.hub.history(state),
        Told::Event(event) => told.event(event),
    });
    let store = store.expect("a thread");
    // The file is there with the first thing that is written.
    store.append(None, What::AgentStarted { version: "0.1.0".to_owned() });
    let until = Instant::now() + Duration::from_secs(60);
    while !matches!(tellers.hub.state().history, HistoryState::Kept { .. }) && Instant::now() < until {
        thread::yield_now();
    }
    let alerts = vec![Alert::TemperatureAbove { celsius: 60 }, Alert::MemoryAbove { percent: 90 }, Alert::CardLost];
    store.set_settings(&Settings { alerts, ..Settings::default() }, |_| true).expect("a folder");
    let keeper = Keeper::start(Arc::clone(&tellers.news), store.clone(), "rig".to_owned(), None).expect("a thread");
    tellers.observe(Observed::Inventory((0..N_CARDS).map(gpu).collect()), &store);

    let start_ms = now_ms();
    let mut reads = tellers.hub.subscribe();
    let never_reads = tellers.hub.subscribe();
    let mut comes_and_goes = tellers.hub.subscribe();
    let mut looks = Vec::new();
    for second in 0..SECONDS {
        for moment in 0..A_SECOND {
            let seq = second * A_SECOND + moment;
            tellers.observe(Observed::Telemetry(Arc::new(telemetry(seq, start_ms + seq * 100))), &store);
        }
        tellers.observe(Observed::Slow(slow(second, start_ms + second * 1000)), &store);
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
    assert!(tellers.hub.latest().telemetry.is_some_and(|last| last.seq == SECONDS * A_SECOND - 1), "all was told");
    drop((never_reads, comes_and_goes));
    store.close();
    let kept = store.runs(1000).expect("history can be read").len();
    assert!(kept as u64 >= SECONDS / 60 / 2, "history kept up with runs: {kept}");
    drop(keeper);
    looks
}

#[test]
fn a_process_that_soaks() {
    let Some(folder) = env::var_os(SOAKS_IN) else { return };
    let since = Instant::now();
    for bytes in two_hours(Path::new(&folder)) {
        println!("\nresident {bytes}");
    }
    println!("\ntook {} s", since.elapsed().as_secs());
}

#[test]
fn two_hours_at_fast_forward_stay_within_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, module) = module_path!().split_once("::").expect("a module of the crate");
    let test = format!("{module}::a_process_that_soaks");
    let mut command = Command::new(env::current_exe().expect("a test's program"));
    command.args([&*test, "--exact", "--nocapture", "--test-threads=1"]).env(SOAKS_IN, folder.path());
    let output = command.output().expect("a process");
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
