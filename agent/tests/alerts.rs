//! Alerts as the real program has them: on for whoever comes, over a kill and a restart, until they are over or somebody
//! dismisses them; and settings that two devices change.
#![cfg(unix)]

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use headroom_fake_nvml::{Course, Scenario, Stage};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What anything here takes at most, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a value has to stay beyond its bound, with the time that the agent takes to begin.
const WOULD_GO_OFF: Duration = Duration::from_secs(6);

fn headroom(folder: &TempDir, stage: &Stage, words: &[&str]) -> Command {
    let binary: OsString = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let mut command = Command::new(binary);
    command.args(words).env("HEADROOM_DATA_DIR", folder.path()).env("HEADROOM_NVML", stage.library());
    command.env_remove("CUDA_VISIBLE_DEVICES").stdin(Stdio::null()).stderr(Stdio::null());
    command
}

struct Agent {
    process: Child,
    host: String,
    token: String,
}

impl Agent {
    fn start(folder: &TempDir, stage: &Stage, token: &str) -> Self {
        let mut command = headroom(folder, stage, &["serve", "--listen", "127.0.0.1:0"]);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("headroom runs");
        let mut link = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut link).expect("a link");
        let host = link.trim_end().split('/').nth(2).unwrap_or_else(|| panic!("{link:?} is no link")).to_owned();
        Self { process, host, token: token.to_owned() }
    }

    /// Status, ETag and body.
    fn ask(&self, method: &str, path: &str, line: &str, body: &str) -> (u16, String, Value) {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{line}\r\n{body}",
            self.host,
            self.token,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default().to_owned();
        (status, tag, serde_json::from_str(body).unwrap_or_default())
    }

    fn set(&self, condition: &str, settings: &Value) -> (u16, Value) {
        let (status, _, body) = self.ask("PUT", "/api/settings", condition, &settings.to_string());
        (status, body)
    }

    /// Rules and event numbers of what is on, newest first.
    fn alerts(&self) -> Vec<(String, u64)> {
        let (_, _, rig) = self.ask("GET", "/api/rig", "", "");
        let alerts = rig["alerts"].as_array().expect("a list").iter();
        let one = |fired: &Value| Some((fired["alert"]["on"].as_str()?.to_owned(), fired["event"].as_u64()?));
        alerts.map(|fired| one(fired).expect("an alert")).collect()
    }

    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&[(String, u64)]) -> bool) -> Vec<(String, u64)> {
        let start = Instant::now();
        loop {
            let alerts = self.alerts();
            if is_so(&alerts) {
                return alerts;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {alerts:?}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// SIGKILL: nothing is said or written at the end.
impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn token(folder: &TempDir, stage: &Stage) -> String {
    let made = headroom(folder, stage, &["token", "add", "me", "--scope", "control"]).output().expect("headroom runs");
    String::from_utf8(made.stdout).expect("text").trim().to_owned()
}

fn hot(celsius: f64) -> Scenario {
    let mut scenario = Scenario::of_cards(1);
    scenario.cards[0].temperature_celsius = Course::Stays(celsius);
    scenario
}

fn n_raised(folder: &TempDir) -> i64 {
    let history = rusqlite::Connection::open(folder.path().join("history.sqlite")).expect("the file");
    let sql = "SELECT count(*) FROM events WHERE what LIKE '{\"kind\":\"alert\"%'";
    history.query_row(sql, [], |row| row.get(0)).expect("events")
}

#[test]
fn what_is_on_stays_on_over_a_kill_until_it_is_over_or_dismissed() {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = Stage::new(folder.path(), &[], &hot(95.0)).expect("a stage");
    let token = token(&folder, &stage);
    let agent = Agent::start(&folder, &stage, &token);
    let rules = json!({ "alerts": [{ "on": "temperature_above", "celsius": 85 }, { "on": "run_failed" }] });
    // The file is there soon after the start.
    let start = Instant::now();
    while agent.set("If-Match: *\r\n", &rules).0 != 200 {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
    }
    agent.until("it is hot", |alerts| alerts.len() == 1);
    assert!(!headroom(&folder, &stage, &["watch", "--", "sh", "-c", "exit 3"]).status().expect("it runs").success());
    // What is on a moment before it is written has no number yet.
    let on = agent.until("the run failed", |alerts| alerts.len() == 2 && alerts.iter().all(|(_, event)| *event != 0));
    assert_eq!([&*on[0].0, &*on[1].0], ["run_failed", "temperature_above"]);
    drop(agent);
    let agent = Agent::start(&folder, &stage, &token);
    assert_eq!(agent.alerts(), on, "from the first moment");
    thread::sleep(WOULD_GO_OFF);
    assert_eq!((agent.alerts(), n_raised(&folder)), (on.clone(), 2), "nothing went off once more");
    let (_, _, rig) = agent.ask("GET", "/api/rig", "", "");
    assert!(rig["alerts"][1]["gpu_name"].as_str().is_some_and(|name| !name.is_empty()), "{rig}");
    for (_, event) in &on {
        assert_eq!(agent.ask("DELETE", &format!("/api/alerts/{event}"), "", "").0, 204);
        assert_eq!(agent.ask("DELETE", &format!("/api/alerts/{event}"), "", "").0, 404);
    }
    assert_eq!(agent.alerts(), []);
    drop(agent);
    // Dismissed stays dismissed, hot or not.
    let agent = Agent::start(&folder, &stage, &token);
    thread::sleep(WOULD_GO_OFF);
    assert_eq!((agent.alerts(), n_raised(&folder)), (vec![], 2));
}

#[test]
fn settings_of_two_devices_are_not_lost_and_rules_take_hold_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = Stage::new(folder.path(), &[], &hot(95.0)).expect("a stage");
    let agent = Agent::start(&folder, &stage, &token(&folder, &stage));
    let read = || agent.ask("GET", "/api/settings", "", "").1;
    let of = |tag: &str| format!("If-Match: {tag}\r\n");
    let first = read();
    let start = Instant::now();
    while agent.set(&of(&first), &json!({ "alerts": [{ "on": "temperature_above", "celsius": 85 }] })).0 != 200 {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
    }
    let (status, refusal) = agent.set(&of(&first), &json!({ "alerts": [] }));
    assert_eq!((status, refusal["code"].as_str()), (412, Some("changed")));
    assert_eq!(agent.set("", &json!({ "alerts": [] })).0, 428);
    agent.until("the rule holds", |alerts| alerts.len() == 1);
    assert_eq!(agent.set(&of(&read()), &json!({ "alerts": [] })).0, 200);
    let since = Instant::now();
    agent.until("a rule that is gone is over", <[_]>::is_empty);
    assert!(since.elapsed() < Duration::from_secs(20), "nobody waited for the minute");
}
