//! Tests of `headroom runs` as users and programs use it. The history was written with version 1 of its tables, which
//! every later Headroom reads.
//!
//! `HEADROOM_BIN` names a binary to test instead of this build's. `INSTA_UPDATE=always` updates the snapshots.

#[path = "runs/delete.rs"]
mod delete;
#[cfg(unix)]
#[path = "runs/denied.rs"]
mod denied;
#[path = "runs/list.rs"]
mod list;
#[cfg(unix)]
#[path = "runs/output.rs"]
mod output;
#[path = "runs/slow.rs"]
mod slow;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use insta::assert_snapshot;
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

/// Timeout for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// 2026-11-18 00:00 UTC, in milliseconds.
const START_MS: i64 = 1_794_960_000_000;
const DONE: &str = "3f2a000000000001";
const OOM: &str = "3f2b000000000002";
const GOES_ON: &str = "77aa000000000003";
const GPU: &str = "GPU-8d3f0c4e-0000-4000-8000-000000000001";

/// A history as version 1 wrote it: its tables and its texts.
struct Rig {
    folder: TempDir,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let connection = Connection::open(folder.path().join("history.sqlite")).expect("a file");
        connection.execute_batch(include_str!("../core/src/store/schema/1.sql")).expect("the tables");
        connection.pragma_update(None, "user_version", 1).expect("a version");
        connection.execute("INSERT INTO gpus VALUES (1, ?1, 'NVIDIA GeForce RTX 4070')", [GPU]).expect("a GPU");
        let rig = Self { folder };
        rig.runs(&connection);
        rig.samples(&connection);
        rig
    }

    fn runs(&self, connection: &Connection) {
        let runs = [
            (
                DONE,
                true,
                0,
                r#""name":"shakespeare-char","ended_ms":1794967384000,"status":{"state":"exited","code":0},
              "command":["python","train.py","config/train_shakespeare_char.py"],"config":"batch_size = 64\nmax_iters = 5000\n",
              "pid":4242,"gpus":["GPU-8d3f0c4e-0000-4000-8000-000000000001"],"parameters_millions":10.65,"max_iters":5000,
              "last":{"iter":5000,"loss":0.8154,"time_ms":132.25,"tokens_per_second":123904.0,"mfu_printed_percent":18.5,"mfu_percent":35.25},
              "last_evaluation":{"iter":5000,"train_loss":0.6213,"val_loss":1.6974},
              "gpu_memory_peak_bytes":6442450944,"energy_joules":1234567.0,
              "plan":{"card":"RTX 4070","fits":true,"peak_bytes":6549825126,"max_memory_allocated":5368709120,
                      "max_memory_reserved":5905580032,"phases":[["init",1073741824]]}"#,
            ),
            (
                OOM,
                true,
                8_000_000,
                r#""name":"gpt2 at batch 64","ended_ms":1794968012000,"status":{"state":"exited","code":1},
              "command":["python","train.py"],"pid":4343,"oom":"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."#,
            ),
            (
                GOES_ON,
                false,
                9_000_000,
                r#""name":"gpt2","ended_ms":null,"status":{"state":"running"},"pid":null,
              "last":{"iter":120,"loss":null,"time_ms":250.0,"tokens_per_second":null,"mfu_printed_percent":null,"mfu_percent":null}"#,
            ),
        ];
        for (id, ended, after_ms, rest) in runs {
            let started_ms = START_MS + after_ms;
            let end = if id == OOM { "\"}" } else { "}" };
            let run = format!("{{\"id\":\"{id}\",\"started_ms\":{started_ms},{rest}{end}");
            serde_json::from_str::<Value>(&run).expect("JSON");
            connection
                .execute("INSERT INTO runs VALUES (?1, ?2, ?3, ?2, ?4)", (id, started_ms, ended, run))
                .expect("a run");
        }
        for (at_ms, what) in [
            (100, r#"{"kind":"run_evaluation","iter":0,"train_loss":4.2874,"val_loss":null}"#),
            (
                300,
                r#"{"kind":"run_iteration","iter":0,"loss":4.2664,"time_ms":5311.5,"tokens_per_second":null,"mfu_printed_percent":null,"mfu_percent":null}"#,
            ),
            (
                400,
                r#"{"kind":"run_iteration","iter":10,"loss":null,"time_ms":132.25,"tokens_per_second":123904.0,"mfu_printed_percent":18.5,"mfu_percent":35.25}"#,
            ),
            (500, r#"{"kind":"run_checkpoint","folder":"out"}"#),
            (600, r#"{"kind":"of_a_later_version","x":1}"#),
        ] {
            let sql = "INSERT INTO events (time_ms, run, what) VALUES (?1, ?2, ?3)";
            connection.execute(sql, (START_MS + at_ms, DONE, what)).expect("an event");
        }
        let settings = r#"{"alerts":[{"on":"card_lost"}],"price_per_kwh":0.35,"currency":"€"}"#;
        connection.execute("INSERT INTO facts VALUES ('settings', ?1)", [settings]).expect("settings");
    }

    fn samples(&self, connection: &Connection) {
        let minute = "7,5,5.5,6, 7,97,98.5,99, 0,NULL,NULL,NULL, 7,199.5,200.25,201.0, 7,60,61,62, 7,1,2,3, 7,4,5,6, 4";
        let sql = format!("INSERT INTO samples_1min VALUES (1, {}, {minute})", START_MS - 60_000);
        connection.execute(&sql, []).expect("a minute");
        let sql = format!("INSERT INTO samples VALUES ({START_MS}, 1, 7,8,NULL, 97,NULL,199.5, 2475,10501,61, 4, 0)");
        connection.execute(&sql, []).expect("a sample");
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command =
            Command::new(std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into()));
        command.arg("runs").args(args).stdin(Stdio::null()).current_dir(self.folder.path());
        for name in ["NO_COLOR", "COLUMNS", "TERM", "LC_CTYPE", "LANG"] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env("HEADROOM_DATA_DIR", self.folder.path());
        command
    }

    #[track_caller]
    fn exits(&self, args: &[&str], status: i32) -> Output {
        let output = self.command(args).output().expect("headroom runs");
        assert_eq!(output.status.code(), Some(status), "{args:?}\n{}", text(&output.stderr));
        output
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_slice(&self.exits(args, 0).stdout).expect("JSON")
    }

    #[track_caller]
    fn refused(&self, args: &[&str], status: i32) -> String {
        let output = self.exits(args, status);
        assert_eq!(text(&output.stdout), "", "{args:?}");
        text(&output.stderr).to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn help() {
    let rig = Rig::new();
    let help = rig.exits(&["--help"], 0).stdout;
    assert_snapshot!("runs_help", text(&help));
    assert_eq!(rig.exits(&["-h"], 0).stdout, help);
    for (command, help) in [("export", &["export", "3f2a", "--help"]), ("delete", &["delete", "3f2a", "-h"])] {
        let help = rig.exits(help, 0).stdout;
        assert!(text(&help).contains(&format!("\nUsage: headroom runs {command} ")), "{}", text(&help));
    }
}

#[test]
fn a_list_of_runs() {
    let rig = Rig::new();
    // The duration of the run that continues depends on the clock.
    let stdout = rig.exits(&[], 0).stdout;
    let ended: String =
        text(&stdout).lines().filter(|line| !line.contains("running")).map(|line| format!("{line}\n")).collect();
    assert_snapshot!("runs", ended);
    assert!(text(&stdout).lines().nth(1).is_some_and(|line| line.starts_with("77aa0000  gpt2 ")), "newest first");
    let json = rig.json(&["--json"]);
    assert_eq!(json["schema"], 1);
    let ids: Vec<&str> = json["runs"].as_array().expect("runs").iter().filter_map(|run| run["id"].as_str()).collect();
    assert_eq!(ids, [GOES_ON, OOM, DONE]);
}

#[test]
fn one_run() {
    let rig = Rig::new();
    assert_snapshot!("runs_show", text(&rig.exits(&["show", "3f2a"], 0).stdout));
    let shown = rig.exits(&["show", "3f2b"], 0).stdout;
    assert!(
        text(&shown).contains("\nstatus   ran out of GPU memory\n")
            && text(&shown).contains("Tried to allocate 2.00 GiB")
    );
    let json = rig.json(&["show", DONE, "--json"]);
    assert_eq!((&json["schema"], &json["run"]["last"]["loss"]), (&1.into(), &0.8154.into()));
}

#[test]
fn a_runs_losses_for_other_programs() {
    let rig = Rig::new();
    assert_snapshot!("runs_export", text(&rig.exits(&["export", "3f2a"], 0).stdout));
    let json = rig.json(&["export", "3f2a", "--format=json"]);
    assert_eq!(json["run"]["id"], DONE);
    assert_eq!(json["iterations"].as_array().expect("iterations").len(), 2);
    assert_eq!(json["iterations"][1]["loss"], Value::Null);
    assert_eq!(json["iterations"][0]["at_ms"], START_MS + 300);
    assert_eq!(json["evaluations"][0]["train_loss"], 4.2874);
    let out = rig.exits(&["export", "3f2a", "--out", "losses.csv"], 0).stdout;
    assert_eq!(text(&out), "losses.csv\n");
    let written = fs::read(rig.path("losses.csv")).expect("the file");
    assert_eq!(written, rig.exits(&["export", "3f2a"], 0).stdout);
    assert_eq!(json["lines_left_out"], 0);
}

#[test]
fn an_export_replaces_a_file_only_by_force() {
    let rig = Rig::new();
    fs::write(rig.path("notes.csv"), "mine").expect("a file");
    for of in [&["export", "3f2a"][..], &["export", "--gpu", "0"]] {
        let refused = rig.refused(&[of, &["--out", "notes.csv"]].concat(), 1);
        let expected = "headroom: cannot write notes.csv: it exists already\n\nhint: --force replaces it\n";
        assert_eq!(refused, expected);
        assert_eq!(fs::read(rig.path("notes.csv")).expect("the file"), b"mine");
    }
    rig.exits(&["export", "3f2a", "--out", "notes.csv", "--force"], 0);
    let written = fs::read(rig.path("notes.csv")).expect("the file");
    assert_eq!(written, rig.exits(&["export", "3f2a"], 0).stdout);
}

#[test]
fn an_export_marks_lines_that_were_not_kept() {
    let rig = Rig::new();
    // The first command migrates the file.
    rig.exits(&[], 0);
    let connection = Connection::open(rig.path("history.sqlite")).expect("the file");
    let row = |seq, left_out, iter: &str, loss: &str| {
        format!(
            "INSERT INTO printed (run, seq, printed_ms, left_out, iter, loss, time_ms) VALUES (1, {seq}, {START_MS}, {left_out}, {iter}, {loss}, {loss});"
        )
    };
    connection
        .execute_batch(&format!(
            "INSERT INTO printed_runs VALUES (1, '{DONE}', 3, 0); {}{}{}",
            row(1, "NULL", "0", "2.5"),
            row(2, "12", "NULL", "NULL"),
            row(3, "NULL", "13", "1.5"),
        ))
        .expect("rows");
    let csv = rig.exits(&["export", "3f2a"], 0).stdout;
    let rows: Vec<&str> = text(&csv).lines().skip(1).collect();
    let expected = [
        &*format!("iteration,{START_MS},0,2.5,2.5,,,,,,,,"),
        &*format!("left_out,{START_MS},,,,,,,,,,,12"),
        &*format!("iteration,{START_MS},13,1.5,1.5,,,,,,,,"),
    ];
    assert_eq!(rows, expected);
    let json = rig.json(&["export", "3f2a", "--format=json"]);
    assert_eq!((&json["lines_left_out"], json["iterations"].as_array().map(Vec::len)), (&12.into(), Some(2)));
}

#[test]
fn a_gpus_telemetry_for_other_programs() {
    let rig = Rig::new();
    let all = rig.exits(&["export", "--gpu", "0"], 0).stdout;
    assert_snapshot!("runs_export_gpu", text(&all));
    assert_eq!(rig.exits(&["export", "--gpu", "GPU-8d3f"], 0).stdout, all);
    assert_eq!(rig.exits(&["export", "--from", "2026-11-17"], 0).stdout, all, "there is one GPU");
    let newest = rig.exits(&["export", "--gpu=0", "--from=2026-11-18T00:00Z"], 0).stdout;
    assert_eq!(text(&newest).lines().count(), 2);
    let none = rig.exits(&["export", "--gpu=0", "--to=2026-11-17Z"], 0).stdout;
    assert_eq!(text(&none).lines().count(), 1, "the heading");
    let json = rig.json(&["export", "--gpu=0", "--format=json"]);
    assert_eq!(json["gpu"], GPU);
    assert_eq!(json["metrics"][0], "memory_used");
    let steps: Vec<i64> =
        json["parts"].as_array().expect("parts").iter().filter_map(|part| part["step_ms"].as_i64()).collect();
    assert_eq!(steps, [60_000, 100]);
    assert_eq!(json["parts"][0]["series"][2]["mean"][0], Value::Null, "a missing reading is not 0");
}

#[test]
fn a_run_is_deleted() {
    let rig = Rig::new();
    assert_eq!(rig.refused(&["delete", "3f2a"], 0), format!("run {DONE} (shakespeare-char) is deleted\n"));
    assert_eq!(rig.json(&["--json"])["runs"].as_array().expect("runs").len(), 2);
    assert_eq!(
        rig.refused(&["delete", "3f2a"], 1),
        "headroom: there is no run 3f2a\n\nhint: `headroom runs` lists them\n"
    );
    let goes_on = rig.refused(&["delete", "77"], 1);
    assert!(goes_on.starts_with(&format!("headroom: run {GOES_ON} has not ended\n\nhint: end it first")), "{goes_on}");
}

#[test]
fn a_copy_is_a_history_of_its_own() {
    let rig = Rig::new();
    let copied = rig.exits(&["backup", "copy.sqlite"], 0);
    assert_eq!(text(&copied.stdout), "copy.sqlite\n");
    let names: Vec<_> = fs::read_dir(rig.folder.path())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("copy.sqlite.")), "{names:?}");
    let place = tempfile::tempdir().expect("a folder");
    fs::rename(rig.path("copy.sqlite"), place.path().join("history.sqlite")).expect("put in its place");
    let folder = place.path().to_str().expect("text");
    assert_eq!(rig.json(&["--json", "--data-dir", folder]), rig.json(&["--json"]));
    rig.exits(&["backup", "copy.sqlite"], 0);
    let again = rig.refused(&["backup", "copy.sqlite"], 1);
    assert!(again.starts_with("headroom: cannot write copy.sqlite: it exists already\n"), "{again}");
    let nowhere = rig.refused(&["backup", "none/copy.sqlite"], 3);
    assert!(nowhere.starts_with("headroom: cannot write none/copy.sqlite: "), "{nowhere}");
}

#[test]
fn what_cannot_be_used_is_said() {
    let rig = Rig::new();
    for (args, status, said) in [
        (&["show"][..], 2, "runs show needs ID"),
        (&["backup"], 2, "runs backup needs FILE"),
        (&["export"], 2, "runs export needs ID, or --gpu GPU"),
        (&["export", "3f2a", "--gpu", "0"], 2, "runs export takes a run or a GPU's telemetry, not both"),
        (&["export", "3f2a", "--format", "xml"], 2, "--format: \"xml\" is not one of csv, json"),
        (
            &["export", "--from", "yesterday"],
            2,
            "--from: \"yesterday\" is not a time; write it as \"2026-11-22 14:30\" or 24h",
        ),
        (
            &["export", "--from", "1m", "--to", "5m"],
            2,
            "--from must be before --to: of two durations such as 2h, the longer one is earlier",
        ),
        (&["export", "--readings", "all"], 2, "--readings: \"all\" is not one of fast, slow, host"),
        (&["export", "--readings", "host", "--gpu", "0"], 2, "--readings host are the machine's, and take no --gpu"),
        (&["list", "x"], 2, "runs list takes no \"x\""),
        (
            &["list", "--status=ended"],
            2,
            "--status: \"ended\" is not one of queued, running, stalled, done, stopped, failed, lost",
        ),
        (&["list", "--limit=0"], 2, "--limit: \"0\" is not a number of runs, 1 or more"),
        (&["--data-dir="], 2, "--data-dir: a folder has a name"),
        (&["shwo"], 2, "runs has no command \"shwo\""),
        (&["delete"], 2, "runs delete needs ID, --status or --older-than"),
        (&["show", "a", "--out=b"], 2, "runs show has no option --out"),
        (&["show", "3f2"], 1, &format!("several runs are called 3f2, or their numbers begin so: {DONE}, {OOM}")),
        (&["show", "x"], 1, "there is no run x"),
        (&["export", "--gpu", "7"], 1, &format!("history has no GPU \"7\"; it has 0: NVIDIA GeForce RTX 4070 ({GPU})")),
    ] {
        let stderr = rig.refused(args, status);
        assert_eq!(stderr.lines().next(), Some(&*format!("headroom: {said}")), "{args:?}");
    }
}

#[test]
fn a_folder_where_nothing_was_kept() {
    let rig = Rig::new();
    let empty = tempfile::tempdir().expect("a folder");
    let folder: &Path = empty.path();
    let folder = folder.to_str().expect("text");
    assert_eq!(rig.refused(&["--data-dir", folder], 0), "No run was kept yet.\n");
    assert_eq!(rig.json(&["--json", "--data-dir", folder])["runs"], Value::Array(vec![]));
    let nothing = rig.refused(&["backup", "copy", "--data-dir", folder], 1);
    assert_eq!(nothing, "headroom: nothing was kept in this folder yet\n");
    assert_eq!(fs::read_dir(empty.path()).expect("the folder").count(), 0, "reading creates no file");
}

#[test]
fn a_folder_that_is_not_there_is_not_made() {
    let rig = Rig::new();
    let missing = rig.folder.path().join("typed/wrong");
    let folder = missing.to_str().expect("text");
    for args in [&[][..], &["show", "3f2a"], &["export", "3f2a"], &["export", "--gpu", "0"], &["backup", "copy"]] {
        let said = rig.refused(&[args, &["--data-dir", folder]].concat(), 3);
        let expected = format!("headroom: cannot read the history in the data folder {folder}: it does not exist\n");
        assert!(said.starts_with(&expected), "{said}");
    }
    assert!(!missing.exists() && !rig.folder.path().join("typed").exists(), "reading creates no folder");
}

#[test]
fn a_run_is_named_by_its_name_too() {
    let rig = Rig::new();
    assert_eq!(rig.json(&["show", "gpt2", "--json"])["run"]["id"], GOES_ON);
    assert_eq!(rig.json(&["show", "gpt2 at batch 64", "--json"])["run"]["id"], OOM);
}

#[test]
fn a_history_of_a_later_version_is_left_alone() {
    let rig = Rig::new();
    let connection = Connection::open(rig.path("history.sqlite")).expect("the file");
    connection.pragma_update(None, "user_version", 99).expect("a version");
    drop(connection);
    let before = fs::read(rig.path("history.sqlite")).expect("the file");
    for args in [&[][..], &["show", "3f2a"], &["delete", "3f2a"], &["backup", "copy"]] {
        let said = rig.refused(args, 3);
        let path = rig.path("history.sqlite");
        let expected =
            format!("headroom: cannot open the history {}: a newer version of headroom wrote it", path.display());
        assert!(said.starts_with(&expected), "{said}");
    }
    assert!(fs::read(rig.path("history.sqlite")).expect("the file") == before, "it was changed");
}

/// Returns the first line of a program's standard error that contains `words`.
fn said(stderr: impl Read + Send + 'static, words: &'static str) -> String {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let start = Instant::now();
    loop {
        let left = PATIENCE.saturating_sub(start.elapsed());
        let line = receiver.recv_timeout(left).unwrap_or_else(|_| panic!("no line contains {words:?}"));
        if line.contains(words) {
            return line;
        }
    }
}

#[test]
fn damaged_history_is_reported_and_readable_rows_stay() {
    let rig = Rig::new();
    // The first command migrates the file, which reads the tables of samples.
    rig.exits(&[], 0);
    let path = rig.folder.path().join("history.sqlite");
    let connection = Connection::open(&path).expect("the file");
    connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(())).expect("one file");
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'samples_1min'";
    let root: u32 = connection.query_row(sql, [], |row| row.get(0)).expect("a table");
    drop(connection);
    let mut file = fs::OpenOptions::new().write(true).open(&path).expect("the file");
    file.seek(SeekFrom::Start(u64::from(root - 1) * 4096)).expect("a place");
    file.write_all(&[0xAA; 4096]).expect("space");
    drop(file);
    let refused = rig.refused(&["export", "--gpu", "0"], 3);
    assert!(refused.contains("the file is damaged") && refused.contains("hint: `headroom serve`"), "{refused}");
    let program = rig.command(&[]).get_program().to_owned();
    let mut serve = Command::new(program)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("HEADROOM_DATA_DIR", rig.folder.path())
        .env("HEADROOM_NVML", rig.folder.path().join("none"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("headroom runs");
    let line = said(serve.stderr.take().expect("piped"), "was damaged");
    serve.kill().expect("it is there");
    serve.wait().expect("it ends");
    let mut words = line.split([' ', ';']);
    let name = words.find(|word| word.starts_with("history.damaged-")).expect("a name");
    assert!(rig.folder.path().join(name).exists(), "{line}");
    let listed = rig.exits(&["--json"], 0);
    let runs: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(3), "{runs}");
    let note = text(&listed.stderr);
    for part in [name, "3 runs, the alert settings and the price per kWh", "lost with it: its telemetry"] {
        assert!(note.contains(part), "{part}: {note}");
    }
    let shown = rig.exits(&["show", DONE], 0);
    assert!(text(&shown.stdout).contains("0.12 €"), "at the configured price: {}", text(&shown.stdout));
    let exported = rig.exits(&["export", DONE], 0);
    assert!(text(&exported.stdout).contains("iteration,1794960000400,10,"), "{}", text(&exported.stdout));
    assert!(text(&exported.stderr).contains(name));
}
