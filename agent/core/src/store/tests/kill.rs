//! A process that records samples and events, rolls them up and deletes them is killed at random moments. What it
//! reported as written must exist exactly once, and the file must be consistent.
//!
//! This test does not cover power failures, because the system's page cache survives a process. With
//! synchronous=NORMAL, a power failure may lose the last seconds, and SQLite's write-ahead log keeps the file
//! consistent.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use headroom_harness::{child_process, repetitions};

use super::*;

/// Number of kills, and that of a full run.
const N_KILLS: (u32, u32) = (30, 60);
/// Maximum number of kills on a slow machine. Kills continue until samples were cut, after four hours of the child's
/// clock.
const N_KILLS_MAX: u32 = 1000;
const N_TURNS: u64 = 4 * 360;
/// Maximum time until the kill after the child reports that it writes.
const LIVES_MAX: Duration = Duration::from_millis(60);
/// Step of the simulated clock per turn; samples are recorded once per second.
const TURN_MS: u64 = 10_000;
/// Maximum number of turns, so that a child without its parent ends.
const TURNS_MAX: u64 = 100_000;
/// Environment variable with the directory for the child process.
const WRITES_INTO: &str = "HEADROOM_TEST_WRITES_INTO";

/// Returns the number of turns that a file contains.
fn n_turns(connection: &Connection) -> u64 {
    let n: i64 =
        connection.query_row("SELECT count(*) FROM events WHERE run = 'a1'", [], |row| row.get(0)).expect("events");
    u64::try_from(n).expect("a count")
}

#[test]
#[ignore = "the child process of kill_9_at_any_moment_loses_nothing_that_was_written"]
fn child_that_writes() {
    let folder = env::var_os(WRITES_INTO).expect("its parent sets it");
    let file = HistoryFile::new(folder.as_ref());
    let queue = Queue::new();
    queue.set_inventory(vec![gpu(0), gpu(1)]);
    let mut writer = Writer::new(file.clone(), RetentionLimits::default(), Role::Agent);
    writer.turn(&queue, START_MS, false, &|_| {});
    let first = n_turns(&file.visit().expect("a file").expect("it is there"));
    println!("\nready");
    for n in first..TURNS_MAX {
        let now_ms = START_MS + (n + 1) * TURN_MS;
        if n == 0 {
            queue.push_event(now_ms, Some("a1"), EventKind::RunStarted { run: Box::new(run("a1", START_MS)) });
        } else {
            queue.push_event(now_ms, Some("a1"), iteration(n));
        }
        for time_ms in (now_ms - TURN_MS..now_ms).step_by(1000) {
            queue.push_telemetry(telemetry(time_ms, n));
        }
        writer.turn(&queue, now_ms, false, &|reports| {
            if matches!(reports, StoreEvent::Event(_)) {
                println!("\nwrote {n}");
            }
        });
    }
}

fn child(folder: &Path) -> Child {
    let mut command = child_process(module_path!(), "child_that_writes");
    command.env(WRITES_INTO, folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a process")
}

#[test]
fn kill_9_at_any_moment_loses_nothing_that_was_written() {
    let mut rig = Rig::new();
    // Any sequence suffices that is the same at each start and well distributed.
    let mut chance: u64 = 9;
    let mut last_said = None;
    let mut n_kills = 0;
    let n_kills_min = repetitions(N_KILLS.0, N_KILLS.1);
    while n_kills < n_kills_min || (last_said < Some(N_TURNS) && n_kills < N_KILLS_MAX) {
        let mut child = child(rig.folder.path());
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        // Every tenth child is killed while it starts, the others while they write.
        if n_kills % 10 != 0 {
            let is_ready = lines.find(|line| line.as_ref().is_ok_and(|line| line == "ready"));
            assert!(is_ready.is_some(), "the child ended before it wrote");
        }
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        thread::sleep(LIVES_MAX.mul_f64((chance >> 40) as f64 / f64::from(1 << 24)));
        child.kill().expect("it runs");
        child.wait().expect("it ended");
        let said = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("wrote ")?.parse::<u64>().ok());
        last_said = said.last().or(last_said);
        n_kills += 1;
        check(&rig, last_said);
    }
    let last_said = last_said.expect("something was written");
    assert!(last_said >= N_TURNS, "{last_said} turns are not four hours: nothing was cut");
    // A writer after all kills rolls up the remaining samples.
    let n = check(&rig, Some(last_said));
    rig.now_ms = START_MS + n * TURN_MS + 120_000;
    rig.turn();
    let states = rig.reported_states();
    assert!(matches!(states[..], [HistoryState::Kept { set_aside: None, .. }]), "{states:?}");
    let connection = Connection::open(rig.path()).expect("the file");
    for (table, per_row) in [("samples_10s", 10), ("samples_1min", 60)] {
        let sql = format!("SELECT count(*), min(power_watts_n), max(power_watts_n) FROM {table} WHERE time_ms < ?1");
        let whole_ms = i64::try_from(START_MS + n * TURN_MS / 60_000 * 60_000).expect("a time");
        let (rows, least, most): (u64, i64, i64) = connection
            .query_row(&sql, [whole_ms], |row| Ok((row.get::<_, u32>(0)?.into(), row.get(1)?, row.get(2)?)))
            .expect("rows");
        assert_eq!((least, most), (per_row, per_row), "{table}: a sample was lost or counted twice");
        let per_row = u64::try_from(per_row).expect("small");
        assert_eq!(rows / 2, n * TURN_MS / 60_000 * 60 / per_row, "{table}");
    }
    println!("{n_kills} kills; {last_said} turns");
}

/// Checks the file after a kill. Returns the number of turns that it contains.
#[track_caller]
fn check(rig: &Rig, last_said: Option<u64>) -> u64 {
    let file = HistoryFile::new(rig.folder.path());
    let Some(connection) = file.visit().expect("it opens") else {
        assert_eq!(last_said, None);
        return 0;
    };
    assert!(rig.names().iter().all(|name| !name.contains("damaged")), "{:?}", rig.names());
    let said: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(said, "ok");
    let n = n_turns(&connection);
    let Some(last_said) = last_said else { return n };
    assert!(n > last_said, "{last_said} was reported, but {n} exist");
    // The run equals the fold of its events, so neither exists without the other.
    let run = rig.archive.run("a1").expect("the run");
    assert_eq!(run.last.map_or(0, |last| last.iter), n - 1);
    let mut all = rig.archive.events(Some("a1"), 0, 100_000).expect("events").into_iter().skip(1).zip(1..);
    assert!(all.all(|(event, n)| event.what == iteration(n)), "an event is missing, or there twice");
    let second_ms = START_MS + n * TURN_MS - 1000;
    let last = rig.archive.telemetry_after(|_| Some(0), second_ms - 1, 10).expect("samples");
    assert_eq!(last.len(), 1, "the last second");
    n
}
