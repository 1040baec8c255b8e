//! Files that others made, and keys that a checkpoint overrides: read where they can be, and refused before a run trains.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Output, Stdio},
};

use crate::started::{finished, folder, headroom, losses, refused, tiny};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sample(folder: &Path, args: &[&str]) -> Vec<u8> {
    let given = ["sample", "--max-new-tokens=20", "--temperature=2"];
    finished(&mut headroom(folder, &[&given, args].concat())).stdout
}

#[test]
fn a_resumed_run_warns_of_each_key_that_its_checkpoint_overrides() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    let resume = ["train", "--json", "--device=cpu", "--threads=1", "--init_from=resume", "--out_dir=out"];
    let given = ["--n_embd=64", "--n_layer=2", "--block_size=4", "--bias=True", "--vocab_size=99", "--max_iters=5"];
    let output = finished(&mut headroom(folder.path(), &[&resume[..], &given].concat()));
    assert_eq!(losses(&output.stdout).keys().copied().collect::<Vec<_>>(), [4, 5]);
    for (key, given, used) in [
        ("n_embd", "64", "8"),
        ("n_layer", "2", "1"),
        ("block_size", "4", "8"),
        ("bias", "True", "False"),
        ("vocab_size", "99", "29"),
    ] {
        let warning =
            format!("warning: {key} = {given} is ignored: a resumed run keeps its checkpoint's {key} = {used}.\n");
        assert!(said(&output).contains(&warning), "{warning} in {}", said(&output));
    }
    // What was used is what the next checkpoint states, and what agrees is not mentioned.
    let output = finished(&mut headroom(folder.path(), &[&resume[..], &["--max_iters=6", "--n_embd=8"]].concat()));
    assert!(!said(&output).contains("warning"), "{}", said(&output));
    // A new run's shape has to be one.
    refused(&mut tiny(folder.path(), &["--n_embd=9"]), 2, &["n_embd is 9, which n_head 2 does not divide"]);
}

/// nanoGPT's own checkpoint is a zip with a pickle in it.
#[test]
fn a_folder_with_a_checkpoint_of_nanogpt_says_how_to_convert_it() {
    let folder = folder();
    fs::create_dir(folder.path().join("nano")).expect("space");
    fs::write(folder.path().join("nano/ckpt.pt"), b"PK\x03\x04 and a pickle").expect("space");
    let words = ["nano/ckpt.pt", "a checkpoint of PyTorch", "hint: ", "safetensors"];
    for args in [
        &["sample", "--ckpt", "nano"][..],
        &["export", "--ckpt", "nano", "--out", "x"],
        &["sample", "--ckpt", "nano/ckpt.pt"],
        &["train", "--device=cpu", "--dataset=fox", "--init_from=nano"],
        &["train", "--device=cpu", "--dataset=fox", "--init_from=resume", "--out_dir=nano"],
    ] {
        refused(&mut headroom(folder.path(), args), 1, &words);
    }
    // A run of ours beside it is what counts.
    finished(&mut tiny(folder.path(), &["--max_iters=2", "--out_dir=nano"]));
    sample(folder.path(), &["--ckpt=nano"]);
}

#[test]
fn an_export_in_hugging_faces_format_can_be_sampled() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=20"]));
    finished(&mut headroom(folder.path(), &["export", "--ckpt=out", "--format=hf", "--out=hf"]));
    let own = sample(folder.path(), &["--ckpt=out", "--prompt=The"]);
    assert_eq!(sample(folder.path(), &["--ckpt=hf", "--prompt=The"]), own);
    assert_eq!(sample(folder.path(), &["--ckpt=hf/model.safetensors", "--prompt=The"]), own);
    // An export of the export is one too.
    finished(&mut headroom(folder.path(), &["export", "--ckpt=hf", "--format=hf", "--out=again"]));
    assert_eq!(sample(folder.path(), &["--ckpt=again", "--prompt=The"]), own);

    // The weights alone do not know it.
    fs::create_dir(folder.path().join("bare")).expect("space");
    for file in ["model.safetensors", "config.json"] {
        fs::copy(folder.path().join("hf").join(file), folder.path().join("bare").join(file)).expect("space");
    }
    refused(
        &mut headroom(folder.path(), &["sample", "--ckpt=bare"]),
        1,
        &["its tokenizer is not known", "--tokenizer"],
    );
    for tokenizer in ["hf", "hf/tokenizer.json", "data/fox", "data/fox/meta.pkl"] {
        assert_eq!(
            sample(folder.path(), &["--ckpt=bare", "--prompt=The", "--tokenizer", tokenizer]),
            own,
            "{tokenizer}"
        );
    }
    let named = |tokenizer: &'static str| ["sample", "--ckpt=bare", "--tokenizer", tokenizer];
    refused(&mut headroom(folder.path(), &named("gpt2")), 1, &["the tokenizer has 50257 tokens, and the model 29"]);
    refused(
        &mut headroom(folder.path(), &named("gone.json")),
        3,
        &["--tokenizer: cannot read the tokenizer gone.json"],
    );
    refused(&mut headroom(folder.path(), &named("out")), 3, &["out has no tokenizer.json"]);
}

#[test]
fn an_export_of_gpt2s_tokens_can_be_sampled() {
    let folder = folder();
    finished(&mut headroom(folder.path(), &["data", "prepare", "text.txt", "--tokenizer=gpt2", "--out=data/words"]));
    finished(&mut tiny(folder.path(), &["--dataset=words", "--max_iters=1", "--out_dir=words"]));
    finished(&mut headroom(folder.path(), &["export", "--ckpt=words", "--format=hf", "--out=hf"]));
    let own = sample(folder.path(), &["--ckpt=words", "--prompt=The quick"]);
    assert_eq!(sample(folder.path(), &["--ckpt=hf", "--prompt=The quick"]), own);
    fs::remove_file(folder.path().join("hf/tokenizer.json")).expect("it is there");
    assert_eq!(sample(folder.path(), &["--ckpt=hf", "--prompt=The quick", "--tokenizer=gpt2"]), own);
}

#[test]
fn a_prompt_comes_from_standard_input() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=2"]));
    let piped = |text: &str| {
        let mut command = headroom(folder.path(), &["sample", "--ckpt=out", "--max-new-tokens=9", "--prompt", "-"]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it is read");
        child.wait_with_output().expect("it ends")
    };
    let output = piped("The quick\n");
    assert!(output.status.success(), "{}", said(&output));
    let args = ["sample", "--ckpt=out", "--max-new-tokens=9", "--prompt=The quick"];
    assert_eq!(output.stdout, finished(&mut headroom(folder.path(), &args)).stdout);
    assert_eq!(piped("\n").status.code(), Some(1));
}

/// nanoGPT takes the model's vocabulary from `vocab_size`: a character beyond it has no token.
#[test]
fn a_meta_with_more_characters_than_its_vocabulary_is_refused_before_a_run() {
    let folder = folder();
    let path = folder.path().join("data/fox/meta.pkl");
    let mut meta = fs::read(&path).expect("a file");
    // After the key comes the number, in one byte.
    let key = b"vocab_sizeK";
    let at = meta.windows(key.len()).position(|window| window == key).expect("the key") + key.len();
    assert_eq!(meta[at], 29);
    meta[at] = 28;
    fs::write(&path, meta).expect("space");
    let output = tiny(folder.path(), &["--max_iters=1"]).output().expect("it runs");
    assert_eq!((output.status.code(), losses(&output.stdout).len()), (Some(1), 0), "{}", said(&output));
    for words in
        ["data/fox/meta.pkl: its vocab_size is 28, and it lists 29 characters", "hint: prepare the data set again"]
    {
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    assert!(!folder.path().join("out").exists());
}
