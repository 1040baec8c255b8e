//! Tests of `headroom diagnose` for runs of nanochat and of Hugging Face models. The messages are those that
//! `headroom plan` predicts.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn headroom(args: &[&str], input: &str) -> Output {
    let program = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("headroom starts");
    // A plan does not read its input.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("headroom ends")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn json(args: &[&str], input: &str) -> Value {
    let output = headroom(&[args, &["--json"]].concat(), input);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

const HF: [&str; 6] =
    ["hf", "Qwen2.5-0.5B", "--bf16", "--per_device_train_batch_size=8", "--max_length=1024", "--dtype=float32"];
const NANOCHAT: [&str; 4] = ["nanochat", "--compile=False", "--depth=12", "--device-batch-size=16"];
const GPU: [&str; 2] = ["--gpu", "RTX 4070"];

/// The message that a run prints.
fn message_of(run: &[&str]) -> String {
    let plan = json(&[&["plan"], run, &GPU].concat(), "");
    plan["oom"]["message"].as_str().expect("a run that does not fit").to_owned()
}

#[test]
fn a_predicted_message_is_explained_with_its_run() {
    for run in [&HF[..], &NANOCHAT] {
        let plan = json(&[&["plan"], run, &GPU].concat(), "");
        let message = message_of(run);
        let diagnosis = json(&[&["diagnose"], run].concat(), &message);
        assert_eq!(diagnosis["trainer"], run[0]);
        let found = &diagnosis["matches"][0];
        let oom = &plan["oom"];
        assert_eq!((&found["exact"], &found["phase"]), (&Value::Bool(true), &oom["phase"]), "{diagnosis:#}");
        assert_eq!(found["tensor"], oom["tensor"]);
        // The message rounds the bytes outside of PyTorch, so the memory left differs.
        let arguments = |of: &Value| {
            let fixes = of["fixes"].as_array().expect("a list").iter();
            fixes.map(|fix| (fix["id"].clone(), fix["arguments"].clone())).collect::<Vec<_>>()
        };
        assert_eq!(arguments(&diagnosis), arguments(&plan));
        assert_eq!(diagnosis["largest"], plan["largest"]);
        let output = headroom(&[&["diagnose"], run].concat(), &message);
        let said = text(&output.stdout);
        assert!(said.contains("The simulated run prints the same figures, to the last digit."), "{said}");
        assert!(said.contains("What to change, least impact first"), "{said}");
    }
}

#[test]
fn a_run_with_other_figures_is_not_called_exact() {
    let message = message_of(&HF);
    let other = [&HF[..3], &["--per_device_train_batch_size=1", "--max_length=1024", "--dtype=float32"]].concat();
    let diagnosis = json(&[&["diagnose"][..], &other].concat(), &message);
    let matches = diagnosis["matches"].as_array().expect("a list");
    assert!(matches.iter().all(|found| found["exact"] == false), "{diagnosis:#}");
    assert!(!diagnosis["differences"].as_array().expect("a list").is_empty(), "{diagnosis:#}");
}

#[test]
fn a_command_in_the_text_is_the_run() {
    let command = NANOCHAT[1..].join(" ");
    let log = format!("$ python -m scripts.base_train {command}\n{}\n", message_of(&NANOCHAT));
    let diagnosis = json(&["diagnose"], &log);
    assert_eq!((&diagnosis["trainer"], &diagnosis["config"]["depth"]), (&"nanochat".into(), &12.into()));
    assert_eq!(diagnosis["matches"][0]["exact"], true, "{diagnosis:#}");
    let of_stdin = json(&["diagnose", "nanochat", "--compile=False", "-"], &log);
    assert_eq!(of_stdin["matches"], diagnosis["matches"]);
    let log = format!("python -m scripts.base_train --depth=12\n{}\n", message_of(&NANOCHAT));
    let output = headroom(&["diagnose"], &log);
    assert!(text(&output.stderr).contains("--compile=False plans the eager run"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_message_alone_is_solved() {
    let frame = "  File \"/a/transformers/models/qwen2/modeling_qwen2.py\", line 1, in forward\n";
    let traceback = format!("Traceback (most recent call last):\n{frame}{}", message_of(&HF));
    let diagnosis = json(&["diagnose"], &traceback);
    assert_eq!(diagnosis["trainer"], "hf");
    let solution = &diagnosis["solutions"][0];
    assert_eq!((&solution["exact"], &solution["model"]), (&Value::Bool(true), &"Qwen2.5-0.5B".into()), "{diagnosis:#}");
    assert_eq!(solution["config"]["per_device_train_batch_size"], 8);
    assert!(!diagnosis["fixes"].as_array().expect("a list").is_empty());
    let output = headroom(&["diagnose"], &traceback);
    let said = text(&output.stdout);
    assert!(said.contains("The traceback is from transformers (qwen2)."), "{said}");
    assert!(said.contains("headroom plan hf Qwen2.5-0.5B --per_device_train_batch_size=8"), "{said}");
}
