//! Tests of alerts and settings with the real program. Every viewer sees an active alert, also after a kill and a
//! restart, until it ends or is dismissed. Two devices change the settings.
#![cfg(unix)]

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use headroom_fake_nvml::{Course, Scenario, Stage};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Timeout for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a value must exceed its bound before an alert, plus the agent's start.
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
        Self::start_with(folder, stage, token, &[])
    }

    fn start_with(folder: &TempDir, stage: &Stage, token: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = headroom(folder, stage, &["serve", "--listen", "127.0.0.1:0"]);
        let mut process =
            command.envs(variables.iter().copied()).stdout(Stdio::piped()).spawn().expect("headroom runs");
        let mut link = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut link).expect("a link");
        let host = link.trim_end().split('/').nth(2).unwrap_or_else(|| panic!("{link:?} is not a link")).to_owned();
        Self { process, host, token: token.to_owned() }
    }

    /// Sets alert rules as soon as the history is open, a moment after the start.
    fn set_rules(&self, rules: &Value) {
        let start = Instant::now();
        while self.set("If-Match: *\r\n", rules).0 != 200 {
            assert!(start.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the whole response of a `GET` request.
    fn text(&self, path: &str) -> String {
        self.answer("GET", path, "", "")
    }

    /// Returns the status, ETag and body of a response.
    fn ask(&self, method: &str, path: &str, line: &str, body: &str) -> (u16, String, Value) {
        let answer = self.answer(method, path, line, body);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default().to_owned();
        (status, tag, serde_json::from_str(body).unwrap_or_default())
    }

    fn answer(&self, method: &str, path: &str, line: &str, body: &str) -> String {
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
        answer
    }

    fn set(&self, condition: &str, settings: &Value) -> (u16, Value) {
        let (status, _, body) = self.ask("PUT", "/api/settings", condition, &settings.to_string());
        (status, body)
    }

    /// Returns the rules and event numbers of the active alerts, newest first.
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

/// Sends SIGKILL, so that the agent prints and writes nothing at its end.
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
    let mut scenario = Scenario::of_gpus(1);
    scenario.gpus[0].temperature_celsius = Course::Stays(celsius);
    scenario
}

fn n_raised(folder: &TempDir) -> i64 {
    let history = rusqlite::Connection::open(folder.path().join("history.sqlite")).expect("the file");
    let sql = "SELECT count(*) FROM events WHERE what LIKE '{\"kind\":\"alert\"%'";
    history.query_row(sql, [], |row| row.get(0)).expect("events")
}

#[test]
fn alert_survives_kill_until_over_or_dismissed() {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = Stage::new(folder.path(), &[], &hot(95.0)).expect("a stage");
    let token = token(&folder, &stage);
    let agent = Agent::start(&folder, &stage, &token);
    let rules = json!({ "alerts": [{ "on": "temperature_above", "celsius": 85 }, { "on": "run_failed" }] });
    agent.set_rules(&rules);
    agent.until("it is hot", |alerts| alerts.len() == 1);
    assert!(!headroom(&folder, &stage, &["watch", "--", "sh", "-c", "exit 3"]).status().expect("it runs").success());
    // An alert that is active but not yet stored has no number.
    let on = agent.until("the run failed", |alerts| alerts.len() == 2 && alerts.iter().all(|(_, event)| *event != 0));
    assert_eq!([&*on[0].0, &*on[1].0], ["run_failed", "temperature_above"]);
    drop(agent);
    let agent = Agent::start(&folder, &stage, &token);
    assert_eq!(agent.alerts(), on, "from the first moment");
    thread::sleep(WOULD_GO_OFF);
    assert_eq!((agent.alerts(), n_raised(&folder)), (on.clone(), 2), "no alert was raised again");
    let (_, _, rig) = agent.ask("GET", "/api/rig", "", "");
    assert!(rig["alerts"][1]["gpu_name"].as_str().is_some_and(|name| !name.is_empty()), "{rig}");
    for (_, event) in &on {
        assert_eq!(agent.ask("DELETE", &format!("/api/alerts/{event}"), "", "").0, 204);
        assert_eq!(agent.ask("DELETE", &format!("/api/alerts/{event}"), "", "").0, 404);
    }
    assert_eq!(agent.alerts(), []);
    drop(agent);
    // A dismissed alert stays dismissed while the GPU is still hot.
    let agent = Agent::start(&folder, &stage, &token);
    thread::sleep(WOULD_GO_OFF);
    assert_eq!((agent.alerts(), n_raised(&folder)), (vec![], 2));
}

/// Serves HTTP and returns the body of the first POST that contains `words`.
fn posted(listener: &TcpListener, words: &str) -> Value {
    let (sender, receiver) = mpsc::channel();
    let listener = listener.try_clone().expect("a socket");
    let awaited = words.to_owned();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.expect("a connection"));
            let (mut line, mut n_bytes) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                let length = line.to_ascii_lowercase().strip_prefix("content-length: ").map(|n| n.trim().parse());
                n_bytes = length.map_or(n_bytes, |n| n.expect("a number"));
                line.clear();
            }
            let mut body = vec![0; n_bytes];
            reader.read_exact(&mut body).expect("a body");
            let _ = reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            if body["text"].as_str().is_some_and(|text| text.contains(&awaited)) {
                let _ = sender.send(body);
                return;
            }
        }
    });
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no webhook message: it {words:?}"))
}

/// PyTorch's output if one of several ranks ends. The launcher exits with 1.
const ONE_RANK: &str = "echo 'iter 3: loss 2.5, time 10.00ms, mfu 1.00%'
echo '[rank1]: Traceback (most recent call last):
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 1 has a total capacity of 11.69 GiB of \
which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. Of the allocated memory 6.78 GiB \
is allocated by PyTorch, and 39.14 MiB is reserved by PyTorch but unallocated.
W1122 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 71 closing signal SIGTERM
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED' >&2
exit 1";

#[test]
fn a_run_out_of_memory_is_reported_so_by_everything() {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = Stage::new(folder.path(), &[], &hot(40.0)).expect("a stage");
    let token = token(&folder, &stage);
    let receiver = TcpListener::bind("127.0.0.1:0").expect("a port");
    let webhook = format!("http://{}/hook", receiver.local_addr().expect("an address"));
    let agent = Agent::start_with(&folder, &stage, &token, &[("HEADROOM_WEBHOOK", &webhook)]);
    agent.set_rules(&json!({ "alerts": [{ "on": "run_failed" }] }));
    let watch = |name: &str, script: &str| {
        headroom(&folder, &stage, &["watch", "--name", name, "--", "sh", "-c", script]).stdout(Stdio::null()).status()
    };
    assert_eq!(watch("ranks", ONE_RANK).expect("it runs").code(), Some(1));
    let sent = posted(&receiver, "ranks");
    assert!(sent["text"].as_str().is_some_and(|text| text.ends_with(": ranks ran out of GPU memory")), "{sent}");
    assert_eq!(sent["status"], json!({ "state": "exited", "code": 1, "cause": "out_of_gpu_memory" }));
    // A run that caught the error and finished is not classified as out of memory.
    let caught = ONE_RANK.replace("exit 1", "exit 0");
    assert_eq!(watch("caught", &caught).expect("it runs").code(), Some(0));
    let listed = headroom(&folder, &stage, &["runs"]).output().expect("headroom runs");
    let listed = String::from_utf8(listed.stdout).expect("text");
    let of = |name: &str| listed.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(of("ranks").contains("ran out of GPU memory"), "{listed}");
    assert!(of("caught").contains("done") && !of("caught").contains("memory"), "{listed}");
    let start = Instant::now();
    let metrics = loop {
        let metrics = agent.text("/metrics");
        if metrics.contains("name=\"caught\",status=\"succeeded\"} 1") {
            break metrics;
        }
        assert!(start.elapsed() < PATIENCE, "{metrics}");
        thread::sleep(Duration::from_millis(100));
    };
    assert!(metrics.contains("name=\"ranks\",status=\"out_of_gpu_memory\"} 1"), "{metrics}");
    assert!(metrics.contains("name=\"ranks\",status=\"failed\"} 0"), "{metrics}");
}

#[test]
fn new_rig_alerts_of_failed_runs_until_its_owner_decides_otherwise() {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = Stage::new(folder.path(), &[], &hot(95.0)).expect("a stage");
    let token = token(&folder, &stage);
    let agent = Agent::start(&folder, &stage, &token);
    let fail = || headroom(&folder, &stage, &["watch", "--", "sh", "-c", "exit 3"]).status().expect("it runs");
    assert_eq!(fail().code(), Some(3));
    let on = agent.until("the run failed", |alerts| alerts.first().is_some_and(|(_, event)| *event != 0));
    assert_eq!(on.iter().map(|(rule, _)| &**rule).collect::<Vec<_>>(), ["run_failed"]);
    assert_eq!(agent.set("If-Match: *\r\n", &json!({ "alerts": [] })).0, 200);
    agent.until("the rule is gone", <[_]>::is_empty);
    assert_eq!(fail().code(), Some(3));
    thread::sleep(WOULD_GO_OFF);
    assert_eq!(n_raised(&folder), 1, "nothing more");
}

#[test]
fn a_restart_of_the_agent_does_not_reset_the_clock_of_a_run_that_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = Stage::new(folder.path(), &[], &hot(40.0)).expect("a stage");
    let token = token(&folder, &stage);
    let agent = Agent::start(&folder, &stage, &token);
    agent.set_rules(&json!({ "alerts": [{ "on": "no_progress", "minutes": 30 }] }));
    let script = "echo 'iter 3: loss 2.5, time 10.00ms, mfu 1.00%'; read line";
    let mut watch = headroom(&folder, &stage, &["watch", "--stall-minutes", "0", "--", "sh", "-c", script]);
    let mut watch = watch.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("headroom runs");
    let path = folder.path().join("history.sqlite");
    let history = rusqlite::Connection::open(path).expect("the file");
    history.busy_timeout(PATIENCE).expect("a time");
    let sql = "SELECT count(*) FROM events WHERE what LIKE '{\"kind\":\"run_iteration\"%'";
    let start = Instant::now();
    while history.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("events") == 0 {
        assert!(start.elapsed() < PATIENCE, "no iteration is kept");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(agent.alerts(), [], "it has just printed one");
    drop(agent);
    // An hour passes while no agent runs, and the run hangs.
    history.execute("UPDATE events SET time_ms = time_ms - 3600000 WHERE run IS NOT NULL", []).expect("an hour");
    let agent = Agent::start(&folder, &stage, &token);
    let on = agent.until("it hung for an hour", |alerts| alerts.len() == 1);
    assert_eq!(on[0].0, "no_progress");
    drop(watch.stdin.take());
    watch.wait().expect("it ends");
}

#[test]
fn settings_of_two_devices_are_not_lost_and_rules_take_hold() {
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
    agent.until("the alert of a removed rule is over", <[_]>::is_empty);
}
