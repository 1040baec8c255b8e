//! Configs that are not on disk, values that cannot be read, and the largest batch: one answer wherever a person starts.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// In an empty folder, where no config lies.
fn headroom(args: &[&str]) -> Output {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread");
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let mut command =
        Command::new(std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into()));
    command.args(args).current_dir(folder).stdin(Stdio::null()).output().expect("headroom runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn json(args: &[&str]) -> Value {
    let output = headroom(args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

#[test]
fn a_stock_config_is_known_by_its_name() {
    let output = headroom(&["plan", "config/train_shakespeare_char.py", "--gpu=RTX 4070"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let note = "config/train_shakespeare_char.py: nanoGPT's own config of this name is used";
    assert!(text(&output.stderr).contains(note), "{}", text(&output.stderr));
    let plan = json(&["plan", "config/train_shakespeare_char.py", "--json"]);
    assert_eq!((&plan["config"]["n_embd"], &plan["config"]["vocab_size"]), (&Value::from(384), &Value::from(65)));

    let tuned = headroom(&["plan", "config/finetune_shakespeare.py", "--gpu=RTX 4070"]);
    assert_eq!(tuned.status.code(), Some(1), "GPT-2 XL does not fit: {}", text(&tuned.stdout));
    let evaluated = json(&["plan", "config/eval_gpt2_medium.py", "--json"]);
    assert_eq!(evaluated["config"]["init_from"], "gpt2-medium");
    assert_eq!(evaluated["config"]["n_layer"], 24);
}

#[test]
fn a_file_that_exists_always_wins() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread_own/config");
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let path = folder.join("train_gpt2.py");
    std::fs::write(&path, "n_layer = 3\n").expect("a writable folder");
    let plan = json(&["plan", path.to_str().expect("a name"), "--json"]);
    assert_eq!((&plan["config"]["n_layer"], &plan["config"]["eval_interval"]), (&Value::from(3), &Value::from(2000)));
}

#[test]
fn what_cannot_be_read_has_no_plan() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread_values");
    std::fs::create_dir_all(&folder).expect("a writable folder");
    for (name, config, said) in [
        ("large.py", "bias = True\nbatch_size = 99999999999999999999\n", "large.py:2:14: batch_size cannot be read"),
        ("maybe.py", "compile = maybe\n", "maybe.py:1:11: compile cannot be read"),
        ("prose.py", "124M on a toaster\n", "no nanoGPT settings were found"),
        ("other.py", "exec(open('missing.py').read())\n", "missing.py was not read"),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, config).expect("a writable folder");
        let output = headroom(&["plan", path.to_str().expect("a name")]);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", text(&output.stdout));
        assert!(output.stdout.is_empty() && text(&output.stderr).contains(said), "{name}: {}", text(&output.stderr));
    }
    let missing = headroom(&["plan", "config/my_config.py"]);
    assert_eq!(missing.status.code(), Some(3));
    assert!(text(&missing.stderr).contains("config/my_config.py"), "{}", text(&missing.stderr));
}

#[test]
fn the_largest_batch_size_is_the_same_from_any_start() {
    let of = |batch_size: u32| {
        let plan = json(&["plan", &format!("--batch_size={batch_size}"), "--gpu=RTX 4070", "--json"]);
        plan["batch_size"].clone()
    };
    assert_eq!(of(12), serde_json::json!({ "largest": 12, "may_fit": [13, 15] }));
    for start in [1, 13, 15, 64] {
        assert_eq!(of(start), of(12), "from {start}");
    }
    let output = headroom(&["plan", "--batch_size=64", "--gpu=RTX 4070"]);
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let largest = "The largest batch_size that fits, all else unchanged: 12. 13, 15 may fit: the estimate leaves less than it \
                   can be off by. 14 fails where 15 fits by 13 MiB: fragmentation.";
    assert!(said.contains(largest), "{said}");
}
