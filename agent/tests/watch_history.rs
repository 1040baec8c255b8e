//! Tests of the history that `headroom watch` writes, with the real program, its database and the GPUs of a scenario.
#![cfg(unix)]

mod common;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use common::{eventually, folder, headroom};
use headroom_fake_nvml::{Process, Scenario, Stage, code};
use headroom_protocol::{
    event::EventKind,
    run::{Cause, Figure, Run, RunStatus},
};
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

/// Returns a `headroom watch` command. Without a stage it finds no driver.
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

/// Returns the run's events, oldest first.
fn events(history: &TempDir) -> Vec<EventKind> {
    let parsed = |text: String| serde_json::from_str(&text).expect("an event");
    read(history, "SELECT what FROM events WHERE run IS NOT NULL ORDER BY id", parsed)
}

fn runs(history: &TempDir) -> Vec<Run> {
    read(history, "SELECT run FROM runs ORDER BY started_ms, seen_ms", |text| {
        serde_json::from_str(&text).expect("a run")
    })
}

fn log() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/logs/nanogpt_cpu_char.log").display().to_string()
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
    let count = |is: fn(&EventKind) -> bool| events(&history).iter().filter(|what| is(what)).count();
    assert_eq!(count(|what| matches!(what, EventKind::RunEvaluation(_))), 3);
    assert_eq!(count(|what| matches!(what, EventKind::RunCheckpoint { .. })), 2);
}

/// Returns the CSV lines of the only run.
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
    // The events that viewers receive are thinned, and keep the extremes.
    let iterations: Vec<_> = events(&history)
        .into_iter()
        .filter_map(|what| if let EventKind::RunIteration(it) = what { Some(it) } else { None })
        .collect();
    assert!(iterations.len() < 1000, "{}", iterations.len());
    for loss in [4.5, N as f64 - 0.75] {
        assert!(iterations.iter().any(|it| it.loss == Some(loss)), "{loss}");
    }
}

/// Prepares a data set in a directory, and returns the words of a short run of `headroom train` there.
fn training(place: &TempDir, options: &[&str]) -> Vec<String> {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(40);
    std::fs::write(place.path().join("text.txt"), text).expect("a file");
    let mut prepare = Command::new(headroom());
    prepare.args(["data", "prepare", "text.txt", "--out", "data/fox", "--force"]).current_dir(place.path());
    assert!(prepare.output().expect("headroom runs").status.success());
    let keys = "--dataset=fox --n_layer=1 --n_head=2 --n_embd=8 --block_size=8 --batch_size=2 --dropout=0.0 \
        --gradient_accumulation_steps=1 --eval_iters=1 --max_iters=60 --eval_interval=20 --log_interval=1 --device=cpu";
    let program = headroom();
    let words = [program.to_str().expect("a path"), "train"].into_iter().chain(keys.split_whitespace());
    words.chain(options.iter().copied()).map(str::to_owned).collect()
}

#[test]
fn losses_of_every_output_format_are_kept() {
    let place = folder();
    for options in [&["--json"][..], &["--quiet"], &["--quiet", "--json"], &["--color", "always"], &[]] {
        let history = folder();
        let out = format!("--out_dir=out{}", options.concat());
        let words = training(&place, &[options, &[out.as_str()]].concat());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = watch(&history, None, &[], &words);
        let status = command.current_dir(place.path()).stdout(Stdio::null()).status();
        assert!(status.expect("headroom runs").success(), "{options:?}");
        let rows = exported(&history);
        let iters = rows.iter().filter_map(|row| row.strip_prefix("iteration,")?.split(',').nth(1)?.parse().ok());
        assert_eq!(iters.collect::<Vec<u64>>(), (0..=60).collect::<Vec<u64>>(), "{options:?}: {rows:?}");
        assert_eq!(rows.iter().filter(|row| row.starts_with("evaluation,")).count(), 4, "{options:?}: {rows:?}");
        let [run] = &runs(&history)[..] else { panic!("one run") };
        let last = run.last.expect("an iteration");
        assert!(last.loss.is_some() && last.tokens_per_second.is_some() && last.learning_rate.is_some(), "{last:?}");
        let mut folders = events(&history).into_iter().rev().filter_map(|what| match what {
            EventKind::RunCheckpoint { folder } => Some(folder),
            _ => None,
        });
        assert!(folders.next().is_some_and(|folder| out.ends_with(&folder)), "{options:?}");
    }
}

#[test]
fn last_words_are_those_of_the_process_that_failed_first() {
    let traceback = |exception: &str| {
        format!(
            "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n    main()\n{exception}\n"
        )
    };
    let (cause, other) = (traceback("ValueError: cause"), traceback("ConnectionResetError: peer"));
    let figures = "seq 0 5000 | sed 's/.*/iter &: loss 4.5, time 2.00ms, mfu 1.00%/'";
    for (script, expected) in [
        (format!("printf '%s' '{cause}{other}' >&2; exit 1"), format!("{cause}\n{other}")),
        // A program without a buffer writes both streams to one file.
        (format!("exec 2>&1; printf '%s' '{cause}'; {figures}; exit 1"), cause.clone()),
        (format!("printf '%s' '{cause}' >&2; {figures} >&2; exit 1"), cause.clone()),
    ] {
        let history = folder();
        let status = watch(&history, None, &[], &["sh", "-c", &script]).stdout(Stdio::null()).status();
        assert_eq!(status.expect("headroom runs").code(), Some(1));
        let run = runs(&history).remove(0);
        let words = run.explanation.expect("last words").en;
        assert_eq!(words.trim_end(), expected.trim_end());
    }
}

#[test]
fn losses_that_are_not_finite_are_exported() {
    let history = folder();
    let lines = ["iter 0: loss 4.5", "iter 1: loss inf", "iter 2: loss nan"].map(|line| format!("{line}, time 1.00ms"));
    let script = format!("printf '%s\\n' '{}' 'step 3: train loss nan, val loss -inf'", lines.join("' '"));
    let status = watch(&history, None, &[], &["sh", "-c", &script]).stdout(Stdio::null()).status();
    assert!(status.expect("headroom runs").success());
    let rows = exported(&history);
    let fields = |name: &str| {
        let at = rows[0].split(',').position(|column| column == name).expect("a column");
        rows[1..].iter().map(|row| row.split(',').nth(at).expect("a field").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(fields("loss"), ["4.5", "inf", "NaN", ""]);
    assert_eq!(fields("train_loss"), ["", "", "", "NaN"]);
    assert_eq!(fields("val_loss"), ["", "", "", "-inf"]);
    // Events are JSON, which cannot represent these numbers.
    let losses: Vec<_> = events(&history)
        .into_iter()
        .filter_map(|what| if let EventKind::RunIteration(it) = what { Some(it.loss) } else { None })
        .collect();
    assert!(losses.iter().flatten().all(|loss| *loss == 4.5) && losses.contains(&None), "{losses:?}");
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
        // The last iteration whose time was printed completely.
        let printed = whole[..n].lines().rfind(|line| line.starts_with("iter ") && line.contains("ms"));
        let printed = printed.map(|line| line["iter ".len()..line.find(':').expect("a number")].to_owned());
        assert_eq!((run.last.map(|it| it.iter.to_string()), printed.is_some()), (printed, has_iterations), "{n}");
    }
}

/// A watched program that keeps running. It is killed when the test ends, also on failure.
struct WatchedProgram(Child);

impl Drop for WatchedProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn memory_energy_and_the_plan_are_of_the_gpu_it_runs_on() {
    let history = folder();
    let mut scenario = Scenario::of_gpus(2);
    let stage = Stage::new(&history.path().join("driver"), &[], &scenario).expect("a stage");
    // The training is in a child process, as with `torchrun`, and lasts until its input ends.
    let script = "printf 'tokens per iteration will be: 491,520\\nnumber of parameters: 123.59M\\n'; \
                  sh -c 'echo $$; read go; echo \"iter 0: loss 10.9, time 10000.00ms, mfu 13.46%\"; read go; :'";
    let mut command = watch(&history, Some(&stage), &[], &["sh", "-c", script]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("headroom runs");
    let mut running = WatchedProgram(child);
    let mut lines = BufReader::new(running.0.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    let pid: u32 = lines.nth(2).expect("three lines").parse().expect("a number");
    let process = |pid, bytes| Process { pid, memory_used_bytes: Some(bytes), graphics: false };
    // The run is on the second GPU, beside another process.
    scenario.gpus[1].processes = vec![process(pid, 5 * GIB), process(std::process::id(), 3 * GIB)];
    stage.play(&scenario).expect("it is played");
    let uuid = scenario.gpus[1].uuid.clone();
    let seen = EventKind::RunMemory { gpu: uuid.clone(), bytes: 5 * GIB };
    eventually("its memory", || events(&history).contains(&seen));
    let mut stdin = running.0.stdin.take().expect("piped");
    stdin.write_all(b"go\n").expect("it reads");
    assert_eq!(lines.next().as_deref(), Some("iter 0: loss 10.9, time 10000.00ms, mfu 13.46%"));
    eventually("its iteration", || runs(&history).first().is_some_and(|run| run.last.is_some()));
    // The GPU's power draw is a constant 199.5 W.
    eventually("energy", || {
        let start = runs(&history).first().map_or(u64::MAX, |run| run.started_ms);
        start < u64::MAX && std::time::UNIX_EPOCH.elapsed().is_ok_and(|now| now.as_millis() > u128::from(start) + 3500)
    });
    drop(stdin);
    assert!(running.0.wait().expect("it ends").success());
    let [run] = &runs(&history)[..] else { panic!("one run") };
    assert_eq!((run.gpus.as_slice(), run.gpu_memory_peak_bytes), ([uuid].as_slice(), Some(5 * GIB)));
    let plan = run.plan.as_ref().expect("a plan");
    assert!(plan.gpu.contains("RTX 4070") && plan.peak_bytes > GIB && plan.phases.len() > 5, "{plan:?}");
    let last = run.last.expect("an iteration");
    assert_eq!(last.tokens_per_second, Some(49_152.0));
    assert!(
        last.mfu_percent.is_some_and(|mfu| (40.0..=100.0).contains(&mfu)),
        "MFU of an RTX 4070, not of an A100: {last:?}"
    );
    let joules = run.energy_joules.expect("energy");
    let seconds = (run.ended_ms.expect("it ended") - run.started_ms) as f64 / 1000.0;
    assert!((100.0..=199.5 * (seconds + 1.0)).contains(&joules), "{joules} J in {seconds} s");
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
    let found = run.contradiction.expect("it is reported");
    assert_eq!((found.figure, found.printed), (Figure::ParametersMillions, 162.19));
    assert!((found.planned - 123.59).abs() < 0.005, "{found:?}");
    // 600,000 iterations are nanoGPT's default, and the output does not confirm them for this run.
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
    let _agent = WatchedProgram(serve.spawn().expect("headroom runs"));
    let mut command = watch(&history, None, &[], &["sh", "-c", "echo number of parameters: 1.00M; read end"]);
    let mut watcher =
        WatchedProgram(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("headroom runs"));
    let stands = || runs(&history).first().map(|run| run.status);
    eventually("a run", || stands() == Some(RunStatus::Running));
    // The status stays for longer than the agent takes to detect a lost run.
    thread::sleep(Duration::from_secs(5));
    assert_eq!(stands(), Some(RunStatus::Running));
    // Without its directory no other process continues the run.
    std::fs::remove_dir_all(history.path().join("watched")).expect("a folder");
    watcher.0.kill().expect("it is ours");
    eventually("the status lost", || stands() == Some(RunStatus::Lost));
    let run = runs(&history).remove(0);
    let ended_ms = run.ended_ms.expect("it ended");
    // It ended when it was last seen, and not when that was noticed.
    let seen_ms = read(&history, "SELECT seen_ms || '' FROM runs", |text| text.parse::<u64>().expect("a time"));
    assert!(ended_ms >= run.started_ms && ended_ms <= seen_ms[0], "{ended_ms} for {seen_ms:?}");
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
    // The diagnosis exists in each language, with figures in that language's format.
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
        EventKind::RunRetried { next, changes } => Some((next, changes)),
        _ => None,
    });
    let (next, changes) = retried.expect("it is reported");
    assert_eq!(next, second.id);
    assert!(changes.iter().all(|(key, value)| second.command.contains(&format!("--{key}={value}"))), "{changes:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_error_of_its_gpu_explains_a_run_s_end() {
    let history = folder();
    let mut scenario = Scenario::of_gpus(1);
    let stage = Stage::new(&history.path().join("driver"), &[], &scenario).expect("a stage");
    let go = history.path().join("go");
    let script = format!("echo $$; while [ ! -e '{}' ]; do sleep 0.05; done; exit 3", go.display());
    let mut child =
        watch(&history, Some(&stage), &[], &["sh", "-c", &script]).stdout(Stdio::piped()).spawn().expect("it");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its number");
    let pid: u32 = line.trim().parse().expect("a number");
    scenario.gpus[0].processes = vec![Process { pid, memory_used_bytes: Some(GIB), graphics: false }];
    stage.play(&scenario).expect("it is written");
    eventually("its process on the GPU", || runs(&history).first().is_some_and(|run| !run.gpus.is_empty()));
    // Errors are polled once per second, and readings of processes are a second apart. The watcher listens for errors
    // after the second reading, and has the error two readings later.
    for n_gib in 2..=6 {
        if n_gib == 4 {
            scenario.gpus[0].xids = vec![(0.0, 79)];
        }
        scenario.gpus[0].processes = vec![Process { pid, memory_used_bytes: Some(n_gib * GIB), graphics: false }];
        stage.play(&scenario).expect("it is written");
        eventually("the memory besides", || runs(&history)[0].gpu_memory_peak_bytes == Some(n_gib * GIB));
    }
    std::fs::write(&go, "").expect("a file");
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
    let run = runs(&history).remove(0);
    assert!(run.energy_joules.is_some_and(|joules| joules > 0.0), "{run:?}");
    assert_eq!(run.status, RunStatus::exited(3).because(Some(Cause::GpuError)));
    assert!(run.explanation.is_some_and(|why| why.en.contains("Xid 79") && why.en.contains("fallen off the bus")));
    assert!(events(&history).iter().any(|what| matches!(what, EventKind::RunExplained { xid: Some(79), .. })));
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_whose_gpu_is_found_late_has_memory_and_energy_since_then() {
    let history = folder();
    // The driver is not loaded when the run begins.
    let mut scenario = Scenario { init: code::DRIVER_NOT_LOADED, ..Scenario::of_gpus(1) };
    let stage = Stage::new(&history.path().join("driver"), &[], &scenario).expect("a stage");
    let script = "echo $$; read line";
    let mut watch = watch(&history, Some(&stage), &[], &["sh", "-c", script]);
    let mut child = watch.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its number");
    let pid: u32 = line.trim().parse().expect("a number");
    eventually("a run", || runs(&history).len() == 1);
    assert!(runs(&history)[0].gpus.is_empty(), "there is no GPU");
    // The driver is loaded, then the process appears on the GPU, then its memory grows.
    scenario.init = code::SUCCESS;
    for n_gib in 0..=4 {
        if n_gib > 0 {
            scenario.gpus[0].processes = vec![Process { pid, memory_used_bytes: Some(n_gib * GIB), graphics: false }];
        }
        stage.play(&scenario).expect("it is written");
        let peak = || runs(&history)[0].gpu_memory_peak_bytes;
        eventually("the memory", || n_gib == 0 || peak() == Some(n_gib * GIB));
    }
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(1), "the reader sees the end of the stream");
    let run = runs(&history).remove(0);
    assert_eq!((run.gpus.len(), run.gpu_memory_peak_bytes), (1, Some(4 * GIB)));
    assert!(run.energy_joules.is_some_and(|joules| joules > 0.0), "{run:?}");
    assert!(run.gpu_since_ms.is_some_and(|since_ms| since_ms > run.started_ms), "{run:?}");
}

#[test]
fn output_passes_while_history_cannot_be_written() {
    let history = folder();
    // A directory has the name of the database file.
    std::fs::create_dir(history.path().join("history.sqlite")).expect("a folder");
    let output = watch(&history, None, &[], &["cat", &log()]).output().expect("headroom runs");
    assert_eq!(output.stdout, std::fs::read(log()).expect("the log"));
    assert_eq!(output.status.code(), Some(0));
}
