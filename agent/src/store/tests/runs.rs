//! Events and runs: numbered, told once, folded, lost, deleted.

use super::*;

#[test]
fn an_event_is_told_when_it_has_its_number() {
    let mut rig = Rig::new();
    rig.turn();
    assert!(matches!(rig.told()[..], [Told::State(HistoryState::Kept { bytes: 1.., set_aside: None })]));
    rig.append(None, What::AgentStarted { version: "1".to_owned() });
    assert_eq!(rig.told(), []);
    rig.turn();
    let events = rig.told_events();
    assert_eq!(events.len(), 1);
    assert!(events[0].id > START_MS, "numbers begin at the time that the file was begun");
    assert_eq!(rig.archive.events(None, 0, 10).expect("events"), events);
    assert_eq!(rig.archive.last_event().expect("a number"), events[0].id);
    rig.turn();
    assert_eq!(rig.told(), [], "told once");
}

#[test]
fn events_of_two_programs_come_in_one_order_each_once() {
    let mut agent = Rig::new();
    agent.turn();
    let mut watch = agent.beside(Role::Watcher);
    agent.told();
    let mut told = Vec::new();
    for iter in 0..20 {
        if iter == 0 {
            watch.begin("a1");
        }
        watch.append(Some("a1"), iteration(iter));
        watch.turn_after(250);
        agent.append(None, What::CardLost { gpu: uuid(0) });
        agent.turn_after(250);
        told.extend(agent.told_events());
    }
    assert_eq!(told.len(), 41);
    assert!(told.is_sorted_by(|a, b| a.id < b.id));
    assert_eq!(agent.archive.events(None, 0, 100).expect("events"), told);
    assert_eq!(watch.told_events(), [], "a watcher tells no event");
    let of_run = agent.archive.events(Some("a1"), told[4].id, 100).expect("events");
    assert!(of_run.iter().all(|event| event.run.as_deref() == Some("a1") && event.id > told[4].id));
    assert_eq!(of_run.len(), 18);
    assert_eq!(agent.archive.events(None, told[10].id, 3).expect("events"), told[11..14]);
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
    // An event of a run that nobody began is kept, and makes none.
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
    // Or by its name, where that is one run's alone; a number that begins so is another's.
    let named =
        |id: &str, name: &str| What::RunStarted { run: Box::new(Run { name: name.to_owned(), ..run(id, START_MS) }) };
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
    // Nothing is printed for ten minutes, and the watcher is there.
    for _ in 0..600 {
        watch.turn_after(1000);
        agent.turn_after(1000);
    }
    assert_eq!(stands(&agent), RunStatus::Running);
    agent.told();
    let silent_ms = agent.now_ms;
    let silent_for = |agent: &mut Rig, seconds: u64| {
        for _ in 0..seconds {
            agent.turn_after(1000);
        }
    };
    // Three signs of life are waited for, and then it is told within seconds.
    silent_for(&mut agent, 10);
    assert_eq!(stands(&agent), RunStatus::Running);
    silent_for(&mut agent, 10);
    assert_eq!(stands(&agent), RunStatus::Lost);
    let told = agent.told_events();
    assert_eq!(told.iter().map(|event| &event.what).collect::<Vec<_>>(), [&status(RunStatus::Lost)]);
    // It ended, as far as anybody knows, when its watcher was last there, and not when that was noticed.
    let ended_ms = agent.archive.run("a1").expect("the run").ended_ms.expect("it ended");
    assert!((silent_ms - 5000..=silent_ms).contains(&ended_ms), "{ended_ms} for {silent_ms}");
    assert_eq!(told[0].time_ms, ended_ms);
    silent_for(&mut agent, 60);
    assert_eq!(agent.told_events(), [], "told once");
    // Its process was stopped, and goes on.
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
    agent.told();
    // The lid was closed for three hours, and the agent wakes first.
    agent.turn_after(3 * HOUR_MS);
    watch.turn_after(3 * HOUR_MS);
    for _ in 0..120 {
        watch.turn_after(1000);
        agent.turn_after(1000);
    }
    assert_eq!(agent.told_events(), []);
    assert_eq!(agent.archive.run("a1").expect("the run").status, RunStatus::Running);
}

/// A watcher's process that lives, this one, and one of its number that is gone.
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
    // Who asks is told so at once, with an agent or without one.
    let run = agent.archive.run("a1").expect("the run");
    assert_eq!((run.status, run.ended_ms), (RunStatus::Lost, Some(START_MS)));
    assert_eq!(agent.archive.runs(10).expect("runs"), [run]);
    for _ in 0..3 {
        agent.turn_after(1000);
    }
    let [event] = &agent.told_events()[..] else { panic!("one event") };
    assert_eq!((event.time_ms, &event.what), (START_MS, &status(RunStatus::Lost)));
    // An agent that is started long after finds it so too.
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
    // It is stopped, or the disk is full, for an hour.
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
fn what_a_watcher_said_in_the_meantime_counts() {
    let mut agent = Rig::new();
    let mut watch = agent.beside(Role::Watcher);
    watch.begin("a1");
    watch.turn();
    let connection = Connection::open(agent.path()).expect("the file");
    let [found] = &events::watches(&connection).expect("runs")[..] else { panic!("one run") };
    assert!(events::is_unchanged(&connection, found).expect("it is asked"));
    watch.turn_after(5000);
    assert!(!events::is_unchanged(&connection, found).expect("it is asked"), "it gave a sign");
    let [found] = &events::watches(&connection).expect("runs")[..] else { panic!("one run") };
    watch.append(Some("a1"), status(DONE));
    watch.turn();
    assert!(!events::is_unchanged(&connection, found).expect("it is asked"), "it ended");
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
        agent.append(Some("a1"), What::RunMemory { gpu: uuid(0), bytes: 5 });
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
    rig.told();
    let last = rig.archive.last_event().expect("a number");
    let name = rig.archive.run("a1").expect("a run").name;
    rig.archive.delete_run("a1", rig.now_ms).expect("it has ended");
    rig.turn();
    let told = rig.told_events();
    assert_eq!(told.len(), 1);
    let deleted = What::RunDeleted { name: Some(name) };
    assert_eq!((told[0].run.as_deref(), &told[0].what), (Some("a1"), &deleted), "its name is known nowhere else");
    assert!(told[0].id > last, "a number is never given twice");
    assert_eq!(rig.archive.events(Some("a1"), 0, 10).expect("events"), told);
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
    // Both have no watcher; what cannot be read is not told to be lost again and again.
    rig.told();
    for _ in 0..60 {
        rig.turn_after(1000);
    }
    let told = rig.told_events();
    assert_eq!(told.iter().map(|event| event.run.as_deref()).collect::<Vec<_>>(), [Some("b2")]);
}

#[test]
fn a_folder_where_nothing_was_kept_is_empty() {
    let rig = Rig::new();
    let archive = &rig.archive;
    assert_eq!(archive.runs(10).expect("runs"), []);
    assert_eq!(archive.events(None, 0, 10).expect("events"), []);
    assert_eq!(archive.last_event().expect("a number"), 0);
    assert_eq!(archive.cards().expect("cards"), []);
    let history = archive.history(fast(&uuid(0)), 0, HOUR_MS, 100).expect("a range");
    assert_eq!((history.times_ms.len(), history.series.len()), (0, 7));
    assert!(matches!(archive.delete_run("a1", 0), Err(Error::NoRun(_))));
    assert_eq!(rig.names(), [""; 0], "asking begins no file");
}
