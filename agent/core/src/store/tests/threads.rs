//! The writer thread, and several programs at once. Nothing sleeps; the tests wait for notifications, within a limit.

use std::{
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use super::*;

/// A timeout that no test reaches on any machine.
const LIMIT: Duration = Duration::from_secs(60);

fn opened(folder: &TempDir) -> (Store, Receiver<StoreEvent>) {
    let (sender, reports) = channel();
    let tell = move |news| {
        let _ = sender.send(news);
    };
    (Store::open(folder.path(), RetentionLimits::default(), tell).expect("a thread"), reports)
}

fn next_event(reports: &Receiver<StoreEvent>) -> Event {
    loop {
        if let StoreEvent::Event(event) = reports.recv_timeout(LIMIT).expect("something is reported") {
            return event;
        }
    }
}

#[test]
fn a_watchers_events_reach_the_agent() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, reports) = opened(&folder);
    let recorder = Recorder::open(folder.path()).expect("a thread");
    recorder.append(START_MS, "a1", EventKind::RunStarted { run: Box::new(run("a1", START_MS)) });
    recorder.append(START_MS, "a1", iteration(1));
    assert!(matches!(next_event(&reports).what, EventKind::RunStarted { .. }));
    assert_eq!(next_event(&reports).what, iteration(1));
    store.append(Some("a1"), EventKind::RunMemory { gpu: uuid(0), bytes: 7 });
    assert!(matches!(next_event(&reports).what, EventKind::RunMemory { bytes: 7, .. }));
    recorder.append(START_MS, "a1", status(DONE));
    assert_eq!(recorder.finish(), 0, "nothing is lost");
    let end = next_event(&reports);
    assert_eq!(end.what, status(DONE));
    let run = store.run("a1").expect("the run");
    assert_eq!((run.status, run.gpu_memory_peak_bytes), (DONE, Some(7)));
    assert_eq!(store.last_event().expect("a number"), end.id);
}

#[test]
fn a_recorder_needs_no_agent() {
    let folder = tempfile::tempdir().expect("a folder");
    let recorder = Recorder::open(folder.path()).expect("a thread");
    recorder.append(START_MS, "a1", EventKind::RunStarted { run: Box::new(run("a1", START_MS)) });
    recorder.append(START_MS, "a1", status(DONE));
    assert_eq!(recorder.finish(), 0);
    let (store, reports) = opened(&folder);
    assert!(matches!(reports.recv_timeout(LIMIT), Ok(StoreEvent::State(HistoryState::Kept { .. }))));
    assert_eq!(store.runs(10).expect("runs").len(), 1);
    store.close();
    assert!(!reports.try_iter().any(|event| matches!(event, StoreEvent::Event(_))), "earlier events are not reported");
}

#[test]
fn a_recorder_gives_up_and_says_what_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    // Nothing can be created below a regular file.
    std::fs::write(folder.path().join("file"), "").expect("a file");
    let recorder = Recorder::open(&folder.path().join("file")).expect("a thread");
    recorder.append(START_MS, "a1", iteration(1));
    recorder.append(START_MS, "a1", iteration(2));
    assert_eq!(recorder.finish(), 2);
}

#[test]
fn the_end_of_the_store_writes_what_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    // By the real clock, since samples older than an hour are deleted.
    let begin_ms = now_ms();
    let (store, _reported) = opened(&folder);
    store.inventory(&[gpu(0), gpu(1)]);
    for n in 0..1000 {
        store.append(None, EventKind::AgentStarted { version: n.to_string() });
    }
    store.telemetry(telemetry(begin_ms, 1));
    // A moment is readable before it is written.
    assert_eq!(store.telemetry_after(begin_ms - 1, 10).expect("samples"), [(*telemetry(begin_ms, 1)).clone()]);
    let clone = store.clone();
    drop(store);
    clone.close();
    clone.close();
    let archive = Archive::new(folder.path());
    assert_eq!(archive.events(None, 0, 2000).expect("events").len(), 1000);
    let place_of = |of: &str| [0, 1].into_iter().find(|index| uuid(*index) == of);
    assert_eq!(archive.telemetry_after(place_of, 0, 10).expect("samples"), [(*telemetry(begin_ms, 1)).clone()]);
    assert_eq!(clone.telemetry_after(begin_ms - 1, 10).expect("samples").len(), 1, "once, written and recent");
}

#[test]
fn a_backup_is_whole_while_others_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, reports) = opened(&folder);
    store.inventory(&[gpu(0), gpu(1)]);
    let recorder = Recorder::open(folder.path()).expect("a thread");
    recorder.append(START_MS, "a1", EventKind::RunStarted { run: Box::new(run("a1", START_MS)) });
    next_event(&reports);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let copies: Vec<PathBuf> = (0..5).map(|n| folder.path().join(format!("copy-{n}"))).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1.. {
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                recorder.append(START_MS, "a1", iteration(n));
                store.telemetry(telemetry(START_MS + n, n));
                thread::sleep(Duration::from_micros(200));
            }
        });
        let archive = Archive::new(folder.path());
        for copy in &copies {
            // Each copy is made after more events were written.
            let written = archive.last_event().expect("a number");
            while next_event(&reports).id <= written + 100 {}
            let bytes = archive.backup(copy).expect("a copy");
            assert_eq!(bytes, std::fs::metadata(copy).expect("the copy").len());
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(recorder.finish(), 0);
    let mut n_before = 0;
    for copy in &copies {
        let place = tempfile::tempdir().expect("a folder");
        std::fs::copy(copy, place.path().join(file::NAME)).expect("put in its place");
        let archive = Archive::new(place.path());
        let events = archive.events(Some("a1"), 0, 100_000).expect("events");
        assert!(events.len() > n_before + 100, "{} after {n_before}", events.len());
        n_before = events.len();
        let last = u64::try_from(events.len()).expect("a count") - 1;
        assert_eq!(events.last().expect("events").what, iteration(last), "no event is missing");
        assert_eq!(archive.run("a1").expect("the run").last.expect("an iteration").iter, last);
        let connection = Connection::open(copy).expect("the copy");
        let said: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
        assert_eq!(said, "ok");
    }
    let again = Archive::new(folder.path()).backup(&copies[0]).expect_err("it is there already");
    assert!(matches!(again, BackupError::Exists(_)));
    let empty = tempfile::tempdir().expect("a folder");
    let nothing = Archive::new(empty.path()).backup(&empty.path().join("copy")).expect_err("there is nothing");
    assert!(matches!(nothing, BackupError::Nothing));
    assert_eq!(std::fs::read_dir(empty.path()).expect("the folder").count(), 0, "nothing is left over");
}
