//! Tests of the command line as users and programs use it: the real binary, its streams and its exit status.
//!
//! `HEADROOM_BIN` names a binary to test instead of this build's. `INSTA_UPDATE=always` updates the snapshots.

use std::{
    io::{Read, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

use insta::assert_snapshot;
use serde_json::Value;

/// The arguments of README's example.
const README: [&str; 5] = ["plan", "config/train_gpt2.py", "--batch_size=64", "--gpu", "RTX 4070"];
/// The same arguments without `torch.compile`.
const EAGER: [&str; 5] = ["plan", "config/train_gpt2.py", "--batch_size=64", "--gpu=RTX 4070", "--compile=False"];

/// Returns a command in this directory, which contains `config`. The environment has no effect on its output.
fn headroom(args: &[&str]) -> Command {
    let mut command =
        Command::new(std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into()));
    command.args(args).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")).stdin(Stdio::null());
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "COLUMNS", "TERM", "LC_CTYPE", "LANG"] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C.UTF-8");
    command
}

fn run(args: &[&str]) -> Output {
    headroom(args).output().expect("headroom runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Returns both streams and the exit status, for a snapshot.
fn shown(command: &mut Command) -> String {
    let output = command.output().expect("headroom runs");
    let status = output.status.code().expect("no signal");
    format!("{}--- stderr\n{}--- exit {status}\n", text(&output.stdout), text(&output.stderr))
}

fn json(args: &[&str]) -> Value {
    let output = run(args);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{args:?} prints no JSON: {error}\n{}", text(&output.stderr)))
}

#[track_caller]
fn exits(args: &[&str], status: i32) -> Output {
    let output = run(args);
    assert_eq!(output.status.code(), Some(status), "{args:?}\n{}", text(&output.stderr));
    // Standard output contains only data, and is empty after a usage error.
    assert_eq!(output.stdout.is_empty(), status >= 2, "{args:?} prints\n{}", text(&output.stdout));
    output
}

#[test]
fn help() {
    assert_snapshot!("help", text(&run(&["--help"]).stdout));
    assert_snapshot!("help_plan", text(&run(&["plan", "--help"]).stdout));
    assert_snapshot!("help_diagnose", text(&run(&["diagnose", "--help"]).stdout));
    assert_snapshot!("help_data", text(&run(&["data", "--help"]).stdout));
    assert_snapshot!("help_sample", text(&run(&["sample", "--help"]).stdout));
    assert_snapshot!("help_train", text(&run(&["train", "--help"]).stdout));
    assert_snapshot!("help_watch", text(&run(&["watch", "--help"]).stdout));
    assert_snapshot!("help_export", text(&run(&["export", "--help"]).stdout));
    assert_snapshot!("help_bench", text(&run(&["bench", "--help"]).stdout));
    assert_snapshot!("help_doctor", text(&run(&["doctor", "--help"]).stdout));
    assert_snapshot!("help_gpus", text(&run(&["gpus", "--help"]).stdout));
}

#[test]
fn help_is_found_wherever_it_is_looked_for() {
    for (args, same) in [
        (&["help"][..], &["--help"][..]),
        (&["-h"], &["--help"]),
        (&["help", "plan"], &["plan", "--help"]),
        (&["plan", "config/train_gpt2.py", "--batch_size=4", "-h"], &["plan", "--help"]),
        (&["help", "diagnose"], &["diagnose", "--help"]),
        (&["help", "export"], &["export", "--help"]),
        (&["help", "sample"], &["sample", "--help"]),
        (&["help", "train"], &["train", "--help"]),
        (&["help", "watch"], &["watch", "-h"]),
        (&["help", "gpus"], &["gpus", "--help"]),
        (&["help", "bench"], &["bench", "--help"]),
        (&["help", "data"], &["data", "--help"]),
        (&["data", "-h"], &["help", "data"]),
    ] {
        assert_eq!(exits(args, 0).stdout, exits(same, 0).stdout, "{args:?}");
    }
}

#[test]
fn the_version_is_the_packages() {
    for flag in ["--version", "-V"] {
        assert_eq!(text(&exits(&[flag], 0).stdout), concat!("headroom ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}

#[test]
fn a_command_that_there_is_none_of_is_reported() {
    for (command, meant) in [("trian", "train"), ("Plan", "plan")] {
        let output = exits(&[command], 2);
        assert_eq!(
            text(&output.stderr),
            format!("headroom: there is no command \"{command}\"\n\nhint: did you mean `headroom {meant}`?\n")
        );
    }
}

#[test]
fn a_run_that_does_not_fit() {
    assert_snapshot!("does_not_fit", shown(&mut headroom(&README)));
}

#[test]
fn a_run_that_fits() {
    let args = ["plan", "config/train_gpt2.py", "--batch_size=4", "--compile=False", "--gpu", "rtx4070"];
    assert_snapshot!("fits", shown(headroom(&args).env("COLUMNS", "80")));
}

#[test]
fn a_terminal_without_unicode() {
    let args = ["plan", "--compile=False", "--vram=12GB", "--other-processes", "2GiB", "--dtype=float16"];
    assert_snapshot!("ascii", shown(headroom(&args).env("COLUMNS", "80").env("LC_ALL", "C")));
    let output = headroom(&EAGER).env("LC_ALL", "C").output().expect("headroom runs");
    assert!(output.stdout.is_ascii());
}

#[test]
fn no_terminal_is_too_narrow_or_too_wide() {
    for (columns, widest) in [("1", 40), ("50", 50), ("80", 80), ("300", 120), ("wide", 100)] {
        let output = headroom(&["plan", "--batch_size=1"]).env("COLUMNS", columns).output().expect("headroom runs");
        let stdout = text(&output.stdout);
        // The numbers of a phase stay on one line.
        let longest = stdout.lines().map(|line| line.chars().count()).max().expect("lines");
        assert!(longest <= widest.max(59), "{columns}: {longest}");
        assert_eq!(stdout.contains('█'), widest >= 80, "{columns}");
    }
}

#[test]
fn findings_close_the_answer() {
    let args = ["plan", "--compile=False", "--gpu=Tesla T4", "--dtype=bfloat16", "--batch_size=1"];
    let output = exits(&args, 0);
    let stdout = text(&output.stdout);
    let notes = stdout.split_once("Worth knowing\n").expect("they are there").1;
    assert!(notes.starts_with("warning: Tesla T4 has no bfloat16 units"), "{notes}");
    // The JSON format has no field for warnings.
    let output = exits(&[&args[..], &["--json"]].concat(), 0);
    assert!(text(&output.stderr).starts_with("dtype: Tesla T4 has no bfloat16 units"), "{}", text(&output.stderr));
}

/// A GTX 1080 cannot compile. A T4 cannot compile bfloat16, PyTorch's default since 2.3.
#[test]
fn effects_of_older_gpu_are_reported() {
    for (gpu, compile) in [
        ("Tesla T4", "warning: torch.compile skips bfloat16 on Tesla T4 (compute capability 7.5, below 8.0)"),
        ("GTX 1080", "warning: torch.compile stops on GeForce GTX 1080 (compute capability 6.1; Triton needs 7.0)"),
    ] {
        let args = ["plan", "--gpu", gpu, "--batch_size=1"];
        let output = exits(&args, 0);
        let notes = text(&output.stdout).split_once("Worth knowing\n").expect("they are there").1;
        assert!(notes.starts_with(compile), "{notes}");
        let compiled = json(&[&args[..], &["--json"]].concat());
        let eager = json(&[&args[..], &["--json", "--compile=False"]].concat());
        assert_eq!(compiled["phases"], eager["phases"], "{gpu}");
        assert_eq!(compiled["config"]["dtype"], "bfloat16");
    }
    let older = json(&["plan", "--gpu=T4", "--torch=2.2", "--json"]);
    assert_eq!(older["config"]["dtype"], "float16");
}

#[test]
fn a_finding_names_its_place_in_a_file() {
    let output = exits(&["plan", "config/wide.py", "--gpu=T4", "--compile=False"], 0);
    let notes = text(&output.stdout).split_once("Worth knowing\n").expect("they are there").1;
    assert!(notes.starts_with("config/wide.py:3:9: warning: Tesla T4 has no bfloat16 units"), "{notes}");
}

#[test]
fn problems_of_a_config_are_reported() {
    assert_snapshot!("problems_in_a_file", {
        let output = run(&["plan", "config/broken.py", "--gpu=RTX 4090", "--compile=False"]);
        let first = text(&output.stdout).lines().next().unwrap_or_default();
        format!("{first}\n--- stderr\n{}--- exit {}\n", text(&output.stderr), output.status.code().unwrap_or(-1))
    });
}

#[test]
fn nanogpt_failure_is_reported_with_hint() {
    for (name, args) in [
        ("unknown_keys", &["plan", "--gpus=4", "--batch-size=3", "--learning_rte=1e-3", "batch_size=4"][..]),
        ("wrong_types", &["plan", "--batch_size=big", "--compile=false", "--dropout=0", "--compile"]),
        ("no_such_card", &["plan", "--gpu", "RTX 4071"]),
        ("ambiguous_card", &["plan", "--gpu", "A100"]),
        ("no_such_file", &["plan", "config/train_gpt3.py"]),
        ("unknown_option", &["plan", "--activation-checkpoints"]),
        ("out_of_range", &["plan", "config/out_of_range.py", "--eval_batch_size=0"]),
        ("not_utf8", &["plan", "config/not_text.bin"]),
        ("utf16", &["plan", "config/utf16.bin"]),
        ("beyond_64_bits", &["plan", "--batch_size=99999999999999999999999999"]),
        ("wrong_sign", &["plan", "--batch_size=-3"]),
        ("loaded_weights_are_shorter", &["plan", "--init_from=gpt2", "--block_size=2048"]),
        ("size_without_unit", &["plan", "--vram", "12"]),
        ("no_memory", &["plan", "--vram", "0"]),
    ] {
        assert_snapshot!(format!("problem_{name}"), shown(&mut headroom(args)));
    }
}

#[test]
fn exit_statuses() {
    let fits = ["plan", "--compile=False", "--batch_size=1", "--gradient_accumulation_steps=1"];
    let with = |more: &[&'static str]| [&fits[..], more].concat();
    for (args, status) in [
        (with(&[]), 0),
        (with(&["--vram", "1GiB"]), 1),
        (with(&["--vram", "1GiB", "--json"]), 1),
        (with(&["--vram", "1GiB", "--link"]), 1),
        (with(&["--vram=0"]), 2),
        (with(&["--vram=12"]), 2),
        (with(&["--vram=1048575"]), 2),
        (with(&["--vram=1048576"]), 1),
        (with(&["--vram=512KiB"]), 1),
        (with(&["--vram=12884901888"]), 0),
        (with(&["--other-processes=0"]), 0),
        (with(&["--other-processes=2"]), 2),
        (with(&["--context-bytes=225"]), 2),
        (with(&["--other-processes=11.5GiB"]), 1),
        (with(&["--context-bytes=11.5GiB"]), 1),
        (with(&["--json"]), 0),
        (with(&["--link"]), 0),
        (with(&["--gpu", "A100"]), 2),
        (with(&["--gpu", "A100 80GB"]), 0),
        (with(&["--gpu="]), 2),
        (with(&["--gpu"]), 2),
        (with(&["--gpu", "--json"]), 2),
        (with(&["--vram=lots"]), 2),
        (with(&["--torch=new"]), 2),
        (with(&["--torch", "2.5"]), 0),
        (with(&["--attention=math"]), 0),
        (with(&["--attention=fast"]), 2),
        (with(&["--activation-checkpointing", "--expandable-segments"]), 0),
        (with(&["--activation-checkpointing=1"]), 2),
        (with(&["--optimizer=adamw-8bit", "--cross-entropy=fused"]), 0),
        (with(&["--optimizer=adamw-foreach", "--cross-entropy=chunked"]), 0),
        (with(&["--optimizer=sgd"]), 2),
        (with(&["--cross-entropy=none"]), 2),
        (with(&["--del-eval-logits", "--del-train-logits"]), 0),
        (with(&["--world-size=0"]), 2),
        (with(&["--world-size=2"]), 2),
        (with(&["--world-size=2", "--gradient_accumulation_steps=2"]), 0),
        (with(&["--json", "--link"]), 2),
        (with(&["--eval_batch_size=1", "--vocab_size=65"]), 0),
        (with(&["--eval_batch_size=big"]), 2),
        (with(&["--n_head=5"]), 2),
        (with(&["--batch_size=0"]), 2),
        (with(&["--n_layer=99999999999999999999"]), 2),
        (with(&["--n_embd=9223372036854775807", "--n_head=1"]), 2),
        (with(&["--init_from=gpt3"]), 2),
        (with(&["--x"]), 2),
        (with(&["-x"]), 2),
        (with(&["config"]), 3),
        (with(&["config/not_text.bin"]), 2),
        (with(&["config/train_gpt2.py", "--batch_size=1"]), 0),
        (with(&["--", "config/train_gpt2.py", "--batch_size=1"]), 0),
        (vec!["plan", "config/broken.py", "--compile=False", "--batch_size=1"], 2),
        (vec![], 2),
        (vec!["plans"], 2),
        (vec!["help", "plans"], 2),
        (vec!["gpus"], 0),
        (vec!["gpus", "--json"], 0),
        (vec!["gpus", "--jso"], 2),
        (vec!["serve", "--listen=8420"], 2),
        (vec!["serve", "page"], 2),
        (vec!["data"], 2),
        (vec!["data", "prepares"], 2),
    ] {
        exits(&args, status);
    }
}

#[test]
fn later_words_win() {
    let batch_size = |args: &[&str]| {
        let args = [&["plan", "--json", "--compile=False"], args].concat();
        json(&args)["config"]["batch_size"].as_u64().expect("a number")
    };
    assert_eq!(batch_size(&["config/train_gpt2.py", "--batch_size=3"]), 3);
    assert_eq!(batch_size(&["--batch_size=3", "config/train_gpt2.py"]), 12);
    assert_eq!(batch_size(&["--batch_size=3", "--gpu", "L4", "--batch_size=5"]), 5);
    assert_eq!(batch_size(&[]), 12);
}

#[test]
fn options_reach_the_plan() {
    let plan = |args: &[&str]| json(&[&EAGER[..], &["--json"], args].concat());
    let base = plan(&[]);
    let peak = |plan: &Value| plan["peak"]["max_memory_allocated"].as_u64().expect("bytes");
    for smaller in [
        &["--activation-checkpointing"][..],
        &["--cross-entropy=fused"],
        &["--cross-entropy=chunked"],
        &["--optimizer=adamw-8bit"],
        &["--block_size=512"],
    ] {
        assert!(peak(&plan(smaller)) < peak(&base), "{smaller:?}");
    }
    for larger in [&["--attention=math"][..], &["--bias=True"]] {
        assert!(peak(&plan(larger)) > peak(&base), "{larger:?}");
    }
    let one = plan(&["--gradient_accumulation_steps=1"]);
    assert!(peak(&plan(&["--world-size=2", "--gradient_accumulation_steps=2"])) > peak(&one));
    let reserved = |plan: &Value| plan["peak"]["max_memory_reserved"].as_u64().expect("bytes");
    assert!(reserved(&plan(&["--expandable-segments"])) < reserved(&base));
    let used = |plan: &Value| plan["peak"]["device_used_bytes"].as_u64().expect("bytes");
    assert_eq!(used(&plan(&["--other-processes=2GiB"])) - used(&base), 2 << 30);
    assert_eq!(used(&plan(&["--context-bytes=0"])), reserved(&base));
    assert_eq!(plan(&["--vram=11.5GiB"])["device"]["total_bytes"], 12_348_030_976_u64);
    assert_eq!(plan(&["--vram=11.5GiB"])["device"]["name"], "GeForce RTX 4070");
    let message = |torch: &str| plan(&["--torch", torch])["oom"]["message"].as_str().expect("a message").to_owned();
    assert_ne!(message("2.1"), message("2.11"));
    for old in ["1.13", "2.0"] {
        assert!(
            message(old)
                .starts_with("CUDA out of memory. Tried to allocate 6.14 GiB (GPU 0; 11.69 GiB total capacity;")
        );
    }
    assert!(message("2.1").contains(" has a total capacty of "));
    let live = |plan: &Value, phase: usize| plan["phases"][phase]["live_bytes_peak"].as_u64().expect("bytes");
    let (eval_first, eval, steady_forward) = (1, 2, 8);
    assert!(live(&plan(&["--eval_batch_size=8"]), eval_first) < live(&base, eval_first));
    assert!(live(&plan(&["--del-eval-logits"]), eval) < live(&base, eval));
    assert!(live(&plan(&["--del-train-logits"]), steady_forward) < live(&base, steady_forward));
}

#[test]
fn memory_size_alone_defines_gpu() {
    let plan = json(&["plan", "--vram", "6GiB", "--compile=False", "--json"]);
    assert_eq!(plan["device"]["total_bytes"], 6_442_450_944_u64);
    assert_eq!(plan["device"]["name"], "6.00 GiB GPU (8.9)");
    let output = run(&["plan", "--vram=6GiB", "--compile=False", "--batch_size=1"]);
    assert!(text(&output.stdout).contains("\ncompute capability 8.9 is assumed"), "{}", text(&output.stdout));
    assert_eq!(json(&["plan", "--vram=4MiB", "--compile=False", "--json"])["device"]["name"], "4.0 MiB GPU (8.9)");
}

#[test]
fn json_is_the_contract() {
    for (name, args) in [("plan_json", README), ("plan_json_eager", EAGER)] {
        let output = run(&[&args[..], &["--json"]].concat());
        assert_snapshot!(name, text(&output.stdout));
    }
}

#[track_caller]
fn names(json: &Value, expected: &str) {
    let names: std::collections::BTreeSet<&str> =
        json.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(names, expected.split(' ').collect());
}

/// The documented names. A name more or less breaks a program that reads them.
#[test]
fn json_has_exactly_the_names_of_the_contract() {
    let json = json(&[&EAGER[..], &["--json"]].concat());
    names(
        &json,
        "schema config device fits headroom_bytes needs phases peak oom basis builtin batch_size fixes stock_configs",
    );
    names(&json["device"], "name total_bytes compute_capability");
    names(&json["peak"], "phase live_bytes max_memory_allocated max_memory_reserved device_used_bytes by_category");
    names(
        &json["peak"]["by_category"],
        "parameters gradients optimizer_state cast_cache activations logits_and_loss workspace input",
    );
    names(&json["oom"], "phase tensor shape dtype requested_bytes allocated_bytes message");
    names(&json["basis"], "allocated reserved context band_bytes");
    let phases = json["phases"].as_array().expect("a list");
    let names_of_phases: Vec<&str> = phases.iter().filter_map(|phase| phase["name"].as_str()).collect();
    assert_eq!(
        names_of_phases.join(" "),
        "init eval_first eval first_forward first_backward first_optimizer later_eval_first later_eval steady_forward \
         steady_backward steady_optimizer rest"
    );
    for phase in phases {
        names(phase, "name live_bytes_peak max_memory_allocated max_memory_reserved");
    }
    assert_eq!(json["schema"], 1);
    for basis in ["allocated", "reserved", "context"] {
        let word = json["basis"][basis].as_str().expect("a word");
        assert!(["exact", "measured", "estimated"].contains(&word), "{basis}: {word}");
    }
    let categories = json["peak"]["by_category"].as_object().expect("an object");
    let sum: u64 = categories.values().filter_map(Value::as_u64).sum();
    assert_eq!(json["peak"]["live_bytes"], sum, "the parts add up to the whole");
}

#[test]
fn json_of_a_run_that_fits_has_no_failure() {
    let json = json(&["plan", "--compile=False", "--batch_size=1", "--json"]);
    assert_eq!((&json["fits"], &json["oom"]), (&Value::Bool(true), &Value::Null));
    let total = json["device"]["total_bytes"].as_i64().expect("bytes");
    let used = json["peak"]["device_used_bytes"].as_i64().expect("bytes");
    assert_eq!(json["headroom_bytes"], total - used);
}

#[test]
fn a_link_says_all_that_changes_figures() {
    let args = ["plan", "config/train_gpt2.py", "--batch_size=8", "--compile=False", "--vram=8GiB", "--link"];
    let output = run(&args);
    assert_eq!(
        text(&output.stdout),
        "http://127.0.0.1:8420/#1&eval_interval=1000&log_interval=10&eval_iters=200&gradient_accumulation_steps=40\
         &batch_size=8&block_size=1024&max_iters=600000&weight_decay=0.1&lr_decay_iters=600000&compile=False&gpu=\
         &vram=8589934592\n"
    );
}

#[test]
fn the_gpus_are_listed() {
    let gpus = json(&["gpus", "--json"]);
    names(&gpus, "schema gpus");
    let rows = gpus["gpus"].as_array().expect("a list");
    assert!(rows.len() >= 45, "{} GPUs", rows.len());
    for row in rows {
        names(
            row,
            "name total_bytes total_basis total_source compute_capability sm_count memory_bandwidth_bytes_per_second \
             bf16_flops fp16_flops tf32_flops fp32_flops board_power_watts board_power_source source",
        );
    }
    let wide = run(&["gpus"]);
    let narrow = headroom(&["gpus"]).env("COLUMNS", "100").output().expect("headroom runs");
    assert_eq!(text(&wide.stdout).lines().count(), rows.len() + 1);
    assert!(text(&narrow.stdout).lines().all(|line| line.chars().count() <= 100));
    for row in rows {
        let name = row["name"].as_str().expect("a name");
        exits(&["plan", "--compile=False", "--batch_size=1", "--n_layer=1", "--gpu", name], 0);
    }
}

#[test]
fn a_file_is_not_coloured() {
    for stdout in [run(&EAGER).stdout, headroom(&EAGER).env("NO_COLOR", "1").output().expect("headroom runs").stdout] {
        assert!(!stdout.contains(&0x1b));
    }
}

#[test]
fn a_closed_pipe_is_success() {
    for args in [&EAGER[..], &["gpus"], &["--help"]] {
        let mut child = headroom(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("headroom runs");
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        let status = child.wait().expect("it ends");
        // If the reader closes the pipe after the last write, the exit status is the plan's.
        assert!(matches!(status.code(), Some(0 | 1)), "{args:?}: {status}");
        assert_eq!(stderr, "", "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has one");
    let output = headroom(&["gpus"]).stdout(full).output().expect("headroom runs");
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).starts_with("headroom: cannot write to standard output"), "{}", text(&output.stderr));
}

#[cfg(unix)]
#[test]
fn a_config_may_come_through_a_pipe() {
    let mut child = headroom(&["plan", "/dev/stdin", "--compile=False", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("headroom runs");
    child.stdin.take().expect("piped").write_all("\u{feff}batch_size = 3\r\n".as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["config"]["batch_size"], 3);
}

#[cfg(unix)]
#[test]
fn a_file_without_an_end_is_given_up() {
    let output = exits(&["plan", "/dev/zero"], 2);
    assert!(text(&output.stderr).contains("longer than 5 MB"), "{}", text(&output.stderr));
}
