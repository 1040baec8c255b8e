//! Tests of runs that the agent starts, with the real program. A tiny model on the CPU is started, queued, stopped,
//! resumed and deleted. An agent may die while its run continues, and it detects the death of a run.
//!
//! `HEADROOM_BIN` names a binary to test instead of this build's.
#![cfg(unix)]

mod gpu;
mod log;
mod orders;
mod secrets;

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Timeout for any step. Far above the usual time, also on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// A model that trains in a moment. The long run ends only when it is stopped.
const MODEL: &str = "dataset = 'fox'\nn_layer = 1\nn_head = 2\nn_embd = 8\nblock_size = 8\nbatch_size = 2\ndropout = 0.0\n\
    gradient_accumulation_steps = 1\neval_iters = 1\nlearning_rate = 1e-2\n";

fn headroom() -> Command {
    let binary: OsString = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let mut command = Command::new(binary);
    command.stdin(Stdio::null()).env_remove("JOURNAL_STREAM").env_remove("CUDA_VISIBLE_DEVICES");
    // Tests must not depend on the files that the user has downloaded.
    command.env("HF_HUB_CACHE", "none");
    command
}

/// Polls `look` until it returns a value. Panics after [`DEADLINE`].
#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "{what} does not arrive");
        thread::sleep(Duration::from_millis(20));
    }
}

/// An owner's data: a history, and a directory with configs and a data set.
struct OwnerData {
    history: TempDir,
    train: TempDir,
    token: String,
}

impl OwnerData {
    fn new() -> Self {
        let (history, train) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        fs::create_dir(train.path().join("config")).expect("a folder");
        fs::write(train.path().join("text.txt"), "The quick brown fox jumps over the lazy dog. ".repeat(40))
            .expect("it");
        let prepare = ["data", "prepare", "text.txt", "--out", "data/fox"];
        let prepared = headroom().args(prepare).current_dir(train.path()).output().expect("it runs");
        assert!(prepared.status.success(), "{prepared:?}");
        let config = |name: &str, more: &str| {
            fs::write(train.path().join("config").join(name), format!("{MODEL}{more}")).expect("a config");
        };
        config("long.py", "max_iters = 100000000\neval_interval = 200\nlog_interval = 20\n");
        config("short.py", "max_iters = 20\neval_interval = 10\nlog_interval = 1\n");
        config("bad.py", "max_iters = 20\nn_head = 3\n");
        config("large.py", "max_iters = 20\nn_layer = 48\nn_embd = 16384\n");
        config("tuned.py", "init_from = 'gpt2-xl'\n");
        config("broken.py", "import os\nbatch_size = = 3\n");
        config("odd.py", "import os\nmax_iters = 3\nforks_key = 7\n");
        let mut add = headroom();
        add.args(["token", "add", "test", "--scope", "control"]).env("HEADROOM_DATA_DIR", history.path());
        let added = add.output().expect("it runs");
        let token = String::from_utf8(added.stdout).expect("text").trim().to_owned();
        Self { history, train, token }
    }

    fn serve(&self) -> Agent<'_> {
        self.serve_with(|_| {})
    }

    /// Starts an agent with a command to which `prepare` adds options and variables.
    fn serve_with(&self, prepare: impl FnOnce(&mut Command)) -> Agent<'_> {
        self.serve_by(headroom(), prepare)
    }

    /// Starts an agent like [`Self::serve_with`], with another command.
    fn serve_by(&self, mut command: Command, prepare: impl FnOnce(&mut Command)) -> Agent<'_> {
        command.env("XDG_RUNTIME_DIR", self.history.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--train"]).arg(self.train.path());
        command.env("HEADROOM_DATA_DIR", self.history.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        prepare(&mut command);
        let mut process = command.spawn().expect("headroom runs");
        let mut link = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut link).expect("a link");
        let host = link.trim_end().split('/').nth(2).unwrap_or_else(|| panic!("{link:?} is not a link")).to_owned();
        let agent = Agent { owner: self, process, host };
        eventually("history", || self.history.path().join("history.sqlite").exists().then_some(()));
        agent
    }

    /// Returns the output of `headroom runs`, which reads the history without an agent.
    fn table(&self) -> String {
        let mut runs = headroom();
        let output = runs.arg("runs").env("HEADROOM_DATA_DIR", self.history.path()).output().expect("it runs");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// Kills the processes that a failed test leaves behind. Their command lines contain the owner's directory.
impl Drop for OwnerData {
    fn drop(&mut self) {
        let folder = self.train.path().display().to_string();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let pid = process.file_name().to_string_lossy().into_owned();
            if String::from_utf8_lossy(&words).contains(&folder) {
                let _ = Command::new("kill").args(["-9", &pid]).status();
            }
        }
    }
}

struct Agent<'a> {
    owner: &'a OwnerData,
    process: Child,
    host: String,
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Agent<'_> {
    fn asked(&self, method: &str, path: &str, lines: &str, body: &str) -> (u16, Vec<u8>) {
        let (status, _, answer) = self.asked_by(&self.owner.token, method, path, lines, body);
        (status, answer)
    }

    /// Sends a request with a token. Returns the status, the head and the body of the response.
    fn asked_by(&self, token: &str, method: &str, path: &str, lines: &str, body: &str) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{lines}\r\n{body}",
            self.host,
            token,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, head, answer[end + 4..].to_vec())
    }

    #[track_caller]
    fn json(&self, method: &str, path: &str, body: &Value, expected: u16) -> Value {
        let (status, answer) = self.asked(method, path, "", &body.to_string());
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(status, expected, "{method} {path} {body}: {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    #[track_caller]
    fn order(&self, order: &Value) -> String {
        let run = self.json("POST", "/api/runs", order, 201);
        assert!(["queued", "running"].contains(&run["status"]["state"].as_str().expect("a state")), "{run}");
        run["id"].as_str().expect("a number").to_owned()
    }

    fn run(&self, id: &str) -> Value {
        self.json("GET", &format!("/api/runs/{id}"), &Value::Null, 200)
    }

    /// Waits until the run satisfies `is`, and returns the run.
    #[track_caller]
    fn comes(&self, id: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            last = self.run(id);
            if is(&last) {
                return last;
            }
            // Tokens are rate-limited.
            thread::sleep(Duration::from_millis(200));
        }
        panic!("{id} is not {what}: {last}\n{}", self.log(id));
    }

    /// Returns the end of the run's output, and the output of its watcher.
    fn log(&self, id: &str) -> String {
        let read = |name: &str| {
            let path = self.owner.history.path().join("training").join(format!("{id}.{name}"));
            fs::read_to_string(path).unwrap_or_default()
        };
        let log = read("log");
        format!("{}\n{}", &log[log.len().saturating_sub(2000)..], read("watch"))
    }

    fn stop(&self, id: &str) -> Value {
        self.json("POST", &format!("/api/runs/{id}/stop"), &Value::Null, 202)
    }
}

fn is(state: &'static str) -> impl Fn(&Value) -> bool {
    move |run| run["status"]["state"] == state
}

fn has_ended(code: i64) -> impl Fn(&Value) -> bool {
    move |run| run["status"] == json!({ "state": "exited", "code": code })
}

/// Returns whether the run's status says that it was stopped.
fn was_stopped(run: &Value) -> bool {
    run["status"]["state"] == "exited" && run["status"]["cause"] == "stopped"
}

fn is_saved(run: &Value) -> bool {
    run["status"]["state"] == "running" && run["checkpoint"]["iter"].as_u64() > Some(0)
}

fn kill_9(pid: &Value) {
    let pid = pid.as_u64().expect("a process").to_string();
    assert!(Command::new("kill").args(["-9", &pid]).status().expect("kill runs").success());
}

fn out(owner: &OwnerData, id: &str) -> std::path::PathBuf {
    owner.train.path().canonicalize().expect("a folder").join(format!("out-{id}"))
}

fn iter(run: &Value) -> u64 {
    run["last"]["iter"].as_u64().unwrap_or(0)
}

#[test]
fn run_is_started_stopped_resumed_and_deleted() {
    let owner = OwnerData::new();
    let agent = owner.serve();
    let training = agent.json("GET", "/api/training", &Value::Null, 200);
    let names = |list: &str| training[list].as_array().expect("a list").clone();
    assert_eq!(names("configs")[0]["name"], "stories");
    assert!(names("configs").contains(&json!({ "name": "short.py", "dataset": "fox", "max_iters": 20 })), "{training}");
    assert_eq!(training["datasets"], json!(["builtin", "fox"]));
    assert!(names("devices").contains(&json!({ "name": "cpu", "label": "CPU" })) && training["unavailable"].is_null());

    let first = agent.order(&json!({ "config": "long.py", "device": "cpu", "name": "first" }));
    let run = agent.comes(&first, "saved", is_saved);
    assert_eq!(
        (&run["name"], &run["order"]["dataset"], &run["max_iters"]),
        (&json!("first"), &json!("fox"), &json!(100_000_000))
    );
    // The plan is the built-in trainer's, and not PyTorch's.
    assert_eq!((&run["plan"]["is_builtin"], &run["plan"]["card"]), (&json!(true), &json!("CPU")), "{run}");
    assert!(run["last"]["tokens_per_second"].is_number() && run["last"]["mfu_printed_percent"].is_null(), "{run}");
    // The checkpoint's address serves the file on disk.
    let (status, head) = agent.asked("GET", &format!("/api/runs/{first}/checkpoint"), "Range: bytes=0-7\r\n", "");
    assert_eq!((status, head.len()), (206, 8));

    // The second run waits for the device. The third leaves the queue before it starts.
    let second = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    let third = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    assert_eq!(agent.run(&second)["status"]["state"], "queued");
    assert!(owner.table().contains("queued"), "{}", owner.table());
    assert_eq!(agent.stop(&third)["status"], json!({ "state": "exited", "code": 0, "cause": "unqueued" }));
    assert!(owner.table().contains("canceled before it started"), "{}", owner.table());
    assert_eq!(agent.asked("POST", &format!("/api/runs/{third}/stop"), "", "").0, 409, "it has ended");
    // The run is queued again with its first command, as it saved nothing to resume from.
    let again = agent.json("POST", &format!("/api/runs/{third}/resume"), &Value::Null, 202);
    assert_eq!(again["status"]["state"], "queued", "{again}");
    assert!(!again["command"].as_array().expect("words").contains(&json!("--init_from=resume")), "{again}");
    assert_eq!(agent.asked("DELETE", &format!("/api/runs/{first}"), "", "").0, 409, "it runs");

    // When stopped, the run finishes its iteration and saves. Then the second run starts.
    agent.stop(&first);
    let stopped = agent.comes(&first, "stopped", was_stopped);
    assert!(owner.table().contains("stopped"), "{}", owner.table());
    let (_, metrics) = agent.asked("GET", "/metrics", "", "");
    let is_stopped = format!("headroom_run_status{{run=\"{first}\",name=\"first\",status=\"stopped\"}} 1");
    assert!(String::from_utf8_lossy(&metrics).contains(&is_stopped), "{}", String::from_utf8_lossy(&metrics));
    let saved = stopped["checkpoint"]["iter"].as_u64().expect("a number");
    assert!(saved >= iter(&stopped), "it saved what it had done: {stopped}");
    let done = agent.comes(&second, "done", has_ended(0));
    assert_eq!((iter(&done), done["checkpoint"]["iter"].as_u64()), (20, Some(21)), "iterations 0 to 20: {done}");
    let done = agent.comes(&third, "done as well", has_ended(0));
    assert_eq!((iter(&done), done["checkpoint"]["iter"].as_u64()), (20, Some(21)), "from its beginning: {done}");

    // The run resumes under the same ID from its last iteration.
    agent.json("POST", &format!("/api/runs/{first}/resume"), &Value::Null, 202);
    let resumed =
        agent.comes(&first, "going on", |run| is_saved(run) && run["checkpoint"]["iter"].as_u64() > Some(saved));
    assert!(iter(&resumed) >= saved, "{resumed}");
    let words = resumed["command"].as_array().expect("words");
    assert!(words.contains(&json!("--init_from=resume")), "it is started by another command: {resumed}");
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
    let events = agent.json("GET", &format!("/api/runs/{first}/events"), &Value::Null, 200);
    let kinds: Vec<&str> =
        events.as_array().expect("events").iter().filter_map(|event| event["what"]["kind"].as_str()).collect();
    assert_eq!(kinds.first(), Some(&"run_started"));
    assert_eq!(kinds.iter().filter(|kind| **kind == "run_resumed").count(), 2, "its turn, and again");

    assert!(out(&owner, &first).join("ckpt.safetensors").exists());
    assert_eq!(agent.asked("DELETE", &format!("/api/runs/{first}"), "", "").0, 204);
    assert!(!out(&owner, &first).exists(), "its folder is deleted too");
    assert_eq!(agent.asked("GET", &format!("/api/runs/{first}/checkpoint"), "", "").0, 404);
    assert!(out(&owner, &second).exists());
}

/// Only the link is deleted. Its target belongs to the owner.
#[test]
fn run_in_a_linked_folder_is_deleted_without_the_target() {
    let owner = OwnerData::new();
    let agent = owner.serve();
    let run = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    agent.comes(&run, "done", has_ended(0));
    let elsewhere = owner.train.path().canonicalize().expect("a folder").join("elsewhere");
    fs::rename(out(&owner, &run), &elsewhere).expect("it is moved");
    std::os::unix::fs::symlink(&elsewhere, out(&owner, &run)).expect("a link");
    assert_eq!(agent.asked("DELETE", &format!("/api/runs/{run}"), "", "").0, 204);
    assert!(!out(&owner, &run).is_symlink() && elsewhere.join("ckpt.safetensors").exists());
    assert_eq!(agent.asked("GET", &format!("/api/runs/{run}"), "", "").0, 404);
}

#[test]
fn an_early_failure_has_its_reason_whatever_the_program_is_called() {
    let owner = OwnerData::new();
    let program = headroom().get_program().to_owned();
    let renamed = owner.train.path().join("rig-tool");
    if fs::hard_link(&program, &renamed).is_err() {
        fs::copy(&program, &renamed).expect("a file");
    }
    let mut command = Command::new(&renamed);
    command.stdin(Stdio::null()).env_remove("CUDA_VISIBLE_DEVICES").env("HF_HUB_CACHE", "none");
    let agent = owner.serve_by(command, |_| {});
    let first = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
    agent.comes(&first, "saved", is_saved);
    let second = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    fs::rename(owner.train.path().join("data/fox"), owner.train.path().join("fox")).expect("it is moved");
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
    let failed = agent.comes(&second, "failed", has_ended(3));
    let why = failed["explanation"].as_str().unwrap_or_default();
    assert!(failed["command"][0].as_str().is_some_and(|program| program.ends_with("rig-tool")), "{failed}");
    assert!(why.contains("fox") && !why.starts_with("headroom: "), "{failed}");
}

/// The stop file is how the agent stops a run where the system has no signals. A stop file of an earlier request does
/// not end the run again.
#[test]
fn a_file_in_its_folder_asks_a_run_to_end() {
    let owner = OwnerData::new();
    let agent = owner.serve();
    let id = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
    agent.comes(&id, "saved", is_saved);
    let file = out(&owner, &id).join("stop");
    fs::write(&file, "").expect("a file");
    let stopped = agent.comes(&id, "stopped", was_stopped);
    let saved = stopped["checkpoint"]["iter"].as_u64();
    assert!(saved >= Some(iter(&stopped)), "it saved what it had done: {stopped}");
    agent.json("POST", &format!("/api/runs/{id}/resume"), &Value::Null, 202);
    agent.comes(&id, "going on", |run| is_saved(run) && run["checkpoint"]["iter"].as_u64() > saved);
    assert!(!file.exists());
    // The word `now` ends the run before its iteration is finished.
    fs::write(&file, "now").expect("a file");
    let ended = agent.comes(&id, "ended", was_stopped);
    assert_eq!(ended["status"]["code"], 1);
    assert_eq!(agent.asked("DELETE", &format!("/api/runs/{id}"), "", "").0, 204);
    assert!(!out(&owner, &id).exists(), "its folder is deleted too");
}

#[test]
fn the_agent_s_end_is_not_its_run_s() {
    let owner = OwnerData::new();
    let mut agent = owner.serve();
    let first = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
    let before = agent.comes(&first, "saved", is_saved);
    let second = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    agent.process.kill().expect("it is ours");
    agent.process.wait().expect("it ended");
    drop(agent);

    let agent = owner.serve();
    let after = agent
        .comes(&first, "going on", |run| run["checkpoint"]["iter"].as_u64() > before["checkpoint"]["iter"].as_u64());
    assert_eq!((&after["status"]["state"], &after["pid"]), (&json!("running"), &before["pid"]), "the same process");
    assert_eq!(agent.run(&second)["status"]["state"], "queued", "its device is still in use");
    // An agent can stop a run that another agent started.
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
    agent.comes(&second, "done", has_ended(0));
}

#[test]
fn the_run_s_end_is_seen_and_the_queue_goes_on() {
    let owner = OwnerData::new();
    let agent = owner.serve();
    let first = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
    let running = agent.comes(&first, "saved", is_saved);
    let large = agent.order(&json!({ "config": "large.py", "device": "cpu" }));
    let last = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    kill_9(&running["pid"]);
    let killed = agent.comes(&first, "killed", is("killed"));
    assert_eq!(killed["status"]["signal"], 9);
    assert!(killed["checkpoint"]["iter"].as_u64() > Some(0), "its checkpoint exists: {killed}");
    // A model that exceeds the memory of any machine ends with the trainer's own message.
    let failed = agent.comes(&large, "failed", is("exited"));
    assert_ne!(failed["status"]["code"], 0);
    assert!(failed["explanation"].as_str().is_some_and(|why| why.contains("of memory")), "{failed}");
    agent.comes(&last, "done", has_ended(0));
    // The run can be resumed from its last checkpoint.
    agent.json("POST", &format!("/api/runs/{first}/resume"), &Value::Null, 202);
    let saved = killed["checkpoint"]["iter"].as_u64();
    agent.comes(&first, "going on", |run| is_saved(run) && run["checkpoint"]["iter"].as_u64() > saved);
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
}

#[test]
fn device_is_released_only_after_trainer_exits() {
    let owner = OwnerData::new();
    let agent = owner.serve();
    let first = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
    let running = agent.comes(&first, "saved", is_saved);
    let next = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    let trainer = running["pid"].as_u64().expect("a process");
    let status = fs::read_to_string(format!("/proc/{trainer}/status"));
    // Other systems than Linux do not report the parent process.
    let Ok(status) = status else { return };
    let watcher: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .and_then(|pid| pid.trim().parse().ok())
        .expect("a parent");
    kill_9(&json!(watcher));
    // Another process continues the run's history.
    let before = iter(&agent.run(&first));
    agent.comes(&first, "further", |run| is("running")(run) && iter(run) > before + 100);
    // The trainer continues and saves, and still holds its device.
    let ckpt = out(&owner, &first).join("ckpt.safetensors");
    let saved_at = || fs::metadata(&ckpt).and_then(|data| data.modified()).expect("a checkpoint");
    let before = saved_at();
    eventually("another checkpoint", || (saved_at() > before).then_some(()));
    assert_eq!(agent.run(&next)["status"]["state"], "queued");
    // When stopped, the run saves and ends. Only then does the next run start.
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
    agent.comes(&next, "done", has_ended(0));
    eventually("the trainer's end", || (!Path::new(&format!("/proc/{trainer}")).exists()).then_some(()));
    assert_eq!(agent.asked("POST", &format!("/api/runs/{first}/stop"), "", "").0, 409, "the run has ended already");
    // The run resumes from its checkpoint, with a new watcher.
    agent.json("POST", &format!("/api/runs/{first}/resume"), &Value::Null, 202);
    agent.comes(&first, "going on", |run| is("running")(run) && iter(run) > 0);
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
}
