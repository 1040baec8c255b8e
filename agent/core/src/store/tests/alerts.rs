//! Active alerts and settings survive a restart of the agent, and concurrent changes are not lost.

use headroom_protocol::{
    alert::Alert,
    run::{Checkpoint, Evaluation},
};

use super::*;

const HOT: Alert = Alert::TemperatureAbove { celsius: 85 };

fn on(alert: Alert, gpu: Option<u32>) -> EventKind {
    EventKind::Alert { alert, gpu: gpu.map(uuid), value: Some(86.0), status: None }
}

fn over(alert: Alert, gpu: Option<u32>) -> EventKind {
    EventKind::AlertOver { alert, gpu: gpu.map(uuid) }
}

/// Returns the active alerts: rule, GPU, run, and whether the alert was dismissed.
fn kept(archive: &Archive) -> Vec<(Alert, Option<String>, Option<String>, bool)> {
    let all = archive.alerts().expect("alerts").into_iter();
    all.map(|kept| (kept.fired.alert, kept.fired.gpu, kept.fired.run, kept.is_dismissed)).collect()
}

#[test]
fn alert_is_active_until_over() {
    let mut rig = Rig::new();
    assert_eq!(kept(&rig.archive), []);
    rig.queue.push_telemetry(telemetry(START_MS, 5));
    rig.begin("a1");
    rig.append(None, on(HOT, Some(0)));
    rig.append(None, on(HOT, Some(1)));
    rig.append(Some("a1"), on(Alert::NoProgress { minutes: 5 }, None));
    rig.append(None, on(HOT, Some(0)));
    rig.turn();
    let reports = rig.reported_events();
    let quiet = (Alert::NoProgress { minutes: 5 }, None, Some("a1".to_owned()), false);
    let hot = |gpu| (HOT, Some(uuid(gpu)), None, false);
    assert_eq!(kept(&rig.archive), [hot(0), quiet.clone(), hot(1)], "the same alert is on once");
    let newest = rig.archive.alerts().expect("alerts").swap_remove(0).fired;
    assert_eq!(newest.event, reports.last().expect("events").id);
    assert_eq!((newest.gpu_name.as_deref(), newest.value), (Some("NVIDIA H200"), Some(86.0)));
    // A restarted agent, and a concurrent command.
    let mut again = rig.beside(Role::Agent);
    assert_eq!(kept(&again.archive).len(), 3);
    again.append(None, over(HOT, Some(0)));
    again.append(Some("a1"), over(Alert::NoProgress { minutes: 5 }, None));
    again.append(Some("b2"), over(HOT, None));
    again.turn();
    assert_eq!(kept(&rig.archive), [hot(1)]);
}

#[test]
fn dismissed_alert_is_hidden_and_broadcast() {
    let mut rig = Rig::new();
    assert!(matches!(rig.archive.dismiss(1, rig.now_ms), Err(Error::NoAlert(1))), "nothing was kept yet");
    rig.begin("a1");
    rig.append(Some("a1"), on(Alert::RunFailed, None));
    rig.append(None, on(HOT, Some(0)));
    rig.turn();
    let ids: Vec<u64> = rig.reported_events().iter().skip(1).map(|event| event.id).collect();
    for &id in &ids {
        rig.archive.dismiss(id, rig.now_ms).expect("it is on");
        assert!(matches!(rig.archive.dismiss(id, rig.now_ms), Err(Error::NoAlert(_))), "once is enough");
    }
    rig.archive.dismiss(u64::MAX, rig.now_ms).expect_err("no alert has this number");
    // A dismissed failure is over. Other dismissed alerts are remembered, so that they do not fire again.
    assert_eq!(kept(&rig.archive), [(HOT, Some(uuid(0)), None, true)]);
    rig.turn();
    let reports = rig.reported_events();
    let dismissed = |alert, gpu: Option<u32>| EventKind::AlertDismissed { alert, gpu: gpu.map(uuid) };
    assert_eq!(reports[0].what, dismissed(Alert::RunFailed, None));
    assert_eq!((reports[0].run.as_deref(), &reports[1].what), (Some("a1"), &dismissed(HOT, Some(0))));
    rig.append(None, over(HOT, Some(0)));
    rig.append(None, on(HOT, Some(0)));
    rig.turn();
    assert_eq!(kept(&rig.archive), [(HOT, Some(uuid(0)), None, false)], "it went off again");
}

#[test]
fn a_run_that_is_deleted_takes_its_alerts_along() {
    let mut rig = Rig::new();
    for id in ["a1", "b2"] {
        rig.begin(id);
        rig.append(Some(id), status(RunStatus::exited(1)));
        rig.append(Some(id), on(Alert::RunFailed, None));
    }
    rig.append(None, on(HOT, Some(0)));
    rig.turn();
    rig.archive.delete_run("a1", rig.now_ms).expect("it has ended");
    let left = [(HOT, Some(uuid(0)), None, false), (Alert::RunFailed, None, Some("b2".to_owned()), false)];
    assert_eq!(kept(&rig.archive), left);
}

#[test]
fn undismissed_failures_are_bounded() {
    let mut rig = Rig::new();
    for n in 0..1500 {
        rig.append(Some(&format!("run{n}")), on(Alert::RunFailed, None));
    }
    rig.turn();
    let kept = rig.archive.alerts().expect("alerts");
    assert_eq!((kept.len(), kept[0].fired.run.as_deref()), (1000, Some("run1499")));
    assert_eq!(rig.count("alerts"), 1000);
}

#[test]
fn the_newest_that_happened_is_found_below_any_number_of_iterations() {
    let mut rig = Rig::new();
    rig.begin("a1");
    rig.append(None, EventKind::GpuLost { gpu: uuid(0) });
    rig.turn_after(1000);
    for n in 0..3000 {
        rig.append(Some("a1"), iteration(n));
        // As many of each kind as a small model causes in an hour.
        rig.append(Some("a1"), EventKind::RunEvaluation(Evaluation { iter: n, train_loss: Some(2.0), val_loss: None }));
        rig.append(Some("a1"), EventKind::RunSaved { checkpoint: Checkpoint { iter: n, bytes: 7 } });
        // Each turn writes part of the queue.
        rig.turn();
    }
    rig.turn_after(1000);
    rig.turn_after(1000);
    rig.append(None, EventKind::GpuRecovered { gpu: uuid(0) });
    rig.turn();
    let last = rig.archive.last_event().expect("a number");
    let newest = |up_to, after_ms, n| -> Vec<EventKind> {
        let events = rig.archive.newest(up_to, after_ms, n).expect("events");
        events.into_iter().map(|event| event.what).collect()
    };
    let (lost, back) = (EventKind::GpuLost { gpu: uuid(0) }, EventKind::GpuRecovered { gpu: uuid(0) });
    assert_eq!(newest(last, 0, 2), [lost.clone(), back.clone()]);
    assert_eq!(newest(last, 0, 9).len(), 3);
    assert_eq!(newest(last - 1, 0, 1), [lost]);
    assert_eq!(newest(last, START_MS, 9), [back]);
    let has_line = events::HAS_LINE;
    let sql = format!("EXPLAIN QUERY PLAN SELECT id FROM events WHERE {has_line} AND id <= 9 ORDER BY id DESC LIMIT 9");
    let plan: String =
        Connection::open(rig.path()).expect("the file").query_row(&sql, [], |row| row.get(3)).expect("a plan");
    assert!(plan.contains("events_told"), "{plan}");
}

#[test]
fn owner_settings_are_stored_reported_and_not_overwritten() {
    let mut rig = Rig::new();
    assert_eq!(rig.archive.settings().expect("nothing yet"), Settings::initial());
    rig.archive.set_settings(&Settings::default(), |_| true, rig.now_ms).expect_err("there is no file yet");
    rig.turn();
    rig.reports();
    let settings = Settings { alerts: vec![], price_per_kwh: Some(0.35), currency: "€".to_owned() };
    for before in [Settings::initial(), settings.clone()] {
        rig.archive.set_settings(&settings, |kept| kept == Some(&before), rig.now_ms).expect("it is kept");
    }
    rig.turn();
    let reports: Vec<EventKind> = rig.reported_events().into_iter().map(|event| event.what).collect();
    assert_eq!(reports, [EventKind::SettingsChanged], "an unchanged state is not a change");
    let refused = rig.archive.set_settings(&Settings::default(), |kept| kept != Some(&settings), rig.now_ms);
    assert!(matches!(refused, Err(Error::Changed)));
    assert_eq!(rig.beside(Role::Agent).archive.settings().expect("settings"), settings);
    // A caller that expects unreadable settings can replace them.
    let connection = Connection::open(rig.path()).expect("the file");
    connection.execute("UPDATE facts SET value = '{' WHERE name = 'settings'", []).expect("a row");
    rig.archive.settings().expect_err("it is damaged");
    rig.archive.set_settings(&settings, |kept| kept.is_some(), rig.now_ms).expect_err("none to expect");
    rig.archive.set_settings(&settings, |_| true, rig.now_ms).expect("it is kept");
    assert_eq!(rig.archive.settings().expect("settings"), settings);
}
