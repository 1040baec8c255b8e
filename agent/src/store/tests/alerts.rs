//! Alerts that are on, and what the owner set: both outlive the agent, and nobody's change is lost.

use headroom_shared::protocol::{
    alert::Alert,
    run::{Checkpoint, Evaluation},
};

use super::*;

const HOT: Alert = Alert::TemperatureAbove { celsius: 85 };

fn on(alert: Alert, gpu: Option<u32>) -> What {
    What::Alert { alert, gpu: gpu.map(uuid), value: Some(86.0), status: None }
}

fn over(alert: Alert, gpu: Option<u32>) -> What {
    What::AlertOver { alert, gpu: gpu.map(uuid) }
}

/// Those that are on: their rules, cards and runs.
fn kept(archive: &Archive) -> Vec<(Alert, Option<String>, Option<String>, bool)> {
    let all = archive.alerts().expect("alerts").into_iter();
    all.map(|kept| (kept.fired.alert, kept.fired.gpu, kept.fired.run, kept.is_dismissed)).collect()
}

#[test]
fn an_alert_is_on_until_it_is_over_whoever_asks_and_when() {
    let mut rig = Rig::new();
    assert_eq!(kept(&rig.archive), []);
    rig.queue.push_telemetry(telemetry(START_MS, 5));
    rig.begin("a1");
    rig.append(None, on(HOT, Some(0)));
    rig.append(None, on(HOT, Some(1)));
    rig.append(Some("a1"), on(Alert::NoProgress { minutes: 5 }, None));
    rig.append(None, on(HOT, Some(0)));
    rig.turn();
    let told = rig.told_events();
    let quiet = (Alert::NoProgress { minutes: 5 }, None, Some("a1".to_owned()), false);
    let hot = |gpu| (HOT, Some(uuid(gpu)), None, false);
    assert_eq!(kept(&rig.archive), [hot(0), quiet.clone(), hot(1)], "the same alert is on once");
    let newest = rig.archive.alerts().expect("alerts").swap_remove(0).fired;
    assert_eq!(newest.event, told.last().expect("events").id);
    assert_eq!((newest.gpu_name.as_deref(), newest.value), (Some("NVIDIA H200"), Some(86.0)));
    // Another start of the agent, and a command beside it.
    let mut again = rig.beside(Role::Agent);
    assert_eq!(kept(&again.archive).len(), 3);
    again.append(None, over(HOT, Some(0)));
    again.append(Some("a1"), over(Alert::NoProgress { minutes: 5 }, None));
    again.append(Some("b2"), over(HOT, None));
    again.turn();
    assert_eq!(kept(&rig.archive), [hot(1)]);
}

#[test]
fn an_alert_that_is_dismissed_is_shown_to_nobody_and_told_to_all() {
    let mut rig = Rig::new();
    assert!(matches!(rig.archive.dismiss(1, rig.now_ms), Err(Error::NoAlert(1))), "nothing was kept yet");
    rig.begin("a1");
    rig.append(Some("a1"), on(Alert::RunFailed, None));
    rig.append(None, on(HOT, Some(0)));
    rig.turn();
    let ids: Vec<u64> = rig.told_events().iter().skip(1).map(|event| event.id).collect();
    for &id in &ids {
        rig.archive.dismiss(id, rig.now_ms).expect("it is on");
        assert!(matches!(rig.archive.dismiss(id, rig.now_ms), Err(Error::NoAlert(_))), "once is enough");
    }
    rig.archive.dismiss(u64::MAX, rig.now_ms).expect_err("nobody has it");
    // A failure is over with that; what may last is remembered, so that it does not go off again.
    assert_eq!(kept(&rig.archive), [(HOT, Some(uuid(0)), None, true)]);
    rig.turn();
    let told = rig.told_events();
    let dismissed = |alert, gpu: Option<u32>| What::AlertDismissed { alert, gpu: gpu.map(uuid) };
    assert_eq!(told[0].what, dismissed(Alert::RunFailed, None));
    assert_eq!((told[0].run.as_deref(), &told[1].what), (Some("a1"), &dismissed(HOT, Some(0))));
    rig.append(None, over(HOT, Some(0)));
    rig.append(None, on(HOT, Some(0)));
    rig.turn();
    assert_eq!(kept(&rig.archive), [(HOT, Some(uuid(0)), None, false)], "it went off anew");
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
fn failures_that_nobody_dismisses_are_bounded() {
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
    rig.append(None, What::CardLost { gpu: uuid(0) });
    rig.turn_after(1000);
    for n in 0..3000 {
        rig.append(Some("a1"), iteration(n));
        // As many of each as a small model makes in an hour.
        rig.append(Some("a1"), What::RunEvaluation(Evaluation { iter: n, train_loss: Some(2.0), val_loss: None }));
        rig.append(Some("a1"), What::RunSaved { checkpoint: Checkpoint { iter: n, bytes: 7 } });
        // A turn writes a part of what waits.
        rig.turn();
    }
    rig.turn_after(1000);
    rig.turn_after(1000);
    rig.append(None, What::CardBack { gpu: uuid(0) });
    rig.turn();
    let last = rig.archive.last_event().expect("a number");
    let newest = |up_to, after_ms, n| -> Vec<What> {
        let events = rig.archive.newest(up_to, after_ms, n).expect("events");
        events.into_iter().map(|event| event.what).collect()
    };
    let (lost, back) = (What::CardLost { gpu: uuid(0) }, What::CardBack { gpu: uuid(0) });
    assert_eq!(newest(last, 0, 2), [lost.clone(), back.clone()]);
    assert_eq!(newest(last, 0, 9).len(), 3);
    assert_eq!(newest(last - 1, 0, 1), [lost]);
    assert_eq!(newest(last, START_MS, 9), [back]);
    let plan: String = Connection::open(rig.path())
        .expect("the file")
        .query_row(
            "EXPLAIN QUERY PLAN SELECT id FROM events WHERE substr(what, 1, 23) <> '{\"kind\":\"run_iteration\"' \
             AND id <= 9 ORDER BY id DESC LIMIT 9",
            [],
            |row| row.get(3),
        )
        .expect("a plan");
    assert!(plan.contains("events_told"), "{plan}");
}

#[test]
fn what_the_owner_set_is_kept_and_told_and_not_lost_to_another() {
    let mut rig = Rig::new();
    assert_eq!(rig.archive.settings().expect("nothing yet"), Settings::default());
    rig.archive.set_settings(&Settings::default(), |_| true, rig.now_ms).expect_err("there is no file yet");
    rig.turn();
    rig.told();
    let settings = Settings { alerts: vec![], price_per_kwh: Some(0.35), currency: "€".to_owned() };
    for before in [Settings::default(), settings.clone()] {
        rig.archive.set_settings(&settings, |kept| kept == Some(&before), rig.now_ms).expect("it is kept");
    }
    rig.turn();
    let told: Vec<What> = rig.told_events().into_iter().map(|event| event.what).collect();
    assert_eq!(told, [What::SettingsChanged], "what is as it was did not change");
    let refused = rig.archive.set_settings(&Settings::default(), |kept| kept != Some(&settings), rig.now_ms);
    assert!(matches!(refused, Err(Error::Changed)));
    assert_eq!(rig.beside(Role::Agent).archive.settings().expect("settings"), settings);
    // What cannot be read can be replaced by who says so.
    let connection = Connection::open(rig.path()).expect("the file");
    connection.execute("UPDATE facts SET value = '{' WHERE name = 'settings'", []).expect("a row");
    rig.archive.settings().expect_err("it is damaged");
    rig.archive.set_settings(&settings, |kept| kept.is_some(), rig.now_ms).expect_err("none to expect");
    rig.archive.set_settings(&settings, |_| true, rig.now_ms).expect("it is kept");
    assert_eq!(rig.archive.settings().expect("settings"), settings);
}
