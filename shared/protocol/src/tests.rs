//! Compares every message with its golden JSON, in both directions.
//!
//! `HEADROOM_WRITE_GOLDEN=1 cargo test -p headroom-protocol` regenerates the files.

use std::{collections::BTreeSet, fmt::Debug, fs, path::PathBuf};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    alert::{Alert, Settings},
    event::{Event, EventKind},
    gpu::{Gpu, Process, Throttle},
    history::{History, MissedHistory, Series},
    message::Message,
    metric::{HostSample, Metric, Sample, SlowSample},
    reading::{MissingReason, Reading},
    run::{
        Batches, Cause, Checkpoint, Contradiction, Diagnosis, EarlierParts, Evaluation, Figure, Iteration, PlanSummary,
        Run, RunRequest, RunStatus, Wording,
    },
    state::{DriverState, HistoryState, State},
    *,
};
use headroom_text::{self as text, Separator};

const GIB: u64 = 1 << 30;
const START_MS: u64 = 1_795_000_000_000;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/protocol")
}

/// Compares a value with its golden text, and the parsed text with the value.
#[track_caller]
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, value: &T) {
    let path = folder().join(format!("{name}.json"));
    let written = serde_json::to_string_pretty(value).expect("a message") + "\n";
    if std::env::var_os("HEADROOM_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(folder()).expect("the folder");
        fs::write(&path, &written).expect("the golden file");
    }
    let golden = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(written, golden, "{name} is another message than version {PROTOCOL_VERSION} has");
    assert_eq!(&serde_json::from_str::<T>(&golden).expect("a message"), value, "{name}");
}

fn missing<T>(why: MissingReason) -> Reading<T> {
    Reading::missing(why)
}

fn gpu() -> Gpu {
    Gpu {
        index: 0,
        uuid: "GPU-8d3f0c4e-0000-4000-8000-000000000001".to_owned(),
        name: "NVIDIA GeForce RTX 4070".to_owned(),
        present: true,
        memory_total_bytes: Reading::Is(12 * GIB),
        compute_capability: Reading::Is((8, 9)),
        power_limit_watts: Reading::Is(200.0),
        power_limit_max_watts: Reading::Is(215.0),
        temperature_slowdown_celsius: Reading::Is(90),
        temperature_shutdown_celsius: missing(MissingReason::NotSupported),
        clock_sm_max_mhz: Reading::Is(3105),
        clock_memory_max_mhz: Reading::Is(10_501),
        mig_enabled: missing(MissingReason::NotSupported),
        nvlinks_active: missing(MissingReason::OldDriver),
        pci_bus_id: Reading::Is("0000:01:00.0".to_owned()),
        listed_as: Some("GeForce RTX 4070".to_owned()),
    }
}

fn telemetry() -> Telemetry {
    Telemetry {
        seq: 7,
        time_ms: START_MS + 700,
        gpus: vec![Sample {
            memory_used_bytes: Reading::Is(7 * GIB),
            memory_free_bytes: Reading::Is(5 * GIB),
            utilization_percent: Reading::Is(97),
            memory_utilization_percent: Reading::Is(42),
            power_watts: Reading::Is(199.5),
            clock_sm_mhz: Reading::Is(2475),
            clock_memory_mhz: Reading::Is(10_501),
            temperature_celsius: Reading::Is(61),
            throttle: Reading::Is(Throttle::PowerCap.bit()),
            ..Sample::missing(0, MissingReason::OldDriver)
        }],
    }
}

fn slow() -> SlowReadings {
    SlowReadings {
        time_ms: START_MS + 1000,
        gpus: vec![SlowSample {
            energy_joules: Reading::Is(1_234_567.5),
            pcie_receive_bytes_per_second: Reading::Is(12_000_000),
            pcie_send_bytes_per_second: Reading::Is(3_000_000),
            pcie_link: Reading::Is((4, 16)),
            processes: Reading::Is(vec![
                Process {
                    pid: 4242,
                    name: Reading::Is("python train.py".to_owned()),
                    user: Reading::Is("ada".to_owned()),
                    memory_used_bytes: Reading::Is(6 * GIB),
                    run: Some("0123456789abcdef".to_owned()),
                },
                Process {
                    pid: 77,
                    name: missing(MissingReason::NoPermission),
                    user: missing(MissingReason::NoPermission),
                    memory_used_bytes: missing(MissingReason::HiddenByWindows),
                    run: None,
                },
            ]),
            ..SlowSample::missing(0, MissingReason::NotSupported)
        }],
        host: HostSample {
            cpu_percent: Reading::Is(12.5),
            memory_used_bytes: Reading::Is(9 * GIB),
            memory_total_bytes: Reading::Is(32 * GIB),
            disk_free_bytes: Reading::Is(100 * GIB),
            ..HostSample::missing(MissingReason::Failed)
        },
    }
}

fn iteration() -> Iteration {
    Iteration {
        iter: 250,
        loss: Some(2.0625),
        time_ms: 132.25,
        tokens_per_second: Some(123_904.0),
        mfu_printed_percent: Some(18.5),
        mfu_percent: None,
        ..Iteration::default()
    }
}

fn evaluation() -> Evaluation {
    Evaluation { iter: 250, train_loss: Some(1.9703), val_loss: None }
}

fn plan() -> PlanSummary {
    PlanSummary {
        gpu: "RTX 4070".to_owned(),
        fits: true,
        peak_bytes: 8 * GIB,
        max_memory_allocated: 7 * GIB,
        max_memory_reserved: 7 * GIB + GIB / 2,
        phases: vec![("init".to_owned(), GIB), ("first_forward".to_owned(), 8 * GIB)],
        is_builtin: false,
        recompute: None,
    }
}

fn contradiction() -> Contradiction {
    Contradiction { figure: Figure::ParametersMillions, printed: 7.23, planned: 10.65 }
}

fn run() -> Run {
    Run {
        id: "0123456789abcdef".to_owned(),
        name: "shakespeare-char".to_owned(),
        started_ms: START_MS,
        ended_ms: None,
        status: RunStatus::Running,
        command: ["python", "train.py", "config/train_shakespeare_char.py"].map(str::to_owned).to_vec(),
        config: Some("Overriding: batch_size = 64\n".to_owned()),
        config_notes: vec![],
        pid: Some(4242),
        gpus: vec![gpu().uuid],
        parameters_millions: Some(10.65),
        max_iters: Some(5000),
        last: Some(iteration()),
        last_evaluation: Some(evaluation()),
        evaluating: Some(Batches { done: 37, of: 400 }),
        gpu_memory_peak_bytes: Some(6 * GIB),
        gpu_since_ms: None,
        energy_joules: Some(3600.0),
        earlier: None,
        plan: Some(plan()),
        contradiction: None,
        oom: None,
        diagnosis: None,
        explanation: None,
        order: Some(RunRequest {
            config: "stories".to_owned(),
            device: Some("cuda:0".to_owned()),
            ..RunRequest::default()
        }),
        checkpoint: Some(Checkpoint { iter: 250, bytes: 130_000_000 }),
    }
}

fn state() -> State {
    State {
        driver: DriverState::Ready {
            driver_version: "580.95.05".to_owned(),
            cuda_version: Some((13, 0)),
            windows: false,
        },
        history: HistoryState::Kept { bytes: 4096, set_aside: None },
    }
}

fn event(what: EventKind) -> Event {
    Event { id: 12, time_ms: START_MS + 900, run: Some(run().id), what }
}

#[test]
fn clients_say_what_they_always_said() {
    check(
        "client_hello",
        &ClientMessage::Hello {
            protocol: 1,
            token: "0".repeat(64),
            after: Some(ResumePoint { time_ms: START_MS, event: 3 }),
            language: None,
        },
    );
    let first = |language| ClientMessage::Hello { protocol: 1, token: "0".repeat(64), after: None, language };
    check("client_hello_first", &first(None));
    check("client_hello_german", &first(Some("de".to_owned())));
}

#[test]
fn the_agent_says_what_it_always_said() {
    let hello = Hello {
        protocol: 1,
        agent: "0.1.0".to_owned(),
        session: "89abcdef".to_owned(),
        name: "rig".to_owned(),
        scope: Scope::Control,
        time_ms: START_MS,
        gpus: vec![gpu()],
        state: state(),
        runs: vec![run()],
        last_event: 12,
        alerts: vec![
            FiredAlert {
                event: 11,
                alert: Alert::TemperatureAbove { celsius: 85 },
                gpu: Some(gpu().uuid),
                gpu_name: Some(gpu().name),
                run: None,
                time_ms: START_MS - 60_000,
                value: Some(86.0),
            },
            FiredAlert {
                event: 9,
                alert: Alert::RunFailed,
                gpu: None,
                gpu_name: None,
                run: Some("fedcba9876543210".to_owned()),
                time_ms: START_MS - 120_000,
                value: Some(1.0),
            },
        ],
    };
    check("hello", &ServerMessage::Hello(Box::new(hello)));
    check(
        "refused",
        &ServerMessage::Refused(Refusal {
            code: RefusalCode::UnknownVersion,
            message: Message::plain("This agent speaks version 1 of the protocol, and the page version 2."),
            supported: vec![1],
        }),
    );
    check("inventory", &ServerMessage::Inventory { gpus: vec![Gpu { present: false, ..gpu() }] });
    check("telemetry", &ServerMessage::Telemetry(telemetry()));
    check("slow", &ServerMessage::Slow(slow()));
    check("lost", &ServerMessage::Lost { n_messages: 17 });
    let past = MissedHistory {
        telemetry: vec![telemetry()],
        slow: Some(slow()),
        events: vec![event(EventKind::RunIteration(iteration()))],
        done: true,
        from_ms: START_MS,
    };
    check("past", &ServerMessage::Past(past));
}

#[test]
fn message_of_unknown_type_is_refused() {
    for wrong in ["{}", r#"{"type":"later"}"#, r#"{"type":"lost"}"#, "[]"] {
        serde_json::from_str::<ServerMessage>(wrong).expect_err(wrong);
    }
}

#[test]
fn missing_field_is_named() {
    for (text, field) in [
        (r#"{"kind":"run_memory","bytes":1}"#, "gpu"),
        (r#"{"kind":"run_iteration","iter":3}"#, "time_ms"),
        (r#"{"kind":"alert"}"#, "alert"),
        (r#"{"kind":"run_explained"}"#, "message"),
    ] {
        let error = serde_json::from_str::<EventKind>(text).expect_err(text).to_string();
        assert!(error.contains(&format!("missing field `{field}`")), "{text}: {error}");
    }
    assert!(serde_json::from_str::<RunStatus>(r#"{"state":"exited"}"#).is_err());
    assert!(serde_json::from_str::<DriverState>(r#"{"state":"kept","bytes":1}"#).is_err());
    assert!(serde_json::from_str::<HistoryState>(r#"{"state":"starting"}"#).is_err());
}

#[test]
fn event_of_a_later_version_is_unknown() {
    let text = r#"{"kind":"card_melted","at":{"celsius":4000}}"#;
    assert_eq!(serde_json::from_str::<EventKind>(text).expect("something"), EventKind::Unknown);
}

#[test]
fn message_has_its_text_beside_it() {
    let why = text::shortage_held(
        text::shortage_missing(text::size(3 << 29)),
        text::list(Separator::Comma, [text::holder_named("python", 7_u64), text::holders_more(2_u64)]),
    );
    let tries = text::list(Separator::Semicolon, [text::TRY_CPU.into(), text::try_batch_size(4_u64)]);
    let message: Message =
        text::as_is(text::list(Separator::Paragraph, [why, text::tries(tries), text::as_is("Killed")])).into();
    assert_eq!(
        message.en,
        "1.50 GiB are missing; other processes on the GPU: python (process 7), 2 more\n\nhint: --device=cpu trains on the CPU; \
         --batch_size=4 fits, with more --gradient_accumulation_steps= for the same tokens\n\nKilled"
    );
    let run = Run {
        explanation: Some(message.clone()),
        config_notes: vec![Message::plain("a.py:1:1: x"), text::notes_more(3_u64).into()],
        ..Run::default()
    };
    check(
        "messages",
        &[
            ServerMessage::Event(event(EventKind::RunStarted { run: Box::new(run) })),
            ServerMessage::Event(event(EventKind::RunExplained { message, xid: None })),
            ServerMessage::State(State {
                driver: DriverState::NoDriver { reason: text::DRIVER_NOT_LOADED.into() },
                history: HistoryState::Paused { reason: text::HISTORY_BUSY.into(), since_ms: START_MS },
            }),
            ServerMessage::Refused(Refusal::new(RefusalCode::TooMany, text::TOO_MANY_VIEWERS.into())),
        ],
    );
}

#[test]
fn every_state_has_its_form() {
    let driver = [
        DriverState::Starting,
        DriverState::NoLibrary,
        DriverState::NoDriver { reason: Message::plain("Driver Not Loaded") },
        DriverState::Gone { reason: Message::plain("GPU is lost") },
    ];
    let history = [
        HistoryState::Kept { bytes: 4096, set_aside: Some("history.damaged-1.sqlite".to_owned()) },
        HistoryState::Paused { reason: Message::plain("database or disk is full"), since_ms: START_MS },
    ];
    let driver = driver.map(|driver| ServerMessage::State(State { driver, ..state() }));
    let history = history.map(|history| ServerMessage::State(State { history, ..state() }));
    check("states", &driver.into_iter().chain(history).collect::<Vec<_>>());
}

#[test]
fn every_event_has_its_form() {
    let alert = Alert::TemperatureAbove { celsius: 85 };
    let gpu = || gpu().uuid;
    let status = |status| EventKind::RunStatus { status, energy_joules: Some(3600.0) };
    let all = vec![
        EventKind::RunStarted { run: Box::new(run()) },
        EventKind::RunConfig { config: "batch_size = 64\n".to_owned(), max_iters: Some(5000) },
        EventKind::RunParameters { parameters_millions: 10.65 },
        EventKind::RunPlanned { plan: plan() },
        EventKind::RunUnplanned { contradiction: contradiction(), max_iters: Some(5000) },
        EventKind::RunUnplanned {
            contradiction: Contradiction { figure: Figure::TokensPerIteration, printed: 491_520.0, planned: 163_840.0 },
            max_iters: None,
        },
        EventKind::RunIteration(iteration()),
        EventKind::RunEvaluation(evaluation()),
        EventKind::RunEvaluating { done: 37, of: 400 },
        EventKind::RunCheckpoint { folder: "out".to_owned() },
        EventKind::RunSaved { checkpoint: Checkpoint { iter: 250, bytes: 130_000_000 } },
        EventKind::RunResumed { pid: Some(4243), command: vec!["headroom".to_owned(), "train".to_owned()] },
        EventKind::RunNotSaved { iter: 300, message: Message::plain("The disk is full.") },
        EventKind::RunCommand { command: vec!["headroom".to_owned(), "train".to_owned()] },
        status(RunStatus::stopped()),
        status(RunStatus::unqueued()),
        EventKind::RunStopping,
        EventKind::RunMemory { gpu: gpu(), bytes: 6 * GIB },
        EventKind::RunOom { message: "CUDA out of memory.".to_owned() },
        EventKind::RunExplained { message: Message::plain("The card fell off the bus."), xid: Some(79) },
        EventKind::RunDiagnosed {
            diagnosis: Diagnosis {
                sentence: "It failed on logits.".to_owned(),
                change: Some("the same training, 2.1 GiB left".to_owned()),
                command: Some("python train.py --batch_size=8".to_owned()),
                others: vec![Wording {
                    language: "de".to_owned(),
                    sentence: "Er scheitert an logits.".to_owned(),
                    change: Some("gleiches Training; lässt 2,1 GiB frei".to_owned()),
                }],
            },
        },
        EventKind::RunRetried { next: "1".to_owned(), changes: vec![("batch_size".to_owned(), "8".to_owned())] },
        status(RunStatus::Running),
        status(RunStatus::Stalled { since_ms: START_MS }),
        status(RunStatus::exited(1)),
        status(RunStatus::exited(1).because(Some(Cause::OutOfGpuMemory))),
        status(RunStatus::killed(9)),
        status(RunStatus::killed(9).because(Some(Cause::OutOfHostMemory))),
        status(RunStatus::exited(3).because(Some(Cause::GpuError))),
        status(RunStatus::Lost),
        EventKind::RunDeleted { name: Some("gpt2-124m".to_owned()) },
        EventKind::Alert { alert, gpu: Some(gpu()), value: Some(86.0), status: None },
        EventKind::Alert {
            alert: Alert::RunFailed,
            gpu: None,
            value: Some(1.0),
            status: Some(RunStatus::exited(1).because(Some(Cause::OutOfGpuMemory))),
        },
        EventKind::AlertOver { alert, gpu: None },
        EventKind::AlertDismissed { alert, gpu: Some(gpu()) },
        EventKind::SettingsChanged,
        EventKind::GpuLost { gpu: gpu() },
        EventKind::GpuRecovered { gpu: gpu() },
        EventKind::GpuXid { gpu: gpu(), xid: 31 },
        EventKind::HistorySetAside { file: "history.damaged-1.sqlite".to_owned(), runs: 7, settings: true },
        EventKind::HistoryPaused { reason: Message::plain("database or disk is full") },
        EventKind::HistoryResumed,
        EventKind::AgentStarted { version: "0.1.0".to_owned() },
        EventKind::ClockSet { from_ms: 1_826_536_000_000, to_ms: 1_795_000_000_900 },
    ];
    check("events", &all.into_iter().map(event).collect::<Vec<_>>());
    let later: Event = serde_json::from_str(r#"{"id":1,"time_ms":2,"what":{"kind":"of_later","x":1}}"#).expect("read");
    assert_eq!(later.what, EventKind::Unknown);
}

#[test]
fn rest_answers_match_recorded_form() {
    let alerts = vec![
        Alert::TemperatureAbove { celsius: 85 },
        Alert::MemoryAbove { percent: 95 },
        Alert::NoProgress { minutes: 10 },
        Alert::GpuLost,
        Alert::RunFailed,
    ];
    check("settings", &Settings { alerts, price_per_kwh: Some(0.35), currency: "€".to_owned() });
    let one = |value: f64| Series { min: vec![Some(value)], mean: vec![Some(value + 0.5)], max: vec![None] };
    let history = History {
        gpu: gpu().uuid,
        from_ms: START_MS,
        to_ms: START_MS + 10_000,
        step_ms: 10_000,
        times_ms: vec![START_MS],
        series: Metric::FAST.iter().map(|metric| one(metric.place() as f64)).collect(),
    };
    check("history", &history);
}

#[test]
fn no_reading_is_taken_for_another() {
    let read = |text: &str| serde_json::from_str::<Reading<u64>>(text);
    assert_eq!(read("0").expect("a value"), Reading::Is(0));
    assert_eq!(read(r#"{"missing":"of_a_later_version"}"#).expect("a reason"), missing(MissingReason::Failed));
    for wrong in ["null", "-1", "1.5", "\"1\"", "{}", "[]"] {
        read(wrong).expect_err(wrong);
    }
}

#[test]
fn throttle_reasons_are_nvmls() {
    // nvml.h: GpuIdle 1, ApplicationsClocksSetting 2, SwPowerCap 4, HwSlowdown 8, SyncBoost 0x10,
    // SwThermalSlowdown 0x20, HwThermalSlowdown 0x40, HwPowerBrakeSlowdown 0x80, DisplayClockSetting 0x100.
    assert_eq!(Throttle::ALL.map(Throttle::bit), [1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x100]);
    assert_eq!(Throttle::of(0x44).collect::<Vec<_>>(), [Throttle::PowerCap, Throttle::HardwareThermal]);
}

#[test]
fn resumed_run_reports_earlier_parts() {
    let earlier = EarlierParts { took_ms: 60_000, energy_joules: Some(1800.0), since_ms: START_MS + 3_600_000 };
    check("run_gone_on", &Run { earlier: Some(earlier), ..run() });
}

#[test]
fn no_golden_file_is_left_over() {
    let names: BTreeSet<String> = fs::read_dir(folder())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".json"))
        .collect();
    let source = include_str!("tests.rs");
    for name in names {
        let name = name.trim_end_matches(".json");
        assert!(source.contains(&format!("\"{name}\"")), "{name}.json is compared with nothing");
    }
}
