//! Tests of a run's directory. It is checked before the run trains, no new run replaces a checkpoint in it, and the
//! best checkpoint stays beside the last.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use crate::started::{finished, folder, headroom, losses, refused, said, tiny};

const LAST: &str = "ckpt.safetensors";
const BEST: &str = "ckpt.best.safetensors";

/// Trains for a while, sends an interrupt, and returns the output.
#[cfg(unix)]
fn interrupted(folder: &Path, more: &[&str]) -> Output {
    let mut child = tiny(folder, more).spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    for _ in 0..200 {
        stdout.read_line(&mut String::new()).expect("a line");
    }
    let reads = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(asked.success());
    let output = child.wait_with_output().expect("it ends");
    reads.join().expect("it ends").expect("it can be read");
    output
}

#[test]
fn a_run_that_cannot_save_fails_before_it_trains() {
    let folder = folder();
    fs::write(folder.path().join("file"), "").expect("space");
    for (taken, name) in [("taken", LAST), ("best", BEST)] {
        fs::create_dir_all(folder.path().join(taken).join(name)).expect("space");
    }
    for (out_dir, why) in [
        ("--out_dir=file/out", "file/out: "),
        ("--out_dir=taken", "ckpt.safetensors is a directory"),
        ("--out_dir=best", "ckpt.best.safetensors is a directory"),
    ] {
        let mut run = tiny(folder.path(), &["--max_iters=3", "--eval_interval=1000", out_dir]);
        let words = ["cannot save checkpoints in ", why, "hint: use another folder with --out_dir="];
        refused(&mut run, 3, &words);
        assert_eq!(losses(&run.output().expect("it runs").stdout).len(), 0, "{out_dir}");
        assert!(!folder.path().join("out").exists());
    }
    for taken in ["taken", "best"] {
        let left: Vec<_> = fs::read_dir(folder.path().join(taken)).expect("a folder").flatten().collect();
        assert_eq!(left.len(), 1, "no probe is left: {left:?}");
    }
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_checkpoints() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3", "--eval_interval=1"]));
    finished(&mut headroom(folder.path(), &["export", "--ckpt", "out", "--format", "ckpt.pt", "--out", "out"]));
    for name in [LAST, "ckpt.pt"] {
        let mode = fs::metadata(folder.path().join("out").join(name)).expect("a checkpoint").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[cfg(unix)]
#[test]
fn checkpoint_beyond_the_file_size_limit_is_refused_before_the_run() {
    let folder = folder();
    let limited = |more: &[&str]| {
        let program = tiny(folder.path(), more);
        // A unit of `ulimit -f` has 512 or 1,024 bytes, and the checkpoint has 16 KB.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 4; exec \"$@\"", "sh"]).arg(program.get_program()).args(program.get_args());
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut run = limited(&["--max_iters=3", "--eval_interval=1000"]);
    refused(&mut run, 3, &["cannot save checkpoints in out: each takes ", "(ulimit -f)", "hint: raise the limit"]);
    assert!(!folder.path().join("out").exists());
    let plan = limited(&["--plan"]).output().expect("it runs");
    assert_eq!(plan.status.code(), Some(1));
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    assert_eq!(plan["disk"]["fits"], false, "{plan}");
    assert!(plan["disk"]["file_limit_bytes"].as_u64() < plan["disk"]["checkpoint_bytes"].as_u64(), "{plan}");
    finished(&mut tiny(folder.path(), &["--max_iters=3", "--eval_interval=1000"]));
}

#[test]
fn plan_warns_of_the_checkpoint_of_another_run() {
    let folder = folder();
    let plan = ["--plan", "--out_dir=mine"];
    let warned = |output: &Output| said(output).contains("warning: ");
    assert!(!warned(&finished(&mut tiny(folder.path(), &plan))));
    finished(&mut tiny(folder.path(), &["--max_iters=1", "--out_dir=mine"]));
    let output = finished(&mut tiny(folder.path(), &plan));
    assert!(
        said(&output).contains("mine/") && said(&output).contains("--force") && warned(&output),
        "{}",
        said(&output)
    );
    assert!(!warned(&finished(&mut tiny(folder.path(), &[&plan[..], &["--force"]].concat()))));
    assert!(!warned(&finished(&mut tiny(folder.path(), &[&plan[..], &["--init_from=resume"]].concat()))));
    // The checkpoint is on this machine, and the planned run is not.
    let elsewhere = ["--device=cuda", "--vram=8GiB", "--n_embd=16", "--n_head=2"];
    assert!(!warned(&finished(&mut tiny(folder.path(), &[&plan[..], &elsewhere].concat()))));
}

#[test]
fn a_new_run_replaces_no_checkpoint() {
    let folder = folder();
    let read = |dir: &str| fs::read(folder.path().join(dir).join(LAST)).expect("a checkpoint");
    finished(&mut tiny(folder.path(), &["--max_iters=3", "--out_dir=mine"]));
    let first = read("mine");
    let again = ["--max_iters=3", "--out_dir=mine", "--seed=7"];
    let words = ["cannot start a new run: mine/ckpt.safetensors", "--force", "--init_from=resume"];
    refused(&mut tiny(folder.path(), &again), 1, &words);
    fs::write(folder.path().join("my.py"), "out_dir = 'mine'\n").expect("space");
    refused(&mut tiny(folder.path(), &["--max_iters=3", "my.py"]), 1, &words);
    assert!(read("mine") == first);
    // An evaluation saves nothing.
    finished(&mut tiny(folder.path(), &["--eval_only=True", "--out_dir=mine"]));
    assert!(read("mine") == first);
    finished(&mut tiny(folder.path(), &[&again[..], &["--force"]].concat()));
    assert!(read("mine") != first);

    // The default directory is not an explicit choice, so a new run may move to another one.
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    let first = read("out");
    for next in ["out-2", "out-3"] {
        let output = finished(&mut tiny(folder.path(), &["--max_iters=3", "--seed=7"]));
        let moved = format!("out has the checkpoint of another run. This run saves to {next}.\n");
        assert!(said(&output).contains(&moved), "{}", said(&output));
        assert!(said(&output).ends_with(&format!("headroom sample --ckpt {next}\n")), "{}", said(&output));
        assert!(read("out") == first && read(next) != first);
    }
    // A resumed run saves to its own directory.
    let resumed = finished(&mut tiny(folder.path(), &["--max_iters=5", "--init_from=resume", "--out_dir=out-2"]));
    assert_eq!(losses(&resumed.stdout).keys().copied().collect::<Vec<_>>(), [4, 5]);
    assert!(read("out") == first && !folder.path().join("out-4").exists());
}

/// Starts a run that saves nothing until it is stopped, and waits for its first line.
fn unsaved(folder: &Path, more: &[&str]) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let endless = ["--max_iters=100000000", "--eval_interval=100000000", "--eval_iters=1"];
    let mut child = tiny(folder, &[&endless, more].concat()).spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdout.read_line(&mut String::new()).expect("a line");
    (child, stdout)
}

#[test]
fn new_run_leaves_the_default_folder_to_an_active_one() {
    let folder = folder();
    let (mut first, _stdout) = unsaved(folder.path(), &[]);
    let second = finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    let moved = "out is in use by another run. This run saves to out-2.\n";
    assert!(said(&second).contains(moved), "{}", said(&second));
    assert!(folder.path().join("out-2").join(LAST).is_file());
    // Runs that start at the same time take different directories.
    let runs: Vec<_> = (0..4).map(|_| tiny(folder.path(), &["--max_iters=3"]).spawn().expect("it starts")).collect();
    for run in runs {
        let output = run.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", said(&output));
    }
    for n in 3..=6 {
        assert!(folder.path().join(format!("out-{n}")).join(LAST).is_file(), "out-{n}");
    }
    // A directory that the user names is not exchanged for another one.
    refused(&mut tiny(folder.path(), &["--max_iters=3", "--out_dir=out"]), 1, &["another run writes", "--out_dir="]);
    first.kill().expect("it is ours");
    first.wait().expect("it ends");
}

#[test]
fn new_run_refuses_a_folder_with_a_checkpoint_of_nanogpt() {
    let folder = folder();
    for dir in ["mine", "out"] {
        fs::create_dir(folder.path().join(dir)).expect("space");
        fs::write(folder.path().join(dir).join("ckpt.pt"), "nanoGPT's").expect("space");
    }
    let mine = ["--max_iters=3", "--out_dir=mine"];
    let words = ["cannot start a new run: mine/ckpt.pt", "--init_from=resume", "--force saves beside it"];
    refused(&mut tiny(folder.path(), &mine), 1, &words);
    let names = |dir: &str| fs::read_dir(folder.path().join(dir)).expect("a folder").count();
    assert_eq!(names("mine"), 1, "nothing is written");
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    assert_eq!((names("out"), folder.path().join("out-2").join(LAST).is_file()), (1, true));
    finished(&mut tiny(folder.path(), &[&mine[..], &["--force"]].concat()));
    assert_eq!(fs::read_to_string(folder.path().join("mine/ckpt.pt")).expect("a file"), "nanoGPT's");
    assert!(folder.path().join("mine").join(LAST).is_file());
}

#[cfg(target_os = "linux")]
#[test]
fn hang_up_saves_a_checkpoint_unless_it_is_ignored() {
    let folder = folder();
    let hang_up = |id: u32| {
        let asked = Command::new("kill").args(["-HUP", &id.to_string()]).status().expect("kill is there");
        assert!(asked.success());
    };
    let (child, stdout) = unsaved(folder.path(), &["--out_dir=hup"]);
    let reads = std::thread::spawn(move || { stdout }.read_to_end(&mut Vec::new()));
    // A closed terminal sends it more than once.
    hang_up(child.id());
    hang_up(child.id());
    let output = child.wait_with_output().expect("it ends");
    reads.join().expect("it ends").expect("it can be read");
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(said(&output).contains("--init_from=resume"), "{}", said(&output));
    assert!(folder.path().join("hup").join(LAST).is_file());

    // With `nohup` the run ignores it.
    let run = tiny(folder.path(), &["--max_iters=100000000", "--eval_interval=100000000", "--out_dir=nohup"]);
    let mut nohup = Command::new("nohup");
    nohup.arg(run.get_program()).args(run.get_args()).current_dir(folder.path());
    nohup.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = nohup.spawn().expect("nohup is there");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    stdout.read_line(&mut String::new()).expect("a line");
    hang_up(child.id());
    for _ in 0..200 {
        assert!(stdout.read_line(&mut String::new()).expect("a line") > 0, "it continues");
    }
    assert!(child.try_wait().expect("it is ours").is_none());
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
}

#[test]
fn runs_that_start_together_share_the_built_in_data_set() {
    let folder = folder();
    let stories = ["train", "--threads=1", "--device=cpu", "--n_layer=1", "--n_head=1", "--n_embd=8", "--block_size=8"];
    let stories = [&stories[..], &["--batch_size=1", "--eval_iters=1", "--max_iters=1"]].concat();
    let start = || headroom(folder.path(), &stories).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let runs: Vec<_> = (0..3).map(|_| start().expect("headroom runs")).collect();
    for run in runs {
        let output = run.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", said(&output));
    }
    assert!(
        ["out-stories", "out-stories-2", "out-stories-3"].iter().all(|out| folder
            .path()
            .join(out)
            .join(LAST)
            .is_file())
    );
}

#[test]
fn resume_without_a_folder_takes_the_newest_run_of_the_data_set() {
    let folder = folder();
    let resume = |more: &[&str]| headroom(folder.path(), &[&["train", "--init_from=resume", "--json"], more].concat());
    refused(&mut resume(&[]), 3, &["no checkpoint found: out does not exist"]);
    let stories = ["train", "--threads=1", "--device=cpu", "--n_layer=1", "--n_head=1", "--n_embd=8", "--block_size=8"];
    let stories =
        [&stories[..], &["--batch_size=1", "--eval_interval=1", "--eval_iters=1", "--log_interval=1"]].concat();
    for _ in 0..2 {
        finished(&mut headroom(folder.path(), &[&stories[..], &["--max_iters=1"]].concat()));
    }
    assert!(folder.path().join("out-stories-2").join(LAST).is_file());
    let output = finished(&mut resume(&["--device=cpu", "--max_iters=3"]));
    let chosen =
        "Resuming the run in out-stories-2 (builtin, iteration 2). --out_dir= resumes another run: out-stories.\n";
    assert!(said(&output).contains(chosen), "{}", said(&output));
    assert!(said(&output).contains("headroom sample --ckpt out-stories-2"), "{}", said(&output));
    assert_eq!(losses(&output.stdout).keys().copied().collect::<Vec<_>>(), [2, 3]);
    // A plan reads the same checkpoint.
    let plan = finished(&mut resume(&["--device=cpu", "--plan"]));
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    assert_eq!(plan["disk"]["folder"], "out-stories-2");

    // With runs of two data sets, the user must choose.
    finished(&mut tiny(folder.path(), &["--max_iters=1", "--out_dir=mine"]));
    let words = [
        "cannot choose the run to resume: the runs here were trained on several data sets",
        "\n  headroom train --out_dir=mine --init_from=resume --json  # fox, iteration 2\n",
        "\n  headroom train --out_dir=out-stories-2 --init_from=resume --json  # builtin, iteration 4\n",
    ];
    refused(&mut resume(&[]), 3, &words);
    refused(&mut resume(&["--plan"]), 3, &words);
    let output = finished(&mut resume(&["--device=cpu", "--dataset=fox", "--max_iters=2"]));
    assert!(said(&output).contains("Resuming the run in mine (fox, iteration 2).\n"), "{}", said(&output));
    assert_eq!(losses(&output.stdout).keys().copied().collect::<Vec<_>>(), [2]);
    let output = finished(&mut resume(&["--device=cpu", "--dataset=data/fox", "--max_iters=3"]));
    assert!(said(&output).contains("Resuming the run in mine "), "{}", said(&output));
    refused(&mut resume(&["--dataset=other"]), 3, &["no run here was trained on other", "--out_dir=mine"]);
}

#[cfg(unix)]
#[test]
fn a_run_in_a_new_folder_is_resumed_there_by_the_command_that_it_prints() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    let stopped = interrupted(folder.path(), &["--max_iters=1000000"]);
    assert_eq!(stopped.status.code(), Some(130), "{}", said(&stopped));
    let said = said(&stopped);
    assert!(said.contains("--out_dir=out-2 --init_from=resume"), "{said}");
}

#[cfg(unix)]
#[test]
fn the_best_checkpoint_stays_when_a_later_one_is_saved() {
    let folder = folder();
    let path = |name: &str| folder.path().join("out").join(name);
    let read = |name: &str| fs::read(path(name)).expect("a checkpoint");
    let never = "--eval_interval=1000000000";
    for mode in ["--always_save_checkpoint=False", "--always_save_checkpoint=True"] {
        let force = path(LAST).exists().then_some("--force");
        let more: Vec<_> = ["--max_iters=19", "--eval_interval=20", mode].into_iter().chain(force).collect();
        finished(&mut tiny(folder.path(), &more));
        assert!(!path(BEST).exists(), "one file is both");
        let best = read(LAST);
        for _ in 0..2 {
            let more = ["--init_from=resume", "--max_iters=1000000", never, mode];
            let stopped = interrupted(folder.path(), &more);
            assert!(read(BEST) == best && read(LAST) != best, "{mode}: the best one is kept");
            assert_eq!(stopped.status.code(), Some(130), "{}", said(&stopped));
            assert!(
                said(&stopped).contains("lowest validation loss is out/ckpt.best.safetensors"),
                "{}",
                said(&stopped)
            );
        }
        // `sample` and `export` use the best checkpoint, or the last one if named.
        let sample = |ckpt: &str, which: &[&str]| {
            let args = [&["sample", "--ckpt", ckpt, "--max-new-tokens=40", "--temperature=2"], which].concat();
            finished(&mut headroom(folder.path(), &args)).stdout
        };
        let [of_best, of_last] = [BEST, LAST].map(|name| sample(&format!("out/{name}"), &[]));
        assert!(of_best != of_last);
        assert_eq!(sample("out", &[]), of_best);
        assert_eq!(sample("out", &["--which=best"]), of_best);
        assert_eq!(sample("out", &["--which", "last"]), of_last);
        for which in ["best", "last"] {
            let out = format!("{which}-{}", mode.len());
            finished(&mut headroom(folder.path(), &["export", "--ckpt=out", "--which", which, "--out", &out]));
            let same = sample(&out, &[]);
            assert_eq!(same, if which == "best" { of_best.clone() } else { of_last.clone() });
        }
        refused(
            &mut headroom(folder.path(), &["sample", "--ckpt=out", "--which=first"]),
            2,
            &["is not one of best, last"],
        );
    }
    // A run that replaces this one deletes all of its checkpoints.
    finished(&mut tiny(folder.path(), &["--max_iters=1", "--force"]));
    assert!(!path(BEST).exists());
}

#[test]
fn a_run_saves_after_the_time_that_was_named() {
    let folder = folder();
    let more = ["--max_iters=1000000000", "--eval_interval=1000000000", "--log_interval=1", "--save-every=1s"];
    let mut child = tiny(folder.path(), &more).spawn().expect("it starts");
    let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let lines = stdout.lines().map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"));
    // A run that saves nothing is not waited for: its own iterations are the clock.
    let mut trained_ms = 0.0;
    let lines = lines.take_while(|line| {
        trained_ms += line["time_ms"].as_f64().unwrap_or(0.0);
        trained_ms < 30_000.0
    });
    let mut saved = lines.filter_map(|line| line.get("saved_bytes").and_then(|_| line["iter"].as_u64()));
    let (first, second) = (saved.next().expect("it saves"), saved.next().expect("it saves again"));
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    assert!(0 < first && first < second, "{first} and {second}");
    let last = format!("--max_iters={}", second + 1);
    let resume = ["--init_from=resume", "--eval_interval=1000000000", "--log_interval=1", &last];
    let resumed = finished(&mut tiny(folder.path(), &resume));
    // The kill may come after a third checkpoint.
    assert!(losses(&resumed.stdout).keys().next().is_none_or(|iter| *iter == second), "{second}");
    for time in ["0s", "10", "m", "-1s", "1d", "99999999999s"] {
        refused(&mut tiny(folder.path(), &["--save-every", time]), 2, &["is not a duration such as 90s, 10m or 2h"]);
    }
}

/// A directory of an earlier version has one checkpoint, without a validation loss of its own.
#[cfg(unix)]
#[test]
fn a_folder_of_an_earlier_version_can_be_resumed() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=4"]));
    let whole = losses(&finished(&mut tiny(folder.path(), &["--max_iters=8", "--out_dir=whole"])).stdout);
    let path = folder.path().join("out").join(LAST);
    let bytes = fs::read(&path).expect("a checkpoint");
    assert!(bytes.windows(8).any(|window| window == b"val_loss"));
    without_val_loss(&path, &bytes);
    finished(&mut headroom(folder.path(), &["sample", "--ckpt=out", "--max-new-tokens=3"]));
    fs::create_dir(folder.path().join("old")).expect("space");
    fs::copy(&path, folder.path().join("old").join(LAST)).expect("space");
    let rest = losses(&finished(&mut tiny(folder.path(), &["--max_iters=8", "--init_from=resume"])).stdout);
    assert_eq!(rest, whole.into_iter().filter(|(iter, _)| *iter > 4).collect());
    // The old checkpoint may be the best one, and is kept.
    let resume = ["--init_from=resume", "--out_dir=old", "--max_iters=1000000", "--eval_interval=1000000000"];
    let old = fs::read(folder.path().join("old").join(LAST)).expect("a checkpoint");
    assert_eq!(interrupted(folder.path(), &resume).status.code(), Some(130));
    let [best, last] = [BEST, LAST].map(|name| fs::read(folder.path().join("old").join(name)).expect("a checkpoint"));
    assert!(best == old && last != old);
}

/// Removes the field from a checkpoint's header and updates the header's checksum.
#[cfg(unix)]
fn without_val_loss(path: &Path, bytes: &[u8]) {
    let prefix = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))).expect("small");
    let (header, data) = bytes[8..].split_at(prefix);
    let mut header: Value = serde_json::from_slice(header).expect("JSON");
    let state = header["__metadata__"]["state"].as_str().expect("text");
    let mut state: Value = serde_json::from_str(state).expect("JSON");
    assert!(state.as_object_mut().expect("an object").remove("val_loss").is_some());
    header["__metadata__"]["state"] = state.to_string().into();
    let mut header = header.to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = [&(header.len() as u64).to_le_bytes()[..], &header].concat();
    let checksum = crc32fast::hash(&file);
    let sums = file.len() + data.len() - 16;
    file.extend(data);
    file[sums..sums + 4].copy_from_slice(&checksum.to_le_bytes());
    fs::write(path, file).expect("space");
}
