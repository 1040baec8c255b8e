//! `headroom plan` with options that stand for changes to nanoGPT's code: the answer names them and prints the patch.

use std::process::Command;

fn plan(options: &[&str]) -> String {
    let program = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let run = ["plan", "--batch_size=20", "--compile=False", "--gpu", "RTX 4070"];
    let output = Command::new(program).args(run).args(options).env("NO_COLOR", "1").output().expect("headroom runs");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn an_answer_that_counts_on_other_code_says_so_first() {
    let stock = plan(&[]);
    assert!(stock.starts_with("Does not fit on RTX 4070: "), "{stock}");
    assert!(!stock.contains("You still have to"), "{stock}");

    let chunked = plan(&["--cross-entropy=chunked", "--activation-checkpointing"]);
    assert!(chunked.starts_with("Fits on RTX 4070 with 2 changes to model.py: "), "{chunked}");
    let words = chunked.split_whitespace().collect::<Vec<_>>().join(" ");
    let lead = "You still have to This plan assumes 2 changes to model.py: activation checkpointing, chunked cross-entropy. \
        Unchanged code takes more memory than planned here.";
    assert!(words.contains(lead), "{chunked}");
    for line in ["--- a/model.py", "+++ b/model.py", "-            x = block(x)", "+            logits = None"] {
        assert!(chunked.lines().any(|other| other == line), "{line}\n{chunked}");
    }

    let both = plan(&["--batch_size=64", "--del-eval-logits", "--optimizer=adamw-8bit"]);
    let words = both.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.starts_with("Does not fit on RTX 4070, even with 2 changes to model.py, train.py: "), "{both}");
}
