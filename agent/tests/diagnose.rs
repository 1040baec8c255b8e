//! `headroom diagnose` as people and programs use it: files, pipes, configs, and what it prints.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use insta::assert_snapshot;
use serde_json::Value;

fn diagnose(args: &[&str], input: &[u8]) -> Output {
    let mut command =
        Command::new(std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into()));
    command.arg("diagnose").args(args).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    for name in ["NO_COLOR", "COLUMNS", "TERM", "LC_CTYPE", "LANG"] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C.UTF-8").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("headroom starts");
    // It may have seen enough before all is written.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("headroom ends")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn json(args: &[&str], input: &[u8]) -> Value {
    let output = diagnose(args, input);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

const RUN: [&str; 3] = ["message/batch_64.txt", "--batch_size=64", "--gradient_accumulation_steps=1"];

#[test]
fn a_message_alone() {
    let output = diagnose(&["message/batch_64.txt"], b"");
    assert_eq!(output.status.code(), Some(0));
    assert_snapshot!("message_alone", text(&output.stdout));
}

#[test]
fn a_message_with_its_run() {
    assert_snapshot!("message_with_its_run", text(&diagnose(&RUN, b"").stdout));
}

#[test]
fn json_is_the_contract() {
    let output = diagnose(&[&RUN[..], &["--json"]].concat(), b"");
    assert_snapshot!("message_json", text(&output.stdout));
}

#[test]
fn a_pipe_and_a_config_file() {
    let message =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/message/batch_64.txt")).expect("it is there");
    let asked = ["-", "--config", "config/train_gpt2.py", "--batch_size=64", "--json"];
    let piped = json(&asked, &message);
    assert_eq!(piped["matches"][0]["tensor"], "logits");
    assert_eq!(piped["rank"], 0);
    // PowerShell's redirection.
    let wide: Vec<u8> =
        [0xff, 0xfe].into_iter().chain(text(&message).encode_utf16().flat_map(u16::to_le_bytes)).collect();
    assert_eq!(json(&asked, &wide), piped);
}

#[test]
fn what_it_cannot_read_is_told() {
    for (args, words, status) in [
        (&["no_such.txt"][..], "no_such.txt", 3),
        (&["message/batch_64.txt", "another.txt"][..], "another.txt", 2),
        (&["message/batch_64.txt", "--config", "no_such.py"][..], "no_such.py", 3),
    ] {
        let output = diagnose(args, b"");
        assert_eq!(output.status.code(), Some(status), "{args:?}");
        assert!(output.stdout.is_empty() && text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn bytes_that_are_no_text_are_no_message() {
    let noise: Vec<u8> = (0..100_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
    let answer = json(&["--json"], &noise);
    assert_eq!((&answer["kind"], &answer["requested_bytes"]), (&Value::from("not_oom"), &Value::Null));
}
