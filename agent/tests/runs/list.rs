//! `runs list` and its filters.

use super::*;

#[test]
fn a_list_can_be_narrowed() {
    let rig = Rig::new();
    let ids = |args: &[&str]| -> Vec<String> {
        let json = rig.json(&[&["list", "--json"], args].concat());
        let runs = json["runs"].as_array().expect("runs").iter();
        runs.map(|run| run["id"].as_str().expect("an ID").to_owned()).collect()
    };
    let all = ids(&[]);
    assert_eq!(rig.json(&["--json"]), rig.json(&["list", "--json"]), "`runs` alone is `runs list`");
    assert_eq!(
        rig.json(&["--data-dir", rig.folder.path().to_str().expect("text"), "list", "--json"]),
        rig.json(&["--json"])
    );
    assert_eq!(all.len(), 3);
    assert_eq!(ids(&["--status", "running"]), [GOES_ON]);
    assert_eq!(ids(&["--status=done"]), [DONE]);
    assert_eq!(ids(&["--status=failed"]), [OOM]);
    let two: Vec<String> = all.iter().filter(|id| *id != OOM).cloned().collect();
    assert_eq!(ids(&["--status=done", "--status=running"]), two);
    assert_eq!(ids(&["--limit", "1"]), all[..1], "the newest");
    assert_eq!(ids(&["--since", "1990-01-01"]), all);
    assert_eq!(rig.refused(&["list", "--status=lost"], 0), "No run matches.\n");
}
