//! A full, damaged, foreign or newer file: each state is reported, and live messages continue.

use std::{
    fs::{self, OpenOptions},
    io::{Seek, SeekFrom, Write},
    path::Path,
};

use super::*;

/// Returns a closed history with a run and some samples.
fn kept() -> Arc<TempDir> {
    let mut rig = Rig::new();
    rig.begin("a1");
    for n in 0..400 {
        rig.append(Some("a1"), iteration(n));
        rig.queue.push_telemetry(telemetry(rig.now_ms, n));
        rig.turn_after(1000);
    }
    let folder = Arc::clone(&rig.folder);
    drop(rig);
    assert!(fs::metadata(folder.path().join(file::NAME)).expect("the file").len() > 10 * 4096);
    folder
}

fn overwrite(path: &Path, from: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).expect("the file");
    file.seek(SeekFrom::Start(from)).expect("a place");
    file.write_all(bytes).expect("space");
}

/// Checks that a damaged file is renamed with the time in its name, reported, and replaced.
#[track_caller]
fn check(what: &str, damage: impl FnOnce(&Path)) {
    let folder = kept();
    damage(&folder.path().join(file::NAME));
    let mut rig = Rig::on(&folder, Role::Agent);
    rig.now_ms = START_MS + DAY_MS;
    rig.append(None, EventKind::AgentStarted { version: "1".to_owned() });
    rig.turn();
    let reports = rig.reports();
    let name = "history.damaged-20261119T000000Z.sqlite";
    assert!(rig.names().iter().any(|file| file == name), "{what}: {:?}", rig.names());
    let said = reports.iter().any(
        |event| matches!(event, StoreEvent::State(HistoryState::Kept { set_aside: Some(said), .. }) if said == name),
    );
    assert!(said, "{what}: {reports:?}");
    let events: Vec<&Event> = reports
        .iter()
        .filter_map(|event| if let StoreEvent::Event(event) = event { Some(event) } else { None })
        .collect();
    let [set_aside, started] = events[..] else { panic!("{what}: {events:?}") };
    let EventKind::HistorySetAside { file, runs, .. } = &set_aside.what else { panic!("{what}: {set_aside:?}") };
    assert_eq!((file.as_str(), started.what.has_line()), (name, true), "{what}");
    // A viewer that has events of the previous file receives these as newer ones.
    assert!(set_aside.id > START_MS + DAY_MS && started.id > set_aside.id, "{what}: {}", set_aside.id);
    assert_eq!(rig.archive.runs(10).expect(what).len() as u64, *runs, "{what}");
    // The state remains.
    rig.turn_after(60_000);
    assert!(rig.reported_states().iter().all(|state| matches!(state, HistoryState::Kept { .. })), "{what}");
}

#[test]
fn damaged_database_is_set_aside_and_recreated() {
    check("an invalid header", |path| overwrite(path, 0, &[0xAA; 100]));
    check("a page in the middle", |path| overwrite(path, 3 * 4096, &[0xAA; 4096]));
    check("zeros in the middle", |path| overwrite(path, 2 * 4096, &[0; 2 * 4096]));
    check("the half of it", |path| {
        let file = OpenOptions::new().write(true).open(path).expect("the file");
        let len = file.metadata().expect("a length").len();
        file.set_len(len / 2 + 7).expect("shorter");
    });
    check("nothing in it", |path| fs::write(path, "").expect("an empty file"));
    check("a text", |path| fs::write(path, "no history\n".repeat(2000)).expect("a text"));
    check("a folder", |path| {
        fs::remove_file(path).expect("removed");
        fs::create_dir(path).expect("a folder");
    });
    check("another program's database", |path| {
        fs::remove_file(path).expect("removed");
        let connection = Connection::open(path).expect("a file");
        connection.execute_batch("CREATE TABLE events (x)").expect("a table");
    });
}

#[test]
fn sibling_files_move_with_damaged_database() {
    let folder = kept();
    let path = folder.path().join(file::NAME);
    overwrite(&path, 0, &[0xAA; 100]);
    fs::write(folder.path().join("history.sqlite-wal"), [0x55; 5000]).expect("a log");
    let mut rig = Rig::on(&folder, Role::Agent);
    rig.turn();
    assert!(rig.names().contains(&"history.damaged-20261118T000000Z.sqlite".to_owned()), "{:?}", rig.names());
    rig.begin("b2");
    rig.turn_after(1000);
    assert_eq!(rig.archive.runs(10).expect("runs").len(), 1);
}

#[test]
fn a_log_that_lost_its_file_is_not_taken_for_the_new_ones() {
    let folder = kept();
    fs::rename(folder.path().join(file::NAME), folder.path().join("elsewhere")).expect("renamed");
    fs::write(folder.path().join("history.sqlite-wal"), [0x55; 5000]).expect("a log");
    let mut rig = Rig::on(&folder, Role::Agent);
    rig.begin("b2");
    rig.turn();
    assert!(rig.names().contains(&"history.damaged-20261118T000000Z.sqlite-wal".to_owned()), "{:?}", rig.names());
    assert_eq!(rig.archive.runs(10).expect("runs").len(), 1);
}

/// Overwrites the pages after the first under an open connection, whose cache is empty.
fn damage_while_open(rig: &Rig) {
    let connection = rig.writer.connection().expect("it is open");
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written back");
    connection.execute_batch("PRAGMA shrink_memory").expect("forgotten");
    let n = fs::metadata(rig.path()).expect("the file").len() - 4096;
    overwrite(&rig.path(), 4096, &vec![0xAA; usize::try_from(n).expect("small")]);
}

#[test]
fn damage_that_comes_while_it_runs_is_found_by_writing() {
    let mut rig = Rig::on(&kept(), Role::Agent);
    rig.now_ms += DAY_MS;
    rig.turn();
    rig.reports();
    damage_while_open(&rig);
    rig.append(None, EventKind::GpuLost { gpu: uuid(0) });
    for _ in 0..3 {
        rig.turn_after(250);
    }
    let reports = rig.reports();
    let events: Vec<u64> = reports
        .iter()
        .filter_map(|event| if let StoreEvent::Event(event) = event { Some(event.id) } else { None })
        .collect();
    assert!(matches!(events[..], [id, next] if id > START_MS + DAY_MS && next > id), "{reports:?}");
    assert!(
        reports.iter().any(|event| matches!(event, StoreEvent::State(HistoryState::Kept { set_aside: Some(_), .. })))
    );
}

#[test]
fn damage_that_comes_while_it_runs_is_found_by_reading() {
    let mut rig = Rig::on(&kept(), Role::Agent);
    rig.turn();
    rig.reports();
    overwrite(&rig.path(), 4096, &vec![0xAA; 10 * 4096]);
    rig.archive.runs(10).expect_err("it cannot be read");
    rig.turn_after(250);
    assert!(matches!(rig.reported_states()[..], [HistoryState::Kept { set_aside: Some(_), .. }]));
    assert_eq!(rig.archive.runs(10).expect("a new one"), []);
}

#[test]
fn watcher_continues_in_new_database() {
    let mut agent = Rig::new();
    agent.turn();
    let mut watch = agent.beside(Role::Watcher);
    watch.begin("a1");
    watch.append(Some("a1"), iteration(1));
    watch.turn();
    agent.turn();
    fs::rename(agent.path(), agent.folder.path().join("history.damaged-by-hand.sqlite")).expect("renamed");
    watch.append(Some("a1"), iteration(2));
    watch.turn_after(1000);
    agent.turn_after(1000);
    let run = agent.archive.run("a1").expect("it is there again");
    assert!(matches!(run.last, Some(Iteration { iter: 2, .. })));
    assert_eq!(run.started_ms, START_MS);
    let reports = agent.reported_events();
    assert!(reports.is_sorted_by(|a, b| a.id < b.id), "{reports:?}");
    assert_eq!(reports.len(), 4, "two before, and the beginning and an iteration after");
}

#[test]
fn a_file_of_a_later_version_is_refused_and_left_alone() {
    let folder = kept();
    let path = folder.path().join(file::NAME);
    let connection = Connection::open(&path).expect("the file");
    connection.pragma_update(None, "user_version", 99).expect("a version");
    connection.close().expect("closed");
    let mut rig = Rig::on(&folder, Role::Agent);
    rig.append(None, EventKind::AgentStarted { version: "1".to_owned() });
    rig.turn();
    let reports = rig.reports();
    let Some(StoreEvent::State(HistoryState::Paused { reason, since_ms: START_MS })) = reports.first() else {
        panic!("{reports:?}");
    };
    assert!(reason.en.contains("a newer version of headroom wrote it") && reason.en.contains("99"), "{reason}");
    let events = reports.iter().filter(|event| matches!(event, StoreEvent::Event(Event { id: 0, .. }))).count();
    assert_eq!((events, reports.len()), (2, 3), "the agent's start and the pause of history");
    assert!(rig.names().iter().all(|name| !name.contains("damaged")), "{:?}", rig.names());
    assert!(matches!(rig.archive.runs(1), Err(Error::Unusable(why)) if why.to_string().contains("newer")));
    // Reported once, then retried: the owner removes the newer file.
    for _ in 0..100 {
        rig.turn_after(250);
    }
    assert_eq!(rig.reports(), []);
    fs::rename(&path, folder.path().join("of a later headroom")).expect("renamed");
    rig.turn_after(60_000);
    rig.turn_after(250);
    let reports = rig.reports();
    assert!(matches!(reports.first(), Some(StoreEvent::State(HistoryState::Kept { .. }))), "{reports:?}");
    assert!(
        matches!(&reports[1..], [StoreEvent::Event(event)] if event.what == EventKind::HistoryResumed),
        "{reports:?}"
    );
}

#[test]
fn a_full_disk_pauses_history_and_room_resumes_it() {
    let mut rig = Rig::new();
    rig.turn();
    rig.reports();
    let limit = |rig: &Rig, pages: i64| {
        let connection = rig.writer.connection().expect("it is open");
        let sql = format!("PRAGMA max_page_count = {pages}");
        connection.query_row(&sql, [], |_| Ok(())).expect("a limit");
    };
    limit(&rig, 1);
    let mut reports = Vec::new();
    let mut n = 0;
    while !reports.iter().any(|event| matches!(event, StoreEvent::State(HistoryState::Paused { .. }))) {
        n += 1;
        assert!(n < 1000, "the file grows beyond its limit");
        rig.append(None, EventKind::RunOom { message: format!("{n} {}", "x".repeat(4000)) });
        rig.queue.push_telemetry(telemetry(rig.now_ms, n));
        rig.turn_after(1000);
        reports.extend(rig.reports());
    }
    let Some(StoreEvent::State(HistoryState::Paused { reason, since_ms })) =
        reports.iter().find(|event| matches!(event, StoreEvent::State(HistoryState::Paused { .. })))
    else {
        panic!("{reports:?}");
    };
    assert!(reason.en.contains("full"), "{reason}");
    assert_eq!(*since_ms, rig.now_ms);
    let unnumbered: Vec<&StoreEvent> =
        reports.iter().filter(|event| matches!(event, StoreEvent::Event(Event { id: 0, .. }))).collect();
    assert_eq!(unnumbered.len(), 2, "the unwritten event and the pause of history");
    // Live messages continue: an event is sent immediately. The disk remains full for an hour of samples.
    rig.append(None, EventKind::GpuLost { gpu: uuid(1) });
    rig.turn_after(250);
    assert!(matches!(rig.reports()[..], [StoreEvent::Event(Event { id: 0, .. })]));
    for _ in 0..3600 {
        rig.queue.push_telemetry(telemetry(rig.now_ms, 1));
        rig.turn_after(1000);
    }
    assert_eq!(rig.reports(), [], "it is reported once");
    limit(&rig, 1_000_000);
    let resumed_ms = rig.now_ms;
    for _ in 0..70 {
        rig.turn_after(1000);
    }
    let reports = rig.reports();
    assert!(matches!(reports[0], StoreEvent::State(HistoryState::Kept { .. })), "{reports:?}");
    let events: Vec<&Event> = reports
        .iter()
        .filter_map(|event| if let StoreEvent::Event(event) = event { Some(event) } else { None })
        .collect();
    assert!(matches!(events[..], [Event { id: 1.., what: EventKind::HistoryResumed, .. }]), "{events:?}");
    // Queued events are written in order without a second notification; of the samples, the newest that fit in the
    // queue are written.
    let kept = rig.archive.events(None, 0, 2000).expect("events");
    let n_oom = u64::try_from(kept.iter().filter(|event| matches!(event.what, EventKind::RunOom { .. })).count());
    assert_eq!(n_oom, Ok(n));
    let last: Vec<&EventKind> = kept.iter().rev().take(3).map(|event| &event.what).collect();
    assert!(
        matches!(last[..], [EventKind::HistoryResumed, EventKind::GpuLost { .. }, EventKind::HistoryPaused { .. }]),
        "{last:?}"
    );
    let samples = rig.archive.telemetry_after(|_| Some(0), since_ms + 1, 5000).expect("samples");
    assert_eq!(samples.len(), 600, "a minute at full rate waits");
    assert!(samples.last().expect("samples").time_ms + 2000 > resumed_ms);
}

#[test]
fn foreign_lock_is_awaited_then_reported() {
    let mut rig = Rig::new();
    rig.turn();
    rig.reports();
    let other = Connection::open(rig.path()).expect("the file");
    other.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    rig.writer.connection().expect("it is open").busy_timeout(std::time::Duration::ZERO).expect("no waiting");
    rig.append(None, EventKind::GpuLost { gpu: uuid(0) });
    for _ in 0..36 {
        rig.turn_after(250);
    }
    assert_eq!(rig.reports(), [], "a backup or a checkpoint takes a while");
    for _ in 0..8 {
        rig.turn_after(250);
    }
    let reports = rig.reports();
    assert!(
        matches!(&reports[0], StoreEvent::State(HistoryState::Paused { reason, .. }) if reason.en.contains("another program"))
    );
    other.execute_batch("COMMIT").expect("no lock");
    for _ in 0..40 {
        rig.turn_after(250);
    }
    assert!(matches!(rig.reports()[..], [StoreEvent::State(HistoryState::Kept { .. }), StoreEvent::Event(_)]));
    assert_eq!(rig.archive.events(None, 0, 10).expect("events").len(), 3);
}

#[cfg(unix)]
#[test]
fn only_its_owner_reads_it() {
    use std::os::unix::fs::PermissionsExt;
    let mut rig = Rig::new();
    rig.append(None, EventKind::HistoryResumed);
    rig.turn();
    let names = rig.names();
    assert!(names.iter().any(|name| name.ends_with("-wal")), "{names:?}");
    for name in &names {
        let mode = fs::metadata(rig.folder.path().join(name)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    fs::set_permissions(rig.path(), fs::Permissions::from_mode(0o644)).expect("for all to read");
    let mut other = Rig::on(&rig.folder, Role::Agent);
    other.turn();
    assert_eq!(fs::metadata(rig.path()).expect("the file").permissions().mode() & 0o777, 0o600);
    // The target of a symbolic link belongs to another user.
    let linked = Rig::new();
    let elsewhere = linked.folder.path().join("elsewhere");
    fs::write(&elsewhere, "not a history").expect("a file");
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o644)).expect("for all to read");
    std::os::unix::fs::symlink(&elsewhere, linked.path()).expect("a link");
    linked.beside(Role::Agent).turn();
    assert_eq!(fs::metadata(&elsewhere).expect("the file").permissions().mode() & 0o777, 0o644);
}
