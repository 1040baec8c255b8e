//! `headroom watch` is killed, and the run's history continues: nothing printed is missing or doubled, and the end is
//! the run's own.
//!
//! `HEADROOM_BIN` names a binary to test in place of this build's.
#![cfg(target_os = "linux")]

mod common;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use common::{eventually, folder};
use serde_json::{Value, json};

fn headroom(folder: &Path) -> Command {
    let binary = common::headroom();
    let mut command = Command::new(&binary);
    command.current_dir(folder).env("HEADROOM_DATA_DIR", folder.join("history")).env("HEADROOM_NVML", "none");
    command.env("HEADROOM_BIN", binary).env_remove("CUDA_VISIBLE_DEVICES").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The newest run that history has, without any repair by a command.
fn kept(folder: &Path) -> Value {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let Ok(file) = rusqlite::Connection::open_with_flags(folder.join("history/history.sqlite"), flags) else {
        return Value::Null;
    };
    let sql = "SELECT run FROM runs ORDER BY started_ms DESC LIMIT 1";
    let text: String = file.query_row(sql, [], |row| row.get(0)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The newest run as `headroom runs` lists it.
fn listed(folder: &Path) -> Value {
    let output = headroom(folder).args(["runs", "--json"]).stdout(Stdio::piped()).output().expect("headroom runs");
    serde_json::from_slice::<Value>(&output.stdout).expect("JSON")["runs"][0].clone()
}

/// The iterations in the export of the newest run.
fn exported(folder: &Path) -> Vec<u64> {
    let id = kept(folder)["id"].as_str().expect("a run").to_owned();
    let output = headroom(folder).args(["runs", "export", &id]).stdout(Stdio::piped()).output().expect("headroom runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(!text.contains("left_out,"), "{text}");
    text.lines().filter_map(|row| row.strip_prefix("iteration,")?.split(',').nth(1)?.parse().ok()).collect()
}

/// A process that is killed with the test, whatever comes.
struct KilledProcess(Child);

impl Drop for KilledProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watch(folder: &Path, script: &str) -> KilledProcess {
    KilledProcess(headroom(folder).args(["watch", "--", "sh", "-c", script]).spawn().expect("headroom runs"))
}

/// A line as nanoGPT prints it, `n` times, with a pause now and then.
fn iterations(n: u64, pause: &str) -> String {
    format!(
        "i=0; while [ $i -lt {n} ]; do echo \"iter $i: loss 4.5, time 1.00ms, mfu 1.00%\"; i=$((i+1)); {pause} done"
    )
}

fn leaves_nothing(folder: &Path) -> bool {
    folder.join("history/watched").read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

#[test]
fn killed_watcher_loses_no_line_and_the_next_start_finds_the_end() {
    for n_before_kill in [1, 400, 2500] {
        let folder = folder();
        // The command waits for the kill, so that lines follow it on a machine of any speed.
        let waits = format!("[ $i -eq {} ] && while ! [ -e killed ]; do sleep 0.01; done;", n_before_kill + 50);
        let script = iterations(3000, &waits) + "; touch done";
        let mut watcher = watch(folder.path(), &script);
        eventually("an iteration", || kept(folder.path())["last"]["iter"].as_u64() >= Some(n_before_kill));
        watcher.0.kill().expect("it is ours");
        watcher.0.wait().expect("it ends");
        fs::write(folder.path().join("killed"), "").expect("a file");
        eventually("the command's end", || folder.path().join("done").exists());
        assert!(kept(folder.path())["last"]["iter"].as_u64() < Some(2999), "history is not complete yet");
        // Only the killed watcher could read the exit status.
        eventually("its end", || listed(folder.path())["status"]["state"] == "lost" && leaves_nothing(folder.path()));
        assert!(exported(folder.path()).into_iter().eq(0..3000), "after {n_before_kill}");
        assert_eq!(listed(folder.path())["last"]["iter"], 2999);
    }
}

/// Processes that pass on the output of a folder's runs. `kind` is a part of their name: `hr-relay`, or `relay` for
/// guards too, which replace relays.
fn relays(folder: &Path, kind: &str) -> Vec<String> {
    let ours = folder.display().to_string();
    let is_ours = |process: &fs::DirEntry| {
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        // A guard that replaces a relay keeps its words and changes its name.
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        let is_relay = words.get(1).is_some_and(|word| word == "relay");
        is_relay && words.iter().any(|word| word.contains(&ours)) && (kind == "relay" || name.trim() == kind)
    };
    let found = fs::read_dir("/proc").into_iter().flatten().flatten().filter(is_ours);
    found.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

fn kill_9(pids: &[String]) {
    // A process may have ended meanwhile.
    let _ = Command::new("kill").arg("-KILL").args(pids).stderr(Stdio::null()).status().expect("kill runs");
}

/// Whether two other processes run in place of those that were killed.
fn is_replaced(killed: &[String], now: &[String]) -> bool {
    now.len() == 2 && !now.iter().any(|pid| killed.contains(pid))
}

/// Number of lines of a file.
fn n_lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn killed_relays_end_neither_the_command_nor_its_output() {
    let folder = folder();
    let shown = folder.path().join("shown");
    let waits = "case $i in 100|200|300|400|500) while ! [ -e go$i ]; do sleep 0.01; done;; esac;";
    let script = iterations(600, waits) + "; touch done";
    let mut watch = headroom(folder.path());
    watch.args(["watch", "--", "sh", "-c", &script]).stdout(fs::File::create(&shown).expect("a file"));
    let mut watcher = KilledProcess(watch.spawn().expect("headroom runs"));
    let go = |i: u64| fs::write(folder.path().join(format!("go{i}")), "").expect("a file");
    // The watcher replaces relays, and relays with their guards.
    for (i, kind, n) in [(100, "hr-relay", 2), (200, "relay", 4)] {
        eventually("an iteration", || kept(folder.path())["last"]["iter"] == i - 1);
        eventually("a relay and a guard for each stream", || relays(folder.path(), kind).len() == n);
        let killed = relays(folder.path(), kind);
        kill_9(&killed);
        eventually("others", || is_replaced(&killed, &relays(folder.path(), "hr-relay")));
        go(i);
    }
    // Without its watcher, guards replace the relays.
    eventually("an iteration", || kept(folder.path())["last"]["iter"] == 299);
    watcher.0.kill().expect("it is ours");
    watcher.0.wait().expect("it ends");
    for i in [300, 400, 500] {
        eventually("guards", || {
            let locks = ["out.guard", "err.guard"].map(|name| {
                let runs = fs::read_dir(folder.path().join("history/watched")).into_iter().flatten().flatten();
                runs.into_iter().any(|run| {
                    let lock = fs::File::open(run.path().join(name));
                    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)))
                })
            });
            locks == [true, true]
        });
        let killed = relays(folder.path(), "hr-relay");
        assert_eq!(killed.len(), 2, "one for each stream");
        kill_9(&killed);
        eventually("others", || is_replaced(&killed, &relays(folder.path(), "hr-relay")));
        go(i);
        eventually("the next lines", || n_lines(&shown) as u64 >= if i < 500 { i + 100 } else { 600 });
    }
    eventually("the command's end", || folder.path().join("done").exists());
    eventually("its end", || listed(folder.path())["status"]["state"] == "lost" && leaves_nothing(folder.path()));
    let lines = fs::read_to_string(&shown).expect("text");
    let iters = lines.lines().map(|line| line["iter ".len()..line.find(':').expect("a colon")].to_owned());
    assert!(iters.eq((0..600).map(|i| i.to_string())), "{lines}");
    // A killed relay may have read a part of a line, so the line after it is left out.
    let id = kept(folder.path())["id"].as_str().expect("a run").to_owned();
    let output = headroom(folder.path()).args(["runs", "export", &id]).stdout(Stdio::piped()).output().expect("it");
    let text = String::from_utf8(output.stdout).expect("text");
    let iters = text.lines().filter_map(|row| row.strip_prefix("iteration,")?.split(',').nth(1)?.parse::<u64>().ok());
    assert!(iters.eq((0..600).filter(|i| *i == 0 || i % 100 != 0)), "{text}");
    assert_eq!(text.lines().filter(|row| row.starts_with("left_out,")).count(), 5, "{text}");
    eventually("all processes end", || relays(folder.path(), "relay").is_empty());
}

#[test]
fn watcher_and_relays_killed_at_once_end_neither_the_command_nor_its_record() {
    for place_of_watcher in [0, 2] {
        let folder = folder();
        let shown = folder.path().join("shown");
        let script = iterations(200, "[ $i -eq 100 ] && while ! [ -e go ]; do sleep 0.01; done;") + "; touch done";
        let mut watch = headroom(folder.path());
        watch.args(["watch", "--", "sh", "-c", &script]).stdout(fs::File::create(&shown).expect("a file"));
        let mut watcher = KilledProcess(watch.spawn().expect("headroom runs"));
        eventually("an iteration", || kept(folder.path())["last"]["iter"] == 99);
        let mut killed = relays(folder.path(), "hr-relay");
        assert_eq!(killed.len(), 2, "one for each stream");
        killed.insert(place_of_watcher, watcher.0.id().to_string());
        kill_9(&killed);
        watcher.0.wait().expect("it ends");
        fs::write(folder.path().join("go"), "").expect("a file");
        eventually("the command's end", || folder.path().join("done").exists());
        eventually("its end", || listed(folder.path())["status"]["state"] == "lost" && leaves_nothing(folder.path()));
        assert_eq!(n_lines(&shown), 200, "all output is shown");
        assert_eq!(listed(folder.path())["last"]["iter"], 199);
        eventually("all processes end", || relays(folder.path(), "relay").is_empty());
    }
}

#[test]
fn headroom_train_outlives_its_watcher_and_all_relays() {
    let folder = folder();
    let words = prepared(folder.path(), &["--max_iters=100000000", "--eval_interval=100000000", "--out_dir=out"]);
    let mut watch = headroom(folder.path());
    let mut watcher = KilledProcess(watch.args(["watch", "--"]).args(&words).spawn().expect("headroom runs"));
    eventually("an iteration", || kept(folder.path())["last"]["iter"].as_u64() >= Some(20));
    let pid = kept(folder.path())["pid"].as_u64().expect("a process").to_string();
    watcher.0.kill().expect("it is ours");
    watcher.0.wait().expect("it ends");
    eventually("no relay", || {
        let left = relays(folder.path(), "relay");
        kill_9(&left);
        left.is_empty()
    });
    // It prints many times before the signal arrives.
    let cpu = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.split(' ').nth(13).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0)
    };
    let before = cpu();
    eventually("further iterations", || cpu() > before + 20);
    assert!(!folder.path().join("out/ckpt.safetensors").exists(), "it has not been stopped");
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    eventually("its checkpoint", || folder.path().join("out/ckpt.safetensors").exists());
    eventually("its end", || listed(folder.path())["status"]["cause"] == "stopped");
}

#[test]
fn watched_training_stops_if_the_reader_of_its_output_is_gone() {
    let folder = folder();
    let endless = ["--max_iters=100000000", "--eval_interval=100000000"];
    for (out, script) in [
        ("inside", "\"$@\" --out_dir=inside | head -n 3"),
        ("outside", "\"$HEADROOM_BIN\" watch -- \"$@\" --out_dir=outside | head -n 3"),
    ] {
        let words = prepared(folder.path(), &endless);
        let mut shell = headroom(folder.path());
        if out == "inside" {
            shell.args(["watch", "--", "sh", "-c", script, "sh"]).args(&words);
        } else {
            shell = Command::new("sh");
            shell.current_dir(folder.path()).args(["-c", script, "sh"]).args(&words);
            shell.env("HEADROOM_DATA_DIR", folder.path().join("history")).env("HEADROOM_BIN", common::headroom());
            shell.stdout(Stdio::null()).stderr(Stdio::null());
        }
        assert!(shell.status().expect("it runs").success(), "{out}");
        assert!(folder.path().join(out).join("ckpt.safetensors").exists(), "{out}");
    }
}

/// Prepares a data set, and returns the words of `headroom train` for a tiny model.
fn prepared(folder: &Path, more: &[&str]) -> Vec<String> {
    fs::write(folder.join("text.txt"), "The quick brown fox jumps over the lazy dog. ".repeat(40)).expect("a file");
    let prepare = ["data", "prepare", "text.txt", "--out", "data/fox", "--force"];
    assert!(headroom(folder).args(prepare).status().expect("headroom runs").success());
    let keys = "--dataset=fox --n_layer=1 --n_head=2 --n_embd=8 --block_size=8 --batch_size=2 --dropout=0.0 \
        --gradient_accumulation_steps=1 --eval_iters=1 --log_interval=1 --device=cpu";
    let binary = common::headroom().into_string().expect("a path");
    let words = [binary.as_str(), "train"].into_iter().chain(keys.split_whitespace()).chain(more.iter().copied());
    words.map(str::to_owned).collect()
}

#[test]
fn killed_watcher_keeps_the_exception() {
    let folder = folder();
    let script = "echo 'iter 0: loss 4.5, time 1.00ms'; until [ -e killed ]; do sleep 0.01; done; \
        printf '%s\\n' 'Traceback (most recent call last):' '  File \"train.py\", line 7, in <module>' \
        \"ValueError: x must be positive\" >&2; touch done; exit 1";
    let mut watcher = watch(folder.path(), script);
    eventually("an iteration", || kept(folder.path())["last"]["iter"] == 0);
    watcher.0.kill().expect("it is ours");
    watcher.0.wait().expect("it ends");
    fs::write(folder.path().join("killed"), "").expect("a file");
    eventually("the command's end", || folder.path().join("done").exists());
    eventually("its end", || listed(folder.path())["status"]["state"] == "lost" && leaves_nothing(folder.path()));
    let run = listed(folder.path());
    let why = run["explanation"].as_str().unwrap_or_default();
    assert!(why.starts_with("Traceback") && why.ends_with("\nValueError: x must be positive"), "{run}");
}

#[test]
fn killed_watcher_of_headroom_train_leaves_its_real_end() {
    let model = "dataset = 'fox'\nn_layer = 1\nn_head = 2\nn_embd = 8\nblock_size = 8\nbatch_size = 2\ndropout = 0.0\n\
        gradient_accumulation_steps = 1\neval_iters = 1\neval_interval = 100\nlog_interval = 1\ndevice = 'cpu'\n";
    let folder = folder();
    fs::write(folder.path().join("text.txt"), "The quick brown fox jumps over the lazy dog. ".repeat(40)).expect("it");
    let prepare = ["data", "prepare", "text.txt", "--out", "data/fox"];
    assert!(headroom(folder.path()).args(prepare).status().expect("headroom runs").success());
    for (name, more, status) in [
        ("done", "max_iters = 1500\n", json!({ "state": "exited", "code": 0 })),
        (
            "wild",
            "max_iters = 100000\nlearning_rate = 1e-3\nwarmup_iters = 1200\nlr_decay_iters = 1201\nmin_lr = 1e30\ngrad_clip = 0.0\n",
            json!({ "state": "exited", "code": 1, "cause": "diverged" }),
        ),
    ] {
        fs::write(folder.path().join(format!("{name}.py")), format!("{model}{more}")).expect("a file");
        let script = format!("exec \"$HEADROOM_BIN\" train {name}.py --out_dir=out-{name}");
        let mut watcher = watch(folder.path(), &script);
        let is_this = |run: &Value| run["command"][2].as_str() == Some(&script);
        eventually("an iteration", || {
            let run = kept(folder.path());
            is_this(&run) && run["last"]["iter"].as_u64() >= Some(20)
        });
        watcher.0.kill().expect("it is ours");
        watcher.0.wait().expect("it ends");
        eventually("the end", || listed(folder.path())["status"] == status);
        let iters = exported(folder.path());
        let last = listed(folder.path())["last"]["iter"].as_u64().expect("iterations");
        assert!(last > 1000 && iters.into_iter().eq(0..=last), "{name}");
    }
    eventually("nothing is left", || leaves_nothing(folder.path()));
}

#[test]
fn agent_continues_a_run_and_another_after_it() {
    let folder = folder();
    let mut serve = headroom(folder.path());
    let _agent = KilledProcess(serve.args(["serve", "--listen", "127.0.0.1:0"]).spawn().expect("headroom runs"));
    let script = iterations(1000, "[ $((i % 100)) -eq 0 ] && while [ ! -e at-$i ]; do sleep 0.02; done;");
    let mut watcher = watch(folder.path(), &script);
    let go_on = |to: u64| fs::write(folder.path().join(format!("at-{to}")), "").expect("a file");
    let is_at = |iter: u64| kept(folder.path())["last"]["iter"].as_u64() == Some(iter);
    eventually("the first", || is_at(99));
    watcher.0.kill().expect("it is ours");
    watcher.0.wait().expect("it ends");
    for to in (100..=900).step_by(100) {
        go_on(to);
        eventually("more", || is_at(to + 99));
        assert_eq!(kept(folder.path())["status"]["state"], "running");
        if to == 500 {
            // The process that continues dies as well.
            kill_watcher(folder.path());
        }
    }
    assert!(!events(folder.path()).contains("\"lost\""), "it was never lost");
    go_on(1000);
    eventually("its end", || kept(folder.path())["status"]["state"] == "lost");
    assert!(exported(folder.path()).into_iter().eq(0..1000));
    eventually("nothing is left", || leaves_nothing(folder.path()));
}

fn events(folder: &Path) -> String {
    let file = rusqlite::Connection::open(folder.join("history/history.sqlite")).expect("history");
    file.query_row("SELECT group_concat(what, '\n') FROM events", [], |row| row.get(0)).expect("events")
}

/// Kills the process that history has as the watcher of the newest run.
fn kill_watcher(folder: &Path) {
    let file = rusqlite::Connection::open(folder.join("history/history.sqlite")).expect("history");
    let watcher: String = file.query_row("SELECT watcher FROM runs", [], |row| row.get(0)).expect("a watcher");
    let pid = watcher.split(' ').next().expect("a number");
    assert!(Command::new("kill").args(["-KILL", pid]).status().expect("kill runs").success());
}

#[test]
fn program_that_a_launcher_leaves_keeps_the_run_open_until_it_ends() {
    let folder = folder();
    let line = "echo 'iter 7: loss 1.0, time 1.00ms'";
    let script = format!("(until [ -e go ]; do sleep 0.05; done; {line}) & exit 0");
    let mut watch = watch(folder.path(), &script);
    // Ctrl-C ends the wait.
    eventually("a run", || kept(folder.path())["pid"].is_u64());
    let pid = kept(folder.path())["pid"].as_u64().expect("a process");
    eventually("the launcher's end", || !Path::new(&format!("/proc/{pid}")).exists());
    assert!(Command::new("kill").args(["-INT", &watch.0.id().to_string()]).status().expect("kill runs").success());
    watch.0.wait().expect("it ends");
    eventually("its start", || listed(folder.path())["status"]["state"] == "running");
    fs::write(folder.path().join("go"), "").expect("a file");
    eventually("its end", || listed(folder.path())["status"] == json!({ "state": "exited", "code": 0 }));
    assert_eq!(exported(folder.path()), [7]);
    eventually("nothing is left", || leaves_nothing(folder.path()));
}
