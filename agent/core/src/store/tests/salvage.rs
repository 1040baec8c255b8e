//! Recovery of data from a damaged file, and the report about the rest.

use std::{
    fs::OpenOptions,
    io::{Seek, SeekFrom, Write},
};

use headroom_protocol::alert::{Alert, Settings};

use super::*;

const PAGE_BYTES: u64 = 4096;

fn settings() -> Settings {
    let alerts = vec![Alert::RunFailed, Alert::NoProgress { minutes: 7 }];
    Settings { alerts, price_per_kwh: Some(0.31), currency: "€".to_owned() }
}

/// Returns a closed history with two runs, of which one has not ended, an active alert, and settings.
fn kept() -> Arc<TempDir> {
    let mut rig = Rig::new();
    rig.turn();
    rig.archive.set_settings(&settings(), |_| true, rig.now_ms).expect("they are kept");
    rig.begin("a1");
    rig.begin("b2");
    for n in 0..300 {
        rig.append(Some("a1"), iteration(n));
        rig.queue.push_telemetry(telemetry(rig.now_ms, n));
        rig.turn_after(1000);
    }
    rig.append(Some("b2"), status(RunStatus::exited(1)));
    rig.append(Some("b2"), EventKind::Alert { alert: Alert::RunFailed, gpu: None, value: Some(1.0), status: None });
    rig.turn_after(1000);
    Arc::clone(&rig.folder)
}

/// Makes a table unreadable from its root page.
fn damage(folder: &TempDir, table: &str) {
    let path = folder.path().join(file::NAME);
    let connection = Connection::open(&path).expect("the file");
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let root: i64 = connection.query_row(sql, [table], |row| row.get(0)).expect("a table");
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written back");
    drop(connection);
    let mut file = OpenOptions::new().write(true).open(path).expect("the file");
    file.seek(SeekFrom::Start((from_sql(root) - 1) * PAGE_BYTES)).expect("a place");
    file.write_all(&[0xAA; 4096]).expect("space");
}

fn from_sql(number: i64) -> u64 {
    u64::try_from(number).expect("a page")
}

/// Opens the history with a damaged table. Returns it with the reported number of recovered runs, and whether the
/// settings were recovered.
fn salvaged(table: &str) -> (Rig, u64, bool) {
    let folder = kept();
    damage(&folder, table);
    let mut rig = Rig::on(&folder, Role::Agent);
    rig.now_ms = START_MS + DAY_MS;
    rig.turn();
    let reports = rig.reported_events();
    let [event] = &reports[..] else { panic!("{table}: {reports:?}") };
    let EventKind::HistorySetAside { file, runs, settings } = &event.what else { panic!("{table}: {event:?}") };
    assert!(rig.folder.path().join(file).exists(), "{table}: {file}");
    assert!(event.id > START_MS + DAY_MS, "{table}: numbers are unique");
    assert_eq!(rig.archive.set_aside().expect(table).as_ref(), Some(&event.what), "{table}");
    let (runs, settings) = (*runs, *settings);
    (rig, runs, settings)
}

#[test]
fn a_file_whose_samples_are_damaged_loses_nothing_else() {
    let (rig, runs, has_settings) = salvaged("samples");
    assert_eq!((runs, has_settings), (2, true));
    assert_eq!(rig.archive.settings().expect("settings"), settings());
    let run = rig.archive.run("a1").expect("a run");
    assert!(matches!(run.last, Some(Iteration { iter: 299, .. })), "{run:?}");
    assert_eq!(rig.archive.run("b2").expect("a run").status, RunStatus::exited(1));
    let events = rig.archive.events(Some("a1"), 0, 1000).expect("events");
    assert_eq!(events.iter().filter(|event| matches!(event.what, EventKind::RunIteration(_))).count(), 300);
    assert_eq!(rig.archive.alerts().expect("alerts").len(), 1);
    assert_eq!(rig.count("samples"), 0);
}

#[test]
fn unreadable_rows_are_reported_as_lost() {
    let (rig, runs, has_settings) = salvaged("facts");
    assert_eq!((runs, has_settings), (2, false));
    assert_eq!(rig.archive.settings().expect("none"), Settings::initial());
    let (rig, runs, has_settings) = salvaged("runs");
    assert_eq!((runs, has_settings), (0, true));
    assert_eq!((rig.archive.runs(9).expect("none"), rig.archive.settings().expect("settings")), (vec![], settings()));
}

#[test]
fn rows_on_both_sides_of_a_damaged_page_come_along() {
    let folder = kept();
    let path = folder.path().join(file::NAME);
    let connection = Connection::open(&path).expect("the file");
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written back");
    let n: i64 = connection.query_row("SELECT count(*) FROM events", [], |row| row.get(0)).expect("events");
    drop(connection);
    // A page in the middle of the events, located by its contents.
    let bytes = std::fs::read(&path).expect("the file");
    let at = bytes.windows(10).position(|window| window == b"\"iter\":150").expect("an iteration");
    let page = at as u64 / PAGE_BYTES;
    let mut file = OpenOptions::new().write(true).open(&path).expect("the file");
    file.seek(SeekFrom::Start(page * PAGE_BYTES)).expect("a place");
    file.write_all(&[0; 4096]).expect("space");
    let mut rig = Rig::on(&folder, Role::Agent);
    rig.turn();
    let events = rig.archive.events(Some("a1"), 0, 1000).expect("events");
    let iters: Vec<u64> = events
        .iter()
        .filter_map(|event| if let EventKind::RunIteration(it) = &event.what { Some(it.iter) } else { None })
        .collect();
    assert!(iters.contains(&0) && iters.contains(&299) && !iters.contains(&150), "{} of {n}: {iters:?}", iters.len());
    assert!(iters.is_sorted() && iters.len() > 200, "{iters:?}");
}

#[test]
fn a_file_that_was_taken_away_is_said_no_more() {
    let (rig, ..) = salvaged("samples");
    for name in rig.names().into_iter().filter(|name| name.contains("damaged")) {
        std::fs::remove_file(rig.folder.path().join(name)).expect("removed");
    }
    assert_eq!(rig.archive.set_aside().expect("the file is readable"), None);
}
