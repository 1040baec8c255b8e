//! GPUs, samples and runs for tests.

use headroom_protocol::{
    Hello, PROTOCOL_VERSION, Scope, SlowReadings, Telemetry,
    gpu::{Gpu, Process},
    metric::{HostSample, Sample, SlowSample},
    reading::{MissingReason, Reading},
    run::{Iteration, PlanSummary, Run},
    state::{DriverState, HistoryState, State},
};

/// The current time.
pub const T: u64 = 1_795_000_000_000;

/// A GPU.
pub fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-{index}"),
        name: "NVIDIA GeForce RTX 4070".to_owned(),
        present: true,
        memory_total_bytes: Reading::Is(12_878_610_432),
        compute_capability: Reading::Is((8, 9)),
        power_limit_watts: Reading::Is(200.0),
        power_limit_max_watts: Reading::missing(MissingReason::NotSupported),
        temperature_slowdown_celsius: Reading::Is(90),
        temperature_shutdown_celsius: Reading::missing(MissingReason::NotSupported),
        clock_sm_max_mhz: Reading::Is(3105),
        clock_memory_max_mhz: Reading::Is(10501),
        mig_enabled: Reading::missing(MissingReason::NotSupported),
        nvlinks_active: Reading::missing(MissingReason::NotSupported),
        pci_bus_id: Reading::Is("0000:01:00.0".to_owned()),
        listed_as: Some("GeForce RTX 4070".to_owned()),
    }
}

/// A sample with the given utilisation.
pub fn sample(gpu: u32, utilization: u64) -> Sample {
    Sample {
        memory_used_bytes: Reading::Is(7 << 30),
        memory_free_bytes: Reading::Is(4 << 30),
        memory_reserved_bytes: Reading::Is(300 << 20),
        utilization_percent: Reading::Is(utilization),
        memory_utilization_percent: Reading::Is(40),
        power_watts: Reading::Is(180.0),
        clock_sm_mhz: Reading::Is(2475),
        clock_memory_mhz: Reading::Is(10501),
        temperature_celsius: Reading::Is(61),
        throttle: Reading::Is(4),
        ..Sample::missing(gpu, MissingReason::NotSupported)
    }
}

/// Telemetry of one GPU.
pub fn telemetry(seq: u64) -> Telemetry {
    Telemetry { seq, time_ms: T + seq * 100, gpus: vec![sample(0, seq % 100)] }
}

/// A run in progress.
pub fn run(id: &str) -> Run {
    Run {
        id: id.to_owned(),
        name: "shakespeare-char".to_owned(),
        started_ms: T,
        config: Some("batch_size = 8\n".to_owned()),
        pid: Some(4242),
        gpus: vec!["GPU-0".to_owned()],
        max_iters: Some(1000),
        plan: Some(PlanSummary {
            gpu: "GeForce RTX 4070".to_owned(),
            fits: true,
            peak_bytes: 8 << 30,
            max_memory_allocated: 7 << 30,
            max_memory_reserved: 7 << 30,
            phases: vec![],
            is_builtin: false,
            recompute: None,
        }),
        ..Run::default()
    }
}

/// A printed iteration.
pub fn iteration(iter: u64, loss: f64) -> Iteration {
    Iteration {
        iter,
        loss: Some(loss),
        time_ms: 100.0,
        tokens_per_second: Some(81920.0),
        mfu_printed_percent: Some(11.0),
        mfu_percent: Some(23.5),
        ..Iteration::default()
    }
}

/// A greeting.
pub fn hello(n_gpus: u32, runs: Vec<Run>, last_event: u64) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        agent: "0.1.0".to_owned(),
        session: "s".to_owned(),
        name: "rig".to_owned(),
        scope: Scope::Control,
        time_ms: T,
        gpus: (0..n_gpus).map(gpu).collect(),
        state: State {
            driver: DriverState::Ready {
                driver_version: "580.95.05".to_owned(),
                cuda_version: Some((13, 0)),
                windows: false,
            },
            history: HistoryState::Kept { bytes: 4096, set_aside: None },
        },
        runs,
        last_event,
        alerts: vec![],
    }
}

/// Processes: GPU, pid, memory, run.
pub fn slow(processes: &[(u32, u32, Option<u64>, Option<&str>)]) -> SlowReadings {
    let gpus = processes.iter().map(|(gpu, pid, bytes, run)| SlowSample {
        fan_percent: Reading::Is(40),
        energy_joules: Reading::Is(1.0),
        pcie_receive_bytes_per_second: Reading::Is(1),
        pcie_send_bytes_per_second: Reading::Is(1),
        pcie_link: Reading::Is((4, 16)),
        processes: Reading::Is(vec![Process {
            pid: *pid,
            name: Reading::Is("python train.py".to_owned()),
            user: Reading::Is("ada".to_owned()),
            memory_used_bytes: bytes.map_or(Reading::missing(MissingReason::HiddenByWindows), Reading::Is),
            run: run.map(str::to_owned),
        }]),
        ..SlowSample::missing(*gpu, MissingReason::NotSupported)
    });
    let host = HostSample {
        cpu_percent: Reading::Is(12.5),
        memory_used_bytes: Reading::Is(9 << 30),
        memory_total_bytes: Reading::Is(32 << 30),
        disk_free_bytes: Reading::Is(100 << 30),
        ..HostSample::missing(MissingReason::Failed)
    };
    SlowReadings { time_ms: T, gpus: gpus.collect(), host }
}
