//! Tests of common usage of the command line: mistakes, habits from other programs, shells, and scripts that check the
//! exit status. They use the real binary.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// Returns a command in this directory, which contains `config`. The history is in `data`.
fn headroom_in(data: &Path, args: &[&str]) -> Command {
    let mut command =
        Command::new(std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into()));
    command.args(args).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")).stdin(Stdio::null());
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "TERM", "LC_CTYPE", "LANG"] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C.UTF-8").env("HEADROOM_DATA_DIR", data);
    command
}

fn run(args: &[&str]) -> Output {
    let data = tempfile::tempdir().expect("a folder");
    headroom_in(data.path(), args).output().expect("headroom runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Checks the exit status and returns standard error.
#[track_caller]
fn exits(args: &[&str], status: i32) -> String {
    let output = run(args);
    let stderr = text(&output.stderr).to_owned();
    assert_eq!(output.status.code(), Some(status), "{args:?}\n{stderr}");
    stderr
}

#[test]
fn a_mistaken_word_gets_the_one_that_was_meant() {
    for (args, hint) in [
        (&["plann"][..], "did you mean `headroom plan`?"),
        (&["trian"], "did you mean `headroom train`?"),
        (&["Plan"], "did you mean `headroom plan`?"),
        (&["help", "diag"], "did you mean `headroom diagnose`?"),
        (&["generate"], "did you mean `headroom sample`?"),
        (&["backup"], "did you mean `headroom runs backup`?"),
        (&["list"], "did you mean `headroom runs list` or `headroom token list`?"),
        (&["my_config.py"], "did you mean `headroom plan my_config.py`?"),
        (&["frobnicate"], "`headroom --help` lists the commands"),
        (&["runs", "lst"], "did you mean `headroom runs list`?"),
        (&["runs", "3f2a"], "did you mean `headroom runs show 3f2a`?"),
        (&["runs", "shwo", "12"], "did you mean `headroom runs show 12`?"),
        (&["runs", "12", "13"], "`headroom runs --help` lists its commands"),
        (&["rnus", "list", "--json"], "did you mean `headroom runs list --json`?"),
        (&["plann", "my config.py"], "did you mean `headroom plan`?"),
        (&["token", "ad", "x"], "did you mean `headroom token add x`?"),
        (&["serve", "--prot", "9"], "did you mean --listen 127.0.0.1:9?"),
        (&["serve", "--prot=9"], "did you mean --listen 127.0.0.1:9?"),
        (&["data", "prepares"], "did you mean `headroom data prepare`?"),
        (&["serve", "--port", "9000"], "did you mean --listen 127.0.0.1:9000?"),
        (&["serve", "--port=9000"], "did you mean --listen 127.0.0.1:9000?"),
        (&["serve", "-p", "9000"], "did you mean --listen 127.0.0.1:9000?"),
        (&["serve", "--port"], "did you mean --listen 127.0.0.1:PORT?"),
        (&["plan", "--port", "9"], "did you mean `headroom serve --listen 127.0.0.1:9`?"),
        (&["doctor", "--checkpoint=x"], "did you mean `headroom sample --ckpt x` or `headroom export --ckpt x`?"),
        (&["runs", "--stauts", "failed"], "did you mean --status?"),
        (&["runs", "--json", "3f2a"], "did you mean `headroom runs show 3f2a`?"),
        (&["serve", "--retry-with-fix"], "--retry-with-fix is an option of `headroom watch`"),
        (
            &["bench", "--gpu", "RTX 4070"],
            "--gpu is an option of `headroom plan`, `headroom fit`, `headroom diagnose`, `headroom record`, `headroom replay`, `headroom watch` and `headroom runs export`",
        ),
        (&["train", "--gpu", "RTX 4070"], "did you mean --device=cuda?"),
        (&["--link"], "--link is an option of `headroom plan`"),
        (&["--quite", "plan"], "did you mean --quiet?"),
        (
            &["serve", "--batch_size", "8"],
            "--batch_size is a setting of nanoGPT, for `headroom plan`, `headroom fit`, `headroom diagnose` and `headroom train`",
        ),
        (&["plan", "--batch-size", "64"], "did you mean --batch_size=64?"),
        (&["plan", "--lr", "1e-4"], "did you mean --learning_rate=1e-4?"),
        (&["plan", "--lr=1e-4"], "did you mean --learning_rate=1e-4?"),
        (&["plan", "--card", "L4"], "did you mean --gpu L4?"),
        (&["plan", "--config", "a.py"], "did you mean `headroom plan a.py`?"),
        (&["plan", "--activation-checkpoints"], "did you mean --activation-checkpointing?"),
        (&["sample", "--model", "out"], "did you mean --ckpt out?"),
        (
            &["runs", "show", "3f", "--format=csv"],
            "--format is an option of `headroom export` and `headroom runs export`",
        ),
        (&["token", "list", "--scope=view"], "--scope is an option of `headroom token add` and `headroom token pair`"),
        (&["doctor", "--frobnicate"], "`headroom doctor --help` lists what it takes"),
        (&["plan", "--hlep"], "did you mean --help?"),
        (&["train", "--hlep"], "did you mean --help?"),
        (&["plan", "--port=9"], "did you mean `headroom serve --listen 127.0.0.1:9`?"),
        (&["train", "--port=9"], "did you mean `headroom serve --listen 127.0.0.1:9`?"),
        (&["plan", "--listen=127.0.0.1:9"], "--listen is an option of `headroom serve`"),
        (&["train", "--listen=127.0.0.1:9"], "--listen is an option of `headroom serve`"),
        (&["plan", "--prompt=x"], "--prompt is an option of `headroom sample`"),
        (&["train", "--prompt=x"], "--prompt is an option of `headroom sample`"),
        (&["plan", "--attention=flsh"], "did you mean --attention flash?"),
        (&["plan", "--optimizer", "adamw8bit"], "did you mean --optimizer adamw-8bit?"),
        (&["train", "--recompute=atention"], "did you mean --recompute attention?"),
        (&["train", "--on-save-error=stpo"], "did you mean --on-save-error stop?"),
        (&["export", "--format=nanogtp"], "did you mean --format nanogpt?"),
        (&["runs", "export", "3f", "--format=jsn"], "did you mean --format json?"),
        (&["plan", "--color=allways"], "did you mean --color always?"),
        (&["token", "add", "x", "--scope=veiw"], "did you mean --scope view?"),
    ] {
        let stderr = exits(args, 2);
        assert!(stderr.ends_with(&format!("\nhint: {hint}\n")), "{args:?}\n{stderr}");
    }
    assert!(exits(&["serve", "--port", "9000"], 2).starts_with("headroom: serve has no option --port\n"));
    assert!(exits(&["runs", "lst"], 2).starts_with("headroom: runs has no command \"lst\"\n"));
}

#[test]
fn memory_for_a_name_lists_the_gpus_that_have_it() {
    for (typed, gpus) in [("12GB", &["RTX 3060 12GB", "RTX 4070"][..]), ("24", &["RTX 4090", "RTX 3090"])] {
        let stderr = exits(&["plan", "--gpu", typed], 2);
        assert!(stderr.starts_with(&format!("headroom: --gpu: \"{typed}\" is an amount of memory")), "{stderr}");
        assert!(gpus.iter().all(|gpu| stderr.contains(gpu)), "{stderr}");
        assert!(stderr.contains(&format!("`headroom gpus {typed}` lists them")), "{stderr}");
        assert_eq!(run(&["gpus", typed]).status.code(), Some(0));
    }
    assert!(!exits(&["plan", "--gpu", "4071"], 2).contains("an amount of memory"));
}

#[test]
fn missing_config_gets_the_stock_config_of_its_name() {
    for (given, hint) in [
        ("nanoGPT/config/train_gpt2.py", "did you mean config/train_gpt2.py, which is built in?"),
        ("config/train_gtp2.py", "did you mean config/train_gpt2.py?"),
        ("./eval_gpt2_xl", "did you mean config/eval_gpt2_xl.py, which is built in?"),
        ("mine.py", "paths start from the folder you are in; a setting is written --key=value"),
        ("python", "give the arguments of train.py alone, as in `headroom plan CONFIG.py --batch_size=8`"),
    ] {
        let stderr = exits(&["plan", given], 3);
        assert!(stderr.ends_with(&format!("\nhint: {hint}\n")), "{stderr}");
    }
}

#[test]
fn gpus_lists_the_matches_of_a_search() {
    let names = |args: &[&str]| -> Vec<String> {
        let output = run(&[&["gpus", "--json"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}\n{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let gpus = json["gpus"].as_array().expect("a list");
        gpus.iter().map(|gpu| gpu["name"].as_str().expect("text").to_owned()).collect()
    };
    let found = names(&["4070ti"]);
    assert!(found.len() > 1 && found.iter().all(|name| name.contains("4070 Ti")), "{found:?}");
    for other in [&["4070 Ti"][..], &["4070", "TI"], &["ti", "rtx4070"]] {
        assert_eq!(names(other), found, "{other:?}");
    }
    assert!(names(&["24GB", "laptop"]).iter().all(|name| name.contains("Laptop")));
    assert!(names(&[]).len() > 100);
    let table = run(&["gpus", "4070ti"]);
    assert_eq!(text(&table.stdout).lines().count(), 1 + found.len());
    let stderr = exits(&["gpus", "RTX 4071"], 1);
    assert!(
        stderr.starts_with("headroom: no GPU matches \"RTX 4071\"\n\nhint: did you mean GeForce RTX 4070"),
        "{stderr}"
    );
}

#[test]
fn hint_of_a_setting_without_a_value_agrees_with_the_help() {
    for args in [&["plan", "--batch_size"][..], &["train", "--device=cpu", "--batch_size", "--n_layer=2"]] {
        let stderr = exits(args, 2);
        assert!(stderr.contains("give the setting a value, as in --key=value"), "{stderr}");
    }
    for command in ["plan", "train"] {
        assert!(text(&run(&[command, "--help"]).stdout).contains("--key value"), "{command}");
    }
}

#[test]
fn setting_and_value_may_be_two_arguments() {
    let config = |args: &[&str]| {
        let output = run(&[&["plan", "--json", "--gpu=L4"], args].concat());
        let json: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}\n{}", text(&output.stderr)));
        json["config"].clone()
    };
    let apart = config(&["--batch_size", "3", "config/train_gpt2.py", "--compile", "False", "--n_layer", "2"]);
    let joined = config(&["--batch_size=3", "config/train_gpt2.py", "--compile=False", "--n_layer=2"]);
    assert_eq!(apart, joined);
    assert_eq!(apart["batch_size"], 12, "the config file comes later, and wins");
    let words =
        config(&["config/train_gpt2.py", "--dataset", "shakespeare_char", "--dtype", "float16", "--batch_size", "5"]);
    assert_eq!((&words["dtype"], &words["batch_size"]), (&"float16".into(), &5.into()));
    assert_eq!(words["vocab_size"], 65);
    // Headroom's own options take both forms too, in every command.
    for gpu in [&["--gpu", "L4"][..], &["--gpu=L4"]] {
        assert_eq!(
            run(&[&["plan", "--json", "--compile=False", "--batch_size=1"], gpu].concat()).status.code(),
            Some(0)
        );
    }
}

#[test]
fn a_config_file_is_never_a_settings_value() {
    let stderr = exits(&["plan", "--compile", "config/train_gpt2.py"], 2);
    assert!(stderr.contains("--compile"), "{stderr}");
    let stderr = exits(&["plan", "--batch_size", "config/train_gpt2.py"], 2);
    assert!(stderr.contains("--batch_size"), "{stderr}");
    assert!(!stderr.contains("train_gpt2.py"), "{stderr}");
    // An invalid value is reported as a value, and not as a missing file.
    let stderr = exits(&["plan", "--batch_size", "big"], 2);
    assert!(stderr.starts_with("--batch_size=big: "), "{stderr}");
    let stderr = exits(&["plan", "--batch_size", "-3"], 2);
    assert!(stderr.starts_with("--batch_size=-3: "), "{stderr}");
    let stderr = exits(&["plan", "--compile", "yes"], 2);
    assert!(stderr.starts_with("--compile=yes: "), "{stderr}");
    // After `--` every word is a file.
    exits(&["plan", "--batch_size=1", "--", "--batch_size", "2"], 3);
}

#[test]
fn training_and_diagnosis_take_settings_apart_too() {
    let args = ["train", "--plan", "--json", "--device", "cpu", "--n_layer", "1", "--seed", "7", "--batch_size", "2"];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let message = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("message.txt");
    fs::write(&file, message).expect("written");
    let args = ["diagnose", "--batch_size", "64", file.to_str().expect("text"), "--json"];
    assert_eq!(run(&args).status.code(), Some(0));
}

#[test]
fn quiet_silences_notes_and_never_data_or_errors() {
    let plan = ["plan", "--json", "--gpu=Tesla T4", "--dtype=bfloat16", "--compile=False", "--batch_size=1"];
    let loud = run(&plan);
    assert!(!loud.stderr.is_empty());
    for quiet in ["--quiet", "-q"] {
        for args in [[&plan[..], &[quiet]].concat(), [&[quiet], &plan[..]].concat()] {
            let output = run(&args);
            assert_eq!((text(&output.stderr), output.status.code()), ("", loud.status.code()), "{args:?}");
            assert_eq!(output.stdout, loud.stdout);
        }
        assert!(exits(&[quiet, "plan", "--gpu=RTX 4071"], 2).contains("RTX 4071"));
        assert!(exits(&["runs", "show", "3f2a", quiet], 1).starts_with("headroom: "));
    }
    let output = run(&["runs", "list", "-q"]);
    assert_eq!((output.status.code(), output.stdout.len(), output.stderr.len()), (Some(0), 0, 0));
}

#[test]
fn colour_is_as_it_is_asked_for() {
    let data = tempfile::tempdir().expect("a folder");
    let plan = ["plan", "--compile=False", "--batch_size=1"];
    let coloured = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = headroom_in(data.path(), &[&plan[..], args].concat());
        command.envs(variables.iter().copied());
        command.output().expect("headroom runs").stdout.contains(&0x1b)
    };
    assert!(!coloured(&[], &[]), "a pipe is not coloured");
    assert!(coloured(&["--color", "always"], &[]));
    assert!(coloured(&["--color=always"], &[("NO_COLOR", "1")]), "the option decides");
    assert!(coloured(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!coloured(&["--color=never"], &[("CLICOLOR_FORCE", "1")]));
    let before = run(&["--color=always", "gpus"]);
    assert!(before.stdout.contains(&0x1b), "an option may stand before the command");
    assert!(exits(&["plan", "--color=blue"], 2).contains("auto, always, never"));
}

#[test]
fn short_options_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("pages");
    let out = out.to_str().expect("text");
    for args in [&["man", "-o", out][..], &["man", &format!("-o{out}")], &["man", "-qo", out]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("headroom-plan.1"));
    }
    assert!(exits(&["gpus", "-o", "x"], 2).starts_with("headroom: gpus has no option -o\n"));
    assert_eq!(run(&["runs", "-h"]).stdout, run(&["runs", "--help"]).stdout);
}

#[test]
fn man_writes_pages_of_named_command() {
    let folder = tempfile::tempdir().expect("a folder");
    for (words, pages) in [
        (&["plan"][..], &["headroom-plan-hf.1", "headroom-plan-nanochat.1", "headroom-plan.1"][..]),
        (&["data"], &["headroom-data-prepare.1", "headroom-data.1"]),
        (&["runs", "show"], &["headroom-runs-show.1"]),
    ] {
        let out = folder.path().join(words.join("-"));
        let option = format!("--out={}", out.display());
        for args in [[&["man"], words, &[&*option]].concat(), [&["man", &*option], words].concat()] {
            let printed = run(&args);
            assert_eq!(printed.status.code(), Some(0), "{args:?}: {}", text(&printed.stderr));
            assert_eq!(text(&printed.stdout).lines().count(), pages.len(), "{args:?}");
            let mut names: Vec<_> = fs::read_dir(&out)
                .expect("the folder")
                .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
                .collect();
            names.sort_unstable();
            assert_eq!(names, pages, "{args:?}");
            fs::remove_dir_all(&out).expect("it is removed");
        }
    }
    assert!(exits(&["man", "plam", "--out", folder.path().join("x").to_str().expect("text")], 2).contains("plam"));
}

#[test]
fn every_command_has_help_with_usage_options_statuses_and_examples() {
    let commands = commands();
    assert!(commands.len() >= 25, "{commands:?}");
    for command in &commands {
        let words: Vec<&str> = command.split(' ').collect();
        let asked = run(&[&["help"], &words[..]].concat());
        assert_eq!(asked.status.code(), Some(0), "{command}");
        for help in ["--help", "-h"] {
            let same = run(&[&words[..], &[help]].concat());
            assert_eq!((same.status.code(), &same.stdout), (Some(0), &asked.stdout), "{command} {help}");
        }
        let help = text(&asked.stdout);
        for part in [
            &format!("\nUsage: headroom {command}")[..],
            "\nOptions:\n",
            "\nExit status:\n",
            "\nExamples:\n",
            "--quiet",
            "  3    ",
        ] {
            assert!(help.contains(part), "{part:?} in\n{help}");
        }
        let widest =
            help.lines().filter(|line| !line.starts_with("  headroom ")).map(|line| line.chars().count()).max();
        assert!(widest <= Some(110), "{widest:?} in\n{help}");
    }
}

/// Returns every command and subcommand in the lists that `help` prints.
fn commands() -> Vec<String> {
    let below = |words: &[&str]| -> Vec<String> {
        let output = run(&[&["help"], words].concat());
        let lines = text(&output.stdout).lines();
        let list = lines.skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = list.map(|line| line.trim_start().split("  ").next().unwrap_or_default());
        names.map(|name| words.iter().copied().chain([name]).collect::<Vec<_>>().join(" ")).collect()
    };
    let top = below(&[]);
    let all = top.iter().flat_map(|command| [command.clone()].into_iter().chain(below(&[command])));
    all.collect()
}

/// The rule is 3 if the system refuses a file, directory, port or output, 1 for a negative answer, and 2 for a usage
/// error.
#[test]
fn input_and_output_have_a_status_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "x").expect("written");
    let (file, missing) = (file.to_str().expect("text"), folder.path().join("missing"));
    let missing = missing.to_str().expect("text");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let below = format!("{file}/below");
    for (args, status) in [
        (&["plan", missing][..], 3),
        (&["plan", "config"], 3),
        (&["diagnose", missing], 3),
        (&["diagnose", file, "--config", missing], 3),
        (&["data", "prepare", missing, "--out", missing], 3),
        (&["data", "prepare", file, "--out", &format!("{missing}-data")], 1),
        (&["sample", "--ckpt", missing], 3),
        (&["export", "--ckpt", missing, "--out", missing], 3),
        (&["train", "--dataset", missing], 3),
        (&["train", missing], 3),
        (&["train", "--init_from=resume", "--out_dir", missing], 3),
        (&["train", "--batch_size=0"], 2),
        (&["serve", "--listen", &taken], 3),
        (&["serve", "--train", missing, "--listen=127.0.0.1:0"], 3),
        (&["serve", "--data-dir", &below], 3),
        (&["serve", "--webhook=nowhere", "--listen=127.0.0.1:0"], 2),
        (&["token", "list", "--data-dir", &below], 3),
        (&["token", "revoke", "nobody"], 1),
        (&["runs", "list", "--data-dir", missing], 3),
        (&["runs", "show", "3f2a"], 1),
        (&["runs", "backup", missing], 1),
        (&["man", "--out", &below], 3),
        (&["completions"], 2),
        (&["completions", "tcsh"], 2),
        (&["watch", "--", missing], 127),
        (&["watch", "--config", missing, "--", "true"], 3),
    ] {
        exits(args, status);
    }
    #[cfg(target_os = "linux")]
    for args in [&["gpus"][..], &["runs", "list", "--json"], &["man"], &["completions", "bash"], &["token", "pair"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has one");
        let data = tempfile::tempdir().expect("a folder");
        let output = headroom_in(data.path(), args).stdout(full).output().expect("headroom runs");
        assert_eq!(output.status.code(), Some(3), "{args:?}\n{}", text(&output.stderr));
    }
}
