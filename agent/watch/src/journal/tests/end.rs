//! Tests of the end and the unsaved checkpoints of `headroom train`, from its status file.

use super::*;
use headroom_train::status;

/// A status file, written as `headroom train` does.
struct StatusFile {
    folder: tempfile::TempDir,
}

impl StatusFile {
    fn new(reports: &[&str]) -> Self {
        let file = Self { folder: tempfile::tempdir().expect("a folder") };
        status::create(&file.path()).expect("a file");
        file.report(r#""event":"started""#);
        reports.iter().for_each(|report| file.report(report));
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("status.jsonl")
    }

    fn report(&self, report: &str) {
        use std::io::Write as _;
        let mut file = std::fs::File::options().append(true).open(self.path()).expect("a file");
        writeln!(file, "{{\"pid\":7,{report}}}").expect("it is written");
    }

    fn settings(&self) -> Settings {
        Settings { status_file: Some(self.path()), ..settings("sh train.sh") }
    }
}

fn explained(kept: &RecordedEvents) -> Option<String> {
    kept.all().into_iter().find_map(|what| match what {
        EventKind::RunExplained { message, .. } => Some(message.en),
        _ => None,
    })
}

#[test]
fn end_of_headroom_train_comes_from_its_status_file() {
    let exit = i32::from(status::STOPPED_EXIT_STATUS);
    for (end, code, cause) in [
        ("finished", 0, None),
        ("stopped", exit, Some(Cause::Stopped)),
        ("stopped", 0, Some(Cause::Stopped)),
        ("interrupted", 1, Some(Cause::Stopped)),
        ("diverged", 1, Some(Cause::Diverged)),
        ("out_of_memory", 1, Some(Cause::OutOfGpuMemory)),
        ("failed", 3, None),
        ("evicted", 3, None),
    ] {
        let reason = if code == 0 || cause == Some(Cause::Stopped) { "" } else { r#","reason":{"message":"why"}"# };
        let file = StatusFile::new(&[&format!(r#""event":"ended","end":"{end}"{reason}"#)]);
        let (mut journal, kept, _) = journal(file.settings());
        print(&mut journal, "headroom: a note\niter 1: loss 1.0, time 1.00ms\nany sentence\n", SECOND);
        journal.end(ProgramEnding::Exited(code), SECOND * 2);
        assert_eq!(kept.statuses(), [RunStatus::Exited { code, cause }], "{end}");
        assert_eq!(explained(&kept), (!reason.is_empty()).then(|| "why".to_owned()), "{end}");
    }
}

#[test]
fn sentences_of_headroom_train_decide_nothing() {
    for said in ["Stopped and saved. Go on with:", "loss of iteration 7 is NaN: the run has diverged"] {
        let (mut journal, kept, _) = journal(settings("headroom train"));
        print(&mut journal, &format!("{said}\n"), SECOND);
        journal.end(ProgramEnding::Exited(0), SECOND * 2);
        assert_eq!(kept.statuses(), [RunStatus::exited(0)], "{said}");
    }
}

#[test]
fn trainer_that_reported_no_end_is_judged_by_its_exit() {
    let file = StatusFile::new(&[r#""event":"ended","end":"diverged""#, r#""event":"started""#]);
    let (journal, kept, _) = journal(file.settings());
    journal.end(ProgramEnding::Killed(9), SECOND);
    assert_eq!(kept.statuses(), [RunStatus::killed(9)], "the second one was killed");
}

#[test]
fn a_checkpoint_that_cannot_be_saved_is_reported_at_once_and_once() {
    let file = StatusFile::new(&[]);
    let (mut journal, kept, _) = journal(file.settings());
    journal.tick(SECOND);
    file.report(r#""event":"not_saved","iter":100,"why":{"message":"no space left on device"}"#);
    journal.tick(SECOND * 2);
    journal.tick(SECOND * 3);
    let [EventKind::RunNotSaved { iter: 100, message }] = &*kept.all() else { panic!("{:?}", kept.all()) };
    assert!(message.en.contains("no space left on device.\nThere is no earlier checkpoint."), "{message}");
}

#[test]
fn why_a_checkpoint_was_not_saved_is_said_in_every_language() {
    let full = checkpoint::CheckpointError::DiskFull { needed_bytes: 5 << 20, dir: "out".into(), keeps_old: true };
    let hint = full.hint().expect("space can be made");
    let why = Message::from(text::as_is(text::list(Separator::Semicolon, [full.text(), hint])));
    let why = serde_json::to_string(&why).expect("JSON");
    let file = StatusFile::new(&[&format!(r#""event":"not_saved","iter":7,"why":{why}"#)]);
    let (mut journal, kept, _) = journal(file.settings());
    journal.tick(SECOND);
    let [EventKind::RunNotSaved { iter: 7, message }] = &*kept.all() else { panic!("{:?}", kept.all()) };
    assert_eq!(
        message.render(headroom_languages::table("de")),
        "Der Checkpoint von Iteration 7 wurde nicht gespeichert: die Festplatte ist voll: Ein Checkpoint von 5,0 MiB konnte \
         nicht nach out geschrieben werden; der vorige ist unversehrt; geben Sie auf der Festplatte von out 5,0 MiB frei.\n\
         Davor gibt es keinen."
    );
}
