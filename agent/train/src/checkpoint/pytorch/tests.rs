//! Reading and writing nanoGPT's `ckpt.pt`, compared with what nanoGPT and PyTorch read: `tests/golden/nanogpt_ckpt`.

use std::{env, fs, io::Cursor, path::PathBuf};

use headroom_kernels::{
    reference::gpt::{DropoutPass, Gpt},
    rng::Stream,
};
use headroom_planner::gpt::{GptConfig, GptShape};

use super::*;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/nanogpt_ckpt").join(name)
}

fn facts(name: &str) -> Json {
    serde_json::from_str(&fs::read_to_string(golden(name)).expect("the golden file")).expect("JSON")
}

/// Compares a checkpoint with what nanoGPT read from its file.
#[track_caller]
fn check(checkpoint: &Checkpoint, facts: &Json) {
    let Checkpoint { meta, params, exp_avg, exp_avg_sq } = checkpoint;
    assert_eq!(json!(meta.state.iter_num), facts["iter_num"]);
    assert_eq!(
        vec![meta.state.optimizer_step as f64],
        serde_json::from_value::<Vec<f64>>(facts["steps"].clone()).expect("steps")
    );
    let best = meta.state.best_val_loss.expect("an evaluation");
    assert!((best - facts["best_val_loss"].as_f64().expect("a loss")).abs() < 1e-6, "{best}");
    for (key, value) in facts["config"].as_object().expect("a dict") {
        assert_eq!(meta.config.get(key), Some(value), "{key}");
    }
    for (key, value) in facts["model_args"].as_object().expect("a dict") {
        assert_eq!(&json!(meta.gpt)[key], value, "{key}");
    }
    let layout = Layout::new(&meta.gpt).expect("small");
    assert_eq!(layout.entries().len(), facts["sums"].as_object().expect("a dict").len());
    for entry in layout.entries() {
        let expected: [f64; 3] = serde_json::from_value(facts["sums"][&entry.name].clone()).expect("three sums");
        for (values, expected) in [params, exp_avg, exp_avg_sq].into_iter().zip(expected) {
            let terms = values[entry.range.clone()].iter().enumerate();
            let sum: f64 = terms.map(|(i, value)| f64::from(*value) * (i % 97 + 1) as f64).sum();
            assert!((sum - expected).abs() <= 1e-9 * (1.0 + expected.abs()), "{}: {sum}, {expected}", entry.name);
        }
    }
    // The most probable token after each prompt.
    let numbers = |key: &str| serde_json::from_value::<Vec<u32>>(facts[key].clone()).expect("tokens");
    let (mut tokens, likeliest) = (numbers("tokens"), numbers("likeliest"));
    let context = usize::try_from(meta.gpt.block_size()).expect("small");
    let vocab_size = usize::try_from(meta.gpt.vocab_size()).expect("small");
    for expected in likeliest {
        let seen = &tokens[tokens.len().saturating_sub(context)..];
        let gpt = Gpt::new(&meta.gpt, seen.len()).expect("small");
        let logits = gpt.forward(params, seen, seen, DropoutPass::NONE).logits;
        let last = &logits[logits.len() - vocab_size..];
        let best = (0..vocab_size).max_by(|one, other| last[*one].total_cmp(&last[*other])).expect("tokens");
        assert_eq!(best, expected as usize, "after {tokens:?}");
        tokens.push(expected);
    }
}

#[test]
fn checkpoint_of_nanogpt_is_what_nanogpt_reads() {
    check(&load(&golden("ckpt.pt")).expect("a checkpoint"), &facts("read.json"));
}

/// Creates a checkpoint with values from a seed.
fn synthetic() -> Checkpoint {
    let shape = GptShape { n_layer: 2, n_head: 2, n_embd: 8, block_size: 8, vocab_size: 29, dropout: 0.1, bias: false };
    let gpt = GptConfig::new(shape).expect("a shape");
    let len = Layout::new(&gpt).expect("small").len();
    let mut stream = Stream::new(7, 0);
    #[expect(clippy::cast_possible_truncation, reason = "weights are f32")]
    let mut values = |scale: f64| -> Vec<f32> { (0..len).map(|_| (scale * stream.normal()) as f32).collect() };
    let (params, exp_avg) = (values(0.3), values(0.01));
    let exp_avg_sq = values(0.01).into_iter().map(|value| value * value).collect();
    let config = json!({ "dataset": "fox", "learning_rate": 0.01, "weight_decay": 0.2, "max_iters": 5_000_000_000_u64, "compile": false });
    let config = config.as_object().expect("an object").clone();
    let state = State { iter_num: 12, optimizer_step: 12, best_val_loss: Some(2.5), ..State::default() };
    Checkpoint { meta: Meta { gpt, config, state, tokenizer: None }, params, exp_avg, exp_avg_sq }
}

fn written(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    write(&mut file, checkpoint).expect("writing to memory cannot fail");
    file.into_inner()
}

#[test]
fn nanogpt_reads_what_was_written() {
    let checkpoint = synthetic();
    let file = written(&checkpoint);
    let dir = tempfile::tempdir().expect("a folder");
    let kept = env::var_os("HEADROOM_EXPORT_TO").map(PathBuf::from);
    let dir = kept.as_deref().unwrap_or(dir.path());
    fs::create_dir_all(dir).expect("a folder");
    let path = dir.join(FILE);
    fs::write(&path, &file).expect("space");
    if kept.is_some() {
        return;
    }
    let facts = facts("written.json");
    assert_eq!(facts["crc32"], crc32fast::hash(&file), "not the file that nanoGPT read");
    assert_eq!(facts["weight_decay"], json!([0.2, 0.0]));
    check(&checkpoint, &facts);
    // `assert_eq!` would print every weight.
    assert!(load(&path).expect("a checkpoint") == checkpoint);
}

#[test]
fn damaged_archives_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(FILE);
    let whole = fs::read(golden("ckpt.pt")).expect("the golden file");
    for len in (0..whole.len()).step_by(997) {
        fs::write(&path, &whole[..len]).expect("space");
        assert!(load(&path).is_err(), "{len}");
    }
    let mut n_refused = 0;
    for at in (0..whole.len()).step_by(61) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).expect("space");
        // Padding between the archive's files has no checksum.
        match load(&path) {
            Ok(checkpoint) => check(&checkpoint, &facts("read.json")),
            Err(_) => n_refused += 1,
        }
    }
    assert!(n_refused > 300, "{n_refused}");
    let pickle = |bytes: &[u8]| {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        zip.start_file("x/data.pkl", options).expect("memory");
        io::Write::write_all(&mut zip, bytes).expect("memory");
        fs::write(&path, zip.finish().expect("memory").into_inner()).expect("space");
        load(&path).expect_err("it is not a checkpoint").to_string()
    };
    assert_eq!(pickle(b"\x80\x02}."), "it has no model");
    let rebuild = b"\x80\x02}X\x05\0\0\0model}X\x01\0\0\0actorch._utils\n_rebuild_parameter\nK\x01\x85Rss.";
    assert_eq!(pickle(rebuild), "it has no model_args");
    assert!(pickle(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.").contains("it has no model"));
}

#[test]
fn checkpoint_before_pytorch_1_6_has_its_own_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(FILE);
    // torch.save({'model': {}}, path, _use_new_zipfile_serialization=False) starts so.
    fs::write(&path, b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00.").expect("space");
    assert!(is_archive(&path));
    assert!(matches!(load(&path), Err(PytorchError::Legacy)));
    for path in [path.as_path(), dir.path()] {
        let error = crate::checkpoint::load(path).expect_err("the old format");
        let said = error.to_string();
        assert!(
            said.ends_with("it was saved with _use_new_zipfile_serialization=False or by PyTorch before 1.6"),
            "{said}"
        );
        let hint = error.hint().map(|hint| hint.to_string()).unwrap_or_default();
        assert!(hint.contains(r#"torch.save(torch.load("ckpt.pt", weights_only=False), "ckpt.pt")"#), "{hint}");
    }
}
