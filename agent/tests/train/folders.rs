//! The folder of a run: it is checked before the run trains, no new run replaces a checkpoint in it, and the best
//! checkpoint stays beside the last.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use crate::started::{TINY, finished, folder, headroom, losses, refused, tiny};

const LAST: &str = "ckpt.safetensors";
const BEST: &str = "ckpt.best.safetensors";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Trains for a while, presses Ctrl-C, and gives what it printed.
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
    fs::create_dir_all(folder.path().join("taken").join(LAST)).expect("space");
    for (out_dir, why) in [("--out_dir=file/out", "file/out: "), ("--out_dir=taken", "ckpt.safetensors is a directory")]
    {
        let mut run = tiny(folder.path(), &["--max_iters=3", "--eval_interval=1000", out_dir]);
        let words = ["cannot save checkpoints in ", why, "hint: name another folder with --out_dir="];
        refused(&mut run, 3, &words);
        assert_eq!(losses(&run.output().expect("it runs").stdout).len(), 0, "{out_dir}");
    }
    let left: Vec<_> = fs::read_dir(folder.path().join("taken")).expect("a folder").flatten().collect();
    assert_eq!(left.len(), 1, "no probe is left: {left:?}");
}

/// Runs the program in a folder `small` that is a disk of its own, in a namespace where everybody may mount one; `None`
/// where the system has no such namespace, which is printed and counted.
fn on_small_disk(folder: &Path, mount: &str, args: &[&str]) -> Option<Output> {
    const MOUNTED: &str = "on a small disk";
    let skip = |why: &str| {
        const NAME: &str = "folders::a_disk_that_is_too_small_is_known_before_the_run";
        writeln!(io::stderr(), "skipped {NAME}: {why}").expect("it is open");
        if let Some(list) = std::env::var_os("HEADROOM_SKIPS") {
            let list = fs::OpenOptions::new().append(true).create(true).open(list);
            writeln!(list.expect("a list"), "{NAME}: {why}").expect("a list");
        }
        None
    };
    fs::create_dir_all(folder.join("small")).expect("space");
    let script = format!("mount -t tmpfs -o {mount} tmpfs small && echo '{MOUNTED}' >&2 && exec \"$@\"");
    let program = headroom(folder, args);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]).arg(program.get_program());
    let output = command.args(args).current_dir(folder).stdin(Stdio::null()).output();
    match output {
        Err(error) => skip(&format!("unshare cannot be run: {error}")),
        Ok(output) if !said(&output).contains(MOUNTED) => {
            skip(said(&output).lines().next().unwrap_or("it prints nothing"))
        }
        Ok(output) => Some(output),
    }
}

#[test]
fn a_disk_that_is_too_small_is_known_before_the_run() {
    let folder = folder();
    let plan = finished(&mut tiny(folder.path(), &["--plan", "--out_dir=small"]));
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    let disk = &plan["disk"];
    assert_eq!((&disk["folder"], &disk["fits"]), (&"small".into(), &true.into()), "{plan}");
    let file_bytes = disk["checkpoint_bytes"].as_u64().expect("bytes");
    assert_eq!(disk["bytes"].as_u64(), Some(3 * file_bytes), "the last, the best and a new one");
    assert!(disk["free_bytes"].as_u64() > Some(3 * file_bytes), "{plan}");
    let words: Vec<&str> = TINY.into_iter().filter(|word| *word != "--json").chain(["--plan"]).collect();
    let words = String::from_utf8(finished(&mut headroom(folder.path(), &words)).stdout).expect("text");
    assert!(words.contains("Its checkpoints take up to ") && words.contains(" are free.\n"), "{words}");

    // Room for two of the three. What is trained would be lost with the first save that needs the third.
    let mount = format!("size={}", (2 * file_bytes).next_multiple_of(4096));
    let run = [&TINY[..], &["--out_dir=small", "--eval_interval=1000", "--max_iters=3"]].concat();
    let Some(output) = on_small_disk(folder.path(), &mount, &run) else { return };
    assert_eq!((output.status.code(), losses(&output.stdout).len()), (Some(3), 0), "{}", said(&output));
    let words = ["cannot save checkpoints in small: they take up to ", " are free", "hint: free "];
    assert!(words.iter().all(|words| said(&output).contains(words)), "{}", said(&output));
    let plan = [&TINY[..], &["--out_dir=small", "--plan"]].concat();
    let output = on_small_disk(folder.path(), &mount, &plan).expect("as before");
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["disk"]["fits"], false, "{plan}");

    let output = on_small_disk(folder.path(), "size=1m,ro", &run).expect("as before");
    assert_eq!((output.status.code(), losses(&output.stdout).len()), (Some(3), 0), "{}", said(&output));
    assert!(said(&output).contains("cannot save checkpoints in small: Read-only file system"), "{}", said(&output));

    // The plan is what a run takes.
    let mount = format!("size={}", (3 * file_bytes).next_multiple_of(4096) + 3 * 4096);
    let run = [&TINY[..], &["--out_dir=small", "--max_iters=30"]].concat();
    let output = on_small_disk(folder.path(), &mount, &run).expect("as before");
    assert!(output.status.success() && !said(&output).contains("not saved"), "{}", said(&output));
    finished(&mut tiny(folder.path(), &["--max_iters=1"]));
    let written = fs::metadata(folder.path().join("out").join(LAST)).expect("a checkpoint").len();
    assert!(written <= file_bytes && file_bytes - written < 512, "{file_bytes} planned, {written} written");
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

    // The default folder is nobody's choice.
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    let first = read("out");
    for next in ["out-2", "out-3"] {
        let output = finished(&mut tiny(folder.path(), &["--max_iters=3", "--seed=7"]));
        let moved = format!("out has the checkpoint of another run. This run saves to {next}.\n");
        assert!(said(&output).contains(&moved), "{}", said(&output));
        assert!(said(&output).ends_with(&format!("headroom sample --ckpt {next}\n")), "{}", said(&output));
        assert!(read("out") == first && read(next) != first);
    }
    // A resumed run goes on in its own.
    let resumed = finished(&mut tiny(folder.path(), &["--max_iters=5", "--init_from=resume", "--out_dir=out-2"]));
    assert_eq!(losses(&resumed.stdout).keys().copied().collect::<Vec<_>>(), [4, 5]);
    assert!(read("out") == first && !folder.path().join("out-4").exists());
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
        finished(&mut tiny(folder.path(), &["--max_iters=19", "--eval_interval=20", "--force", mode]));
        assert!(!path(BEST).exists(), "one file is both");
        let best = read(LAST);
        for _ in 0..2 {
            let more = ["--init_from=resume", "--max_iters=1000000", never, mode];
            let stopped = interrupted(folder.path(), &more);
            assert_eq!(stopped.status.code(), Some(130), "{}", said(&stopped));
            assert!(read(BEST) == best && read(LAST) != best, "{mode}: the best one is kept");
            assert!(
                said(&stopped).contains("lowest validation loss is out/ckpt.best.safetensors"),
                "{}",
                said(&stopped)
            );
        }
        // The best one is what is sampled and exported, the last one on demand.
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
            &["neither best nor last"],
        );
    }
    // A run that replaces this one leaves nothing of it.
    finished(&mut tiny(folder.path(), &["--max_iters=1", "--force"]));
    assert!(!path(BEST).exists());
}

#[test]
fn a_run_saves_after_the_time_that_was_named() {
    let folder = folder();
    let more = ["--max_iters=1000000000", "--eval_interval=1000000000", "--save-every=1s"];
    let mut child = tiny(folder.path(), &more).spawn().expect("it starts");
    let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut saved = stdout.lines().map(|line| line.expect("text")).filter_map(|line| {
        let line: Value = serde_json::from_str(&line).expect("JSON");
        line.get("saved_bytes").and_then(|_| line["iter"].as_u64())
    });
    let (first, second) = (saved.next().expect("it saves"), saved.next().expect("it saves again"));
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    assert!(0 < first && first < second, "{first} and {second}");
    let last = format!("--max_iters={}", second + 1);
    let resume = ["--init_from=resume", "--eval_interval=1000000000", "--log_interval=1", &last];
    let resumed = finished(&mut tiny(folder.path(), &resume));
    // The kill may have come after a third one.
    assert!(losses(&resumed.stdout).keys().next().is_none_or(|iter| *iter == second), "{second}");
    for time in ["0s", "10", "m", "-1s", "1d", "99999999999s"] {
        refused(&mut tiny(folder.path(), &["--save-every", time]), 2, &["is no time, as in 90s, 10m or 2h"]);
    }
}

/// A folder as earlier versions left it has one checkpoint, without its own validation loss.
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
    // It may be the best one, and is kept.
    let resume = ["--init_from=resume", "--out_dir=old", "--max_iters=1000000", "--eval_interval=1000000000"];
    let old = fs::read(folder.path().join("old").join(LAST)).expect("a checkpoint");
    assert_eq!(interrupted(folder.path(), &resume).status.code(), Some(130));
    let [best, last] = [BEST, LAST].map(|name| fs::read(folder.path().join("old").join(name)).expect("a checkpoint"));
    assert!(best == old && last != old);
}

/// Takes the field out of a checkpoint's header, and gives the header its checksum anew.
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
