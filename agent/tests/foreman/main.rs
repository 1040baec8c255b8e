//! Runs that the agent starts itself, with the real program: a tiny model on the CPU is ordered, queued, stopped, gone on
//! with and deleted; the agent dies and its run does not; the run dies and the agent sees it.
//!
//! `HEADROOM_BIN` names a binary to test in place of this build's.
#![cfg(unix)]

mod card;
mod orders;

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

/// Far above what anything here takes, also on a machine that does much besides.
const DEADLINE: Duration = Duration::from_secs(120);

/// A model that learns in no time. The long run ends when it is told to.
const MODEL: &str = "dataset = 'fox'\nn_layer = 1\nn_head = 2\nn_embd = 8\nblock_size = 8\nbatch_size = 2\ndropout = 0.0\n\
    gradient_accumulation_steps = 1\neval_iters = 1\nlearning_rate = 1e-2\n";

fn headroom() -> Command {
    let binary: OsString = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let mut command = Command::new(binary);
    command.stdin(Stdio::null()).env_remove("JOURNAL_STREAM").env_remove("CUDA_VISIBLE_DEVICES");
    // What somebody has downloaded here is no part of this.
    command.env("HF_HUB_CACHE", "none");
    command
}

/// Waits for what has to come, and gives it.
#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "{what} does not come");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What an owner has: history, and a folder with configs and a data set.
struct Owner {
    history: TempDir,
    train: TempDir,
    token: String,
}

impl Owner {
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

    /// The same, with more said to the program before it starts.
    fn serve_with(&self, prepare: impl FnOnce(&mut Command)) -> Agent<'_> {
        self.serve_by(headroom(), prepare)
    }

    /// The same by another command.
    fn serve_by(&self, mut command: Command, prepare: impl FnOnce(&mut Command)) -> Agent<'_> {
        command.env("XDG_RUNTIME_DIR", self.history.path());
        prepare(&mut command);
        command.args(["serve", "--listen", "127.0.0.1:0", "--train"]).arg(self.train.path());
        command.env("HEADROOM_DATA_DIR", self.history.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("headroom runs");
        let mut link = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut link).expect("a link");
        let host = link.trim_end().split('/').nth(2).unwrap_or_else(|| panic!("{link:?} is no link")).to_owned();
        let agent = Agent { owner: self, process, host };
        eventually("history", || self.history.path().join("history.sqlite").exists().then_some(()));
        agent
    }

    /// What history says without an agent.
    fn table(&self) -> String {
        let mut runs = headroom();
        let output = runs.arg("runs").env("HEADROOM_DATA_DIR", self.history.path()).output().expect("it runs");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// A test that fails leaves nobody behind: what it started has its folder among its words.
impl Drop for Owner {
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
    owner: &'a Owner,
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
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{lines}\r\n{body}",
            self.host,
            self.owner.token,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), answer[end + 4..].to_vec())
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

    /// Waits for a run that is so, and gives it.
    #[track_caller]
    fn comes(&self, id: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            last = self.run(id);
            if is(&last) {
                return last;
            }
            // A token has its rate.
            thread::sleep(Duration::from_millis(200));
        }
        panic!("{id} is not {what}: {last}\n{}", self.log(id));
    }

    /// What it printed, and its watcher.
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

/// It was asked to end, which is another end than its own.
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

fn out(owner: &Owner, id: &str) -> std::path::PathBuf {
    owner.train.path().canonicalize().expect("a folder").join(format!("out-{id}"))
}

fn iter(run: &Value) -> u64 {
    run["last"]["iter"].as_u64().unwrap_or(0)
}

#[test]
fn a_run_is_ordered_stopped_gone_on_with_and_deleted() {
    let owner = Owner::new();
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
    // What it allocates is what it says, and no plan of PyTorch's.
    assert_eq!((&run["plan"]["is_builtin"], &run["plan"]["card"]), (&json!(true), &json!("CPU")), "{run}");
    assert!(run["last"]["tokens_per_second"].is_number() && run["last"]["mfu_printed_percent"].is_null(), "{run}");
    // Its checkpoint is the file that lies there.
    let (status, head) = agent.asked("GET", &format!("/api/runs/{first}/checkpoint"), "Range: bytes=0-7\r\n", "");
    assert_eq!((status, head.len()), (206, 8));

    // Another waits for the device, and a third leaves the queue before its turn.
    let second = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    let third = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    assert_eq!(agent.run(&second)["status"]["state"], "queued");
    assert!(owner.table().contains("queued"), "{}", owner.table());
    assert_eq!(agent.stop(&third)["status"], json!({ "state": "exited", "code": 0, "cause": "unqueued" }));
    assert!(owner.table().contains("stopped (never started)"), "{}", owner.table());
    assert_eq!(agent.asked("POST", &format!("/api/runs/{third}/stop"), "", "").0, 409, "it has ended");
    // It is queued again, as it was: it saved nothing to resume from.
    let again = agent.json("POST", &format!("/api/runs/{third}/resume"), &Value::Null, 202);
    assert_eq!(again["status"]["state"], "queued", "{again}");
    assert!(!again["command"].as_array().expect("words").contains(&json!("--init_from=resume")), "{again}");
    assert_eq!(agent.asked("DELETE", &format!("/api/runs/{first}"), "", "").0, 409, "it runs");

    // Asked to end it finishes its iteration and saves; then it is the second one's turn.
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

    // It goes on as the same run, from where it was.
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
    assert!(!out(&owner, &first).exists(), "its folder goes with it");
    assert_eq!(agent.asked("GET", &format!("/api/runs/{first}/checkpoint"), "", "").0, 404);
    assert!(out(&owner, &second).exists());

    // A link in the place of a run's folder is removed, and what it leads to is the owner's.
    let elsewhere = owner.train.path().canonicalize().expect("a folder").join("elsewhere");
    fs::rename(out(&owner, &second), &elsewhere).expect("it is moved");
    std::os::unix::fs::symlink(&elsewhere, out(&owner, &second)).expect("a link");
    assert_eq!(agent.asked("DELETE", &format!("/api/runs/{second}"), "", "").0, 204);
    assert!(!out(&owner, &second).is_symlink() && elsewhere.join("ckpt.safetensors").exists());
    assert_eq!(agent.asked("GET", &format!("/api/runs/{second}"), "", "").0, 404);
}

#[test]
fn an_early_failure_has_its_reason_whatever_the_program_is_called() {
    let owner = Owner::new();
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

/// As the agent asks where the system has no signals; what a wish before left does not end it again.
#[test]
fn a_file_in_its_folder_asks_a_run_to_end() {
    let owner = Owner::new();
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
    // Without finishing what it is at.
    fs::write(&file, "now").expect("a file");
    agent.comes(&id, "ended", has_ended(1));
    assert_eq!(agent.asked("DELETE", &format!("/api/runs/{id}"), "", "").0, 204);
    assert!(!out(&owner, &id).exists(), "its folder goes with it");
}

#[test]
fn the_agent_s_end_is_not_its_run_s() {
    let owner = Owner::new();
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
    assert_eq!(agent.run(&second)["status"]["state"], "queued", "its device is taken still");
    // An agent that did not start it stops it as well.
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
    agent.comes(&second, "done", has_ended(0));
}

#[test]
fn the_run_s_end_is_seen_and_the_queue_goes_on() {
    let owner = Owner::new();
    let agent = owner.serve();
    let first = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
    let running = agent.comes(&first, "saved", is_saved);
    let large = agent.order(&json!({ "config": "large.py", "device": "cpu" }));
    let last = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    kill_9(&running["pid"]);
    let killed = agent.comes(&first, "killed", is("killed"));
    assert_eq!(killed["status"]["signal"], 9);
    assert!(killed["checkpoint"]["iter"].as_u64() > Some(0), "what it saved is there: {killed}");
    // A model that no machine of these days holds ends with the trainer's own words.
    let failed = agent.comes(&large, "failed", is("exited"));
    assert_ne!(failed["status"]["code"], 0);
    assert!(failed["explanation"].as_str().is_some_and(|why| why.contains("of memory")), "{failed}");
    agent.comes(&last, "done", has_ended(0));
    // It can be gone on with, by its last checkpoint.
    agent.json("POST", &format!("/api/runs/{first}/resume"), &Value::Null, 202);
    let saved = killed["checkpoint"]["iter"].as_u64();
    agent.comes(&first, "going on", |run| is_saved(run) && run["checkpoint"]["iter"].as_u64() > saved);
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
}

#[test]
fn who_watches_dies_and_the_device_is_given_on_when_the_trainer_has_ended() {
    let owner = Owner::new();
    let agent = owner.serve();
    let first = agent.order(&json!({ "config": "long.py", "device": "cpu" }));
    let running = agent.comes(&first, "saved", is_saved);
    let next = agent.order(&json!({ "config": "short.py", "device": "cpu" }));
    let trainer = running["pid"].as_u64().expect("a process");
    let status = fs::read_to_string(format!("/proc/{trainer}/status"));
    // Elsewhere than on Linux nobody says who watches.
    let Ok(status) = status else { return };
    let watcher: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .and_then(|pid| pid.trim().parse().ok())
        .expect("a parent");
    kill_9(&json!(watcher));
    agent.comes(&first, "lost", is("lost"));
    // The trainer goes on and saves, and its device is its own.
    let ckpt = out(&owner, &first).join("ckpt.safetensors");
    let saved_at = || fs::metadata(&ckpt).and_then(|data| data.modified()).expect("a checkpoint");
    let before = saved_at();
    eventually("another checkpoint", || (saved_at() > before).then_some(()));
    assert_eq!(agent.run(&next)["status"]["state"], "queued");
    // Asked to end it saves and ends; only then is it the next one's turn.
    agent.stop(&first);
    agent.comes(&next, "done", has_ended(0));
    eventually("the trainer's end", || (!Path::new(&format!("/proc/{trainer}")).exists()).then_some(()));
    assert_eq!(agent.asked("POST", &format!("/api/runs/{first}/stop"), "", "").0, 409, "there is nobody to stop");
    // The run goes on from what it saved, watched again.
    agent.json("POST", &format!("/api/runs/{first}/resume"), &Value::Null, 202);
    agent.comes(&first, "going on", |run| is("running")(run) && iter(run) > 0);
    agent.stop(&first);
    agent.comes(&first, "stopped", was_stopped);
}
