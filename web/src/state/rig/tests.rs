//! The page's state after the agent's messages.

use headroom_protocol::{
    alert::Alert,
    reading::Reading,
    run::{Cause, Evaluation, RunRequest, RunStatus},
};

use super::{
    sample::{T, hello, iteration, run, telemetry},
    *,
};

const YEAR_MS: u64 = 365 * 24 * 3_600_000;

fn event(id: u64, what: EventKind) -> Event {
    Event { id, time_ms: T + id, run: Some("a".to_owned()), what }
}

fn printed(id: u64, iter: u64) -> ServerMessage {
    ServerMessage::Event(event(id, EventKind::RunIteration(iteration(iter, 3.0))))
}

fn greeted(last_event: u64) -> Rig {
    let mut rig = Rig::default();
    assert_eq!(rig.after(), None, "a new page has missed nothing");
    rig.hear(ServerMessage::Hello(Box::new(hello(2, vec![run("a")], last_event))), false);
    rig
}

#[test]
fn readings_go_to_their_gpus() {
    let mut rig = greeted(0);
    assert!(rig.is_fed());
    let changed = rig.hear(ServerMessage::Telemetry(telemetry(7)), false);
    assert_eq!(changed, ChangedParts { fast: true, ..ChangedParts::default() });
    assert!(rig.gpus[0].sample.is_some() && rig.gpus[1].sample.is_none());
    assert_eq!(rig.after(), Some(ResumePoint { time_ms: T + 700, event: 0 }));
}

#[test]
fn a_clock_that_was_set_back_is_followed_at_once() {
    let mut rig = greeted(0);
    let ahead = |seq| Telemetry { time_ms: T + YEAR_MS + seq * 100, ..telemetry(seq) };
    for seq in 1..=20 {
        rig.hear(ServerMessage::Telemetry(ahead(seq)), false);
    }
    for seq in 21..=40 {
        rig.hear(ServerMessage::Telemetry(telemetry(seq)), false);
    }
    assert_eq!(rig.newest_ms, T + 4000);
    let gpu = &rig.gpus[0];
    assert_eq!(gpu.recent.len(), 20);
    assert!(gpu.recent.iter().all(|moment| moment.time_ms <= T + 4000), "readings of a future time are gone");
    assert!(gpu.hour.iter().all(|second| second.time_ms <= T + 4000));
    assert_eq!(gpu.sample, telemetry(40).gpus.first().cloned(), "the newest is shown");
}

#[test]
fn missed_events_precede_live_events() {
    let mut rig = greeted(10);
    rig.hear(printed(11, 1), false);
    let mut again = hello(2, vec![run("a")], 20);
    again.runs[0].last = Some(iteration(10, 2.0));
    rig.hear(ServerMessage::Hello(Box::new(again)), true);
    assert_eq!(rig.after().map(|after| after.event), Some(11));
    rig.hear(printed(21, 11), true);
    let missed = (12..=20).map(|id| event(id, EventKind::RunIteration(iteration(id - 10, 2.5)))).collect();
    let past = MissedHistory {
        events: missed,
        done: true,
        telemetry: vec![telemetry(1), telemetry(2)],
        ..MissedHistory::default()
    };
    rig.hear(ServerMessage::Past(past), true);
    let iters: Vec<f64> = rig.runs[0].losses.iterations().iter().map(|point| point.iter as f64).collect();
    assert_eq!(iters, (1..=11).map(f64::from).collect::<Vec<_>>());
    // Received twice, applied once. The run is not reset to an earlier state.
    rig.hear(printed(15, 5), true);
    assert_eq!(rig.runs[0].run.last.map(|last| last.iter), Some(11));
    assert_eq!(rig.after(), Some(ResumePoint { time_ms: T + 200, event: 21 }));
    assert_eq!(rig.gpus[0].recent.len(), 2);
}

#[test]
fn restarted_history_is_followed() {
    let mut rig = greeted(500);
    rig.hear(ServerMessage::Hello(Box::new(hello(1, vec![run("a")], 3))), true);
    rig.hear(printed(4, 1), true);
    assert_eq!(rig.after().map(|after| after.event), Some(4));
    assert_eq!(rig.runs[0].run.last.map(|last| last.iter), Some(1));
}

#[test]
fn gpus_keep_their_past_by_their_uuid_wherever_they_stand() {
    let mut rig = greeted(0);
    rig.hear(ServerMessage::Telemetry(telemetry(1)), false);
    let mut swapped: Vec<Gpu> = rig.gpus.iter().rev().map(|gpu| gpu.info.clone()).collect();
    swapped.iter_mut().zip(0..).for_each(|(gpu, index)| gpu.index = index);
    rig.hear(ServerMessage::Inventory { gpus: swapped }, false);
    assert_eq!((rig.gpus[1].info.uuid.as_str(), rig.gpus[1].recent.len()), ("GPU-0", 1));
    rig.hear(ServerMessage::Telemetry(telemetry(2)), false);
    assert_eq!(rig.gpus[0].recent.len(), 1, "samples follow the new places");
}

#[test]
fn a_run_is_folded_and_its_losses_from_before_are_put_in_front() {
    let mut rig = greeted(10);
    rig.hear(printed(11, 300), false);
    let before: Vec<Event> = (1..=10)
        .map(|id| event(id, EventKind::RunIteration(iteration(id * 20, 4.0))))
        .chain([event(11, EventKind::RunIteration(iteration(300, 3.0)))])
        .chain([event(
            12,
            EventKind::RunEvaluation(Evaluation { iter: 250, train_loss: Some(2.0), val_loss: Some(2.1) }),
        )])
        .collect();
    rig.take_losses("a", &before);
    assert!(rig.runs[0].is_whole);
    let iters: Vec<f64> = rig.runs[0].losses.iterations().iter().map(|point| point.iter as f64).collect();
    assert_eq!((iters.len(), iters[0], iters[10]), (11, 20.0, 300.0));
    assert_eq!(rig.runs[0].losses.evaluations().len(), 1);
    let ended = EventKind::RunStatus { status: RunStatus::exited(0), energy_joules: Some(3600.0) };
    rig.hear(ServerMessage::Event(event(12, ended)), false);
    assert_eq!(rig.runs[0].run.ended_ms, Some(T + 12));
    let name = rig.runs[0].run.name.clone();
    rig.hear(ServerMessage::Event(event(13, EventKind::RunDeleted { name: Some(name.clone()) })), false);
    assert!(rig.runs.is_empty());
    assert!(rig.log.len() > 1);
    for event in &rig.log {
        let said = messages::event(&rig, event).unwrap_or_default();
        assert!(said.contains(&name), "{said}: its name is unique now");
    }
}

#[test]
fn alerts_are_on_until_they_are_over() {
    let mut rig = greeted(0);
    let alert = Alert::TemperatureAbove { celsius: 85 };
    let gpu = Some("GPU-0".to_owned());
    let on = |id, gpu: &Option<String>| Event {
        id,
        time_ms: T,
        run: None,
        what: EventKind::Alert { alert, gpu: gpu.clone(), value: Some(86.0), status: None },
    };
    rig.hear(ServerMessage::Event(on(1, &gpu)), false);
    rig.hear(ServerMessage::Event(on(2, &Some("GPU-1".to_owned()))), false);
    rig.hear(ServerMessage::Event(on(3, &gpu)), false);
    assert_eq!(rig.fired.len(), 2, "the same alert is on once");
    let over = Event { id: 4, time_ms: T, run: None, what: EventKind::AlertOver { alert, gpu } };
    rig.hear(ServerMessage::Event(over), false);
    assert_eq!(rig.fired.len(), 1);
    assert_eq!(rig.log.len(), 4);
}

#[test]
fn alerts_from_before_the_page_was_opened_are_there_and_so_is_what_happened() {
    let alert = Alert::TemperatureAbove { celsius: 85 };
    let on = |id, gpu: &str| Event {
        id,
        time_ms: T + id,
        run: None,
        what: EventKind::Alert { alert, gpu: Some(gpu.to_owned()), value: None, status: None },
    };
    let fired =
        FiredAlert { gpu_name: Some("NVIDIA H200".to_owned()), ..FiredAlert::of(&on(5, "GPU-9")).expect("an alert") };
    let mut hello = hello(1, vec![run("a")], 20);
    hello.alerts = vec![fired.clone()];
    let mut rig = Rig::default();
    rig.hear(ServerMessage::Hello(Box::new(hello.clone())), false);
    assert_eq!(names::gpu_name(&rig, "GPU-9"), "H200");
    // New events come before past ones.
    rig.hear(ServerMessage::Event(on(21, "GPU-0")), false);
    let over = |id| Event { what: EventKind::AlertOver { alert, gpu: Some("GPU-9".to_owned()) }, ..on(id, "") };
    for _ in 0..2 {
        let events = vec![on(5, "GPU-9"), over(6), on(7, "GPU-9")];
        rig.hear(ServerMessage::Past(MissedHistory { events, done: true, ..MissedHistory::default() }), false);
    }
    assert_eq!(rig.log.iter().map(|event| event.id).collect::<Vec<_>>(), [21, 7, 6, 5]);
    assert_eq!(rig.fired.len(), 2, "the greeting already includes their effects");
    // After an absence, the greeting's state overrides the events that are sent later.
    (hello.last_event, hello.alerts) = (30, vec![]);
    rig.hear(ServerMessage::Hello(Box::new(hello)), true);
    let events = vec![on(25, "GPU-5"), on(28, "GPU-9")];
    rig.hear(ServerMessage::Past(MissedHistory { events, done: true, ..MissedHistory::default() }), true);
    assert_eq!((rig.fired.len(), rig.log.len()), (0, 6));
    // An agent's restart ends no alert.
    rig.hear(ServerMessage::Event(on(31, "GPU-0")), true);
    let started = EventKind::AgentStarted { version: "0.1.0".to_owned() };
    rig.hear(ServerMessage::Event(Event { id: 32, time_ms: T, run: None, what: started }), true);
    let dismissed = EventKind::AlertDismissed { alert, gpu: Some("GPU-0".to_owned()) };
    assert_eq!(rig.fired.len(), 1);
    rig.hear(ServerMessage::Event(Event { id: 33, time_ms: T, run: None, what: dismissed }), true);
    assert_eq!(rig.fired.len(), 0);
}

#[test]
fn a_day_of_events_stays_within_its_bounds() {
    let mut rig = greeted(0);
    for id in 1..=60_000 {
        rig.hear(printed(id, id), false);
        let lost = EventKind::GpuLost { gpu: "GPU-0".to_owned() };
        if id % 100 == 0 {
            rig.hear(ServerMessage::Event(Event { id: 0, time_ms: T, run: None, what: lost }), false);
        }
    }
    for n in 0..2 * RUNS_MAX as u64 {
        let mut other = run(&n.to_string());
        other.status = RunStatus::exited(0);
        let started = EventKind::RunStarted { run: Box::new(other) };
        let started = Event { run: Some(n.to_string()), ..event(60_001 + n, started) };
        rig.hear(ServerMessage::Event(started), false);
    }
    assert_eq!((rig.log.len(), rig.runs.len()), (LOG_MAX, RUNS_MAX));
    let going = rig.runs.iter().find(|watched| watched.run.id == "a").expect("an active run stays");
    assert!(going.losses.iterations().len() <= crate::state::rig_charts::losses::KEPT_MAX);
}

#[test]
fn silence_means_something_only_where_gpus_are_read() {
    let mut rig = greeted(0);
    let mut state = rig.state.clone().expect("a state");
    state.driver = DriverState::NoLibrary;
    rig.hear(ServerMessage::State(state), false);
    assert!(!rig.is_fed());
}

#[test]
fn the_past_fills_the_minute_of_a_page_that_has_just_been_opened() {
    let mut rig = greeted(0);
    rig.hear(ServerMessage::Telemetry(telemetry(600)), false);
    let series =
        vec![headroom_protocol::history::Series { mean: vec![Some(5.0), None], ..Default::default() }; N_METRICS];
    let times_ms = vec![T + 10_000, T + 11_000];
    let history = History { gpu: "GPU-0".to_owned(), from_ms: T, to_ms: T + 60_000, step_ms: 1000, times_ms, series };
    assert!(rig.take_history(&history).fast);
    assert_eq!(rig.gpus[0].recent.len(), 3);
    assert!(rig.gpus[0].recent[1].values[0].is_nan());
    assert!(matches!(rig.gpus[0].sample.as_ref().map(|sample| &sample.utilization_percent), Some(Reading::Is(0))));
}

/// Checks the log after these events of one run, oldest first, each with its time in milliseconds.
#[track_caller]
fn tells(events: Vec<(u64, EventKind)>, expected: &[&str]) {
    let mut rig = greeted(0);
    for (at, (time_ms, what)) in events.into_iter().enumerate() {
        let event = Event { time_ms: T + time_ms, ..event(at as u64 + 1, what) };
        rig.hear(ServerMessage::Event(event), false);
    }
    let lines: Vec<String> = rig.log.iter().rev().filter_map(|event| messages::event(&rig, event)).collect();
    let lines: Vec<String> = lines.iter().map(|line| line.replace(values::BLANK, " ")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn event_is_logged_once() {
    let of_gpu = |alert, is_over| match is_over {
        true => EventKind::AlertOver { alert, gpu: Some("GPU-0".to_owned()) },
        false => EventKind::Alert { alert, gpu: Some("GPU-0".to_owned()), value: None, status: None },
    };
    let gpu = || "GPU-0".to_owned();
    tells(
        vec![
            (0, EventKind::GpuLost { gpu: gpu() }),
            (1, of_gpu(Alert::GpuLost, false)),
            (9000, EventKind::GpuRecovered { gpu: gpu() }),
            (9001, of_gpu(Alert::GpuLost, true)),
            (9002, of_gpu(Alert::TemperatureAbove { celsius: 85 }, false)),
            (9003, EventKind::GpuXid { gpu: gpu(), xid: 79 }),
        ],
        &[
            "0: GeForce RTX 4070 stopped responding",
            "0: GeForce RTX 4070 responds again",
            "0: GeForce RTX 4070: hotter than 85 °C",
            "0: GeForce RTX 4070: the driver reports an error, Xid 79",
        ],
    );
    let status = |status| EventKind::RunStatus { status, energy_joules: None };
    tells(
        vec![
            (0, EventKind::RunOom { message: "CUDA out of memory.".to_owned() }),
            (900, status(RunStatus::exited(1))),
            (901, EventKind::Alert { alert: Alert::RunFailed, gpu: None, value: None, status: None }),
        ],
        &["shakespeare-char: ran out of GPU memory"],
    );
    tells(vec![(0, status(RunStatus::exited(1)))], &["shakespeare-char: failed with exit code 1"]);
    for (cause, words) in [
        (Cause::OutOfGpuMemory, "ran out of GPU memory"),
        (Cause::OutOfHostMemory, "killed: the machine ran out of memory"),
        (Cause::GpuError, "failed after a GPU error"),
        (Cause::Diverged, "diverged"),
        (Cause::Other, "failed with exit code 1"),
    ] {
        let died = RunStatus::exited(1).because(Some(cause));
        tells(vec![(0, status(died))], &[&format!("shakespeare-char: {words}")]);
    }
    let set_aside = |settings| EventKind::HistorySetAside { file: "old.sqlite".to_owned(), runs: 2, settings };
    let begins =
        "The history file was damaged. It was renamed to old.sqlite, and a new one was created. Recovered 2 runs";
    tells(vec![(0, set_aside(true))], &[&format!("{begins} and the settings. Its telemetry was lost.")]);
    let lost = format!("{begins}. Its telemetry, alert settings and price per kWh were lost.");
    tells(vec![(0, set_aside(false))], &[&lost]);
}

#[test]
fn an_alert_of_a_run_that_failed_says_how() {
    let mut rig = greeted(0);
    let status = RunStatus::exited(1).because(Some(Cause::OutOfGpuMemory));
    let ended = EventKind::RunStatus { status, energy_joules: None };
    let alert = EventKind::Alert { alert: Alert::RunFailed, gpu: None, value: Some(1.0), status: Some(status) };
    for (id, what) in [(1, ended), (2, alert.clone())] {
        rig.hear(ServerMessage::Event(event(id, what)), false);
    }
    assert_eq!(messages::fired(&rig, &rig.fired[0]), "ran out of GPU memory");
    assert_eq!(messages::event(&rig, &event(2, alert)).as_deref(), Some("shakespeare-char: ran out of GPU memory"));
    rig.runs.clear();
    assert_eq!(messages::fired(&rig, &rig.fired[0]), "failed", "the run is no longer known");
}

#[test]
fn stalled_run_is_reported_once() {
    let status = |status| EventKind::RunStatus { status, energy_joules: None };
    let alert = Alert::NoProgress { minutes: 10 };
    tells(
        vec![
            (0, status(RunStatus::Stalled { since_ms: T })),
            (900, EventKind::Alert { alert, gpu: None, value: None, status: None }),
            (60_000, status(RunStatus::Running)),
            (60_000, EventKind::AlertOver { alert, gpu: None }),
        ],
        &["shakespeare-char: no progress", "shakespeare-char makes progress again"],
    );
    // With other thresholds they occur at other times, and both have a line.
    tells(
        vec![
            (0, status(RunStatus::Stalled { since_ms: T })),
            (300_000, EventKind::Alert { alert, gpu: None, value: None, status: None }),
        ],
        &["shakespeare-char: no progress", "shakespeare-char: no progress for 10 min"],
    );
}

#[test]
fn requested_stop_is_shown_until_end_after_reload() {
    let killed = || EventKind::RunStatus { status: RunStatus::killed(15), energy_joules: None };
    let mut rig = greeted(10);
    let stops = |rig: &mut Rig, id, what| {
        rig.hear(ServerMessage::Event(event(id, what)), false);
        rig.runs[0].stopping_ms.is_some()
    };
    assert!(stops(&mut rig, 11, EventKind::RunStopping));
    assert!(stops(&mut rig, 12, EventKind::RunIteration(iteration(1, 3.0))), "it finishes its iteration");
    assert!(!stops(&mut rig, 13, killed()));
    assert!(!stops(&mut rig, 14, EventKind::RunResumed { pid: Some(7), command: vec![] }));
    assert_eq!(rig.runs[0].run.status, RunStatus::Running);
    assert!(stops(&mut rig, 15, EventKind::RunStopping));
    // A page that opens now receives it among the past events.
    let mut late = greeted(15);
    let events = vec![
        event(11, EventKind::RunStopping),
        event(14, EventKind::RunResumed { pid: None, command: vec![] }),
        event(15, EventKind::RunStopping),
    ];
    late.hear(ServerMessage::Past(MissedHistory { events, done: true, ..MissedHistory::default() }), false);
    assert_eq!(late.runs[0].stopping_ms, Some(T + 15));
}

#[test]
fn a_run_that_waits_has_not_begun_and_the_agent_s_own_do_not_tell_each_checkpoint() {
    let mut rig = greeted(10);
    let waits = Run { status: RunStatus::Queued, order: Some(RunRequest::default()), ..run("b") };
    for (id, what) in [
        (11, EventKind::RunStarted { run: Box::new(waits) }),
        (12, EventKind::RunCheckpoint { folder: "out".to_owned() }),
        (13, EventKind::RunResumed { pid: Some(7), command: vec![] }),
    ] {
        rig.hear(ServerMessage::Event(Event { run: Some("b".to_owned()), ..event(id, what) }), false);
    }
    rig.hear(ServerMessage::Event(event(14, EventKind::RunCheckpoint { folder: "theirs".to_owned() })), false);
    let said: Vec<String> = rig.log.iter().filter_map(|event| messages::event(&rig, event)).collect();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("theirs") && said[1].contains("running") && said[2].contains("queued"), "{said:?}");
}
