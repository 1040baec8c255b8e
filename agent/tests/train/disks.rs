//! Tests of the disk that a run saves to: too small, or read-only.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use crate::started::{TINY, finished, folder, headroom, losses, said, tiny};

const LAST: &str = "ckpt.safetensors";

/// Runs the program in a directory `small`, which is a disk of its own. A user namespace permits the mount. Returns
/// `None` if the system has no user namespaces, and prints and counts the skip.
fn on_small_disk(folder: &Path, mount: &str, args: &[&str]) -> Option<Output> {
    on_small_disk_then(folder, mount, args, "")
}

/// Runs the program like [`on_small_disk`], followed by shell commands.
fn on_small_disk_then(folder: &Path, mount: &str, args: &[&str], then: &str) -> Option<Output> {
    const MOUNTED: &str = "on a small disk";
    let skip = |why: &str| {
        headroom_harness::skip("disks::a_disk_that_is_too_small_is_known_before_the_run", why);
        None
    };
    fs::create_dir_all(folder.join("small")).expect("space");
    let script = format!("mount -t tmpfs -o {mount} tmpfs small && echo '{MOUNTED}' >&2 && \"$@\"{then}");
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

    // The disk holds two of the three checkpoints. The first save that needs the third would lose what was trained.
    let mount = format!("size={}", (2 * file_bytes).next_multiple_of(4096));
    let run = [&TINY[..], &["--out_dir=small", "--eval_interval=1000", "--max_iters=3"]].concat();
    let Some(output) = on_small_disk(folder.path(), &mount, &run) else { return };
    assert_eq!((output.status.code(), losses(&output.stdout).len()), (Some(3), 0), "{}", said(&output));
    let words = ["cannot save checkpoints in small: they need up to ", " are free", "hint: free "];
    assert!(words.iter().all(|words| said(&output).contains(words)), "{}", said(&output));
    let planned = [&TINY[..], &["--out_dir=small", "--plan"]].concat();
    let output = on_small_disk(folder.path(), &mount, &planned).expect("as before");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(words.iter().all(|words| said(&output).contains(words)), "{}", said(&output));
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&plan["disk"]["fits"], &plan["fits"]), (&false.into(), &false.into()), "{plan}");
    // An evaluation saves nothing.
    let plan = [&TINY[..], &["--out_dir=small", "--eval_only=True", "--plan"]].concat();
    let output = on_small_disk(folder.path(), &mount, &plan).expect("as before");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&plan["disk"], &plan["fits"]), (&Value::Null, &true.into()), "{plan}");
    // A directory that is refused is not left behind.
    let below = [&TINY[..], &["--out_dir=small/a/b", "--max_iters=3"]].concat();
    let list = "small -mindepth 1";
    let output =
        on_small_disk_then(folder.path(), &mount, &below, &format!("; status=$?; find {list} >&2; exit $status"));
    let output = output.expect("as before");
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(!said(&output).lines().any(|line| line.starts_with("small/")), "{}", said(&output));

    for run in [&run, &planned] {
        let output = on_small_disk(folder.path(), "size=1m,ro", run).expect("as before");
        assert_eq!((output.status.code(), losses(&output.stdout).len()), (Some(3), 0), "{}", said(&output));
        assert!(said(&output).contains("cannot save checkpoints in small: Read-only file system"), "{}", said(&output));
    }

    // The planned size is enough for a run.
    let mount = format!("size={}", (3 * file_bytes).next_multiple_of(4096) + 3 * 4096);
    let run = [&TINY[..], &["--out_dir=small", "--max_iters=30"]].concat();
    let output = on_small_disk(folder.path(), &mount, &run).expect("as before");
    assert!(output.status.success() && !said(&output).contains("not saved"), "{}", said(&output));
    finished(&mut tiny(folder.path(), &["--max_iters=1"]));
    let written = fs::metadata(folder.path().join("out").join(LAST)).expect("a checkpoint").len();
    assert!(written <= file_bytes && file_bytes - written < 512, "{file_bytes} planned, {written} written");
}
