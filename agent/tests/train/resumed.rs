//! Tests of a resumed run with other data, a directory that is none, and two checkpoints in one directory.

use std::{fs, path::Path};

use serde_json::Value;

use crate::started::{finished, folder, headroom, refused, said, tiny};

const RESUME: [&str; 7] =
    ["train", "--json", "--threads=1", "--device=cpu", "--init_from=resume", "--out_dir=out", "--max_iters=5"];

/// Prepares another data set.
fn prepare(folder: &Path, name: &str, text: &str, more: &[&str]) {
    fs::write(folder.join("other.txt"), text.repeat(60)).expect("a text");
    let out = format!("data/{name}");
    finished(&mut headroom(folder, &[&["data", "prepare", "other.txt", "--out", &out], more].concat()));
}

#[test]
fn run_with_other_tokens_is_not_resumed() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    let checkpoint = fs::read(folder.path().join("out/ckpt.safetensors")).expect("it was saved");
    // As many characters as the checkpoint has, fewer, and GPT-2's tokens.
    let same_count = "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG. t";
    for (name, text, more) in [
        ("upper", same_count, &[][..]),
        ("few", "abc def. ", &[]),
        ("bpe", "The quick brown fox. ", &["--tokenizer=gpt2"]),
    ] {
        prepare(folder.path(), name, text, more);
        let dataset = format!("--dataset={name}");
        for plan in [&["--plan"][..], &[]] {
            let mut resume = headroom(folder.path(), &[&RESUME[..], &[&dataset], plan].concat());
            let words = [
                &*format!("cannot resume the run in out with the data set {name}: it has "),
                "the checkpoint was trained with 29 characters (",
                "hint: --dataset=fox resumes it; ",
            ];
            refused(&mut resume, 1, &words);
        }
        assert!(fs::read(folder.path().join("out/ckpt.safetensors")).expect("it is there") == checkpoint, "{name}");
    }
}

#[test]
fn run_on_other_data_with_the_same_tokens_starts_a_new_best_loss() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    // The same characters in another order.
    prepare(folder.path(), "dog", "The lazy dog jumps over the quick brown fox. ", &[]);
    let output = finished(&mut headroom(folder.path(), &[&RESUME[..], &["-q", "--dataset=dog"]].concat()));
    let warning = "warning: the checkpoint in out was trained on fox, and this run continues on dog: ";
    assert!(said(&output).starts_with(warning), "{}", said(&output));
    let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .collect();
    let losses: Vec<f64> = lines.iter().filter_map(|line| line["val_loss"].as_f64()).collect();
    assert!(!losses.is_empty(), "{lines:?}");
    // Of the same data again, nothing is said.
    let output = finished(&mut headroom(folder.path(), &[&RESUME[..6], &["-q", "--max_iters=6"]].concat()));
    assert_eq!(said(&output), "");
}

#[cfg(unix)]
#[test]
fn output_folder_that_is_no_folder_is_refused() {
    let folder = folder();
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().expect("mkfifo is there");
    assert!(made.success());
    for out_dir in ["--out_dir=pipe", "--out_dir=text.txt"] {
        for more in [&[][..], &["--plan"], &["--init_from=resume"], &["--eval_only=True"], &["--force"]] {
            let words = ["cannot save checkpoints in ", "hint: use another folder with --out_dir="];
            refused(&mut tiny(folder.path(), &[&[out_dir, "--max_iters=1"], more].concat()), 3, &words);
        }
    }
}

#[test]
fn newer_checkpoint_of_nanogpt_is_named() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    // This checkpoint has 8 iterations.
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/nanogpt_ckpt/ckpt.pt");
    fs::copy(golden, folder.path().join("out/ckpt.pt")).expect("space");
    let resumed = |max_iters| {
        said(&finished(&mut headroom(folder.path(), &[&RESUME[..6], &["-q", "--max_iters", max_iters]].concat())))
    };
    let warning = resumed("5");
    let words = ["warning: ", "out/ckpt.safetensors at iteration 4", "out/ckpt.pt of nanoGPT is at iteration 8"];
    assert!(words.iter().all(|word| warning.contains(word)), "{warning}");
    resumed("9");
    assert_eq!(resumed("10"), "", "the checkpoint is newer now");
}
