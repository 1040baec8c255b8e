//! Tests of the `headroom watch` process: the streams that it passes through, its exit status, and its diagnosis of a
//! run that ran out of memory.
//!
//! `HEADROOM_BIN` names a binary to test instead of this build's. The commands are shell commands, which every Unix
//! has.
#![cfg(unix)]

mod common;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use common::{eventually, folder as history, headroom};
use headroom_harness::Watchdog;
use tempfile::TempDir;

/// Returns a `headroom watch` command with options and a history of its own.
fn watch(history: &TempDir, options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(headroom());
    command.arg("watch").arg("--data-dir").arg(history.path()).args(options).arg("--").args(words);
    command.stdin(Stdio::null()).env("LC_ALL", "C.UTF-8").env_remove("COLUMNS");
    command.env_remove("PYTORCH_CUDA_ALLOC_CONF").env_remove("PYTORCH_ALLOC_CONF").env_remove("CUDA_VISIBLE_DEVICES");
    command
}

fn run(words: &[&str]) -> Output {
    watch(&history(), &[], words).output().expect("headroom runs")
}

fn sh(script: &str) -> Output {
    run(&["sh", "-c", script])
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn log() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/logs/nanogpt_cpu_char.log")
}

fn kill(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill runs").success());
}

#[test]
fn a_recorded_run_passes_byte_for_byte() {
    let log = log();
    let output = run(&["cat", log.to_str().expect("a path")]);
    assert_eq!(output.stdout, fs::read(&log).expect("the log"));
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
}

#[test]
fn both_streams_pass_apart() {
    let output = sh("printf 'out\\377 1'; printf 'err\\r1\\n' >&2; printf '\\0out 2'; printf 'err 2' >&2; exit 3");
    assert_eq!(output.stdout, b"out\xff 1\0out 2");
    assert_eq!((text(&output.stderr), output.status.code()), ("err\r1\nerr 2", Some(3)));
}

#[test]
fn streams_that_are_one_file_keep_their_order() {
    let folder = history();
    let path = folder.path().join("both");
    let file = File::create(&path).expect("a file");
    let script = "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let mut command = watch(&folder, &[], &["sh", "-c", script]);
    command.stdout(file.try_clone().expect("a file")).stderr(file);
    assert!(command.status().expect("headroom runs").success());
    let expected: String = (0..200).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!(fs::read_to_string(&path).expect("text"), expected);
}

#[test]
fn it_ends_as_the_command_ends() {
    for code in [0, 1, 3, 42, 255] {
        assert_eq!(sh(&format!("exit {code}")).status.code(), Some(code));
    }
    for (name, signal) in [("KILL", 9), ("TERM", 15), ("SEGV", 11), ("PIPE", 13), ("USR1", 10)] {
        let output = sh(&format!("printf before; kill -{name} $$"));
        assert_eq!((output.status.signal(), text(&output.stdout)), (Some(signal), "before"), "{name}");
    }
}

#[test]
fn killed_at_any_moment_what_was_printed_has_passed() {
    let whole = fs::read(log()).expect("the log");
    let path = log().display().to_string();
    // The log ends before its first byte, inside the config, before its end, inside a line, and at its end.
    for n in [0, 30, 700, 1800, 2500, 3001, whole.len()] {
        let output = sh(&format!("head -c {n} '{path}'; kill -9 $$"));
        assert_eq!((output.status.signal(), &output.stdout[..]), (Some(9), &whole[..n]), "{n}");
    }
}

#[test]
fn missing_command_exits_like_a_shell() {
    for (program, code) in [("no-such-program", 127), ("/", 126)] {
        let output = run(&[program]);
        assert_eq!(output.status.code(), Some(code), "{program}");
        assert!(text(&output.stderr).starts_with(&format!("headroom: cannot run {program}: ")));
    }
    for words in
        [&["watch"][..], &["watch", "--"], &["watch", "python", "train.py"], &["watch", "--pattern=(", "--", "true"]]
    {
        let output = Command::new(headroom()).args(words).output().expect("headroom runs");
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{words:?}");
    }
}

#[test]
fn fifty_megabytes_pass_whole() {
    const N_BYTES: usize = 50_000_000;
    const LINE: &[u8] = b"iter 7: loss 1.0, time 1.00ms, mfu 1.00%\n";
    let history = history();
    let script = format!("yes 'iter 7: loss 1.0, time 1.00ms, mfu 1.00%' | head -c {N_BYTES}");
    let mut child = watch(&history, &[], &["sh", "-c", &script]).stdout(Stdio::piped()).spawn().expect("headroom runs");
    let (mut n, mut buffer, mut stdout) = (0, vec![0; 1 << 16], child.stdout.take().expect("piped"));
    loop {
        let read = stdout.read(&mut buffer).expect("it is read");
        if read == 0 {
            break;
        }
        let mut expected = LINE.iter().cycle().skip(n % LINE.len());
        assert!(buffer[..read].iter().all(|byte| expected.next() == Some(byte)), "after {n} bytes");
        n += read;
    }
    assert!(child.wait().expect("it ends").success());
    assert_eq!(n, N_BYTES);
}

/// A command that keeps running, with its streams. It is killed when the test ends, also on failure.
struct RunningCommand {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    _watchdog: Watchdog,
    _history: TempDir,
}

impl RunningCommand {
    fn start(script: &str) -> Self {
        let history = history();
        let mut command = watch(&history, &[], &["sh", "-c", script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("headroom runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdout, _watchdog: Watchdog::start(history.path()), _history: history }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn status(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        eventually("its end", || {
            status = self.child.try_wait().expect("it is ours");
            status.is_some()
        });
        status.expect("it ended")
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn output_comes_when_it_is_printed_and_input_reaches_the_command() {
    let mut run =
        RunningCommand::start("printf 'name? '; read name; echo \"hello $name\"; read -r more; echo \"end $more\"");
    let mut question = [0; 6];
    // The text arrives without a line end, long before the command ends.
    run.stdout.read_exact(&mut question).expect("it comes");
    assert_eq!(&question, b"name? ");
    let mut stdin = run.child.stdin.take().expect("piped");
    stdin.write_all(b"rig\n").expect("it reads");
    assert_eq!(run.line(), "hello rig");
    drop(stdin);
    assert_eq!((run.line(), run.status().code()), ("end".to_owned(), Some(0)));
}

#[test]
fn signals_reach_the_command_once() {
    for (signal, name) in [("-TERM", "TERM"), ("-INT", "INT"), ("-HUP", "HUP"), ("-QUIT", "QUIT")] {
        let script = format!("trap 'echo got {name}; exit 7' {name}; echo ready; while :; do sleep 0.02; done");
        let mut run = RunningCommand::start(&script);
        assert_eq!(run.line(), "ready");
        kill(signal, run.child.id());
        assert_eq!(run.line(), format!("got {name}"));
        assert_eq!((run.line(), run.status().code()), (String::new(), Some(7)), "{name}");
    }
    // A signal that does not request an end does not end the run.
    let mut run = RunningCommand::start("trap 'echo got USR1' USR1; echo ready; while :; do sleep 0.02; done");
    assert_eq!(run.line(), "ready");
    kill("-USR1", run.child.id());
    assert_eq!(run.line(), "got USR1");
    kill("-TERM", run.child.id());
    assert_eq!(run.status().signal(), Some(15), "the watcher ends by the command's signal");
}

#[test]
#[cfg(target_os = "linux")]
fn hang_up_reaches_the_command_where_the_session_has_no_id() {
    // In a new PID namespace, `getsid` returns 0. Systems that refuse the namespace run the command without it.
    let unshare = ["unshare", "--user", "--map-current-user", "--pid", "--fork"];
    let is_allowed = Command::new(unshare[0]).args(&unshare[1..]).arg("true").stderr(Stdio::null()).status();
    let words = if is_allowed.is_ok_and(|status| status.success()) { &unshare[..] } else { &["env"] };
    let history = history();
    let _watchdog = Watchdog::start(history.path());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(headroom()).arg("watch").arg("--data-dir").arg(history.path());
    let script = "trap 'echo got HUP; exit 7' HUP; kill -HUP $PPID; while :; do sleep 0.02; done";
    let output = command.args(["--", "sh", "-c", script]).output().expect("headroom runs");
    assert_eq!((text(&output.stdout), text(&output.stderr), output.status.code()), ("got HUP\n", "", Some(7)));
}

#[test]
#[cfg(target_os = "linux")]
fn ignored_signal_stays_ignored() {
    let history = history();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(headroom()).arg("watch").arg("--data-dir");
    command.arg(history.path()).args(["--", "sh", "-c", "kill -HUP $$; kill -HUP $PPID; sleep 0.1; echo alive"]);
    let output = command.output().expect("headroom runs");
    assert_eq!((text(&output.stdout), output.status.code()), ("alive\n", Some(0)));
}

#[test]
fn a_reader_that_has_gone_ends_the_command() {
    let mut run = RunningCommand::start("while :; do echo line; done");
    assert_eq!(run.line(), "line");
    // Closes the reading end of the pipe.
    let (nothing, _) = std::io::pipe().expect("a pipe");
    run.stdout = BufReader::new(std::os::fd::OwnedFd::from(nothing).into());
    assert_eq!(run.status().signal(), Some(13));
}

#[test]
fn killed_itself_it_leaves_the_command_running_and_its_output_passing() {
    let mut run = RunningCommand::start(
        "echo $$; i=0; while [ $i -lt 50 ]; do echo alive $i; sleep 0.02; i=$((i+1)); done; echo done",
    );
    let pid: u32 = run.line().parse().expect("a number");
    assert_eq!(run.line(), "alive 0");
    kill("-KILL", run.child.id());
    assert_eq!(run.status().signal(), Some(9));
    // The output exceeds a pipe's capacity, and every line of it arrives.
    for i in 1..50 {
        assert_eq!(run.line(), format!("alive {i}"));
    }
    assert_eq!((run.line(), run.line()), ("done".to_owned(), String::new()));
    let lives = || Command::new("kill").args(["-0", &pid.to_string()]).stderr(Stdio::null()).status();
    eventually("its own end", || !lives().expect("kill runs").success());
}

#[test]
fn killed_with_its_group_or_by_the_terminal_s_signals_it_leaves_the_output_passing() {
    for signal in ["-KILL", "-TERM", "-INT", "-HUP"] {
        // The command ignores the signals that must not end the relay either.
        let script = "trap '' TERM INT HUP; echo ready; sleep 0.5; echo late; echo later >&2";
        let history = history();
        let _watchdog = Watchdog::start(history.path());
        let mut command = watch(&history, &[], &["setsid", "sh", "-c", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().expect("headroom runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("text");
        let group = format!("-{}", child.id());
        assert!(Command::new("kill").args([signal, "--", &group]).status().expect("kill runs").success());
        let (mut out, mut err) = (String::new(), String::new());
        stdout.read_to_string(&mut out).expect("text");
        child.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
        assert_eq!((&*line, &*out, &*err), ("ready\n", "late\n", "later\n"), "{signal}");
        child.wait().expect("it ends");
    }
}

#[test]
fn a_daemon_that_a_command_leaves_behind_does_not_hold_it_up() {
    // A process that is left behind holds the pipe.
    let mut run = RunningCommand::start("sleep 10000 & echo $!; exit 4");
    let daemon: u32 = run.line().parse().expect("a number");
    assert_eq!(run.status().code(), Some(4));
    // It lives still, so the watcher has not waited for it.
    kill("-KILL", daemon);
}

#[test]
fn output_of_orphaned_processes_is_read_to_the_end() {
    let output = sh("(sleep 2; echo late) & echo early; exit 3");
    assert_eq!((text(&output.stdout), output.status.code()), ("early\nlate\n", Some(3)));
    let output = sh("(for i in 1 2 3 4 5 6 7; do sleep 1; echo $i; done) & exit 0");
    assert_eq!((text(&output.stdout), output.status.code()), ("1\n2\n3\n4\n5\n6\n7\n", Some(0)));
}

#[test]
fn a_signal_ends_the_wait_for_what_a_command_left_and_not_its_output() {
    let mut run = RunningCommand::start("(sleep 4; echo late) & echo early");
    assert_eq!(run.line(), "early");
    thread::sleep(Duration::from_millis(1500));
    kill("-INT", run.child.id());
    assert_eq!(run.status().signal(), Some(2), "the command has ended, and the signal is for the watcher");
    assert_eq!(run.line(), "late");
}

#[test]
fn unusable_config_is_refused_before_the_command_starts() {
    for (config, said, status) in [
        ("/dev/zero", "headroom: cannot read /dev/zero: it is longer than 5 MB\n\nhint: ", 2),
        ("/", "headroom: cannot read /: Is a directory", 3),
    ] {
        let history = history();
        let output = watch(&history, &["--config", config], &["echo", "out"]).output().expect("headroom runs");
        assert_eq!((text(&output.stdout), output.status.code()), ("", Some(status)), "{config}");
        assert!(text(&output.stderr).starts_with(said), "{}", text(&output.stderr));
        assert_eq!(fs::read_dir(history.path()).expect("a folder").count(), 0, "nothing is stored: {config}");
    }
}

#[test]
fn a_run_that_cannot_be_kept_runs() {
    let mut command = Command::new(headroom());
    let output = command.args(["watch", "--data-dir", "/dev/null/x", "--", "sh", "-c", "echo out; exit 5"]).output();
    let output = output.expect("headroom runs");
    assert_eq!((text(&output.stdout), output.status.code()), ("out\n", Some(5)));
    // The output of a long run hides the first warning.
    let said = text(&output.stderr);
    assert!(said.starts_with("headroom: this run is not kept: cannot create the data folder /dev/null/x: "), "{said}");
    assert!(said.contains("\nheadroom: this run was not kept: cannot create the data folder /dev/null/x: "), "{said}");
}

/// A program that prints like nanoGPT and runs out of memory if its batch is larger than 40. The message names an RTX
/// 4070, with the figures that `headroom plan` has for such a run.
const TRAIN: &str = r#"
batch=12
steps=40
for word in "$@"; do
    case $word in --*=*) key=${word#--}; echo "Overriding: ${key%%=*} = ${key#*=}";; esac
    case $word in --batch_size=*) batch=${word#--batch_size=};; esac
    case $word in --gradient_accumulation_steps=*) steps=${word#--gradient_accumulation_steps=};; esac
done
echo "run with $*" >> "$RUNS"
echo "tokens per iteration will be: $((batch * steps * 1024))"
echo "number of parameters: ${PARAMETERS:-123.59M}"
if [ -n "$SAVES" ]; then echo "saving checkpoint to out"; fi
if [ "$batch" -gt 40 ] || [ -n "$HOPELESS" ]; then
    cat >&2 <<EOF
Traceback (most recent call last):
  File "train.py", line 300, in <module>
    logits, loss = model(X, Y)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ${ASKED:-6.14 GiB}. GPU 0 has a total capacity of 11.69 GiB of which 3.99 GiB is free. Including non-PyTorch memory, this process has 7.70 GiB memory in use. Of the allocated memory 7.23 GiB is allocated by PyTorch, and 298.86 MiB is reserved by PyTorch but unallocated.
EOF
    exit 1
fi
echo "iter 0: loss 10.9, time 500.00ms, mfu 1.00%"
"#;

/// Runs [`TRAIN`]. Returns the arguments of each start, and the output.
fn train(options: &[&str], variables: &[(&str, &str)]) -> (Vec<String>, Output) {
    let folder = history();
    let (script, runs) = (folder.path().join("train.py"), folder.path().join("runs"));
    fs::write(&script, TRAIN).expect("a file");
    let script = script.display().to_string();
    let words = ["sh", &script, "--batch_size=64", "--compile=False"];
    let mut command = watch(&folder, options, &words);
    for unset in ["SAVES", "HOPELESS", "PARAMETERS", "ASKED"] {
        command.env_remove(unset);
    }
    command.env("RUNS", &runs).envs(variables.iter().copied());
    let output = command.output().expect("headroom runs");
    let starts = fs::read_to_string(&runs).expect("it ran").lines().map(str::to_owned).collect();
    (starts, output)
}

#[test]
fn oom_run_is_diagnosed_and_not_restarted_without_retry() {
    let (starts, output) = train(&[], &[]);
    assert_eq!((starts.len(), output.status.code()), (1, Some(1)));
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("Traceback"), "its own message first: {stderr}");
    for part in ["headroom: the run ran out of memory", "Best change: ", "train.py --"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    assert!(stderr.contains("--retry-with-fix"), "{stderr}");
    assert!(!text(&output.stdout).contains("headroom"));
}

#[test]
fn unmatched_message_gets_a_fix_of_the_plan_that_does_not_fit() {
    let (starts, output) = train(&[], &[("ASKED", "5.55 GiB")]);
    assert_eq!((starts.len(), output.status.code()), (1, Some(1)));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("Best change: ") && stderr.contains("does not match"), "{stderr}");
}

#[test]
fn with_the_fix_it_is_started_again() {
    let (starts, output) = train(&["--retry-with-fix"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!((starts.len(), &starts[0][..]), (2, "run with --batch_size=64 --compile=False"));
    assert!(starts[1].matches("--batch_size=").count() == 1 && !starts[1].contains("=64"), "{}", starts[1]);
    assert!(text(&output.stdout).ends_with("iter 0: loss 10.9, time 500.00ms, mfu 1.00%\n"));
    assert!(text(&output.stderr).contains("headroom: starting it again with this change"));
}

#[test]
fn unfixable_oom_is_not_retried_forever() {
    let (starts, output) = train(&["--retry-with-fix"], &[("HOPELESS", "1")]);
    assert_eq!(output.status.code(), Some(1));
    assert!((2..=4).contains(&starts.len()), "{starts:?}");
    assert!(text(&output.stderr).contains("headroom: not started again: "), "{}", text(&output.stderr));
}

#[test]
fn run_with_checkpoint_is_not_restarted() {
    let (starts, output) = train(&["--retry-with-fix"], &[("SAVES", "1")]);
    assert_eq!((starts.len(), output.status.code()), (1, Some(1)));
    assert!(text(&output.stderr).contains("--init_from=resume"), "{}", text(&output.stderr));
}

#[test]
fn a_run_that_is_not_the_planned_one_is_not_started_again() {
    // In the first case the model has more parameters than its config. In the second the message matches no tensor of
    // the run.
    for (variables, why) in [
        ([("PARAMETERS", "162.19M")], "it prints other figures than its configuration"),
        ([("ASKED", "5.55 GiB")], "the message is not what its configuration would fail with"),
    ] {
        let (starts, output) = train(&["--retry-with-fix"], &variables);
        assert_eq!((starts.len(), output.status.code()), (1, Some(1)), "{why}");
        let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&format!("headroom: not started again: {why}")), "{said}");
        let names_mismatch = said.contains("The message does not match this config.");
        assert_eq!(said.contains("Best change"), names_mismatch, "a fix for another run: {said}");
    }
}
