//! A disk that is really full: one megabyte of memory, mounted for a process alone, in a namespace where everybody may
//! mount. Where the system allows no such namespace the test is skipped, and says why.

use std::{
    env,
    process::{Command, Stdio},
};

use super::*;

/// Names the folder on the small disk for the process that runs there; without it, its test is none.
const SMALL_DISK: &str = "HEADROOM_TEST_SMALL_DISK";
/// What that process says when it has come so far.
const MOUNTED: &str = "on a small disk";
const NAME: &str = "store::tests::small_disk::a_disk_that_is_really_full";
const CHILD: &str = "store::tests::small_disk::a_child_on_a_small_disk";

/// Says that the test saw nothing, and why; `cargo xtask test` counts it by the list that it names.
fn skip(why: &str) {
    use std::io::Write;
    eprintln!("skipped {NAME}: {why}");
    if let Some(list) = env::var_os("HEADROOM_SKIPS") {
        let mut list = std::fs::OpenOptions::new().append(true).create(true).open(list).expect("a list");
        writeln!(list, "{NAME}: {why}").expect("a list");
    }
}

#[test]
fn a_disk_that_is_really_full() {
    let place = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" && exec \"$2\" --exact \"$3\" --nocapture";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(place.path());
    command.arg(env::current_exe().expect("a test's program")).arg(CHILD).env(SMALL_DISK, place.path());
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("unshare cannot be run: {error}")),
    };
    let [said, trouble] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if !said.contains(MOUNTED) {
        let why = trouble.lines().next().unwrap_or("it says nothing");
        return skip(&format!("this system lets nobody mount a small disk: {why}"));
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{trouble}");
}

#[test]
fn a_child_on_a_small_disk() {
    let Some(disk) = env::var_os(SMALL_DISK) else { return };
    println!("\n{MOUNTED}");
    let folder = Arc::new(tempfile::tempdir_in(disk).expect("a folder"));
    let ballast = folder.path().join("ballast");
    std::fs::write(&ballast, vec![1; 256 << 10]).expect("room");
    let mut rig = Rig::on(&folder, Role::Agent);
    let mut states = Vec::new();
    let mut n = 0;
    while !states.iter().any(|state| matches!(state, HistoryState::Paused { .. })) {
        n += 1;
        assert!(n < 5000, "the disk is not small");
        rig.append(None, What::RunOom { message: format!("{n} {}", "x".repeat(4000)) });
        rig.turn_after(1000);
        states.extend(rig.told_states());
    }
    println!("after {n} events: {:?}", states.last());
    for _ in 0..100 {
        rig.queue.push_telemetry(telemetry(rig.now_ms, 1));
        rig.turn_after(1000);
    }
    std::fs::remove_file(ballast).expect("removed");
    for _ in 0..30 {
        rig.turn_after(1000);
    }
    assert!(matches!(rig.told_states()[..], [HistoryState::Kept { set_aside: None, .. }]));
    let kept = rig.archive.events(None, 0, 10_000).expect("events");
    let all = kept.iter().filter(|event| matches!(event.what, What::RunOom { .. })).count();
    assert_eq!(all, n, "each of them once");
    let connection = Connection::open(rig.path()).expect("the file");
    let said: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(said, "ok");
}
