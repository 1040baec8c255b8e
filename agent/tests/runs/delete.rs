//! `headroom runs delete` of several runs.

use super::{DONE, GOES_ON, OOM, Rig};

fn left(rig: &Rig) -> Vec<String> {
    let json = rig.json(&["--json"]);
    let runs = json["runs"].as_array().expect("runs").iter();
    runs.filter_map(|run| run["id"].as_str().map(str::to_owned)).collect()
}

#[test]
fn several_runs_are_deleted_by_id_after_consent() {
    let rig = Rig::new();
    rig.refused(&["delete", DONE, OOM], 2);
    assert_eq!(left(&rig).len(), 3, "nothing is deleted without consent");
    let said = rig.refused(&["delete", DONE, OOM, "3f2a", "--yes"], 0);
    assert_eq!(said.lines().count(), 2, "a run named twice is deleted once: {said}");
    assert_eq!(left(&rig), [GOES_ON]);
}

#[test]
fn one_run_that_goes_on_keeps_all_that_are_named() {
    let rig = Rig::new();
    let said = rig.refused(&["delete", DONE, GOES_ON, "--yes"], 1);
    assert!(said.starts_with(&format!("headroom: run {GOES_ON} has not ended")), "{said}");
    assert_eq!(left(&rig).len(), 3);
}

#[test]
fn status_and_age_select_runs_that_have_ended() {
    for (options, kept) in [
        (&["--status", "failed"][..], &[GOES_ON, DONE][..]),
        (&["--status", "failed", "--status=done"], &[GOES_ON]),
        (&["--older-than", "2026-11-18"], &[GOES_ON, OOM, DONE]),
        (&["--older-than", "2100-01-01"], &[GOES_ON]),
        (&["--status", "failed", "--older-than", "2026-11-18"], &[GOES_ON, OOM, DONE]),
        (&["--status", "running"], &[GOES_ON, OOM, DONE]),
        (&[DONE, "--status", "failed"], &[GOES_ON, OOM, DONE]),
    ] {
        let rig = Rig::new();
        let args: Vec<&str> = ["delete", "--yes"].into_iter().chain(options.iter().copied()).collect();
        rig.refused(&args, if kept.len() == 3 { 1 } else { 0 });
        assert_eq!(left(&rig), kept, "{options:?}");
    }
}
