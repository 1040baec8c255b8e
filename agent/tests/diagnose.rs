//! Tests of `headroom diagnose` as users and programs use it: files, pipes, configs, and its output.

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
    // The program may end before it has read all input.
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

/// Returns PyTorch's message about an RTX 4070 where `more` is stated of its memory.
fn message(requested: &str, more: &str) -> String {
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {requested}. GPU 0 has a total capacity of 11.69 GiB \
         of which 8.00 MiB is free. {more} is reserved by PyTorch but unallocated."
    )
}

#[test]
fn causes_are_ranked() {
    let full = "Including non-PyTorch memory, this process has 11.68 GiB memory in use. Of the allocated memory 11.20 GiB is \
                allocated by PyTorch, and 50.00 MiB";
    let taken = "Process 1234 has 10.00 GiB memory in use. Including non-PyTorch memory, this process has 1.67 GiB memory \
                 in use. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 52.00 MiB";
    // One of them alone would not free enough.
    let shared = "Process 5678 has 2.00 GiB memory in use. Process 1234 has 8.00 GiB memory in use. Process 9 has 10.00 MiB \
                  memory in use. Including non-PyTorch memory, this process has 1.66 GiB memory in use. Of the allocated \
                  memory 1.00 GiB is allocated by PyTorch, and 52.00 MiB";
    let both = "Processes 1234 (8.00 GiB), 5678 (2.00 GiB) hold 10.0";
    for (message, cause) in [
        (message("9.00 GiB", shared), both),
        (message("20.00 MiB", full), "The GPU is full: tensors take 11.20 GiB of its 11.69 GiB."),
        (message("512.00 MiB", taken), "Process 1234 holds 10.00 GiB of the GPU's 11.69 GiB."),
    ] {
        let output = diagnose(&["-"], message.as_bytes());
        let said = text(&output.stdout);
        assert!(said.contains(cause) && !said.contains("fragmentation"), "{said}");
    }
}

#[test]
fn a_pipe_and_a_config_file() {
    let message =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/message/batch_64.txt")).expect("it is there");
    let asked = ["-", "--config", "config/train_gpt2.py", "--batch_size=64", "--json"];
    let piped = json(&asked, &message);
    assert_eq!(piped["matches"][0]["tensor"], "logits");
    assert_eq!(piped["rank"], 0);
    // The UTF-16 of PowerShell's redirection.
    let wide: Vec<u8> =
        [0xff, 0xfe].into_iter().chain(text(&message).encode_utf16().flat_map(u16::to_le_bytes)).collect();
    assert_eq!(json(&asked, &wide), piped);
}

#[test]
fn unreadable_message_is_reported() {
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
fn binary_data_is_refused_whatever_its_size() {
    for n_bytes in [1000, 3_000_000] {
        let noise: Vec<u8> =
            (0..n_bytes).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
        let output = diagnose(&[], &noise);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), ""));
        assert!(text(&output.stderr).contains("binary data, not text"), "{}", text(&output.stderr));
    }
    // Logs contain colours, progress bars and a few invalid bytes.
    let log = b"\x1b[31mstep 1\x1b[0m\r 10%|# |\r 20%|## |\x08\n caf\xe9 \xff\n".repeat(60_000);
    let output = diagnose(&[], &log);
    assert_eq!(output.status.code(), Some(0));
    assert!(!text(&output.stdout).contains("longer than"), "{} bytes: {}", log.len(), text(&output.stdout));
}
