//! Files of other programs, and keys that a checkpoint overrides. They are read if possible, and otherwise refused
//! before a run trains.

use std::{fs, io::Write as _, path::Path, process::Stdio};

use serde_json::{Value, json};

use crate::started::{finished, folder, headroom, losses, refused, said, tiny};

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
    // The next checkpoint records the values in use. A key that agrees with it causes no message.
    let output = finished(&mut headroom(folder.path(), &[&resume[..], &["--max_iters=6", "--n_embd=8"]].concat()));
    assert!(!said(&output).contains("warning"), "{}", said(&output));
    // A new run's shape must be valid.
    refused(&mut tiny(folder.path(), &["--n_embd=9"]), 2, &["n_embd (9) must be divisible by n_head (2)"]);
}

#[test]
fn quiet_run_prints_warnings() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    let resume = ["--quiet", "--max_iters=5", "--init_from=resume", "--out_dir=out", "--n_embd=64"];
    let output = finished(&mut tiny(folder.path(), &resume));
    assert_eq!(said(&output), "warning: n_embd = 64 is ignored: a resumed run keeps its checkpoint's n_embd = 8.\n");
}

#[test]
fn mistake_in_an_option_is_reported_before_missing_data() {
    let folder = folder();
    let words = ["train", "--device=cpu", "--init_from=nope"];
    let output = headroom(folder.path(), &words).output().expect("it runs");
    let said = said(&output);
    assert!(!output.status.success() && said.contains("weights \"nope\" not found"), "{said}");
    assert!(!said.contains("openwebtext"), "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn plan_refuses_a_folder_that_cannot_be_created() {
    let folder = folder();
    for out_dir in ["/proc/x/y", "text.txt/out"] {
        let output = tiny(folder.path(), &["--plan", &format!("--out_dir={out_dir}")]).output().expect("it runs");
        let said = said(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("cannot save checkpoints in {out_dir}: ")), "{said}");
        assert!(!said.contains("of disk"), "{said}");
    }
    finished(&mut tiny(folder.path(), &["--plan", "--out_dir=new/out"]));
    assert!(!folder.path().join("new").exists(), "a plan leaves nothing");
}

/// Reads nanoGPT's checkpoint, whose origin is in `tests/golden/nanogpt_ckpt`.
#[test]
fn checkpoint_of_nanogpt_is_sampled_exported_and_resumed() {
    let folder = folder();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/nanogpt_ckpt/ckpt.pt");
    fs::create_dir(folder.path().join("nano")).expect("space");
    fs::copy(golden, folder.path().join("nano/ckpt.pt")).expect("space");
    // The checkpoint's config names the data set, whose `meta.pkl` has the characters.
    let own = sample(folder.path(), &["--ckpt=nano", "--prompt=The"]);
    assert!(own.starts_with(b"The"), "{}", String::from_utf8_lossy(&own));
    assert_eq!(sample(folder.path(), &["--ckpt=nano/ckpt.pt", "--prompt=The", "--tokenizer=nano"]), own);
    finished(&mut headroom(folder.path(), &["export", "--ckpt=nano", "--out=hf"]));
    assert_eq!(sample(folder.path(), &["--ckpt=hf", "--prompt=The"]), own);
    let resume = ["train", "--json", "--threads=1", "--init_from=resume", "--max_iters=10"];
    let plan = finished(&mut headroom(folder.path(), &[&resume[..], &["--plan"]].concat()));
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    assert_eq!((&plan["parameters"], &plan["disk"]["folder"]), (&2056.into(), &"nano".into()), "{plan}");
    let output = finished(&mut headroom(folder.path(), &resume));
    assert!(said(&output).contains("Resuming the run in nano (fox, iteration 8).\n"), "{}", said(&output));
    assert_eq!(losses(&output.stdout).keys().copied().collect::<Vec<_>>(), [8, 9, 10]);
    // From here on the directory has a checkpoint of Headroom.
    let output = finished(&mut headroom(folder.path(), &[&resume[..], &["--max_iters=11"]].concat()));
    assert_eq!(losses(&output.stdout).keys().copied().collect::<Vec<_>>(), [11]);
}

#[test]
fn run_that_passes_through_a_ckpt_pt_is_the_same_run() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    let export = ["export", "--ckpt=out", "--which=last", "--format", "ckpt.pt", "--out=nano"];
    finished(&mut headroom(folder.path(), &export));
    refused(&mut headroom(folder.path(), &export), 1, &["cannot write nano/ckpt.pt: it exists already"]);
    let resumed = |dir: &str| {
        let more = ["--init_from=resume", "--max_iters=9", "--out_dir", dir];
        losses(&finished(&mut tiny(folder.path(), &more)).stdout)
    };
    let through = resumed("nano");
    assert_eq!(through.keys().copied().collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9]);
    assert_eq!(through, resumed("out"));
    refused(&mut headroom(folder.path(), &[&export[..], &["--dtype=float16"]].concat()), 2, &["exclude each other"]);
    // Weights without an optimizer state are a run at iteration 0.
    finished(&mut headroom(folder.path(), &["export", "--ckpt=out", "--out=hf"]));
    finished(&mut headroom(folder.path(), &["export", "--ckpt=hf", "--format=ckpt.pt", "--out=weights"]));
    let args = ["--prompt=The", "--tokenizer=out"];
    let of = |ckpt: &'static str| sample(folder.path(), &[&["--ckpt", ckpt], &args[..]].concat());
    assert_eq!(of("weights"), of("hf"));
}

#[test]
fn broken_ckpt_pt_is_refused_with_a_hint() {
    let folder = folder();
    fs::create_dir(folder.path().join("nano")).expect("space");
    fs::write(folder.path().join("nano/ckpt.pt"), b"PK\x03\x04 and a pickle").expect("space");
    let words =
        ["cannot read the PyTorch checkpoint ", "nano/ckpt.pt: it is not a whole archive", "hint: load it with"];
    for args in [
        &["sample", "--ckpt", "nano"][..],
        &["export", "--ckpt", "nano", "--out", "x"],
        &["export", "--ckpt", "nano", "--format=ckpt.pt", "--out", "x"],
        &["sample", "--ckpt", "nano/ckpt.pt"],
        &["train", "--device=cpu", "--dataset=fox", "--init_from=nano"],
        &["train", "--device=cpu", "--dataset=fox", "--init_from=resume", "--out_dir=nano"],
    ] {
        refused(&mut headroom(folder.path(), args), 1, &words);
    }
    for cut in [&b""[..], b"PK"] {
        fs::write(folder.path().join("nano/ckpt.pt"), cut).expect("space");
        for args in [&["sample", "--ckpt", "nano"][..], &["sample", "--ckpt", "nano/ckpt.pt"]] {
            refused(&mut headroom(folder.path(), args), 1, &words);
        }
    }
    assert!(!folder.path().join("x").exists());
    // Headroom's checkpoint takes precedence over nanoGPT's beside it.
    finished(&mut tiny(folder.path(), &["--max_iters=2", "--out_dir=nano", "--force"]));
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
    // An export can be exported again.
    finished(&mut headroom(folder.path(), &["export", "--ckpt=hf", "--format=hf", "--out=again"]));
    assert_eq!(sample(folder.path(), &["--ckpt=again", "--prompt=The"]), own);

    // The weights alone do not contain the tokenizer.
    fs::create_dir(folder.path().join("bare")).expect("space");
    for file in ["model.safetensors", "config.json"] {
        fs::copy(folder.path().join("hf").join(file), folder.path().join("bare").join(file)).expect("space");
    }
    refused(
        &mut headroom(folder.path(), &["sample", "--ckpt=bare"]),
        1,
        &["its tokenizer is not known", "--tokenizer"],
    );
    for tokenizer in ["hf", "hf/tokenizer.json", "data/fox", "data/fox/meta.pkl", "out", "out/ckpt.safetensors"] {
        assert_eq!(
            sample(folder.path(), &["--ckpt=bare", "--prompt=The", "--tokenizer", tokenizer]),
            own,
            "{tokenizer}"
        );
    }
    let named = |tokenizer: &'static str| ["sample", "--ckpt=bare", "--tokenizer", tokenizer];
    refused(&mut headroom(folder.path(), &named("gpt2")), 1, &["the tokenizer has 50257 tokens, but the model has 29"]);
    refused(
        &mut headroom(folder.path(), &named("gone.json")),
        3,
        &["--tokenizer: cannot read the tokenizer gone.json"],
    );
    refused(&mut headroom(folder.path(), &named("data")), 3, &["data has no tokenizer.json", "no checkpoint"]);
    refused(&mut headroom(folder.path(), &named("hf/model.safetensors")), 3, &["hf/model.safetensors has no"]);
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
    let piped = |text: &[u8]| {
        let mut command = headroom(folder.path(), &["sample", "--ckpt=out", "--max-new-tokens=9", "--prompt", "-"]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("a pipe").write_all(text).expect("it is read");
        child.wait_with_output().expect("it ends")
    };
    let output = piped(b"The quick\n");
    assert!(output.status.success(), "{}", said(&output));
    let args = ["sample", "--ckpt=out", "--max-new-tokens=9", "--prompt=The quick"];
    assert_eq!(output.stdout, finished(&mut headroom(folder.path(), &args)).stdout);
    let long = vec![b'e'; (1 << 20) + 1];
    for (text, why) in [
        (&b"\n"[..], "the prompt from standard input is empty"),
        (b"\xc3\x84", "--prompt: character 1 of the text, 'Ä'"),
        (b"\xff\xfe", "cannot read the prompt from standard input: stream did not contain valid UTF-8"),
        (&long, "cannot read the prompt from standard input: it has more than 1 MiB"),
    ] {
        let output = piped(text);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
}

/// nanoGPT takes the model's vocabulary from `vocab_size`, so a character beyond it has no token.
#[test]
fn a_meta_with_more_characters_than_its_vocabulary_is_refused_before_a_run() {
    let folder = folder();
    let path = folder.path().join("data/fox/meta.pkl");
    let mut meta = fs::read(&path).expect("a file");
    // The number follows the key in one byte.
    let key = b"vocab_sizeK";
    let at = meta.windows(key.len()).position(|window| window == key).expect("the key") + key.len();
    assert_eq!(meta[at], 29);
    meta[at] = 28;
    fs::write(&path, meta).expect("space");
    let output = tiny(folder.path(), &["--max_iters=1"]).output().expect("it runs");
    assert_eq!((output.status.code(), losses(&output.stdout).len()), (Some(1), 0), "{}", said(&output));
    for words in
        ["data/fox/meta.pkl: its vocab_size is 28, but it lists 29 characters", "hint: prepare the data set again"]
    {
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    assert!(!folder.path().join("out").exists());
}

#[test]
fn meta_with_a_hole_is_warned_of_before_a_run() {
    let folder = folder();
    let path = folder.path().join("data/fox/meta.pkl");
    let mut meta = fs::read(&path).expect("a file");
    // The last of 29 ids becomes 64.
    let at = meta.windows(3).position(|window| window == b"K\x1cX").expect("the id") + 1;
    meta[at] = 64;
    fs::write(&path, meta).expect("space");
    for more in [&["--max_iters=1"][..], &["--plan"]] {
        let output = finished(&mut tiny(folder.path(), more));
        let warning = "warning: cannot use the characters of ";
        assert!(said(&output).contains(warning) && said(&output).contains("data/fox/meta.pkl: "), "{}", said(&output));
    }
}

/// Splits a safetensors file into two, with the index of Hugging Face's tools.
fn split(folder: &Path) {
    let whole = fs::read(folder.join("model.safetensors")).expect("a model");
    let (length, rest) = whole.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
    let (header, data) = rest.split_at(usize::try_from(length).expect("small"));
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).expect("a header");
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let mut shards = [(serde_json::Map::new(), vec![]), (serde_json::Map::new(), vec![])];
    let mut weight_map = serde_json::Map::new();
    for (i, (name, mut info)) in header.into_iter().filter(|(name, _)| name != "__metadata__").enumerate() {
        let at = |i: usize| usize::try_from(info["data_offsets"][i].as_u64().expect("an offset")).expect("small");
        let (entries, bytes) = &mut shards[i % 2];
        let start = bytes.len();
        bytes.extend_from_slice(&data[at(0)..at(1)]);
        info["data_offsets"] = json!([start, bytes.len()]);
        weight_map.insert(name.clone(), names[i % 2].into());
        entries.insert(name, info);
    }
    for (name, (entries, bytes)) in names.into_iter().zip(shards) {
        let entries = serde_json::to_vec(&entries).expect("JSON");
        let parts = [&(entries.len() as u64).to_le_bytes()[..], &entries, &bytes];
        fs::write(folder.join(name), parts.concat()).expect("space");
    }
    let index = json!({ "metadata": { "total_size": data.len() }, "weight_map": weight_map });
    fs::write(folder.join("model.safetensors.index.json"), index.to_string()).expect("space");
    fs::remove_file(folder.join("model.safetensors")).expect("removed");
}

#[test]
fn sharded_model_is_sampled_trained_and_exported() {
    let folder = folder();
    finished(&mut tiny(folder.path(), &["--max_iters=3"]));
    finished(&mut headroom(folder.path(), &["export", "--ckpt=out", "--out=hf"]));
    let own = sample(folder.path(), &["--ckpt=out", "--prompt=The"]);
    split(&folder.path().join("hf"));
    assert_eq!(sample(folder.path(), &["--ckpt=hf", "--prompt=The"]), own);
    assert_eq!(sample(folder.path(), &["--ckpt=hf/model.safetensors.index.json", "--prompt=The"]), own);
    finished(&mut tiny(folder.path(), &["--init_from=hf", "--out_dir=tuned", "--max_iters=1"]));
    finished(&mut headroom(folder.path(), &["export", "--ckpt=hf", "--out=again"]));
    let shard = folder.path().join("hf/model-00002-of-00002.safetensors");
    let whole = fs::read(&shard).expect("a shard");
    let index = "hf/model.safetensors.index.json: ";
    // The first shard has none of the second one's tensors.
    let first = fs::read(folder.path().join("hf/model-00001-of-00002.safetensors")).expect("a shard");
    for (content, why) in [
        (&b"no header"[..], "its shard model-00002-of-00002.safetensors: "),
        (&whole[..whole.len() - 4], "its shard model-00002-of-00002.safetensors: "),
        (&first, "its shard model-00002-of-00002.safetensors lacks the tensor "),
    ] {
        fs::write(&shard, content).expect("written");
        refused(&mut headroom(folder.path(), &["sample", "--ckpt=hf"]), 1, &["cannot read ", index, why]);
    }
    fs::remove_file(&shard).expect("removed");
    let words = [index, "its shard model-00002-of-00002.safetensors is missing", "hint: download all shards"];
    refused(&mut headroom(folder.path(), &["sample", "--ckpt=hf", "--prompt=The"]), 3, &words);
    refused(&mut tiny(folder.path(), &["--init_from=hf", "--out_dir=other"]), 3, &words);
}
