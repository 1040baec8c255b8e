//! Stop requests whose record fails: before delivery, at delivery, and at the commit.

use headroom_protocol::run::RunRequest;

use super::*;

const ID: &str = "a1";

/// A run of the agent that was started and has not ended.
fn started() -> Rig {
    let mut rig = Rig::new();
    rig.turn();
    let ours = Run { order: Some(RunRequest::default()), status: RunStatus::Queued, ..run(ID, rig.now_ms) };
    rig.archive.queue(&ours, 1, rig.now_ms).expect("history");
    rig.archive.claim(ID, None, rig.now_ms).expect("history").expect("it is queued");
    rig
}

/// Runs SQL whenever a stop request is recorded.
fn on_record(rig: &Rig, sql: &str) {
    let connection = Connection::open(rig.path()).expect("the file");
    let sql = format!(
        "CREATE TABLE others (id INTEGER PRIMARY KEY);
         CREATE TABLE refused (other REFERENCES others DEFERRABLE INITIALLY DEFERRED);
         CREATE TRIGGER recorded AFTER INSERT ON events WHEN NEW.what LIKE '%run_stopping%' BEGIN {sql}; END;"
    );
    connection.execute_batch(&sql).expect("valid SQL");
}

/// Sends a stop request. Returns the outcome and the number of deliveries.
fn stop(rig: &Rig) -> (Result<StopOutcome<Error>, Error>, u32) {
    let mut n_delivered = 0;
    let outcome = rig.archive.stop(ID, rig.now_ms, |_| {
        n_delivered += 1;
        Ok(())
    });
    (outcome, n_delivered)
}

fn n_recorded(rig: &Rig) -> usize {
    let events = rig.archive.events(Some(ID), 0, 100).expect("history");
    events.iter().filter(|event| event.what == EventKind::RunStopping).count()
}

#[test]
fn stop_is_delivered_and_recorded_once() {
    let rig = started();
    for _ in 0..2 {
        let (outcome, n_delivered) = stop(&rig);
        let outcome = outcome.expect("it runs");
        assert_eq!((outcome.run.id.as_str(), n_delivered), (ID, 1));
        assert!(outcome.unrecorded.is_none());
        assert_eq!(n_recorded(&rig), 1);
    }
}

#[test]
fn stop_that_cannot_be_recorded_is_not_delivered() {
    let rig = started();
    on_record(&rig, "SELECT raise(ABORT, 'no space')");
    let (outcome, n_delivered) = stop(&rig);
    assert!(matches!(outcome, Err(Error::Unusable(_))), "{outcome:?}");
    assert_eq!((n_delivered, n_recorded(&rig)), (0, 0));
}

#[test]
fn stop_that_is_not_delivered_is_not_recorded() {
    let rig = started();
    let outcome = rig.archive.stop(ID, rig.now_ms, |_| Err(Error::QueueFull(7)));
    assert!(matches!(outcome, Err(Error::QueueFull(7))), "{outcome:?}");
    assert_eq!(n_recorded(&rig), 0);
}

#[test]
fn delivered_stop_succeeds_though_its_commit_fails() {
    let rig = started();
    // The violated reference is noticed at the commit.
    on_record(&rig, "INSERT INTO refused VALUES (1)");
    let (outcome, n_delivered) = stop(&rig);
    let outcome = outcome.expect("the run stops");
    assert_eq!((outcome.run.id.as_str(), n_delivered, n_recorded(&rig)), (ID, 1, 0));
    assert!(matches!(outcome.unrecorded, Some(Error::Unusable(_))), "{:?}", outcome.unrecorded);
}
