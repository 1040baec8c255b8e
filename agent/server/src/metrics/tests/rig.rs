//! A machine for tests: a GPU with all readings, one with only zeros, and a lost one.

use headroom_protocol::{
    SlowReadings, Telemetry,
    alert::Settings,
    gpu::{Gpu, Process},
    message::Message,
    metric::{HostSample, Sample, SlowSample},
    reading::{MissingReason, Reading},
    run::{Cause, Evaluation, Iteration, PlanSummary, Run, RunStatus},
    state::{DriverState, HistoryState, State},
};

use crate::{faults::Fault, hub, metrics::Snapshot};
use headroom_agent_core::store;

const GIB: u64 = 1 << 30;
pub const NOW_MS: u64 = 1_795_000_000_900;

/// The owned data of a snapshot.
#[derive(Clone, Debug)]
pub struct Rig {
    pub now_ms: u64,
    pub gpus: Vec<Gpu>,
    pub telemetry: Telemetry,
    pub slow: SlowReadings,
    pub state: State,
    pub runs: Vec<Run>,
    pub settings: Option<Settings>,
    pub faults: Vec<Fault>,
    /// Whether the snapshot has readings.
    has_read: bool,
}

impl Rig {
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            version: "0.1.0",
            now_ms: self.now_ms,
            gpus: &self.gpus,
            telemetry: self.has_read.then_some(&self.telemetry),
            slow: self.has_read.then_some(&self.slow),
            state: &self.state,
            runs: &self.runs,
            faults: &self.faults,
            n_viewers: 3,
            dropped_live: hub::Dropped { viewers: 7, alerts: 5 },
            dropped_history: store::Dropped { readings: 600, events: 2 },
            settings: self.settings.as_ref(),
        }
    }

    /// Creates a machine without a driver, a history, or runs.
    pub fn empty() -> Self {
        let state = State {
            driver: DriverState::NoLibrary,
            history: HistoryState::Paused { reason: Message::plain("disk full"), since_ms: NOW_MS },
        };
        Self { gpus: vec![], runs: vec![], faults: vec![], settings: None, has_read: false, state, ..Self::whole() }
    }

    /// Creates a machine with all data.
    pub fn whole() -> Self {
        Self {
            now_ms: NOW_MS,
            gpus: vec![gpu(0, true), bare(gpu(1, true)), gpu(2, false)],
            telemetry: Telemetry { seq: 7, time_ms: NOW_MS - 100, gpus: vec![sample(), zeros()] },
            slow: SlowReadings {
                time_ms: NOW_MS - 900,
                gpus: vec![
                    slow(),
                    SlowSample {
                        processes: Reading::Is(vec![]),
                        ..SlowSample::missing(1, MissingReason::NotSupported)
                    },
                ],
                host: HostSample {
                    cpu_percent: Reading::Is(12.5),
                    memory_used_bytes: Reading::Is(9 * GIB),
                    memory_total_bytes: Reading::Is(32 * GIB),
                    disk_free_bytes: Reading::Is(100 * GIB),
                    disk_total_bytes: Reading::Is(500 * GIB),
                },
            },
            state: State {
                driver: DriverState::Ready {
                    driver_version: "580.95.05".to_owned(),
                    cuda_version: Some((13, 0)),
                    windows: false,
                },
                history: HistoryState::Kept { bytes: 4096, set_aside: None },
            },
            runs: vec![run(), ended()],
            settings: Some(Settings { alerts: vec![], price_per_kwh: Some(0.36), currency: "€".to_owned() }),
            faults: vec![fault(0, 31, 2), fault(2, 79, 1), Fault { gpu: "of no GPU".to_owned(), ..fault(0, 1, 1) }],
            has_read: true,
        }
    }
}

fn fault(index: u32, xid: u64, n: u64) -> Fault {
    Fault { gpu: gpu(index, true).uuid, xid, n, last_ms: NOW_MS - 5000 }
}

fn missing<T>() -> Reading<T> {
    Reading::missing(MissingReason::NotSupported)
}

fn gpu(index: u32, present: bool) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-8d3f0c4e-0000-4000-8000-00000000000{index}"),
        name: "NVIDIA GeForce RTX 4070".to_owned(),
        present,
        memory_total_bytes: Reading::Is(12 * GIB),
        compute_capability: Reading::Is((8, 9)),
        power_limit_watts: Reading::Is(200.0),
        power_limit_max_watts: Reading::Is(215.0),
        temperature_slowdown_celsius: Reading::Is(90),
        temperature_shutdown_celsius: Reading::Is(95),
        clock_sm_max_mhz: Reading::Is(3105),
        clock_memory_max_mhz: Reading::Is(10_501),
        mig_enabled: Reading::Is(false),
        nvlinks_active: Reading::Is(0),
        pci_bus_id: Reading::Is(format!("0000:0{index}:00.0")),
        listed_as: None,
    }
}

/// Keeps only the identity of a GPU.
fn bare(gpu: Gpu) -> Gpu {
    Gpu {
        memory_total_bytes: missing(),
        compute_capability: missing(),
        power_limit_watts: missing(),
        power_limit_max_watts: missing(),
        temperature_slowdown_celsius: missing(),
        temperature_shutdown_celsius: missing(),
        clock_sm_max_mhz: missing(),
        clock_memory_max_mhz: missing(),
        mig_enabled: missing(),
        nvlinks_active: missing(),
        pci_bus_id: missing(),
        ..gpu
    }
}

fn sample() -> Sample {
    Sample {
        gpu: 0,
        memory_used_bytes: Reading::Is(7 * GIB),
        memory_free_bytes: Reading::Is(5 * GIB),
        memory_reserved_bytes: Reading::Is(GIB / 4),
        utilization_percent: Reading::Is(97),
        memory_utilization_percent: Reading::Is(42),
        power_watts: Reading::Is(199.5),
        clock_sm_mhz: Reading::Is(2475),
        clock_memory_mhz: Reading::Is(10_501),
        temperature_celsius: Reading::Is(61),
        // Clocks are low for the power limit.
        ..Sample::example(0, 0)
    }
}

/// A sample whose only reading is an empty memory.
fn zeros() -> Sample {
    Sample { memory_used_bytes: Reading::Is(0), ..Sample::missing(1, MissingReason::NotSupported) }
}

fn slow() -> SlowSample {
    let process = |pid, memory_used_bytes, run: Option<&str>| Process {
        pid,
        name: Reading::Is("python train.py".to_owned()),
        user: Reading::Is("ada".to_owned()),
        memory_used_bytes,
        run: run.map(str::to_owned),
    };
    SlowSample {
        fan_percent: Reading::Is(45),
        energy_joules: Reading::Is(1_234_567.5),
        pcie_receive_bytes_per_second: Reading::Is(12_000_000),
        pcie_send_bytes_per_second: Reading::Is(3_000_000),
        pcie_link: Reading::Is((4, 16)),
        ecc_uncorrected: Reading::Is(0),
        processes: Reading::Is(vec![
            process(4242, Reading::Is(6 * GIB), Some("0123456789abcdef")),
            process(77, Reading::missing(MissingReason::HiddenByWindows), None),
        ]),
        // Two corrected errors.
        ..SlowSample::example(0, 200)
    }
}

fn run() -> Run {
    Run {
        id: "0123456789abcdef".to_owned(),
        name: "shakespeare-char".to_owned(),
        started_ms: NOW_MS - 900_000,
        ended_ms: None,
        status: RunStatus::Running,
        command: vec!["python".to_owned(), "train.py".to_owned()],
        config_notes: vec![],
        config: None,
        pid: Some(4242),
        gpus: vec![gpu(0, true).uuid],
        parameters_millions: Some(10.65),
        max_iters: Some(5000),
        last: Some(Iteration {
            iter: 250,
            loss: Some(2.0625),
            time_ms: 132.25,
            tokens_per_second: Some(123_904.0),
            mfu_printed_percent: Some(18.5),
            mfu_percent: Some(37.5),
            ..Iteration::default()
        }),
        last_evaluation: Some(Evaluation { iter: 250, train_loss: Some(1.9703), val_loss: Some(2.125) }),
        evaluating: None,
        gpu_memory_peak_bytes: Some(6 * GIB),
        gpu_since_ms: None,
        energy_joules: Some(3600.0),
        earlier: None,
        plan: Some(PlanSummary {
            gpu: "RTX 4070".to_owned(),
            fits: true,
            peak_bytes: 8 * GIB,
            max_memory_allocated: 7 * GIB,
            max_memory_reserved: 7 * GIB,
            phases: vec![],
            is_builtin: false,
            recompute: None,
        }),
        contradiction: None,
        oom: None,
        diagnosis: None,
        explanation: None,
        order: None,
        checkpoint: None,
    }
}

/// A run that ran out of memory before its first output.
fn ended() -> Run {
    Run {
        id: "fedcba9876543210".to_owned(),
        name: "gpt2".to_owned(),
        ended_ms: Some(NOW_MS - 30_000),
        status: RunStatus::exited(1).because(Some(Cause::OutOfGpuMemory)),
        max_iters: None,
        last: None,
        last_evaluation: None,
        evaluating: None,
        gpu_memory_peak_bytes: None,
        energy_joules: None,
        plan: None,
        oom: Some("CUDA out of memory.".to_owned()),
        ..run()
    }
}
