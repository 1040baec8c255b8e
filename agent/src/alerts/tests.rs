//! Every rule goes off, is over, and is forgotten.

use std::sync::Arc;

use headroom_shared::protocol::{
    Telemetry,
    alert::{Alert, Fired},
    event::{Event, What},
    gpu::{Gpu, Sample},
    reading::{Reading, Why},
    run::{Cause, Iteration, Run, RunStatus},
};

use super::{Alerts, Observed, Raised, Step};

const HOT: Alert = Alert::TemperatureAbove { celsius: 85 };
const FULL: Alert = Alert::MemoryAbove { percent: 90 };
const QUIET: Alert = Alert::NoProgress { minutes: 10 };
const MINUTE_MS: u64 = 60_000;

fn missing<T>() -> Reading<T> {
    Reading::missing(Why::NotSupported)
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
        gpu,
        memory_used_bytes: used,
        memory_free_bytes: missing(),
        memory_reserved_bytes: missing(),
        utilization_percent: missing(),
        memory_utilization_percent: missing(),
        power_watts: missing(),
        clock_sm_mhz: missing(),
        clock_memory_mhz: missing(),
        temperature_celsius: celsius,
        throttle: missing(),
    }
}

fn alerts(rules: &[Alert]) -> Alerts {
    restored(rules, &[], &[]).0
}

/// Of an agent that was started again, with what it says at once.
fn restored(rules: &[Alert], fired: &[Fired], runs: &[Run]) -> (Alerts, Vec<Raised>) {
    let mut alerts = Alerts::default();
    let runs: Vec<(Run, u64)> = runs.iter().map(|run| (run.clone(), 0)).collect();
    let mut raised = alerts.restore(rules, fired, &runs);
    raised.extend(alerts.observe(&Observed::Inventory(vec![gpu(0), gpu(1)])));
    (alerts, raised)
}

/// Two cards for a time, of which the second is as given; what is told, with its second.
fn seconds(
    alerts: &mut Alerts,
    span: std::ops::Range<u64>,
    celsius: &Reading<u64>,
    used: &Reading<u64>,
) -> Vec<(u64, What)> {
    let mut told = Vec::new();
    for tenth in 10 * span.start..10 * span.end {
        let gpus = vec![sample(0, Reading::Is(50), Reading::Is(10)), sample(1, celsius.clone(), used.clone())];
        let raised =
            alerts.observe(&Observed::Telemetry(Arc::new(Telemetry { seq: tenth, time_ms: 100 * tenth, gpus })));
        told.extend(raised.into_iter().map(|Raised { run, what }| {
            assert_eq!(run, None);
            (tenth / 10, what)
        }));
    }
    told
}

fn on(alert: Alert, value: f64) -> What {
    What::Alert { alert, gpu: Some("GPU-1".to_owned()), value: Some(value), status: None }
}

fn over(alert: Alert) -> What {
    What::AlertOver { alert, gpu: Some("GPU-1".to_owned()) }
}

#[test]
fn a_hot_card_and_a_full_one_are_told_each_by_itself() {
    let mut alerts = alerts(&[HOT, FULL]);
    let is = Reading::Is::<u64>;
    assert_eq!(seconds(&mut alerts, 0..60, &is(85), &is(900)), []);
    assert_eq!(seconds(&mut alerts, 60..120, &is(86), &is(900)), [(63, on(HOT, 86.0))]);
    assert_eq!(seconds(&mut alerts, 120..180, &is(90), &is(950)), [(123, on(FULL, 95.0))]);
    assert_eq!(seconds(&mut alerts, 180..300, &is(83), &is(881)), [], "within, but not well within");
    assert_eq!(seconds(&mut alerts, 300..400, &is(60), &is(100)), [(360, over(HOT)), (360, over(FULL))]);
}

#[test]
fn what_is_not_known_changes_nothing() {
    let mut alerts = alerts(&[HOT, FULL]);
    let (unknown, hot, full) = (missing(), Reading::Is(99), Reading::Is(999));
    assert_eq!(seconds(&mut alerts, 0..100, &unknown, &unknown), []);
    assert_eq!(seconds(&mut alerts, 100..110, &hot, &full).len(), 2);
    assert_eq!(seconds(&mut alerts, 110..1000, &unknown, &unknown), []);
    let mut alerts = Alerts::default();
    alerts.restore(&[FULL], &[], &[]);
    alerts.observe(&Observed::Inventory(vec![gpu(0), Gpu { memory_total_bytes: Reading::Is(0), ..gpu(1) }]));
    assert_eq!(seconds(&mut alerts, 0..100, &hot, &full), [], "a share of nothing is none");
}

#[test]
fn a_lost_card_is_told_until_it_is_back() {
    let mut alerts = alerts(&[Alert::CardLost]);
    let lost = || Observed::CardLost("GPU-1".to_owned());
    let back = || Observed::CardBack("GPU-1".to_owned());
    let whats = |raised: Vec<Raised>| raised.into_iter().map(|raised| raised.what).collect::<Vec<_>>();
    let on = What::Alert { alert: Alert::CardLost, gpu: Some("GPU-1".to_owned()), value: None, status: None };
    assert_eq!(whats(alerts.observe(&lost())), std::slice::from_ref(&on));
    assert_eq!(whats(alerts.observe(&lost())), []);
    assert_eq!(whats(alerts.set(&[])), [over(Alert::CardLost)]);
    assert_eq!(whats(alerts.set(&[Alert::CardLost])), [on], "a rule that is new finds what is lost already");
    assert_eq!(whats(alerts.observe(&back())), [over(Alert::CardLost)]);
    assert_eq!(whats(alerts.observe(&back())), []);
}

#[test]
fn a_card_that_never_answered_is_over_under_the_name_it_was_lost_by() {
    let mut alerts = alerts(&[Alert::CardLost]);
    alerts.observe(&Observed::Inventory(vec![gpu(0), Gpu { uuid: "unknown-1".to_owned(), ..gpu(1) }]));
    assert_eq!(alerts.observe(&Observed::CardLost("unknown-1".to_owned())).len(), 1);
    alerts.observe(&Observed::Inventory(vec![gpu(0), gpu(1)]));
    let raised = alerts.observe(&Observed::CardBack("GPU-1".to_owned()));
    let what = What::AlertOver { alert: Alert::CardLost, gpu: Some("unknown-1".to_owned()) };
    assert_eq!(raised, [Raised { run: None, what }]);
}

#[test]
fn a_rule_that_is_gone_is_over_and_one_that_stays_is_not_told_again() {
    let mut alerts = alerts(&[HOT, FULL]);
    let (hot, full) = (Reading::Is(99), Reading::Is(999));
    assert_eq!(seconds(&mut alerts, 0..10, &hot, &full).len(), 2);
    let raised = alerts.set(&[FULL, FULL, Alert::TemperatureAbove { celsius: 90 }]);
    assert_eq!(raised, [Raised { run: None, what: over(HOT) }]);
    let told = seconds(&mut alerts, 10..20, &hot, &full);
    assert_eq!(told, [(13, on(Alert::TemperatureAbove { celsius: 90 }, 99.0))]);
}

fn event(time_ms: u64, what: What) -> Event {
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
    event(time_ms, What::RunIteration(iteration))
}

fn ended(status: RunStatus) -> Event {
    event(0, What::RunStatus { status, energy_joules: None })
}

#[test]
fn a_run_without_progress_is_told_once_and_is_over_when_it_goes_on() {
    let mut alerts = alerts(&[QUIET, Alert::NoProgress { minutes: 30 }]);
    assert_eq!(alerts.event(&iteration(0)), []);
    assert_eq!(alerts.tick(10 * MINUTE_MS - 1), []);
    let of_run = |what| Raised { run: Some("r".to_owned()), what };
    let on = |alert, minutes| of_run(What::Alert { alert, gpu: None, value: Some(minutes), status: None });
    let over = |alert| of_run(What::AlertOver { alert, gpu: None });
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
    assert_eq!(alerts.tick(100 * MINUTE_MS), [], "what has ended makes no progress, and need not");
}

#[test]
fn a_run_that_fails_is_told_and_one_that_somebody_stopped_is_not() {
    let mut alerts = alerts(&[Alert::RunFailed]);
    let exited = |code| RunStatus::exited(code);
    let killed = |signal| RunStatus::killed(signal);
    let failed = [(exited(1), Some(1.0)), (exited(-1), Some(-1.0)), (killed(9), None), (killed(11), None)];
    // Somebody ended what was left of one that had run out of memory.
    let failed = failed.into_iter().chain([(killed(2).because(Some(Cause::OutOfGpuMemory)), None)]);
    for (status, value) in failed.chain([(RunStatus::Lost, None)]) {
        let what = What::Alert { alert: Alert::RunFailed, gpu: None, value, status: Some(status) };
        assert_eq!(alerts.event(&ended(status)), [Raised { run: Some("r".to_owned()), what }], "{status:?}");
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

fn fired(alert: Alert, gpu: Option<&str>, run: Option<&str>) -> Fired {
    let what = What::Alert { alert, gpu: gpu.map(str::to_owned), value: Some(86.0), status: None };
    Fired::of(&Event { run: run.map(str::to_owned), ..event(7, what) }).expect("an alert")
}

#[test]
fn what_was_on_before_and_still_holds_does_not_go_off_again() {
    let is = Reading::Is::<u64>;
    let (mut alerts, raised) = restored(&[HOT, FULL], &[fired(HOT, Some("GPU-1"), None)], &[]);
    assert_eq!(raised, []);
    assert_eq!(seconds(&mut alerts, 0..60, &missing(), &missing()), [], "nothing is known yet, and nothing over");
    assert_eq!(seconds(&mut alerts, 60..120, &is(99), &is(10)), []);
    assert_eq!(seconds(&mut alerts, 120..200, &is(60), &is(10)), [(180, over(HOT))]);
    // A rule that is no more ended while nobody looked.
    let (_, raised) = restored(&[FULL], &[fired(HOT, Some("GPU-1"), None)], &[]);
    assert_eq!(raised, [Raised { run: None, what: over(HOT) }]);
}

#[test]
fn a_card_that_was_lost_before_is_over_when_it_is_seen_and_not_before() {
    let rules = [Alert::CardLost];
    let lost = |uuid| fired(Alert::CardLost, Some(uuid), None);
    let mut alerts = Alerts::default();
    assert_eq!(alerts.restore(&rules, &[lost("GPU-1"), lost("unknown-0"), lost("GPU-9")], &[]), []);
    alerts.observe(&Observed::Inventory(vec![Gpu { present: false, ..gpu(1) }]));
    assert_eq!(alerts.observe(&Observed::CardLost("GPU-1".to_owned())), [], "it is on already");
    let raised = alerts.observe(&Observed::Inventory(vec![gpu(0), Gpu { present: false, ..gpu(1) }]));
    let over =
        |uuid: &str| Raised { run: None, what: What::AlertOver { alert: Alert::CardLost, gpu: Some(uuid.to_owned()) } };
    assert_eq!(raised, [over("unknown-0")], "its place answers");
    assert_eq!(alerts.observe(&Observed::CardBack("GPU-1".to_owned())), [over("GPU-1")]);
    assert_eq!(alerts.observe(&Observed::CardBack("GPU-0".to_owned())), [], "GPU-9 is in no machine, and not back");
    // What is lost while history cannot be read goes off once it can.
    let mut alerts = Alerts::default();
    assert_eq!(alerts.observe(&Observed::CardLost("GPU-1".to_owned())), []);
    assert_eq!(alerts.restore(&rules, &[], &[]).len(), 1);
}

#[test]
fn runs_that_were_quiet_or_failed_before_stay_so_until_something_is_known() {
    let rules = [QUIET, Alert::RunFailed];
    let run = |status| Run { id: "r".to_owned(), status, ..Run::default() };
    let quiet = fired(QUIET, None, Some("r"));
    let failed = fired(Alert::RunFailed, None, Some("r"));
    let over = |alert| Raised { run: Some("r".to_owned()), what: What::AlertOver { alert, gpu: None } };
    let (mut alerts, raised) = restored(&rules, std::slice::from_ref(&quiet), &[run(RunStatus::Running)]);
    assert_eq!((raised, alerts.tick(60 * MINUTE_MS)), (vec![], vec![]));
    assert_eq!(alerts.event(&iteration(61 * MINUTE_MS)), [over(QUIET)]);
    let (_, raised) = restored(&rules, &[quiet], &[run(RunStatus::exited(0))]);
    assert_eq!(raised, [over(QUIET)], "it ended meanwhile");
    let (mut alerts, raised) = restored(&rules, std::slice::from_ref(&failed), &[run(RunStatus::exited(1))]);
    assert_eq!(raised, []);
    assert_eq!(alerts.set(&[QUIET]), [over(Alert::RunFailed)]);
    let (_, raised) = restored(&rules, &[failed], &[run(RunStatus::Running)]);
    assert_eq!(raised, [over(Alert::RunFailed)], "it was taken for lost, and is there");
}

#[test]
fn a_clock_that_is_set_makes_no_run_quiet() {
    let year_ms = 365 * 24 * 60 * MINUTE_MS;
    let of_run = |what| Raised { run: Some("r".to_owned()), what };
    let on = |minutes| of_run(What::Alert { alert: QUIET, gpu: None, value: Some(minutes), status: None });
    let mut alerts = alerts(&[QUIET]);
    alerts.event(&iteration(MINUTE_MS));
    let set = Step { from_ms: 2 * MINUTE_MS, to_ms: year_ms };
    alerts.observe(&Observed::ClockSet(set));
    assert_eq!(alerts.tick(year_ms), []);
    assert_eq!(alerts.tick(year_ms + 8 * MINUTE_MS), []);
    assert_eq!(alerts.tick(year_ms + 9 * MINUTE_MS), [on(10.0)], "ten minutes after the iteration");
    assert_eq!(
        alerts.event(&iteration(year_ms + 10 * MINUTE_MS)),
        [of_run(What::AlertOver { alert: QUIET, gpu: None })]
    );
    // Back: the progress was told by a clock that is ahead by a year.
    alerts.observe(&Observed::ClockSet(Step { from_ms: year_ms + 11 * MINUTE_MS, to_ms: 12 * MINUTE_MS }));
    assert_eq!(alerts.tick(12 * MINUTE_MS), []);
    assert_eq!(alerts.tick(22 * MINUTE_MS), [on(10.0)]);
}

#[test]
fn a_restart_of_the_agent_is_no_progress() {
    let run = Run { id: "r".to_owned(), ..Run::default() };
    let mut alerts = Alerts::default();
    // It hung for nine minutes when the agent came back.
    assert_eq!(alerts.restore(&[QUIET], &[], &[(run, 31 * MINUTE_MS)]), []);
    assert_eq!(alerts.tick(40 * MINUTE_MS), []);
    let value = Some(10.0);
    let what = What::Alert { alert: QUIET, gpu: None, value, status: None };
    assert_eq!(alerts.tick(41 * MINUTE_MS), [Raised { run: Some("r".to_owned()), what }]);
}

#[test]
fn a_failed_run_is_on_until_it_is_dismissed_deleted_or_there_again() {
    let failed = |alerts: &mut Alerts| assert_eq!(alerts.event(&ended(RunStatus::Lost)).len(), 1);
    let mut alerts = alerts(&[Alert::RunFailed]);
    failed(&mut alerts);
    let over = What::AlertOver { alert: Alert::RunFailed, gpu: None };
    assert_eq!(alerts.event(&ended(RunStatus::Running)), [Raised { run: Some("r".to_owned()), what: over }]);
    for what in [What::AlertDismissed { alert: Alert::RunFailed, gpu: None }, What::RunDeleted { name: None }] {
        failed(&mut alerts);
        assert_eq!(alerts.event(&event(1, what)), []);
        assert_eq!(alerts.set(&[]), [], "nothing is on");
        alerts.set(&[Alert::RunFailed]);
    }
}
