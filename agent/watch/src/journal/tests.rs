//! Events of a journal for a recorded run, a stalled run, a run that prints faster than viewers can read, and a failed
//! run.

mod end;

use super::*;
use headroom_agent_core::{platform::ProgramEnding, telemetry::TelemetryEvent};
use headroom_planner::nanogpt::Source;
use headroom_protocol::{
    SlowReadings, Telemetry,
    gpu::{Gpu, Process},
    metric::{HostSample, Sample, SlowSample},
    reading::{MissingReason, Reading},
    run::{Cause, Evaluation, Figure},
};
use std::ops::Range;

const RECORDED: &str = include_str!("../../../../tests/golden/logs/nanogpt_cpu_char.log");

/// Recorded events, in order.
#[derive(Clone, Default)]
struct RecordedEvents(Arc<Mutex<Vec<EventKind>>>, Arc<Mutex<Vec<Figures>>>);

impl Record for RecordedEvents {
    fn append(&self, run: &str, what: EventKind) {
        assert_eq!(run, "1");
        self.0.lock().expect("whole").push(what);
    }

    fn printed(&self, run: &Arc<str>, figures: Figures) {
        assert_eq!(&**run, "1");
        self.1.lock().expect("whole").push(figures);
    }

    fn mark(&self) -> Mark {
        Mark::default()
    }

    fn has_kept(&self, _: &Mark) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> u64 {
        0
    }
}

impl RecordedEvents {
    fn all(&self) -> Vec<EventKind> {
        self.0.lock().expect("whole").clone()
    }

    fn iterations(&self) -> Vec<Iteration> {
        let all = self.all().into_iter();
        all.filter_map(|what| if let EventKind::RunIteration(iteration) = what { Some(iteration) } else { None })
            .collect()
    }

    fn lines(&self) -> Vec<Figures> {
        self.1.lock().expect("whole").clone()
    }

    fn statuses(&self) -> Vec<RunStatus> {
        let all = self.all().into_iter();
        all.filter_map(|what| if let EventKind::RunStatus { status, .. } = what { Some(status) } else { None })
            .collect()
    }
}

fn settings(command: &str) -> Settings {
    Settings {
        id: Arc::from("1"),
        command: command.split(' ').map(OsString::from).collect(),
        given: None,
        gpu: None,
        visible: None,
        pattern: None,
        stall: Some(Duration::from_secs(600)),
        started_ms: 1_000_000,
        out: None,
        status_file: None,
        energy_joules_before: None,
    }
}

fn journal(settings: Settings) -> (Journal, RecordedEvents, Arc<Mutex<RunGpus>>) {
    let (kept, gpus) = (RecordedEvents::default(), Arc::new(Mutex::new(RunGpus::default())));
    (Journal::new(settings, Box::new(kept.clone()), Arc::clone(&gpus)), kept, gpus)
}

fn print(journal: &mut Journal, text: &str, now: Duration) {
    journal.bytes(Stream::Out, &StreamCopy { gap: false, bytes: text.as_bytes().to_vec(), end: 0 }, now);
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_recorded_run_is_reported_whole() {
    let (mut journal, kept, _) = journal(settings("python train.py config/train_shakespeare_char.py"));
    for (i, line) in RECORDED.split_inclusive('\n').enumerate() {
        let now = SECOND * u32::try_from(i).expect("few lines");
        print(&mut journal, line, now);
        journal.tick(now);
    }
    let (ended, _) = journal.end(ProgramEnding::Exited(0), SECOND * 200);
    let all = kept.all();
    let EventKind::RunConfig { config, max_iters: Some(40) } = &all[0] else { panic!("{:?}", all[0]) };
    assert!(config.starts_with("$ python train.py config/train_shakespeare_char.py\nOverriding config with "));
    assert!(config.contains("Overriding: n_layer = 4\n"), "{config}");
    assert_eq!(all[1], EventKind::RunParameters { parameters_millions: 7.23 });
    let evaluation = Evaluation { iter: 0, train_loss: Some(10.8413), val_loss: Some(10.8390) };
    assert_eq!(all[2], EventKind::RunEvaluation(evaluation));
    let iterations = kept.iterations();
    assert_eq!(iterations.iter().map(|it| it.iter).collect::<Vec<_>>(), (0..=40).collect::<Vec<_>>());
    // 768 tokens in 418.84 ms; a run on the CPU has no GPU for an MFU, and no plan.
    assert_eq!(iterations[39].tokens_per_second, Some(768.0 / 0.41884));
    assert_eq!((iterations[39].mfu_printed_percent, iterations[39].mfu_percent), (Some(0.02), None));
    assert!(!all.iter().any(|what| matches!(what, EventKind::RunPlanned { .. } | EventKind::RunOom { .. })));
    assert_eq!(all.last(), Some(&EventKind::RunStatus { status: RunStatus::exited(0), energy_joules: None }));
    assert_eq!(all.len(), 2 + 41 + 3 + 2 + 1);
    assert!(ended.saved && ended.out_of_memory.is_none());
}

#[test]
fn how_far_an_evaluation_is_is_reported_now_and_then() {
    let (mut journal, kept, _) = journal(settings("headroom train"));
    for (done, at) in [(10, 5), (20, 10), (30, 34), (40, 36)] {
        print(&mut journal, &format!("evaluating: {done} of 400 batches\n"), SECOND * at);
    }
    let events: Vec<_> =
        kept.all().into_iter().filter(|what| matches!(what, EventKind::RunEvaluating { .. })).collect();
    assert_eq!(events, [10, 40].map(|done| EventKind::RunEvaluating { done, of: 400 }));
}

#[test]
fn a_flood_is_kept_whole_and_reported_by_its_extremes() {
    let (mut journal, kept, _) = journal(settings("python train.py"));
    // Ten seconds of a thousand lines each, with one spike, one dip and one NaN loss.
    let loss = |iter| match iter {
        5_001 => "97.5",
        5_002 => "0.125",
        7_003 => "nan",
        _ => "1.0",
    };
    for iter in 0..10_000_u32 {
        let now = Duration::from_millis(u64::from(iter));
        print(&mut journal, &format!("iter {iter}: loss {}, time 1.00ms, mfu 1.00%\n", loss(iter)), now);
        journal.tick(now);
    }
    journal.end(ProgramEnding::Exited(0), SECOND * 10);
    let events = kept.iterations();
    assert!((40..=4 * 41).contains(&events.len()), "{}", events.len());
    assert_eq!(events.last().map(|it| it.iter), Some(9_999));
    assert!(events.windows(2).all(|pair| pair[0].iter < pair[1].iter));
    for (iter, loss) in [(5_001, Some(97.5)), (5_002, Some(0.125)), (7_003, None)] {
        assert!(events.iter().any(|it| (it.iter, it.loss) == (iter, loss)), "{iter}");
    }
    let lines = kept.lines();
    assert_eq!(lines.len(), 10_000);
    for (iter, line) in (0..).zip(lines) {
        assert!(matches!(line, Figures::Iteration(it) if it.iter == iter), "{line:?}");
    }
}

#[test]
fn lines_that_were_given_up_are_counted() {
    let (mut journal, kept, _) = journal(settings("python train.py"));
    print(&mut journal, "iter 1: loss 1.0, time 1.00ms\n", SECOND);
    let gap = StreamCopy { gap: true, bytes: b"ss 1.0, time 1.00ms\niter 9: loss 1.0, time 1.00ms\n".to_vec(), end: 0 };
    journal.bytes(Stream::Out, &gap, SECOND);
    journal.end(ProgramEnding::Exited(0), SECOND);
    let lines = kept.lines();
    assert!(
        matches!(lines[..], [Figures::Iteration(_), Figures::LeftOut(1), Figures::Iteration(it)] if it.iter == 9),
        "{lines:?}"
    );
}

#[test]
fn no_progress_is_reported_once_and_so_is_its_end() {
    let (mut journal, kept, _) = journal(settings("python train.py"));
    let at = |seconds: u32| SECOND * seconds;
    // Before the first figures any line counts as progress, as compilation takes time.
    print(&mut journal, "warming up\n", at(500));
    journal.tick(at(1_099));
    assert_eq!(kept.statuses(), []);
    print(&mut journal, "iter 0: loss 1.0, time 1.00ms, mfu 1.00%\n", at(1_099));
    // After them only figures count.
    print(&mut journal, "still alive\n", at(1_600));
    journal.tick(at(1_699));
    journal.tick(at(1_800));
    assert_eq!(kept.statuses(), [RunStatus::Stalled { since_ms: 1_000_000 + 1_099_000 }]);
    print(&mut journal, "step 10: train loss 1.0, val loss 1.0\n", at(2_000));
    journal.tick(at(2_001));
    assert_eq!(kept.statuses()[1..], [RunStatus::Running]);
    journal.tick(at(2_601));
    journal.end(ProgramEnding::Killed(15), at(2_700));
    assert_eq!(kept.statuses()[3..], [RunStatus::killed(15)]);
    let (mut patient, kept, _) = self::journal(Settings { stall: None, ..settings("python train.py") });
    patient.tick(at(1_000_000));
    assert_eq!(kept.statuses(), []);
}

const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of \
    11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. Of the \
    allocated memory 6.78 GiB is allocated by PyTorch, and 39.14 MiB is reserved by PyTorch but unallocated.";

fn oom_of(kept: &RecordedEvents) -> Option<String> {
    kept.all().into_iter().find_map(|what| if let EventKind::RunOom { message } = what { Some(message) } else { None })
}

#[test]
fn a_run_that_dies_of_memory_has_its_message() {
    let traceback =
        format!("[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\"\n[rank0]: {MESSAGE}\n");
    // The process ends on its own, or is killed, even in the middle of the next line.
    for (ending, rest) in [(ProgramEnding::Exited(1), ""), (ProgramEnding::Killed(9), "[rank1]: Trace")] {
        let (mut journal, kept, _) = journal(settings("torchrun --nproc_per_node=2 train.py"));
        print(&mut journal, "Overriding: batch_size = 64\niter 0: loss 1.0, time 1.00ms, mfu 1.00%\n", SECOND);
        let bytes = format!("{traceback}{rest}").into_bytes();
        journal.bytes(Stream::Err, &StreamCopy { gap: false, bytes, end: 0 }, SECOND);
        let (ended, _) = journal.end(ending, SECOND * 2);
        assert!(
            oom_of(&kept).is_some_and(|message| message.starts_with("torch.OutOfMemoryError: CUDA out of memory."))
        );
        assert!(ended.out_of_memory.is_some_and(|text| text.contains("Traceback")));
        assert_eq!(ended.config.map(|config| config.world_size), Some(2));
    }
    // Python may flush buffered output at its end, after the message; the run did not continue in that case.
    let iterations = |journal: &mut Journal, seconds: Range<u32>| {
        for second in seconds {
            print(journal, &format!("iter {second}: loss 1.0, time 1.00ms, mfu 1.00%\n"), SECOND * second);
        }
    };
    for (figures, dies_of_it) in [(9..11, true), (9..60, false)] {
        let (mut journal, kept, _) = journal(settings("python train.py"));
        print(&mut journal, &traceback, SECOND * 8);
        iterations(&mut journal, figures);
        print(&mut journal, "Traceback (most recent call last):\nKeyError: 'batch'\n", SECOND * 60);
        let (ended, _) = journal.end(ProgramEnding::Exited(1), SECOND * 61);
        assert_eq!((oom_of(&kept).is_some(), ended.out_of_memory.is_some()), (dies_of_it, dies_of_it));
        let cause = dies_of_it.then_some(Cause::OutOfGpuMemory);
        assert_eq!(kept.statuses().pop().and_then(RunStatus::cause), cause);
    }
    // A run that caught the error and completed did not die of it.
    let (mut caught, kept, _) = journal(settings("python train.py"));
    print(&mut caught, &traceback, SECOND);
    let (ended, _) = caught.end(ProgramEnding::Exited(0), SECOND * 2);
    assert_eq!((oom_of(&kept), ended.out_of_memory), (None, None));
}

#[test]
fn a_run_that_ends_before_its_config_does_leaves_what_there_is() {
    let whole = RECORDED.find("tokens per iteration").expect("it is there");
    for end in [0, 20, whole / 2, whole - 1, whole + 10] {
        let (mut journal, kept, _) = journal(settings("python train.py"));
        print(&mut journal, &RECORDED[..end], SECOND);
        let (ended, _) = journal.end(ProgramEnding::Killed(9), SECOND);
        assert_eq!(ended.config.is_some(), end >= 25, "{end}");
        assert_eq!(kept.statuses(), [RunStatus::killed(9)]);
    }
}

#[test]
fn a_pattern_reads_what_nanogpt_does_not_print() {
    let pattern = Pattern::new(r"step (?<iter>\d+) \| loss (?<loss>\S+) \| (?<time_ms>\S+) ms").expect("a pattern");
    let given = Config::given(&[], vec![Source::Override { text: "--batch_size=4".to_owned() }]);
    let (mut journal, kept, _) =
        journal(Settings { pattern: Some(pattern), given: Some(given), ..settings("./train") });
    journal.tick(SECOND);
    print(&mut journal, "step 7 | loss 2.5 | 50.0 ms\n", SECOND);
    journal.end(ProgramEnding::Exited(0), SECOND);
    let expected = Iteration {
        iter: 7,
        loss: Some(2.5),
        time_ms: 50.0,
        // 40 micro-steps of 4 sequences of 1024.
        tokens_per_second: Some(40.0 * 4.0 * 1024.0 / 0.05),
        mfu_printed_percent: None,
        mfu_percent: None,
        ..Iteration::default()
    };
    assert_eq!(kept.iterations(), [expected]);
}

/// Output of nanoGPT with default settings.
const AGREES: [&str; 2] = ["tokens per iteration will be: 491,520\n", "number of parameters: 123.59M\n"];

/// Plans (`None`) and withdrawals (`Some`), in order.
fn plans(kept: &RecordedEvents) -> Vec<Option<Contradiction>> {
    let all = kept.all().into_iter();
    all.filter_map(|what| match what {
        EventKind::RunPlanned { .. } => Some(None),
        EventKind::RunUnplanned { contradiction, .. } => Some(Some(contradiction)),
        _ => None,
    })
    .collect()
}

#[test]
fn a_plan_that_the_run_contradicts_is_taken_back() {
    let gpu = || Some(PlannedGpu::Named("RTX 4070".to_owned()));
    let parameters = Contradiction { figure: Figure::ParametersMillions, printed: 999.99, planned: 123.587_328 };
    let tokens = Contradiction { figure: Figure::TokensPerIteration, printed: 12.0, planned: 491_520.0 };
    let config = "Overriding: max_iters = 50\n";
    for (lines, expected) in [
        ([AGREES[0], config, AGREES[1]], vec![None]),
        ([AGREES[0], config, "number of parameters: 999.99M\n"], vec![None, Some(parameters)]),
        (["tokens per iteration will be: 12\n", config, AGREES[1]], vec![Some(tokens)]),
        // The last line contradicts too, but is not reported.
        (["tokens per iteration will be: 12\n", config, "number of parameters: 999.99M\n"], vec![Some(tokens)]),
    ] {
        let (mut journal, kept, _) = journal(Settings { gpu: gpu(), ..settings("python train.py") });
        for line in lines {
            print(&mut journal, line, SECOND);
            journal.tick(SECOND);
        }
        print(&mut journal, "iter 1: loss 1.0, time 10000.00ms, mfu 13.46%\n", SECOND);
        let (ended, _) = journal.end(ProgramEnding::Exited(0), SECOND * 2);
        assert_eq!(plans(&kept), expected, "{lines:?}");
        let is_contradicted = expected.last().is_some_and(Option::is_some);
        assert_eq!(ended.is_contradicted, is_contradicted, "{lines:?}");
        let [iteration] = kept.iterations()[..] else { panic!("{:?}", kept.iterations()) };
        assert_eq!(iteration.mfu_percent.is_none(), is_contradicted, "{iteration:?}");
        assert!(iteration.tokens_per_second.is_some(), "as it prints them");
        // The run printed its own last iteration.
        let unplanned = kept.all().into_iter().find_map(|what| match what {
            EventKind::RunUnplanned { max_iters, .. } => Some(max_iters),
            _ => None,
        });
        assert_eq!(unplanned, is_contradicted.then_some(Some(50)));
    }
}

#[test]
fn named_config_yields_to_contradicting_output() {
    let text = "n_layer = 4\nmax_iters = 50\n".to_owned();
    let given = Config::given(&[], vec![Source::File { name: "c.py".to_owned(), text }]);
    let gpu = Some(PlannedGpu::Named("RTX 4070".to_owned()));
    let (mut journal, kept, _) = journal(Settings { given: Some(given), gpu, ..settings("python mine.py") });
    journal.tick(SECOND);
    assert_eq!(plans(&kept), [None], "no contradiction so far");
    print(&mut journal, "number of parameters: 124M\nstep 0: train loss 1.0, val loss 1.0\n", SECOND);
    journal.tick(SECOND);
    let unplanned = |what: &EventKind| matches!(what, EventKind::RunUnplanned { max_iters: None, .. });
    assert_eq!(kept.all().iter().filter(|what| unplanned(what)).count(), 1);
    print(&mut journal, "iter 1: loss 1.0, time 10000.00ms, mfu 13.46%\n", SECOND);
    journal.end(ProgramEnding::Exited(0), SECOND * 2);
    let [iteration] = kept.iterations()[..] else { panic!("{:?}", kept.iterations()) };
    assert_eq!((iteration.tokens_per_second, iteration.mfu_percent), (None, None));
}

#[test]
fn another_gpu_makes_no_plan_of_a_contradicted_config() {
    let (mut journal, kept, gpus) = journal(settings("python train.py"));
    print(&mut journal, "tokens per iteration will be: 12\nnumber of parameters: 123.59M\n", SECOND);
    gpus.lock().expect("whole").observe(&TelemetryEvent::Inventory(vec![gpu()]), |_| [].into());
    journal.tick(SECOND * 2);
    assert_eq!(plans(&kept).len(), 1, "{:?}", plans(&kept));
    assert!(plans(&kept)[0].is_some());
}

fn gpu() -> Gpu {
    let missing = || Reading::missing(MissingReason::NotSupported);
    Gpu {
        index: 0,
        uuid: "GPU-1".to_owned(),
        name: "NVIDIA GeForce RTX 4070".to_owned(),
        present: true,
        memory_total_bytes: Reading::Is(12 << 30),
        compute_capability: Reading::Is((8, 9)),
        power_limit_watts: Reading::missing(MissingReason::NotSupported),
        power_limit_max_watts: Reading::missing(MissingReason::NotSupported),
        temperature_slowdown_celsius: missing(),
        temperature_shutdown_celsius: missing(),
        clock_sm_max_mhz: missing(),
        clock_memory_max_mhz: missing(),
        mig_enabled: Reading::missing(MissingReason::NotSupported),
        nvlinks_active: Reading::missing(MissingReason::NotSupported),
        pci_bus_id: Reading::missing(MissingReason::NotSupported),
        listed_as: None,
    }
}

fn telemetry(time_ms: u64, watts: f64) -> TelemetryEvent {
    let sample = Sample { power_watts: Reading::Is(watts), ..Sample::missing(0, MissingReason::NotSupported) };
    TelemetryEvent::Telemetry(Arc::new(Telemetry { seq: 0, time_ms, gpus: vec![sample] }))
}

fn slow(processes: &[(u32, u64)]) -> TelemetryEvent {
    let process = |(pid, bytes): &(u32, u64)| Process {
        pid: *pid,
        name: Reading::missing(MissingReason::Failed),
        user: Reading::missing(MissingReason::Failed),
        memory_used_bytes: Reading::Is(*bytes),
        run: None,
    };
    let processes = Reading::Is(processes.iter().map(process).collect());
    let sample = SlowSample { processes, ..SlowSample::missing(0, MissingReason::NotSupported) };
    let host = HostSample::missing(MissingReason::Failed);
    TelemetryEvent::Slow(SlowReadings { time_ms: 0, gpus: vec![sample], host })
}

#[test]
fn a_run_is_planned_for_its_gpu_and_measured_on_it() {
    let (mut journal, kept, gpus) = journal(settings("python train.py"));
    print(&mut journal, "tokens per iteration will be: 491,520\nnumber of parameters: 123.59M\n", SECOND);
    journal.tick(SECOND);
    let planned =
        |kept: &RecordedEvents| kept.all().iter().filter(|what| matches!(what, EventKind::RunPlanned { .. })).count();
    assert_eq!(planned(&kept), 0, "the GPU is not known yet");
    let observe = |observed| gpus.lock().expect("whole").observe(&observed, |_| [71, 72].into());
    observe(TelemetryEvent::Inventory(vec![gpu()]));
    journal.tick(SECOND * 2);
    journal.tick(SECOND * 3);
    assert_eq!(planned(&kept), 1, "once");
    // Two processes of the run and a foreign one, whose memory does not count.
    observe(slow(&[(71, 1 << 30), (72, 2 << 30), (99, 4 << 30)]));
    journal.tick(SECOND * 4);
    observe(slow(&[(71, 1 << 30), (72, 1 << 30)]));
    journal.tick(SECOND * 5);
    for (time_ms, watts) in [(1_000, 100.0), (2_000, 200.0), (3_000, 200.0), (60_000, 200.0)] {
        observe(telemetry(time_ms, watts));
    }
    print(&mut journal, "iter 1: loss 1.0, time 10000.00ms, mfu 13.46%\n", SECOND * 6);
    journal.end(ProgramEnding::Exited(0), SECOND * 7);
    let memory: Vec<EventKind> =
        kept.all().into_iter().filter(|what| matches!(what, EventKind::RunMemory { .. })).collect();
    assert_eq!(memory, [EventKind::RunMemory { gpu: "GPU-1".to_owned(), bytes: 3 << 30 }]);
    // 150 J in the first second and 200 J in the next; the minute without samples does not count.
    let Some(EventKind::RunStatus { energy_joules: Some(joules), .. }) = kept.all().pop() else { panic!("no energy") };
    assert!((joules - 350.0).abs() < 1e-9, "{joules}");
    let [iteration] = kept.iterations()[..] else { panic!("{:?}", kept.iterations()) };
    assert_eq!(iteration.tokens_per_second, Some(49_152.0));
    let mfu = iteration.mfu_percent.expect("the GPU is known");
    assert!((40.0..=100.0).contains(&mfu), "MFU of an RTX 4070, not of the printed A100: {mfu}");
}
