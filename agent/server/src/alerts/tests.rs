//! Tests that every rule fires, ends and is forgotten.

use std::sync::Arc;

use headroom_protocol::{
    Telemetry,
    alert::{Alert, FiredAlert},
    event::{Event, EventKind},
    gpu::Gpu,
    metric::Sample,
    reading::{MissingReason, Reading},
    run::{Cause, Iteration, Run, RunStatus},
};

use super::{AlertEvent, Alerts, Step, TelemetryEvent};

const HOT: Alert = Alert::TemperatureAbove { celsius: 85 };
const FULL: Alert = Alert::MemoryAbove { percent: 90 };
const QUIET: Alert = Alert::NoProgress { minutes: 10 };
const MINUTE_MS: u64 = 60_000;

fn missing<T>() -> Reading<T> {
    Reading::missing(MissingReason::NotSupported)
}

fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: format!("GPU-{index}"),
        name: "NVIDIA GeForce RTX 4070".to_owned(),
        present: true,
        memory_total_bytes: Reading::Is(1000),
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
        listed_as: None,
    }
}

fn sample(gpu: u32, celsius: Reading<u64>, used: Reading<u64>) -> Sample {
    Sample {
        memory_used_bytes: used,
        temperature_celsius: celsius,
        ..Sample::missing(gpu, MissingReason::NotSupported)
    }
}

fn alerts(rules: &[Alert]) -> Alerts {
    restored(rules, &[], &[]).0
}

/// Returns a restarted agent's state, with the events it raises at once.
fn restored(rules: &[Alert], fired: &[FiredAlert], runs: &[Run]) -> (Alerts, Vec<AlertEvent>) {
    let mut alerts = Alerts::default();
    let runs: Vec<(Run, u64)> = runs.iter().map(|run| (run.clone(), 0)).collect();
    let mut raised = alerts.restore(rules, fired, &runs);
    raised.extend(alerts.observe(&TelemetryEvent::Inventory(vec![gpu(0), gpu(1)])));
    (alerts, raised)
}

/// Observes two GPUs for a time, the second with the given values. Returns the raised events with their seconds.
fn seconds(
    alerts: &mut Alerts,
    span: std::ops::Range<u64>,
    celsius: &Reading<u64>,
    used: &Reading<u64>,
) -> Vec<(u64, EventKind)> {
    let mut events = Vec::new();
    for tenth in 10 * span.start..10 * span.end {
        let gpus = vec![sample(0, Reading::Is(50), Reading::Is(10)), sample(1, celsius.clone(), used.clone())];
        let raised =
            alerts.observe(&TelemetryEvent::Telemetry(Arc::new(Telemetry { seq: tenth, time_ms: 100 * tenth, gpus })));
        events.extend(raised.into_iter().map(|AlertEvent { run, what }| {
            assert_eq!(run, None);
            (tenth / 10, what)
        }));
    }
    events
}

fn on(alert: Alert, value: f64) -> EventKind {
    EventKind::Alert { alert, gpu: Some("GPU-1".to_owned()), value: Some(value), status: None }
}

fn over(alert: Alert) -> EventKind {
    EventKind::AlertOver { alert, gpu: Some("GPU-1".to_owned()) }
}

#[test]
fn a_hot_gpu_and_a_full_one_are_reported_each_by_itself() {
    let mut alerts = alerts(&[HOT, FULL]);
    let is = Reading::Is::<u64>;
    assert_eq!(seconds(&mut alerts, 0..60, &is(85), &is(900)), []);
    assert_eq!(seconds(&mut alerts, 60..120, &is(86), &is(900)), [(63, on(HOT, 86.0))]);
    assert_eq!(seconds(&mut alerts, 120..180, &is(90), &is(950)), [(123, on(FULL, 95.0))]);
    assert_eq!(seconds(&mut alerts, 180..300, &is(83), &is(881)), [], "below the limit but too close to it");
    assert_eq!(seconds(&mut alerts, 300..400, &is(60), &is(100)), [(360, over(HOT)), (360, over(FULL))]);
}

#[test]
fn unknown_values_change_nothing() {
    let mut alerts = alerts(&[HOT, FULL]);
    let (unknown, hot, full) = (missing(), Reading::Is(99), Reading::Is(999));
    assert_eq!(seconds(&mut alerts, 0..100, &unknown, &unknown), []);
    assert_eq!(seconds(&mut alerts, 100..110, &hot, &full).len(), 2);
    assert_eq!(seconds(&mut alerts, 110..1000, &unknown, &unknown), []);
    let mut alerts = Alerts::default();
    alerts.restore(&[FULL], &[], &[]);
    alerts.observe(&TelemetryEvent::Inventory(vec![gpu(0), Gpu { memory_total_bytes: Reading::Is(0), ..gpu(1) }]));
    assert_eq!(seconds(&mut alerts, 0..100, &hot, &full), [], "zero total memory has no used share");
}

#[test]
fn a_lost_gpu_is_reported_until_it_is_back() {
    let mut alerts = alerts(&[Alert::GpuLost]);
    let lost = || TelemetryEvent::GpuLost("GPU-1".to_owned());
    let back = || TelemetryEvent::GpuRecovered("GPU-1".to_owned());
    let whats = |raised: Vec<AlertEvent>| raised.into_iter().map(|raised| raised.what).collect::<Vec<_>>();
    let on = EventKind::Alert { alert: Alert::GpuLost, gpu: Some("GPU-1".to_owned()), value: None, status: None };
    assert_eq!(whats(alerts.observe(&lost())), std::slice::from_ref(&on));
    assert_eq!(whats(alerts.observe(&lost())), []);
    assert_eq!(whats(alerts.set(&[])), [over(Alert::GpuLost)]);
    assert_eq!(whats(alerts.set(&[Alert::GpuLost])), [on], "a new rule applies to a GPU that is already lost");
    assert_eq!(whats(alerts.observe(&back())), [over(Alert::GpuLost)]);
    assert_eq!(whats(alerts.observe(&back())), []);
}

#[test]
fn a_gpu_that_never_answered_is_over_under_the_name_it_was_lost_by() {
    let mut alerts = alerts(&[Alert::GpuLost]);
    alerts.observe(&TelemetryEvent::Inventory(vec![gpu(0), Gpu { uuid: "unknown-1".to_owned(), ..gpu(1) }]));
    assert_eq!(alerts.observe(&TelemetryEvent::GpuLost("unknown-1".to_owned())).len(), 1);
    alerts.observe(&TelemetryEvent::Inventory(vec![gpu(0), gpu(1)]));
    let raised = alerts.observe(&TelemetryEvent::GpuRecovered("GPU-1".to_owned()));
    let what = EventKind::AlertOver { alert: Alert::GpuLost, gpu: Some("unknown-1".to_owned()) };
    assert_eq!(raised, [AlertEvent { run: None, what }]);
}

#[test]
fn a_rule_that_is_gone_is_over_and_one_that_stays_is_not_reported_again() {
    let mut alerts = alerts(&[HOT, FULL]);
    let (hot, full) = (Reading::Is(99), Reading::Is(999));
    assert_eq!(seconds(&mut alerts, 0..10, &hot, &full).len(), 2);
    let raised = alerts.set(&[FULL, FULL, Alert::TemperatureAbove { celsius: 90 }]);
    assert_eq!(raised, [AlertEvent { run: None, what: over(HOT) }]);
    let events = seconds(&mut alerts, 10..20, &hot, &full);
    assert_eq!(events, [(13, on(Alert::TemperatureAbove { celsius: 90 }, 99.0))]);
}

fn event(time_ms: u64, what: EventKind) -> Event {
    Event { id: 1, time_ms, run: Some("r".to_owned()), what }
}

fn iteration(time_ms: u64) -> Event {
    let iteration = Iteration {
        iter: 1,
        loss: None,
        time_ms: 1.0,
        tokens_per_second: None,
        mfu_printed_percent: None,
        mfu_percent: None,
        ..Iteration::default()
    };
    event(time_ms, EventKind::RunIteration(iteration))
}

fn ended(status: RunStatus) -> Event {
    event(0, EventKind::RunStatus { status, energy_joules: None })
}

#[test]
fn stall_alert_fires_once_and_ends_with_progress() {
    let mut alerts = alerts(&[QUIET, Alert::NoProgress { minutes: 30 }]);
    assert_eq!(alerts.event(&iteration(0)), []);
    assert_eq!(alerts.tick(10 * MINUTE_MS - 1), []);
    let of_run = |what| AlertEvent { run: Some("r".to_owned()), what };
    let on = |alert, minutes| of_run(EventKind::Alert { alert, gpu: None, value: Some(minutes), status: None });
    let over = |alert| of_run(EventKind::AlertOver { alert, gpu: None });
    assert_eq!(alerts.tick(10 * MINUTE_MS), [on(QUIET, 10.0)]);
    assert_eq!(alerts.tick(20 * MINUTE_MS), []);
    assert_eq!(alerts.tick(31 * MINUTE_MS), [on(Alert::NoProgress { minutes: 30 }, 31.0)]);
    assert_eq!(alerts.event(&iteration(32 * MINUTE_MS)), [over(QUIET), over(Alert::NoProgress { minutes: 30 })]);
    assert_eq!(alerts.tick(41 * MINUTE_MS), []);
    assert_eq!(alerts.tick(42 * MINUTE_MS), [on(QUIET, 10.0)]);
    assert_eq!(alerts.set(&[]), [over(QUIET)]);
    alerts.set(&[QUIET]);
    assert_eq!(alerts.tick(43 * MINUTE_MS), [on(QUIET, 11.0)]);
    assert_eq!(alerts.event(&ended(RunStatus::exited(0))), [over(QUIET)]);
    assert_eq!(alerts.tick(100 * MINUTE_MS), [], "an ended run needs no progress");
}

#[test]
fn failed_run_raises_alert_and_stopped_run_does_not() {
    let mut alerts = alerts(&[Alert::RunFailed]);
    let exited = |code| RunStatus::exited(code);
    let killed = |signal| RunStatus::killed(signal);
    let failed = [(exited(1), Some(1.0)), (exited(-1), Some(-1.0)), (killed(9), None), (killed(11), None)];
    // A user ended a run that had already run out of memory.
    let failed = failed.into_iter().chain([(killed(2).because(Some(Cause::OutOfGpuMemory)), None)]);
    for (status, value) in failed.chain([(RunStatus::Lost, None)]) {
        let what = EventKind::Alert { alert: Alert::RunFailed, gpu: None, value, status: Some(status) };
        assert_eq!(alerts.event(&ended(status)), [AlertEvent { run: Some("r".to_owned()), what }], "{status:?}");
    }
    for status in [RunStatus::stopped(), RunStatus::unqueued()] {
        assert_eq!(alerts.event(&ended(status)), [], "{status:?}");
    }
    assert_eq!(alerts.set(&[]).len(), 1, "it is on until then");
    alerts.set(&[Alert::RunFailed]);
    let asked = [exited(0), exited(130), exited(143), killed(1), killed(2), killed(15)];
    for status in asked.into_iter().chain([RunStatus::Running, RunStatus::Stalled { since_ms: 0 }]) {
        assert_eq!(alerts.event(&ended(status)), [], "{status:?}");
    }
    alerts.set(&[]);
    assert_eq!(alerts.event(&ended(exited(1))), []);
}

#[test]
fn a_flood_of_runs_is_bounded() {
    let mut alerts = alerts(&[QUIET]);
    for number in 0..10_000 {
        alerts.event(&Event { run: Some(format!("run {number}")), ..iteration(number) });
    }
    assert_eq!(alerts.tick(u64::MAX).len(), 256);
}

fn fired(alert: Alert, gpu: Option<&str>, run: Option<&str>) -> FiredAlert {
    let what = EventKind::Alert { alert, gpu: gpu.map(str::to_owned), value: Some(86.0), status: None };
    FiredAlert::of(&Event { run: run.map(str::to_owned), ..event(7, what) }).expect("an alert")
}

#[test]
fn alert_fired_before_restart_is_not_repeated() {
    let is = Reading::Is::<u64>;
    let (mut alerts, raised) = restored(&[HOT, FULL], &[fired(HOT, Some("GPU-1"), None)], &[]);
    assert_eq!(raised, []);
    assert_eq!(seconds(&mut alerts, 0..60, &missing(), &missing()), [], "no reading yet, so no alert is over");
    assert_eq!(seconds(&mut alerts, 60..120, &is(99), &is(10)), []);
    assert_eq!(seconds(&mut alerts, 120..200, &is(60), &is(10)), [(180, over(HOT))]);
    // The alert of a removed rule ended while no agent was running.
    let (_, raised) = restored(&[FULL], &[fired(HOT, Some("GPU-1"), None)], &[]);
    assert_eq!(raised, [AlertEvent { run: None, what: over(HOT) }]);
}

#[test]
fn a_gpu_that_was_lost_before_is_over_when_it_is_seen_and_not_before() {
    let rules = [Alert::GpuLost];
    let lost = |uuid| fired(Alert::GpuLost, Some(uuid), None);
    let mut alerts = Alerts::default();
    assert_eq!(alerts.restore(&rules, &[lost("GPU-1"), lost("unknown-0"), lost("GPU-9")], &[]), []);
    alerts.observe(&TelemetryEvent::Inventory(vec![Gpu { present: false, ..gpu(1) }]));
    assert_eq!(alerts.observe(&TelemetryEvent::GpuLost("GPU-1".to_owned())), [], "it is on already");
    let raised = alerts.observe(&TelemetryEvent::Inventory(vec![gpu(0), Gpu { present: false, ..gpu(1) }]));
    let over = |uuid: &str| AlertEvent {
        run: None,
        what: EventKind::AlertOver { alert: Alert::GpuLost, gpu: Some(uuid.to_owned()) },
    };
    assert_eq!(raised, [over("unknown-0")], "the GPU at its index responds");
    assert_eq!(alerts.observe(&TelemetryEvent::GpuRecovered("GPU-1".to_owned())), [over("GPU-1")]);
    assert_eq!(
        alerts.observe(&TelemetryEvent::GpuRecovered("GPU-0".to_owned())),
        [],
        "GPU-9 is in no machine, and not back"
    );
    // A GPU that is lost while history is unreadable fires an alert once history is readable.
    let mut alerts = Alerts::default();
    assert_eq!(alerts.observe(&TelemetryEvent::GpuLost("GPU-1".to_owned())), []);
    assert_eq!(alerts.restore(&rules, &[], &[]).len(), 1);
}

#[test]
fn earlier_stalls_and_failures_are_not_alerted_again() {
    let rules = [QUIET, Alert::RunFailed];
    let run = |status| Run { id: "r".to_owned(), status, ..Run::default() };
    let quiet = fired(QUIET, None, Some("r"));
    let failed = fired(Alert::RunFailed, None, Some("r"));
    let over = |alert| AlertEvent { run: Some("r".to_owned()), what: EventKind::AlertOver { alert, gpu: None } };
    let (mut alerts, raised) = restored(&rules, std::slice::from_ref(&quiet), &[run(RunStatus::Running)]);
    assert_eq!((raised, alerts.tick(60 * MINUTE_MS)), (vec![], vec![]));
    assert_eq!(alerts.event(&iteration(61 * MINUTE_MS)), [over(QUIET)]);
    let (_, raised) = restored(&rules, &[quiet], &[run(RunStatus::exited(0))]);
    assert_eq!(raised, [over(QUIET)], "it ended meanwhile");
    let (mut alerts, raised) = restored(&rules, std::slice::from_ref(&failed), &[run(RunStatus::exited(1))]);
    assert_eq!(raised, []);
    assert_eq!(alerts.set(&[QUIET]), [over(Alert::RunFailed)]);
    let (_, raised) = restored(&rules, &[failed], &[run(RunStatus::Running)]);
    assert_eq!(raised, [over(Alert::RunFailed)], "it was considered lost but is present");
}

#[test]
fn a_clock_that_is_set_makes_no_run_quiet() {
    let year_ms = 365 * 24 * 60 * MINUTE_MS;
    let of_run = |what| AlertEvent { run: Some("r".to_owned()), what };
    let on = |minutes| of_run(EventKind::Alert { alert: QUIET, gpu: None, value: Some(minutes), status: None });
    let mut alerts = alerts(&[QUIET]);
    alerts.event(&iteration(MINUTE_MS));
    let set = Step { from_ms: 2 * MINUTE_MS, to_ms: year_ms };
    alerts.observe(&TelemetryEvent::ClockSet(set));
    assert_eq!(alerts.tick(year_ms), []);
    assert_eq!(alerts.tick(year_ms + 8 * MINUTE_MS), []);
    assert_eq!(alerts.tick(year_ms + 9 * MINUTE_MS), [on(10.0)], "ten minutes after the iteration");
    assert_eq!(
        alerts.event(&iteration(year_ms + 10 * MINUTE_MS)),
        [of_run(EventKind::AlertOver { alert: QUIET, gpu: None })]
    );
    // The clock is corrected; the last progress was recorded a year ahead.
    alerts.observe(&TelemetryEvent::ClockSet(Step { from_ms: year_ms + 11 * MINUTE_MS, to_ms: 12 * MINUTE_MS }));
    assert_eq!(alerts.tick(12 * MINUTE_MS), []);
    assert_eq!(alerts.tick(22 * MINUTE_MS), [on(10.0)]);
}

#[test]
fn a_restart_of_the_agent_is_no_progress() {
    let run = Run { id: "r".to_owned(), ..Run::default() };
    let mut alerts = Alerts::default();
    // The run had made no progress for nine minutes when the agent returned.
    assert_eq!(alerts.restore(&[QUIET], &[], &[(run, 31 * MINUTE_MS)]), []);
    assert_eq!(alerts.tick(40 * MINUTE_MS), []);
    let value = Some(10.0);
    let what = EventKind::Alert { alert: QUIET, gpu: None, value, status: None };
    assert_eq!(alerts.tick(41 * MINUTE_MS), [AlertEvent { run: Some("r".to_owned()), what }]);
}

#[test]
fn a_failed_run_is_on_until_it_is_dismissed_deleted_or_there_again() {
    let failed = |alerts: &mut Alerts| assert_eq!(alerts.event(&ended(RunStatus::Lost)).len(), 1);
    let mut alerts = alerts(&[Alert::RunFailed]);
    failed(&mut alerts);
    let over = EventKind::AlertOver { alert: Alert::RunFailed, gpu: None };
    assert_eq!(alerts.event(&ended(RunStatus::Running)), [AlertEvent { run: Some("r".to_owned()), what: over }]);
    for what in [EventKind::AlertDismissed { alert: Alert::RunFailed, gpu: None }, EventKind::RunDeleted { name: None }]
    {
        failed(&mut alerts);
        assert_eq!(alerts.event(&event(1, what)), []);
        assert_eq!(alerts.set(&[]), [], "nothing is on");
        alerts.set(&[Alert::RunFailed]);
    }
}
