//! A history file with schema version 7, the predecessor of version 8: `tests/golden/history`.

use headroom_protocol::message::Message;
use headroom_text as text;

use super::*;

/// Returns a rig whose history is a copy of the golden file.
fn rig() -> Rig {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/history/version_7.sqlite");
    std::fs::copy(golden, folder.path().join(file::NAME)).expect("the golden file");
    Rig::on(&folder, Role::Agent)
}

#[test]
fn history_of_version_7_opens_with_its_messages_in_english() {
    let rig = rig();
    let runs = rig.archive.runs(9).expect("runs");
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names, ["oom", "tame", "wild"]);
    let diverged = "the gradients' norm of iteration 1 is NaN: the run has diverged\n\nhint: a smaller --learning_rate=, \
                    or a longer --warmup_iters=";
    let wild = &runs[2];
    assert_eq!(wild.explanation, Some(Message::plain(diverged)));
    let notes = [
        "wild.py:1:1: `import` is not evaluated.",
        "wild.py:18:1: forks_key is not a setting of nanoGPT, which ignores it.",
    ];
    assert_eq!(wild.config_notes, notes.map(Message::plain));
    assert_eq!(
        wild.explanation.as_ref().map(|message| message.render(headroom_languages::table("de"))).as_deref(),
        Some(diverged)
    );
    let events = rig.archive.events(Some(&wild.id), 0, 99).expect("events");
    let explained: Vec<_> = events
        .iter()
        .filter_map(
            |event| if let EventKind::RunExplained { message, .. } = &event.what { Some(message) } else { None },
        )
        .collect();
    assert_eq!(explained, [&Message::plain(diverged)]);
}

#[test]
fn history_of_version_7_is_written_on() {
    let mut rig = rig();
    let last = rig.archive.last_event().expect("a number");
    rig.append(None, EventKind::HistoryPaused { reason: text::HISTORY_BUSY.into() });
    rig.turn();
    let connection = Connection::open(rig.path()).expect("the file");
    let of_no_kind = "SELECT count(*) FROM events WHERE kind IS NOT json_extract(what, '$.kind')";
    let n: i64 = connection.query_row(of_no_kind, [], |row| row.get(0)).expect("a count");
    assert_eq!((schema::version(&connection).expect("a version"), n), (schema::STEPS.len(), 0));
    let newest = rig.archive.newest(u64::MAX >> 1, 0, 99).expect("events");
    assert!(newest.iter().all(|event| event.what.has_line()), "{newest:?}");
    assert_eq!(newest.len(), 11, "{newest:?}");
    let new = newest.last().expect("events");
    assert!(new.id > last);
    assert_eq!(new.what, EventKind::HistoryPaused { reason: text::HISTORY_BUSY.into() });
}
