//! A disk that is really full: one megabyte of memory, mounted for one process in a user namespace. If the system does
//! not permit such a namespace, the test is skipped with a reason.

use std::{
    env,
    process::{Command, Stdio},
};

use headroom_harness::{child_process, skip};

use super::*;

/// Environment variable with the directory on the small disk, for the process that runs there.
const SMALL_DISK: &str = "HEADROOM_TEST_SMALL_DISK";
/// Output of that process after the disk is mounted.
const MOUNTED: &str = "on a small disk";
const NAME: &str = "store::tests::small_disk::a_disk_that_is_really_full";

#[test]
fn a_disk_that_is_really_full() {
    let place = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" && shift && exec \"$@\"";
    let child = child_process(module_path!(), "child_on_small_disk");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(place.path());
    command.arg(child.get_program()).args(child.get_args()).env(SMALL_DISK, place.path());
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return skip(NAME, &format!("unshare cannot be run: {error}")),
    };
    let [said, trouble] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if !said.contains(MOUNTED) {
        let why = trouble.lines().next().unwrap_or("it says nothing");
        return skip(NAME, &format!("this system cannot mount a small disk: {why}"));
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{trouble}");
}

#[test]
#[ignore = "the child process of a_disk_that_is_really_full"]
fn child_on_small_disk() {
    let disk = env::var_os(SMALL_DISK).expect("its parent sets it");
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
        rig.append(None, EventKind::RunOom { message: format!("{n} {}", "x".repeat(4000)) });
        rig.turn_after(1000);
        states.extend(rig.reported_states());
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
    assert!(matches!(rig.reported_states()[..], [HistoryState::Kept { set_aside: None, .. }]));
    let kept = rig.archive.events(None, 0, 10_000).expect("events");
    let all = kept.iter().filter(|event| matches!(event.what, EventKind::RunOom { .. })).count();
    assert_eq!(all, n, "each of them once");
    let connection = Connection::open(rig.path()).expect("the file");
    let said: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(said, "ok");
}
