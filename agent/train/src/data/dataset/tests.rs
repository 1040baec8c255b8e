//! Tests with valid and invalid data directories. Each test uses its own temporary directory.

use std::fs;

use headroom_tokenizer::CharTokenizer;

use super::*;

/// A temporary directory that is removed on drop.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("headroom-dataset-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn put(&self, file: &str, bytes: &[u8]) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tokens(ids: impl IntoIterator<Item = u16>) -> Vec<u8> {
    ids.into_iter().flat_map(u16::to_le_bytes).collect()
}

/// A data set whose train.bin is 0, 1, … 99 and whose val.bin is 0, 1, … 9.
fn small(name: &str) -> Temporary {
    let folder = Temporary::new(name);
    folder.put("train.bin", &tokens(0..100));
    folder.put("val.bin", &tokens(0..10));
    folder
}

#[track_caller]
fn said(folder: &Temporary, result: Result<impl std::fmt::Debug, DatasetError>, end: &str) {
    let error = result.expect_err("it is refused").to_string();
    let shown = error.replace(&folder.0.display().to_string(), "DIR");
    assert_eq!(shown, end);
}

#[test]
fn a_batch_is_rows_and_what_follows() {
    let folder = small("batch");
    let dataset = Dataset::open(&folder.0).expect("it opens");
    assert_eq!((dataset.n_tokens(Split::Train), dataset.n_tokens(Split::Val)), (100, 10));
    assert_eq!(dataset.vocab_size(), 50_304);
    assert_eq!(dataset.folder(), folder.0);
    let (mut x, mut y) = ([0; 6], [0; 6]);
    dataset.read_batch(Split::Train, &[5, 96], 3, &mut x, &mut y).expect("a batch");
    assert_eq!((x, y), ([5, 6, 7, 96, 97, 98], [6, 7, 8, 97, 98, 99]));
    dataset.read_batch(Split::Val, &[0], 6, &mut x, &mut y).expect("a batch");
    assert_eq!((x, y), ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]));
    dataset.read_batch(Split::Train, &[], 3, &mut [], &mut []).expect("an empty batch");
}

#[test]
fn offsets_are_those_that_nanogpt_draws() {
    let folder = small("offsets");
    let dataset = Dataset::open(&folder.0).expect("it opens");
    // torch.randint(len(data) - block_size, …)
    assert_eq!(dataset.n_offsets(Split::Val, 8).expect("some"), 2);
    assert_eq!(dataset.n_offsets(Split::Val, 9).expect("some"), 1);
    for block_size in [10, 11] {
        let end = format!("DIR/val.bin: 10 tokens are too few; rows of {block_size} and one more token are needed");
        said(&folder, dataset.n_offsets(Split::Val, block_size), &end);
    }
    let (mut x, mut y) = ([0; 8], [0; 8]);
    dataset.read_batch(Split::Val, &[1], 8, &mut x, &mut y).expect("the last row");
    assert_eq!(y[7], 9);
    for beyond in [2, u64::MAX] {
        let read = dataset.read_batch(Split::Val, &[beyond], 8, &mut x, &mut y);
        assert!(matches!(read, Err(DatasetError::Unreadable { .. })), "{beyond}: {read:?}");
    }
}

#[test]
fn a_token_beyond_the_vocabulary_has_a_place() {
    let folder = small("beyond");
    folder.put("meta.pkl", &Meta::of_chars(&CharTokenizer::of_chars('a'..='z')));
    let dataset = Dataset::open(&folder.0).expect("it opens");
    assert_eq!(dataset.vocab_size(), 26);
    let (mut x, mut y) = ([0; 4], [0; 4]);
    dataset.read_batch(Split::Train, &[21], 4, &mut x, &mut y).expect("z is the last");
    let end = "DIR/train.bin: token 26 is 26, but the vocabulary has 26";
    said(&folder, dataset.read_batch(Split::Train, &[22], 4, &mut x, &mut y), end);
    let wider = dataset.with_vocab_size(27);
    wider.read_batch(Split::Train, &[22], 4, &mut x, &mut y).expect("the model has one more");
}

#[test]
fn the_tokenizer_is_the_folders() {
    let folder = small("tokenizer");
    assert_eq!(Dataset::open(&folder.0).expect("it opens").tokenizer().expect("GPT-2's"), Tokenizer::Gpt2);
    let chars = CharTokenizer::of_text("abc");
    folder.put("meta.pkl", &Meta::of_chars(&chars));
    let dataset = Dataset::open(&folder.0).expect("it opens");
    assert_eq!(dataset.tokenizer().expect("characters"), Tokenizer::Char(chars));
    folder.put("meta.pkl", b"\x80\x04}X\x0a\0\0\0vocab_sizeK\x07s.");
    let dataset = Dataset::open(&folder.0).expect("train.py needs no more");
    assert_eq!(dataset.vocab_size(), 7);
    said(
        &folder,
        dataset.tokenizer(),
        "DIR/meta.pkl: it has no itos and stoi, so its tokens cannot be turned into text",
    );
}

#[test]
fn what_is_broken_is_said() {
    let folder = small("broken");
    folder.put("val.bin", b"abc");
    said(&folder, Dataset::open(&folder.0), "DIR/val.bin: 3 bytes are not a whole number of 16-bit tokens");
    fs::remove_file(folder.0.join("val.bin")).expect("it was there");
    assert!(matches!(Dataset::open(&folder.0), Err(DatasetError::Unreadable { .. })));
    folder.put("val.bin/x", b"");
    assert!(Dataset::open(&folder.0).is_err());
    fs::remove_dir_all(folder.0.join("val.bin")).expect("it was there");
    folder.put("val.bin", b"");
    assert_eq!(Dataset::open(&folder.0).expect("an empty file is one").n_tokens(Split::Val), 0);
    folder.put("meta.pkl", b"Zarbage");
    said(&folder, Dataset::open(&folder.0), "cannot read DIR/meta.pkl: byte 0: unexpected opcode 0x5a");
    folder.put("meta.pkl", &vec![b'('; 9 << 20]);
    said(&folder, Dataset::open(&folder.0), "cannot read DIR/meta.pkl: it has more than 8 MiB");
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let folder = small("shrinks");
    let dataset = Dataset::open(&folder.0).expect("it opens");
    folder.put("train.bin", &tokens(0..50));
    let (mut x, mut y) = ([0; 4], [0; 4]);
    let read = dataset.read_batch(Split::Train, &[60], 4, &mut x, &mut y);
    assert!(matches!(read, Err(DatasetError::Unreadable { .. })), "{read:?}");
}

#[test]
fn a_name_is_looked_for_as_nanogpt_does_and_then_as_a_folder() {
    let folder = small("resolve");
    folder.put("data/stories/train.bin", b"");
    folder.put("elsewhere/train.bin", b"");
    folder.put("data/elsewhere/notes", b"");
    folder.put("stories/train.bin", b"");
    let found = |name: &str| resolve(name, &folder.0).expect("it is there");
    assert_eq!(found("stories"), folder.0.join("data/stories"));
    assert_eq!(found("elsewhere"), folder.0.join("elsewhere"), "a folder without train.bin is skipped");
    let absolute = folder.0.join("elsewhere");
    assert_eq!(found(absolute.to_str().expect("a text")), absolute);
    said(
        &folder,
        resolve("shakespeare", &folder.0),
        "there is no data set \"shakespeare\": DIR/data/shakespeare does not exist; DIR/shakespeare does not exist",
    );
    said(
        &folder,
        resolve("data", &folder.0),
        "there is no data set \"data\": DIR/data/data does not exist; DIR/data has no train.bin",
    );
}
