//! Configs that are not on disk, values that cannot be read, and the largest batch. Every entry point gives the same
//! answer.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// Runs the program in an empty directory, which has no config.
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
fn only_a_stock_config_that_is_given_by_name_is_built_in() {
    for (given, named) in [
        ("train_shakespeare_char.py", "train_shakespeare_char.py"),
        ("train_shakespeare_char", "train_shakespeare_char.py"),
        ("config/train_shakespeare_char", "config/train_shakespeare_char.py"),
        ("finetune_shakespeare", "finetune_shakespeare.py"),
    ] {
        assert_eq!(json(&["plan", "-q", given, "--json"])["stock_configs"], Value::from(vec![named]), "{given}");
    }
    assert_eq!(json(&["plan", "--json"])["stock_configs"], Value::Array(vec![]));
    let trained = json(&["train", "--plan", "--json", "-q", "train_shakespeare_char", "--device=cpu"]);
    assert_eq!(trained["stock_configs"], Value::from(vec!["train_shakespeare_char.py"]));
}

#[test]
fn path_of_a_missing_config_has_no_plan() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("config/train_shakespeare_char.py");
    let mut paths = vec![missing.to_str().expect("a name").to_owned(), "./config/train_shakespeare_char.py".into()];
    if cfg!(unix) {
        let link = folder.path().join("train_gpt2.py");
        #[cfg(unix)]
        std::os::unix::fs::symlink("nothing.py", &link).expect("a link");
        paths.push(link.to_str().expect("a name").to_owned());
    }
    for path in &paths {
        for args in [&["plan", "-q", path][..], &["plan", "--json", path], &["train", "-q", path, "--plan"]] {
            let output = headroom(args);
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{args:?}: {stderr}");
            assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
            assert!(stderr.starts_with(&format!("headroom: cannot read {path}: ")), "{stderr}");
        }
    }
    // A link in the folder itself is not ignored either.
    #[cfg(unix)]
    {
        let program = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
        let mut command = Command::new(program);
        let output = command.args(["plan", "train_gpt2.py"]).current_dir(folder.path()).output().expect("it runs");
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    }
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
fn unreadable_config_has_no_plan() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread_values");
    std::fs::create_dir_all(&folder).expect("a writable folder");
    for (name, config, said) in [
        ("large.py", "bias = True\nbatch_size = 99999999999999999999\n", "large.py:2:14: batch_size cannot be read"),
        ("maybe.py", "compile = maybe\n", "maybe.py:1:11: compile cannot be read"),
        ("prose.py", "124M on a toaster\n", "no nanoGPT settings were found"),
        ("other.py", "exec(open('missing.py').read())\n", "missing.py was not read"),
        ("star.py", "from base import *\nbatch_size = 8\n", "base.py was not read"),
        ("exec.py", "batch_size = 8\nexec(open(path).read())\n", "`exec(open(path).read())` may change any setting"),
        ("globals.py", "batch_size = 8\nglobals().update(cfg)\n", "globals.py:2:1: `globals().update(cfg)` may change"),
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
fn run_that_stops_has_no_plan() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread_stops");
    std::fs::create_dir_all(&folder).expect("a writable folder");
    for (config, said) in [
        ("n_layer = 12.0\n", "stops.py:1:11: n_layer is the float 12.0, but nanoGPT needs an int"),
        ("batch_size = 12.0\n", "stops.py:1:14: batch_size is the float 12.0, but nanoGPT needs an int"),
        ("batch_size = 4\nn_layer = = 6\n", "stops.py:2:11: `=` is not expected here"),
        ("batch_size = -3\n", "stops.py:1:14: batch_size is -3; it must be from 1 to 1099511627776"),
        ("batch_size = 0\n", "stops.py:1:14: batch_size is 0; it must be from 1 to 1099511627776"),
    ] {
        let path = folder.join("stops.py");
        std::fs::write(&path, config).expect("a writable folder");
        for command in [&["plan"][..], &["plan", "--json"], &["plan", "--link"], &["train"], &["train", "--plan"]] {
            let output = headroom(&[command, &[path.to_str().expect("a name")]].concat());
            assert_eq!(output.status.code(), Some(2), "{command:?} {config}: {}", text(&output.stdout));
            assert!(output.stdout.is_empty() && text(&output.stderr).contains(said), "{}", text(&output.stderr));
        }
    }
    for argument in ["--foo=1", "--n_layer=12.0", "--dropout=0", "--batch_size=-3"] {
        let output = headroom(&["plan", argument]);
        assert_eq!(output.status.code(), Some(2), "{argument}: {}", text(&output.stdout));
        assert!(output.stdout.is_empty() && text(&output.stderr).starts_with(argument), "{}", text(&output.stderr));
    }
    // A variable that nanoGPT does not know is harmless in a config, and so is a later value.
    let path = folder.join("runs.py");
    std::fs::write(&path, "mine = 3\nbatch_size = get()\nbatch_size = 4\nmax_iters = 6e5\n")
        .expect("a writable folder");
    let output = headroom(&["plan", path.to_str().expect("a name"), "--gpu=L4"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn suggested_argument_is_accepted() {
    for argument in ["--dropout=2", "--dropout=-1", "--dropout=1+1", "--dropout=0", "--beta1=1", "--batch_size=8.0"] {
        for command in [&["plan"][..], &["train", "--plan"]] {
            let refused = headroom(&[command, &[argument]].concat());
            let stderr = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{command:?} {argument}: {stderr}");
            let hint = stderr.lines().find(|line| line.starts_with("hint: ")).expect("a hint");
            let suggested = hint.split(' ').find(|word| word.starts_with("--")).expect("an argument");
            // Planned without its data set.
            let accepted =
                ["train", "--plan", "--device=cpu", "--dataset=none", "--n_layer=1", "--n_embd=12", suggested];
            let output = headroom(&accepted);
            assert_eq!(output.status.code(), Some(0), "{suggested}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn training_refuses_a_value_that_it_cannot_read() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread_training");
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let path = folder.join("rate.py");
    let unknown = |key: &str| format!("headroom: cannot start the run: the value of {key} is unknown\n");
    for (config, said) in [
        ("learning_rate = 'x'\n", "rate.py:1:17: learning_rate is 'x', but it must be a number".to_owned()),
        ("learning_rate = get()\n", unknown("learning_rate")),
        ("from mine import rate\nseed = rate\nmax_iters = rate\n", unknown("max_iters, seed")),
    ] {
        std::fs::write(&path, config).expect("a writable folder");
        let output = headroom(&["train", path.to_str().expect("a name")]);
        assert_eq!(output.status.code(), Some(2), "{config}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains(&said), "{config}: {}", text(&output.stderr));
    }
    // The logger does not change what is trained, and a later value replaces an unknown one.
    // The checkpoints of this model need little of the disk, which the plan checks.
    let config = "wandb_project = pick()\nbatch_size = pick()\nbatch_size = 2\nn_layer = 1\nn_head = 2\nn_embd = 32\n";
    std::fs::write(&path, config).expect("a writable folder");
    let output = headroom(&["train", "--plan", path.to_str().expect("a name"), "--device=cpu"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn yaml_is_refused_and_json_is_read() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread_formats");
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let path = |name: &str| folder.join(name).to_str().expect("a name").to_owned();
    std::fs::write(path("run.yaml"), "model:\n  n_layer: 6\nbatch_size: 8\n").expect("a writable folder");
    for command in ["plan", "train"] {
        let output = headroom(&[command, &path("run.yaml")]);
        assert_eq!(output.status.code(), Some(2), "{command}: {}", text(&output.stderr));
        let said = "this is YAML; write each setting as key = value\n";
        assert!(text(&output.stderr).ends_with(said), "{}", text(&output.stderr));
    }
    let plan = json(&["plan", "--batch_size=3", "--gpu=L4", "--json"]);
    std::fs::write(path("plan.json"), plan.to_string()).expect("a writable folder");
    let again = json(&["plan", &path("plan.json"), "--json"]);
    assert_eq!((&again["config"]["batch_size"], &again["device"]["name"]), (&Value::from(3), &plan["device"]["name"]));
    std::fs::write(path("llama.json"), "{\"model_type\": \"llama\"}").expect("a writable folder");
    let output = headroom(&["plan", &path("llama.json")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("this is a llama config; Headroom plans nanoGPT models"));
}

/// nanoGPT ignores `vocab_size` in a config, so the plan names the vocabulary that it assumes.
#[test]
fn given_vocabulary_is_named_in_every_answer() {
    let output = headroom(&["plan", "--vocab_size=65", "--batch_size=4", "--gpu=RTX 4070"]);
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.starts_with("Fits on RTX 4070 with a vocabulary of 65: "), "{said}");
    assert!(said.contains("Still to do The plan assumes a vocabulary of 65. nanoGPT ignores"), "{said}");
    assert_eq!(json(&["plan", "--vocab_size=65", "--json"])["needs"]["vocab_size"], 65);
    for args in
        [&["--vocab_size=50304"][..], &["config/train_shakespeare_char.py"], &["--init_from=gpt2", "--vocab_size=65"]]
    {
        let plan = json(&[&["plan", "--json"], args].concat());
        assert_eq!(plan["needs"]["vocab_size"], Value::Null, "{args:?}");
    }
}

#[test]
fn unknown_pytorch_is_named_with_the_rules_that_are_used() {
    let output = headroom(&["plan", "--torch=9.9", "--json"]);
    let said = "--torch: this version of Headroom does not support PyTorch 9.9; the plan uses the rules of 2.11";
    assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
}

#[test]
fn the_largest_batch_size_is_the_same_from_any_start() {
    let largest = "The largest batch_size that fits, all else unchanged: 12. It may also fit with 13, 15: the memory \
                   left is within the estimate's error. 14 fails where 15 fits by 13 MiB: fragmentation.";
    for start in [1, 13, 15, 64] {
        let output = headroom(&["plan", &format!("--batch_size={start}"), "--gpu=RTX 4070"]);
        let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(largest), "from {start}: {said}");
    }
    for start in [1, 12, 13, 15, 64] {
        let plan = json(&["plan", &format!("--batch_size={start}"), "--gpu=RTX 4070", "--json"]);
        assert_eq!(plan["batch_size"], serde_json::json!({ "largest": 12, "may_fit": [13, 15] }), "from {start}");
    }
}
