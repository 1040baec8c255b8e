//! What `headroom watch` leaves in history: the real program, its file, and cards of a scenario.
#![cfg(unix)]

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use headroom_fake_nvml::{Process, Scenario, Stage, code};
use headroom_shared::protocol::{
    event::What,
    run::{Cause, Figure, Run, RunStatus},
};
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

/// What anything here takes at most, on a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(30);
const GIB: u64 = 1 << 30;

fn headroom() -> OsString {
    std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into())
}

/// A watched command. Without a driver of a scenario it finds none.
fn watch(history: &TempDir, stage: Option<&Stage>, options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(headroom());
    command.arg("watch").arg("--data-dir").arg(history.path()).args(options).arg("--").args(words);
    let library = stage.map_or_else(|| history.path().join("none"), Stage::library);
    command.env("HEADROOM_NVML", library).env_remove("CUDA_VISIBLE_DEVICES").stderr(Stdio::null());
    command
}

fn read<T>(history: &TempDir, query: &str, of_row: impl Fn(String) -> T) -> Vec<T> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let Ok(file) = Connection::open_with_flags(history.path().join("history.sqlite"), flags) else { return vec![] };
    let Ok(mut rows) = file.prepare(query) else { return vec![] };
    let texts = rows.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    texts.map(|text| of_row(text.expect("a text"))).collect()
}

/// What happened, oldest first.
fn events(history: &TempDir) -> Vec<What> {
    let parsed = |text: String| serde_json::from_str(&text).expect("an event");
    read(history, "SELECT what FROM events WHERE run IS NOT NULL ORDER BY id", parsed)
}

fn runs(history: &TempDir) -> Vec<Run> {
    read(history, "SELECT run FROM runs ORDER BY started_ms, seen_ms", |text| {
        serde_json::from_str(&text).expect("a run")
    })
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn log() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/logs/nanogpt_cpu_char.log").display().to_string()
}

#[track_caller]
fn eventually(what: &str, mut has_come: impl FnMut() -> bool) {
    let start = Instant::now();
    while !has_come() {
        assert!(start.elapsed() < DEADLINE, "{what} does not come");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_recorded_run_is_kept() {
    let history = folder();
    let status = watch(&history, None, &["--name", "mine"], &["cat", &log()]).stdout(Stdio::null()).status();
    assert!(status.expect("headroom runs").success());
    let [run] = &runs(&history)[..] else { panic!("one run") };
    assert_eq!((&run.name[..], run.status), ("mine", RunStatus::exited(0)));
    assert_eq!(run.command, ["cat", &log()]);
    assert_eq!((run.parameters_millions, run.max_iters), (Some(7.23), Some(40)));
    assert!(run.config.as_ref().is_some_and(|config| config.contains("Overriding: n_layer = 4")));
    let last = run.last.expect("an iteration");
    assert_eq!((last.iter, last.loss, last.time_ms), (40, Some(8.4819), 2302.22));
    assert_eq!(run.last_evaluation.map(|at| (at.iter, at.val_loss)), Some((40, Some(8.4750))));
    let count = |is: fn(&What) -> bool| events(&history).iter().filter(|what| is(what)).count();
    assert_eq!(count(|what| matches!(what, What::RunEvaluation(_))), 3);
    assert_eq!(count(|what| matches!(what, What::RunCheckpoint { .. })), 2);
}

/// The CSV of the only run.
fn exported(history: &TempDir) -> Vec<String> {
    let [run] = &runs(history)[..] else { panic!("one run") };
    let mut export = Command::new(headroom());
    export.args(["runs", "export", &run.id, "--data-dir"]).arg(history.path());
    let output = export.output().expect("headroom runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn every_printed_iteration_is_kept_however_fast_it_comes() {
    const N: usize = 300_000;
    let history = folder();
    let script = format!(
        "i=0; while [ $i -lt 5 ]; do echo \"iter $i: loss 4.5, time 1.00ms, mfu 1.00%\"; i=$((i+1)); done; \
         seq 5 {} | sed 's/.*/iter &: loss &.25, time 2.00ms, mfu 1.00%/'",
        N - 1
    );
    let status = watch(&history, None, &[], &["sh", "-c", &script]).stdout(Stdio::null()).status();
    assert!(status.expect("headroom runs").success());
    let rows = exported(&history);
    let iters = rows.iter().filter_map(|row| row.strip_prefix("iteration,")?.split(',').nth(1)?.parse::<usize>().ok());
    assert!(iters.eq(0..N), "{} rows of {N}", rows.len());
    assert!(!rows.iter().any(|row| row.starts_with("left_out")));
    // What viewers are told is thinned, and has the extremes.
    let told: Vec<_> = events(&history)
        .into_iter()
        .filter_map(|what| if let What::RunIteration(it) = what { Some(it) } else { None })
        .collect();
    assert!(told.len() < 1000, "{}", told.len());
    for loss in [4.5, N as f64 - 0.75] {
        assert!(told.iter().any(|it| it.loss == Some(loss)), "{loss}");
    }
}

#[test]
fn killed_at_every_stage_it_is_kept_as_far_as_it_came() {
    let whole = std::fs::read_to_string(log()).expect("the log");
    for (n, has_config, has_iterations) in
        [(0, false, false), (700, true, false), (2907, true, true), (4100, true, true)]
    {
        let history = folder();
        let script = format!("head -c {n} '{}'; kill -9 $$", log());
        let status = watch(&history, None, &[], &["sh", "-c", &script]).stdout(Stdio::null()).status();
        assert_eq!(status.expect("headroom runs").code(), None, "{n}");
        let [run] = &runs(&history)[..] else { panic!("one run") };
        assert_eq!(run.status, RunStatus::killed(9), "{n}");
        assert_eq!(run.config.is_some(), has_config, "{n}");
        // The last whose time was printed whole.
        let printed = whole[..n].lines().rfind(|line| line.starts_with("iter ") && line.contains("ms"));
        let printed = printed.map(|line| line["iter ".len()..line.find(':').expect("a number")].to_owned());
        assert_eq!((run.last.map(|it| it.iter.to_string()), printed.is_some()), (printed, has_iterations), "{n}");
    }
}

/// A watched program that runs on; killed with the test, whatever comes.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn memory_energy_and_the_plan_are_of_the_card_it_runs_on() {
    let history = folder();
    let mut scenario = Scenario::of_cards(2);
    let stage = Stage::new(&history.path().join("driver"), &[], &scenario).expect("a stage");
    // A program that trains in a process of its own, as torchrun's do, until its input ends.
    let script = "printf 'tokens per iteration will be: 491,520\\nnumber of parameters: 123.59M\\n'; \
                  sh -c 'echo $$; read go; echo \"iter 0: loss 10.9, time 10000.00ms, mfu 13.46%\"; read go; :'";
    let mut command = watch(&history, Some(&stage), &[], &["sh", "-c", script]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("headroom runs");
    let mut running = Running(child);
    let mut lines = BufReader::new(running.0.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    let pid: u32 = lines.nth(2).expect("three lines").parse().expect("a number");
    let process = |pid, bytes| Process { pid, memory_used_bytes: Some(bytes), graphics: false };
    // On the second card, beside a stranger.
    scenario.cards[1].processes = vec![process(pid, 5 * GIB), process(std::process::id(), 3 * GIB)];
    stage.play(&scenario).expect("it is played");
    let uuid = scenario.cards[1].uuid.clone();
    let seen = What::RunMemory { gpu: uuid.clone(), bytes: 5 * GIB };
    eventually("its memory", || events(&history).contains(&seen));
    let mut stdin = running.0.stdin.take().expect("piped");
    stdin.write_all(b"go\n").expect("it reads");
    assert_eq!(lines.next().as_deref(), Some("iter 0: loss 10.9, time 10000.00ms, mfu 13.46%"));
    eventually("its iteration", || runs(&history).first().is_some_and(|run| run.last.is_some()));
    // Its card takes 199.5 W all the time.
    eventually("energy", || {
        let start = runs(&history).first().map_or(u64::MAX, |run| run.started_ms);
        start < u64::MAX && std::time::UNIX_EPOCH.elapsed().is_ok_and(|now| now.as_millis() > u128::from(start) + 3500)
    });
    drop(stdin);
    assert!(running.0.wait().expect("it ends").success());
    let [run] = &runs(&history)[..] else { panic!("one run") };
    assert_eq!((run.gpus.as_slice(), run.gpu_memory_peak_bytes), ([uuid].as_slice(), Some(5 * GIB)));
    let plan = run.plan.as_ref().expect("a plan");
    assert!(plan.card.contains("RTX 4070") && plan.peak_bytes > GIB && plan.phases.len() > 5, "{plan:?}");
    let last = run.last.expect("an iteration");
    assert_eq!(last.tokens_per_second, Some(49_152.0));
    assert!(last.mfu_percent.is_some_and(|mfu| (40.0..=100.0).contains(&mfu)), "of a 4070, not of an A100: {last:?}");
    let joules = run.energy_joules.expect("energy");
    assert!((100.0..199.5 * 60.0).contains(&joules), "{joules}");
}

#[test]
fn a_run_that_prints_other_figures_than_its_config_s_has_no_prediction() {
    let history = folder();
    let script = "echo 'Overriding: batch_size = 2'; echo 'tokens per iteration will be: 81,920'; \
                  echo 'number of parameters: 162.19M'; echo 'iter 0: loss 10.9, time 1000.00ms, mfu 1.00%'";
    let options = ["--gpu", "RTX 4070"];
    let status = watch(&history, None, &options, &["sh", "-c", script]).stdout(Stdio::null()).status();
    assert!(status.expect("headroom runs").success());
    let [run] = &runs(&history)[..] else { panic!("one run") };
    let found = run.contradiction.expect("it is told");
    assert_eq!((found.figure, found.printed), (Figure::ParametersMillions, 162.19));
    assert!((found.planned - 123.59).abs() < 0.005, "{found:?}");
    // 600,000 iterations are nanoGPT's, and nobody said that they are this run's.
    assert_eq!((&run.plan, run.max_iters), (&None, None));
    let last = run.last.expect("an iteration");
    assert_eq!((last.tokens_per_second, last.mfu_percent), (Some(81_920.0), None));
}

#[test]
#[cfg(target_os = "linux")]
fn a_watcher_that_is_killed_leaves_a_run_that_ended_then() {
    let history = folder();
    let mut serve = Command::new(headroom());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(history.path());
    serve.env("HEADROOM_NVML", history.path().join("none")).stdout(Stdio::null()).stderr(Stdio::null());
    let _agent = Running(serve.spawn().expect("headroom runs"));
    let mut command = watch(&history, None, &[], &["sh", "-c", "echo number of parameters: 1.00M; read end"]);
    let mut watcher = Running(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("headroom runs"));
    let stands = || runs(&history).first().map(|run| run.status);
    eventually("a run", || stands() == Some(RunStatus::Running));
    // It stays so for longer than it takes to miss one that is gone.
    thread::sleep(Duration::from_secs(5));
    assert_eq!(stands(), Some(RunStatus::Running));
    watcher.0.kill().expect("it is ours");
    let killed_ms = now_ms();
    let killed = Instant::now();
    eventually("that it is lost", || stands() == Some(RunStatus::Lost));
    // By its silence alone it would be lost eleven seconds after this at the earliest.
    assert!(killed.elapsed() < Duration::from_secs(11), "{:?}", killed.elapsed());
    let ended_ms = runs(&history)[0].ended_ms.expect("it ended");
    assert!((killed_ms - 10_000..=killed_ms).contains(&ended_ms), "{ended_ms} for {killed_ms}");
}

#[cfg(target_os = "linux")]
fn now_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().ok().and_then(|now| u64::try_from(now.as_millis()).ok()).expect("a time")
}

#[test]
fn a_run_that_is_started_again_names_the_next() {
    let history = folder();
    let script = history.path().join("train.py");
    let text = "for word in \"$@\"; do case $word in --*=*) key=${word#--}; echo \"Overriding: ${key%%=*} = ${key#*=}\";; esac; done\n\
        echo 'number of parameters: 123.59M'\n\
        case \"$*\" in *--batch_size=64*) ;; *) exit 0;; esac\n\
        echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 11.69 GiB \
        of which 3.99 GiB is free. Including non-PyTorch memory, this process has 7.70 GiB memory in use. Of the allocated \
        memory 7.23 GiB is allocated by PyTorch, and 298.86 MiB is reserved by PyTorch but unallocated.' >&2; exit 1\n";
    std::fs::write(&script, text).expect("a file");
    let words = ["sh", script.to_str().expect("a path"), "--batch_size=64", "--compile=False"];
    let status = watch(&history, None, &["--retry-with-fix"], &words).stdout(Stdio::null()).status();
    assert!(status.expect("headroom runs").success());
    let [first, second] = &runs(&history)[..] else { panic!("two runs: {:?}", runs(&history)) };
    assert!(first.oom.as_ref().is_some_and(|message| message.contains("Tried to allocate 6.14 GiB")), "{first:?}");
    assert_eq!(
        [first.status, second.status],
        [RunStatus::exited(1).because(Some(Cause::OutOfGpuMemory)), RunStatus::exited(0)]
    );
    assert_eq!(second.oom, None);
    // What it means is there in each language, with the figures as that writes them.
    let diagnosis = first.diagnosis.as_ref().expect("a diagnosis");
    assert!(diagnosis.sentence.contains("6.14 GiB"), "{diagnosis:?}");
    let others: Vec<&str> = diagnosis.others.iter().map(|said| said.language.as_str()).collect();
    assert_eq!(others, ["zh", "ja", "de"]);
    for said in &diagnosis.others {
        let size = if said.language == "de" { "6,14 GiB" } else { "6.14 GiB" };
        assert!(said.sentence.contains(size) && said.sentence != diagnosis.sentence, "{said:?}");
        let change = said.change.as_ref().expect("a change");
        assert!(change.contains("GiB") && change.contains('%') && !change.contains("same training"), "{change}");
    }
    let retried = events(&history).into_iter().find_map(|what| match what {
        What::RunRetried { next, changes } => Some((next, changes)),
        _ => None,
    });
    let (next, changes) = retried.expect("it is told");
    assert_eq!(next, second.id);
    assert!(changes.iter().all(|(key, value)| second.command.contains(&format!("--{key}={value}"))), "{changes:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_error_of_its_card_explains_a_run_s_end() {
    let history = folder();
    let mut scenario = Scenario::of_cards(1);
    let stage = Stage::new(&history.path().join("driver"), &[], &scenario).expect("a stage");
    let go = history.path().join("go");
    let script = format!("echo $$; while [ ! -e '{}' ]; do sleep 0.05; done; exit 3", go.display());
    let mut child =
        watch(&history, Some(&stage), &[], &["sh", "-c", &script]).stdout(Stdio::piped()).spawn().expect("it");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its number");
    let pid: u32 = line.trim().parse().expect("a number");
    scenario.cards[0].processes = vec![Process { pid, memory_used_bytes: Some(GIB), graphics: false }];
    stage.play(&scenario).expect("it is written");
    eventually("that it is seen on its card", || runs(&history).first().is_some_and(|run| !run.gpus.is_empty()));
    // Errors are asked for once a second, and readings of processes are a second apart: it is listened for by the second of
    // them, and known two later.
    for n_gib in 2..=6 {
        if n_gib == 4 {
            scenario.cards[0].xids = vec![(0.0, 79)];
        }
        scenario.cards[0].processes = vec![Process { pid, memory_used_bytes: Some(n_gib * GIB), graphics: false }];
        stage.play(&scenario).expect("it is written");
        eventually("the memory besides", || runs(&history)[0].gpu_memory_peak_bytes == Some(n_gib * GIB));
    }
    std::fs::write(&go, "").expect("a file");
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
    let run = runs(&history).remove(0);
    assert!(run.energy_joules.is_some_and(|joules| joules > 0.0), "{run:?}");
    assert_eq!(run.status, RunStatus::exited(3).because(Some(Cause::CardError)));
    assert!(run.explanation.is_some_and(|why| why.contains("Xid 79") && why.contains("fallen off the bus")));
    assert!(events(&history).iter().any(|what| matches!(what, What::RunExplained { xid: Some(79), .. })));
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_whose_card_is_found_late_has_memory_and_energy_since_then() {
    let history = folder();
    // The driver is not loaded yet as the run begins.
    let mut scenario = Scenario { init: code::DRIVER_NOT_LOADED, ..Scenario::of_cards(1) };
    let stage = Stage::new(&history.path().join("driver"), &[], &scenario).expect("a stage");
    let script = "echo $$; read line";
    let mut watch = watch(&history, Some(&stage), &[], &["sh", "-c", script]);
    let mut child = watch.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its number");
    let pid: u32 = line.trim().parse().expect("a number");
    eventually("a run", || runs(&history).len() == 1);
    assert!(runs(&history)[0].gpus.is_empty(), "there is no card");
    // The driver comes; then the process is on the card; then it takes more.
    scenario.init = code::SUCCESS;
    for n_gib in 0..=4 {
        if n_gib > 0 {
            scenario.cards[0].processes = vec![Process { pid, memory_used_bytes: Some(n_gib * GIB), graphics: false }];
        }
        stage.play(&scenario).expect("it is written");
        let peak = || runs(&history)[0].gpu_memory_peak_bytes;
        eventually("the memory", || n_gib == 0 || peak() == Some(n_gib * GIB));
    }
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(1), "what reads meets the end");
    let run = runs(&history).remove(0);
    assert_eq!((run.gpus.len(), run.gpu_memory_peak_bytes), (1, Some(4 * GIB)));
    assert!(run.energy_joules.is_some_and(|joules| joules > 0.0), "{run:?}");
    assert!(run.gpu_since_ms.is_some_and(|since_ms| since_ms > run.started_ms), "{run:?}");
}

#[test]
fn output_passes_while_history_cannot_be_written() {
    let history = folder();
    // A folder stands where the file should.
    std::fs::create_dir(history.path().join("history.sqlite")).expect("a folder");
    let output = watch(&history, None, &[], &["cat", &log()]).output().expect("headroom runs");
    assert_eq!(output.stdout, std::fs::read(log()).expect("the log"));
    assert_eq!(output.status.code(), Some(0));
}
