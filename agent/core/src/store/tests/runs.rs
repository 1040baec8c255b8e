//! Events and runs: numbering, notifications, folding, loss and deletion.

use super::*;

#[test]
fn an_event_is_reported_when_it_has_its_number() {
    let mut rig = Rig::new();
    rig.turn();
    assert!(matches!(rig.reports()[..], [StoreEvent::State(HistoryState::Kept { bytes: 1.., set_aside: None })]));
    rig.append(None, EventKind::AgentStarted { version: "1".to_owned() });
    assert_eq!(rig.reports(), []);
    rig.turn();
    let events = rig.reported_events();
    assert_eq!(events.len(), 1);
    assert!(events[0].id > START_MS, "numbers start at the file's creation time");
    assert_eq!(rig.archive.events(None, 0, 10).expect("events"), events);
    assert_eq!(rig.archive.last_event().expect("a number"), events[0].id);
    rig.turn();
    assert_eq!(rig.reports(), [], "reported once");
}

#[test]
fn events_of_two_programs_come_in_one_order_each_once() {
    let mut agent = Rig::new();
    agent.turn();
    let mut watch = agent.beside(Role::Watcher);
    agent.reports();
    let mut reports = Vec::new();
    for iter in 0..20 {
        if iter == 0 {
            watch.begin("a1");
        }
        watch.append(Some("a1"), iteration(iter));
        watch.turn_after(250);
        agent.append(None, EventKind::GpuLost { gpu: uuid(0) });
        agent.turn_after(250);
        reports.extend(agent.reported_events());
    }
    assert_eq!(reports.len(), 41);
    assert!(reports.is_sorted_by(|a, b| a.id < b.id));
    assert_eq!(agent.archive.events(None, 0, 100).expect("events"), reports);
    assert_eq!(watch.reported_events(), [], "a watcher reports no event");
    let of_run = agent.archive.events(Some("a1"), reports[4].id, 100).expect("events");
    assert!(of_run.iter().all(|event| event.run.as_deref() == Some("a1") && event.id > reports[4].id));
    assert_eq!(of_run.len(), 18);
    assert_eq!(agent.archive.events(None, reports[10].id, 3).expect("events"), reports[11..14]);
}

#[test]
fn a_run_is_kept_as_its_events_made_it() {
    let mut rig = Rig::new();
    rig.begin("a1");
    rig.append(Some("a1"), iteration(10));
    rig.turn();
    rig.append(Some("a1"), iteration(20));
    rig.append(Some("b2"), iteration(30));
    rig.turn_after(1000);
    let mut folded = run("a1", START_MS);
    for event in rig.archive.events(Some("a1"), 0, 10).expect("events") {
        folded.apply(event.time_ms, &event.what);
    }
    assert_eq!(rig.archive.run("a1").expect("the run"), folded);
    assert!(matches!(folded.last, Some(Iteration { iter: 20, .. })));
    // An event of an unknown run is stored, and does not create the run.
    assert!(matches!(rig.archive.run("b2"), Err(Error::NoRun(id)) if id == "b2"));
}

#[test]
fn runs_come_newest_first_and_those_that_go_on_whatever_their_age() {
    let mut rig = Rig::new();
    for id in ["a1", "b2", "c3", "d4"] {
        rig.begin(id);
        if id != "a1" {
            rig.append(Some(id), status(DONE));
        }
        rig.turn_after(1000);
    }
    let ids = |n| rig.archive.runs(n).expect("runs").into_iter().map(|run| run.id).collect::<Vec<_>>();
    assert_eq!(ids(10), ["d4", "c3", "b2", "a1"]);
    assert_eq!(ids(2), ["d4", "a1"]);
    assert_eq!(ids(0), [""; 0]);
}

#[test]
fn a_run_is_found_by_the_beginning_of_its_number() {
    let mut rig = Rig::new();
    for id in ["abc1", "abd2", "abd23", "e5"] {
        rig.begin(id);
    }
    rig.turn();
    for (beginning, id) in [("e", "e5"), ("abc", "abc1"), ("abd2", "abd2"), ("abd23", "abd23")] {
        assert_eq!(rig.archive.find(beginning).expect(beginning).id, id);
    }
    let error = rig.archive.find("ab").expect_err("several").to_string();
    assert!(
        error.starts_with("several runs are called ab, or their numbers begin so: ") && error.contains("abd23"),
        "{error}"
    );
    // Runs are also found by a unique name; an ID with this prefix belongs to another run.
    let named = |id: &str, name: &str| EventKind::RunStarted {
        run: Box::new(Run { name: name.to_owned(), ..run(id, START_MS) }),
    };
    for (id, name) in [("f6", "gpt2"), ("0a", "e"), ("1b", "%"), ("2c", "\"quoted\"")] {
        rig.append(Some(id), named(id, name));
    }
    rig.turn();
    for (name, id) in [("gpt2", "f6"), ("%", "1b"), ("\"quoted\"", "2c")] {
        assert_eq!(rig.archive.find(name).expect(name).id, id);
    }
    for (name, ids) in [("e", ["0a", "e5"]), ("shakespeare-char", ["abc1", "abd2"])] {
        let error = rig.archive.find(name).expect_err("several").to_string();
        assert!(ids.iter().all(|id| error.contains(id)), "{error}");
    }
    for none in ["", "x", "abc12", "a_", "gpt"] {
        assert!(matches!(rig.archive.find(none), Err(Error::NoRun(_))), "{none}");
    }
}

#[test]
fn a_run_without_its_watcher_is_lost_and_found_again() {
    let mut agent = Rig::new();
    let mut watch = agent.beside(Role::Watcher);
    watch.begin("a1");
    watch.turn();
    let stands = |agent: &Rig| agent.archive.run("a1").expect("the run").status;
    // The run prints nothing for ten minutes, and its watcher lives.
    for _ in 0..600 {
        watch.turn_after(1000);
        agent.turn_after(1000);
    }
    assert_eq!(stands(&agent), RunStatus::Running);
    agent.reports();
    let silent_ms = agent.now_ms;
    let silent_for = |agent: &mut Rig, seconds: u64| {
        for _ in 0..seconds {
            agent.turn_after(1000);
        }
    };
    // The run is marked as lost within seconds after three missed heartbeats.
    silent_for(&mut agent, 10);
    assert_eq!(stands(&agent), RunStatus::Running);
    silent_for(&mut agent, 10);
    assert_eq!(stands(&agent), RunStatus::Lost);
    let reports = agent.reported_events();
    assert_eq!(reports.iter().map(|event| &event.what).collect::<Vec<_>>(), [&status(RunStatus::Lost)]);
    // The end of the run is its watcher's last heartbeat, not the time of detection.
    let ended_ms = agent.archive.run("a1").expect("the run").ended_ms.expect("it ended");
    assert!((silent_ms - 5000..=silent_ms).contains(&ended_ms), "{ended_ms} for {silent_ms}");
    assert_eq!(reports[0].time_ms, ended_ms);
    silent_for(&mut agent, 60);
    assert_eq!(agent.reported_events(), [], "reported once");
    // The watcher's process was paused, and continues.
    watch.now_ms = agent.now_ms;
    watch.turn_after(1000);
    assert_eq!(stands(&agent), RunStatus::Running);
}

#[test]
fn a_sleep_of_the_machine_loses_no_run() {
    let mut agent = Rig::new();
    let mut watch = agent.beside(Role::Watcher);
    watch.begin("a1");
    watch.turn();
    agent.turn();
    agent.reports();
    // The machine slept for three hours, and the agent wakes first.
    agent.turn_after(3 * HOUR_MS);
    watch.turn_after(3 * HOUR_MS);
    for _ in 0..120 {
        watch.turn_after(1000);
        agent.turn_after(1000);
    }
    assert_eq!(agent.reported_events(), []);
    assert_eq!(agent.archive.run("a1").expect("the run").status, RunStatus::Running);
}

/// Returns a live watcher process, this one, and a dead one with the same process ID.
#[cfg(target_os = "linux")]
fn processes() -> (Process, Process) {
    let this = Process::this().expect("Linux says it");
    let text = this.to_string();
    let mut parts: Vec<&str> = text.split(' ').collect();
    parts[1] = "1";
    (this, parts.join(" ").parse().expect("a process"))
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_whose_watcher_was_killed_is_lost_within_seconds() {
    let mut agent = Rig::new();
    let mut watch = agent.beside(Role::Watcher).watched_by(processes().1);
    watch.begin("a1");
    watch.turn();
    // Readers see the loss immediately, with or without an agent.
    let run = agent.archive.run("a1").expect("the run");
    assert_eq!((run.status, run.ended_ms), (RunStatus::Lost, Some(START_MS)));
    assert_eq!(agent.archive.runs(10).expect("runs"), [run]);
    for _ in 0..3 {
        agent.turn_after(1000);
    }
    let [event] = &agent.reported_events()[..] else { panic!("one event") };
    assert_eq!((event.time_ms, &event.what), (START_MS, &status(RunStatus::Lost)));
    // An agent that starts much later finds the same state.
    watch.begin("b2");
    watch.turn();
    let mut later = agent.beside(Role::Agent);
    later.turn_after(3 * HOUR_MS);
    let run = later.archive.run("b2").expect("the run");
    assert_eq!((run.status, run.ended_ms), (RunStatus::Lost, Some(START_MS)));
    later.archive.delete_run("b2", later.now_ms).expect("it has ended");
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_whose_watcher_lives_is_not_lost_while_it_says_nothing() {
    let mut agent = Rig::new();
    let mut watch = agent.beside(Role::Watcher).watched_by(processes().0);
    watch.begin("a1");
    watch.turn();
    // The watcher is paused, or the disk is full, for an hour.
    for _ in 0..3600 {
        agent.turn_after(1000);
    }
    assert_eq!(agent.archive.run("a1").expect("the run").status, RunStatus::Running);
    watch.append(Some("a1"), status(DONE));
    watch.now_ms = agent.now_ms;
    watch.turn();
    drop(watch);
    agent.turn_after(5000);
    assert_eq!(agent.archive.run("a1").expect("the run").status, DONE);
}

#[test]
fn watcher_report_after_the_look_counts() {
    let mut agent = Rig::new();
    let mut watch = agent.beside(Role::Watcher);
    watch.begin("a1");
    watch.turn();
    let connection = Connection::open(agent.path()).expect("the file");
    let [found] = &events::watches(&connection).expect("runs")[..] else { panic!("one run") };
    assert!(events::is_unchanged(&connection, found).expect("an answer"));
    watch.turn_after(5000);
    assert!(!events::is_unchanged(&connection, found).expect("an answer"), "the watcher wrote a heartbeat");
    let [found] = &events::watches(&connection).expect("runs")[..] else { panic!("one run") };
    watch.append(Some("a1"), status(DONE));
    watch.turn();
    assert!(!events::is_unchanged(&connection, found).expect("an answer"), "the run ended");
    assert!(events::watches(&connection).expect("runs").is_empty());
    agent.turn();
}

#[test]
fn the_agents_own_events_of_a_run_are_no_sign_of_its_watcher() {
    let mut agent = Rig::new();
    let mut watch = agent.beside(Role::Watcher);
    watch.begin("a1");
    watch.turn();
    for _ in 0..150 {
        agent.append(Some("a1"), EventKind::RunMemory { gpu: uuid(0), bytes: 5 });
        agent.turn_after(1000);
    }
    assert_eq!(agent.archive.run("a1").expect("the run").status, RunStatus::Lost);
}

#[test]
fn a_run_is_deleted_when_it_has_ended() {
    let mut rig = Rig::new();
    for id in ["a1", "b2"] {
        rig.begin(id);
        rig.append(Some(id), iteration(1));
    }
    rig.turn();
    assert!(matches!(rig.archive.delete_run("a1", rig.now_ms), Err(Error::NotEnded(id)) if id == "a1"));
    assert!(matches!(rig.archive.delete_run("c3", rig.now_ms), Err(Error::NoRun(id)) if id == "c3"));
    rig.append(Some("a1"), status(DONE));
    rig.turn();
    rig.reports();
    let last = rig.archive.last_event().expect("a number");
    let name = rig.archive.run("a1").expect("a run").name;
    rig.archive.delete_run("a1", rig.now_ms).expect("it has ended");
    rig.turn();
    let reports = rig.reported_events();
    assert_eq!(reports.len(), 1);
    let deleted = EventKind::RunDeleted { name: Some(name) };
    assert_eq!((reports[0].run.as_deref(), &reports[0].what), (Some("a1"), &deleted), "only the event keeps the name");
    assert!(reports[0].id > last, "a number is never reused");
    assert_eq!(rig.archive.events(Some("a1"), 0, 10).expect("events"), reports);
    assert!(matches!(rig.archive.run("a1"), Err(Error::NoRun(_))));
    assert_eq!(rig.archive.events(Some("b2"), 0, 10).expect("events").len(), 2);
}

#[test]
fn a_run_that_cannot_be_read_hides_no_other() {
    let mut rig = Rig::new();
    rig.begin("a1");
    rig.begin("b2");
    rig.turn();
    let connection = Connection::open(rig.path()).expect("the file");
    connection.execute("UPDATE runs SET run = '{\"of\": \"later\"}' WHERE id = 'a1'", []).expect("a row");
    let runs = rig.archive.runs(10).expect("runs");
    assert_eq!(runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["b2"]);
    // Both runs have no watcher. The unreadable one does not cause repeated notifications.
    rig.reports();
    for _ in 0..60 {
        rig.turn_after(1000);
    }
    let reports = rig.reported_events();
    assert_eq!(reports.iter().map(|event| event.run.as_deref()).collect::<Vec<_>>(), [Some("b2")]);
}

#[test]
fn a_folder_where_nothing_was_kept_is_empty() {
    let rig = Rig::new();
    let archive = &rig.archive;
    assert_eq!(archive.runs(10).expect("runs"), []);
    assert_eq!(archive.events(None, 0, 10).expect("events"), []);
    assert_eq!(archive.last_event().expect("a number"), 0);
    assert_eq!(archive.gpus().expect("GPUs"), []);
    let history = archive.history(fast(&uuid(0)), 0, HOUR_MS, 100).expect("a range");
    assert_eq!((history.times_ms.len(), history.series.len()), (0, 7));
    assert!(matches!(archive.delete_run("a1", 0), Err(Error::NoRun(_))));
    assert_eq!(rig.names(), [""; 0], "reading creates no file");
}
