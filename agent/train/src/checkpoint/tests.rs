//! Tests of checkpoints: round trips, damage, full disks and killed writers.

mod disk;
mod kill;
mod trainer;

use std::{fs, io::Cursor, path::Path};

use headroom_kernels::weights::{self, Hints, Origin};
use headroom_planner::gpt::GptShape;
use serde_json::json;

use super::*;
use trainer::Trainer;

const TINY: GptShape =
    GptShape { n_layer: 1, n_head: 2, n_embd: 4, block_size: 3, vocab_size: 5, dropout: 0.1, bias: true };

/// A checkpoint with values that are easily corrupted.
fn delicate() -> Checkpoint {
    let mut checkpoint = Trainer::new(TINY).checkpoint();
    checkpoint.params[..4].copy_from_slice(&[f32::from_bits(1), -0.0, f32::MIN_POSITIVE / 2.0, f32::MAX]);
    checkpoint.exp_avg[0] = f32::MIN;
    checkpoint.meta.config = Map::from_iter([
        ("learning_rate".to_owned(), json!(6e-4)),
        ("out_dir".to_owned(), json!("out \"é\"\n\u{7f}")),
        ("compile".to_owned(), json!(true)),
        ("dropout".to_owned(), json!(0.1 + 0.2)),
    ]);
    checkpoint.meta.state.best_val_loss = Some(0.1 + 0.2);
    checkpoint.meta.state.optimizer_step = u64::MAX;
    let stream = StreamState { seed: u64::MAX, name: 1 << 63, position: u64::MAX - 1 };
    checkpoint.meta.state.streams.insert("dropout".to_owned(), stream);
    checkpoint.meta.state.data = json!({ "shard": "a", "at": 3 });
    checkpoint.meta.tokenizer = Some(Tokenizer::Char("\n \"aé漢".to_owned()));
    checkpoint
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Compares bit for bit, since NaN is not equal to itself.
#[track_caller]
fn assert_same(found: &Checkpoint, expected: &Checkpoint) {
    assert_eq!(found.meta, expected.meta);
    for (found, expected) in [
        (&found.params, &expected.params),
        (&found.exp_avg, &expected.exp_avg),
        (&found.exp_avg_sq, &expected.exp_avg_sq),
    ] {
        assert!(bits(found) == bits(expected), "the tensors differ");
    }
}

fn saved(dir: &Path, checkpoint: &Checkpoint) -> SavedCheckpoint {
    Store::open(dir).expect("a folder").save(&checkpoint.meta, checkpoint.tensors()).expect("space")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn checkpoint_round_trip_is_bit_exact() {
    let dir = tempfile::tempdir().expect("a folder");
    let checkpoint = delicate();
    let written = saved(&dir.path().join("new/out"), &checkpoint);
    let file = dir.path().join("new/out").join(FILE);
    assert_eq!(fs::metadata(&file).expect("a file").len(), written.bytes);
    assert_eq!(names(&dir.path().join("new/out")), [FILE]);
    assert_same(&load(&dir.path().join("new/out")).expect("a checkpoint"), &checkpoint);
    assert_same(&load(&file).expect("a checkpoint"), &checkpoint);
    let (meta, params) = load_weights(&file).expect("weights");
    assert_eq!((meta, bits(&params)), (checkpoint.meta, bits(&checkpoint.params)));
}

#[test]
fn the_next_checkpoint_takes_the_place_of_the_last() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut trainer = Trainer::new(TINY);
    let store = Store::open(dir.path()).expect("a folder");
    assert!(!store.has_checkpoint());
    for _ in 0..3 {
        trainer.step();
        let checkpoint = trainer.checkpoint();
        store.save(&checkpoint.meta, checkpoint.tensors()).expect("space");
        assert_same(&load(dir.path()).expect("a checkpoint"), &checkpoint);
        assert_eq!((names(dir.path()), store.has_checkpoint()), (vec![FILE.to_owned()], true));
    }
}

#[test]
fn a_resumed_run_has_the_same_losses() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut whole = Trainer::new(TINY);
    let losses: Vec<_> = (0..12).map(|_| whole.step().to_bits()).collect();
    let mut first = Trainer::new(TINY);
    let mut resumed: Vec<_> = (0..5).map(|_| first.step().to_bits()).collect();
    saved(dir.path(), &first.checkpoint());
    let mut rest = Trainer::resumed(load(dir.path()).expect("a checkpoint"));
    resumed.extend((5..12).map(|_| rest.step().to_bits()));
    assert_eq!(resumed, losses);
    assert_same(&rest.checkpoint(), &whole.checkpoint());
}

#[test]
fn the_readers_of_weights_take_a_checkpoint() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut checkpoint = Trainer::new(TINY).checkpoint();
    checkpoint.meta.tokenizer = Some(Tokenizer::Char("abcde".to_owned()));
    saved(dir.path(), &checkpoint);
    let file = fs::read(dir.path().join(FILE)).expect("a file");
    let (catalogue, params) = weights::load(&mut Cursor::new(file), &Hints::default()).expect("a model");
    assert_eq!((catalogue.origin(), catalogue.config()), (Origin::Headroom, &checkpoint.meta.gpt));
    assert_eq!((params, catalogue.tokenizer()), (checkpoint.params, checkpoint.meta.tokenizer.as_ref()));
}

#[test]
fn any_flipped_bit_is_seen() {
    let dir = tempfile::tempdir().expect("a folder");
    saved(dir.path(), &delicate());
    let file = dir.path().join(FILE);
    let good = fs::read(&file).expect("a file");
    let places = (0..good.len()).filter(|at| *at < 16 || at + 40 > good.len() || at % 11 == 0);
    for at in places {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&file, &bad).expect("space");
        let error = load(dir.path()).expect_err("a flipped bit");
        assert!(!error.to_string().is_empty(), "{at}");
    }
    // Damage in the middle of each part; the error names the part.
    let data = good.len() - 16 - 3 * 4 * Trainer::new(TINY).checkpoint().params.len();
    for (third, name) in [(0, "the weights"), (1, "exp_avg)"), (2, "exp_avg_sq)")] {
        let mut bad = good.clone();
        let section = (good.len() - 16 - data) / 3;
        bad[data + third * section + section / 2] ^= 0x10;
        fs::write(&file, &bad).expect("space");
        let error = load(dir.path()).expect_err("a flipped bit").to_string();
        assert!(error.contains("is damaged: ") && error.contains(name), "{error}");
    }
}

#[test]
fn a_cut_checkpoint_is_refused_with_the_tensors_name() {
    let dir = tempfile::tempdir().expect("a folder");
    saved(dir.path(), &delicate());
    let file = dir.path().join(FILE);
    let good = fs::read(&file).expect("a file");
    for len in (0..good.len()).step_by(131).chain([good.len() - 1]) {
        fs::write(&file, &good[..len]).expect("space");
        let error = load(dir.path()).expect_err("cut");
        assert!(matches!(error, CheckpointError::Broken { .. }) && error.hint().is_some(), "{len}: {error}");
    }
    let error = load(dir.path()).expect_err("cut").to_string();
    assert!(error.contains("headroom.crc32 ends at byte"), "{error}");
}

#[test]
fn non_finite_value_is_refused_with_tensor_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let whole = Trainer::new(TINY).checkpoint();
    let last = whole.params.len() - 1;
    let change = |change: fn(&mut Checkpoint, usize)| {
        let mut checkpoint = whole.clone();
        change(&mut checkpoint, last);
        saved(dir.path(), &checkpoint);
        load(dir.path()).expect_err("it is refused")
    };
    for (error, tensor) in [
        (change(|checkpoint, _| checkpoint.params[0] = f32::NAN), "transformer.wte.weight has NaN at element 0:"),
        (
            change(|checkpoint, last| checkpoint.params[last] = f32::INFINITY),
            "transformer.ln_f.bias has inf at element 3:",
        ),
        (
            change(|checkpoint, _| checkpoint.exp_avg[2] = f32::NEG_INFINITY),
            "exp_avg.transformer.wte.weight has -inf at element 2:",
        ),
        (
            change(|checkpoint, _| checkpoint.exp_avg_sq[9] = f32::NAN),
            "exp_avg_sq.transformer.wte.weight has NaN at element 9:",
        ),
    ] {
        let said = error.to_string();
        assert!(said.starts_with("cannot resume from the checkpoint") && said.contains(tensor), "{said}");
        assert!(error.hint().is_some_and(|hint| hint.to_string().contains("older copy")));
    }
    // Reading only the weights ignores damaged moments.
    let (_, params) = load_weights(dir.path()).expect("weights are whole");
    assert_eq!(bits(&params), bits(&whole.params));
}

#[test]
fn foreign_file_is_not_a_checkpoint() {
    let dir = tempfile::tempdir().expect("a folder");
    let error = load(dir.path()).expect_err("nothing there");
    assert!(matches!(error, CheckpointError::NotFound { .. }), "{error}");
    saved(dir.path(), &delicate());
    let file = dir.path().join(FILE);
    let good = fs::read(&file).expect("a file");
    let replaced = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let at = good.windows(from.len()).position(|window| window == from.as_bytes()).expect("there");
        let mut other = good.clone();
        other[at..at + to.len()].copy_from_slice(to.as_bytes());
        fs::write(&file, other).expect("space");
        load(dir.path()).expect_err(to)
    };
    assert!(matches!(replaced(r#""headroom":"1""#, r#""headroom":"2""#), CheckpointError::Version { .. }));
    assert!(matches!(replaced(r#""headroom":"1""#, r#""headache":"1""#), CheckpointError::NotOurs { .. }));
}

#[test]
fn a_folder_has_one_writer_and_no_leftovers() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["ckpt.safetensors.123.tmp", "ckpt.safetensors.notes.tmp"] {
        fs::write(dir.path().join(name), "half a checkpoint").expect("space");
    }
    let store = Store::open(dir.path()).expect("a folder");
    assert_eq!((store.n_removed(), names(dir.path())), (1, vec!["ckpt.safetensors.notes.tmp".to_owned()]));
    let error = Store::open(dir.path()).expect_err("it is taken");
    assert!(matches!(error, CheckpointError::Busy { .. }), "{error}");
    drop(store);
    Store::open(dir.path()).expect("it is free");
}
