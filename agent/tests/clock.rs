//! Tests of `headroom serve` on a machine whose wall clock is set wrong and corrected. Telemetry is kept, and live
//! times are right.
//!
//! `HEADROOM_BIN` names a binary to test instead of this build's.
#![cfg(target_os = "linux")]

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use tempfile::TempDir;

/// Timeout far above the usual time, so that a hang becomes a failure.
const PATIENCE: Duration = Duration::from_secs(60);
const YEAR_S: i64 = 365 * 24 * 3600;
/// Permitted age of a reading on a busy machine, in milliseconds.
const LATE_MS: u64 = 20_000;

fn headroom() -> OsString {
    std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into())
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("a time")
}

struct Rig {
    folder: TempDir,
    token: String,
}

struct Agent<'a> {
    rig: &'a Rig,
    process: Child,
    host: String,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(headroom());
        command.args(["token", "add", "test"]).env("HEADROOM_DATA_DIR", folder.path());
        let output = command.output().expect("headroom runs");
        let token = String::from_utf8(output.stdout).expect("text").trim().to_owned();
        Self { folder, token }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("clock")
    }

    /// Sets the wall clock of the agent alone ahead.
    fn set_ahead(&self, seconds: i64) {
        let unfinished = self.folder.path().join("clock.new");
        fs::write(&unfinished, seconds.to_string()).expect("written");
        fs::rename(unfinished, self.file()).expect("renamed");
    }

    fn start(&self) -> Agent<'_> {
        let mut process = Command::new(headroom())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env("HEADROOM_DATA_DIR", self.folder.path())
            .env("LD_PRELOAD", headroom_fake_clock::library().expect("a library"))
            .env(headroom_fake_clock::VARIABLE, self.file())
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("headroom runs");
        let mut link = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut link).expect("a link");
        let host = link.trim_end().split('/').nth(2).unwrap_or_else(|| panic!("{link:?} is not a link")).to_owned();
        Agent { rig: self, process, host }
    }
}

impl Agent<'_> {
    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            self.host, self.rig.token
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        serde_json::from_str(body).expect("JSON")
    }

    /// Waits until the newest reading is as far ahead of the real time as the clock.
    fn reads_ahead(&self, seconds: i64) {
        let start = Instant::now();
        loop {
            let read_ms = self.get("/api/rig")["slow"]["time_ms"].as_u64();
            let due_ms = now_ms().saturating_add_signed(seconds * 1000);
            if read_ms.is_some_and(|read_ms| read_ms.abs_diff(due_ms) < LATE_MS) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "it reads {read_ms:?}, and its clock shows {due_ms}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the number of seconds in a range for which the history has host samples.
    fn n_kept(&self, from_ms: u64, to_ms: u64) -> usize {
        let path = format!("/api/history?group=host&from_ms={from_ms}&to_ms={to_ms}&points=2000");
        self.get(&path)["times_ms"].as_array().expect("times").len()
    }

    fn keeps(&self, n: usize, from_ms: u64, to_ms: u64) {
        let start = Instant::now();
        while self.n_kept(from_ms, to_ms) < n {
            assert!(start.elapsed() < PATIENCE, "{n} readings are not there");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the clock steps in the history, in seconds.
fn steps(folder: &Path) -> Vec<i64> {
    let connection = rusqlite::Connection::open(folder.join("history.sqlite")).expect("the file");
    let mut select = connection
        .prepare("SELECT what FROM events WHERE json_extract(what, '$.kind') = 'clock_set' ORDER BY id")
        .expect("events");
    let texts = select.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    let step = |text: String| {
        let what: Value = serde_json::from_str(&text).expect("JSON");
        let [from, to] = ["from_ms", "to_ms"].map(|name| what[name].as_i64().expect("a time"));
        (to - from + 500).div_euclid(1000)
    };
    texts.map(|text| step(text.expect("a text"))).collect()
}

#[test]
fn a_clock_that_is_a_year_ahead_for_a_while_loses_no_telemetry() {
    let rig = Rig::new();
    rig.set_ahead(0);
    let begin_ms = now_ms() - 1000;
    let agent = rig.start();
    agent.reads_ahead(0);
    agent.keeps(3, begin_ms, begin_ms + PATIENCE.as_secs() * 1000);
    let end_ms = now_ms();
    let n = agent.n_kept(begin_ms, end_ms);
    rig.set_ahead(YEAR_S);
    agent.reads_ahead(YEAR_S);
    let wrong_ms = now_ms() + YEAR_S.unsigned_abs() * 1000;
    agent.keeps(3, wrong_ms, wrong_ms + PATIENCE.as_secs() * 1000);
    assert!(agent.n_kept(begin_ms, end_ms) >= n, "no reading has an earlier time");
    // After the correction, live telemetry is right at once.
    rig.set_ahead(0);
    agent.reads_ahead(0);
    let right_ms = now_ms();
    agent.keeps(3, right_ms, right_ms + PATIENCE.as_secs() * 1000);
    assert!(agent.n_kept(begin_ms, end_ms) >= n);
    assert!(
        agent.n_kept(wrong_ms - 5000, wrong_ms + PATIENCE.as_secs() * 1000) >= 3,
        "readings from that time are kept"
    );
    drop(agent);
    assert_eq!(steps(rig.folder.path()), [YEAR_S, -YEAR_S]);
    // A start with a wrong clock does not delete samples either.
    rig.set_ahead(YEAR_S);
    let agent = rig.start();
    agent.reads_ahead(YEAR_S);
    let wrong_ms = now_ms() + YEAR_S.unsigned_abs() * 1000;
    agent.keeps(3, wrong_ms, wrong_ms + PATIENCE.as_secs() * 1000);
    assert!(agent.n_kept(begin_ms, end_ms) >= n);
}
