//! Any bytes as a file of weights, as its header, as changes to a good file, and as a `config.json`: each is read or
//! refused in few words, nothing is allocated that the file does not hold, and what is read survives being written.
#![no_main]

use std::{collections::BTreeMap, io::Cursor, sync::LazyLock};

use headroom_kernels::weights::{
    Catalogue, Header, Hints, LoadError, Naming, WeightsError, header_range, load, write_model,
};
use headroom_shared::gpt::{GptConfig, GptShape};
use libfuzzer_sys::fuzz_target;

/// The longest message: names and texts from the file are shortened, shapes have few axes.
const MAX_MESSAGE_BYTES: usize = 2_000;
/// Bytes of weights that are put behind a header which claims no more.
const MAX_DATA_BYTES: u64 = 1 << 16;
/// A small number, so that a tensor is read in several pieces.
const READ_BYTES: usize = 6;

/// A good file to be changed.
static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let shape = GptShape { n_layer: 1, n_head: 1, n_embd: 2, block_size: 3, vocab_size: 4, dropout: 0.0, bias: true };
    let config = GptConfig::new(shape).expect("a shape");
    let n = usize::try_from(config.n_parameters().expect("few")).expect("few");
    let params: Vec<f32> = (0_u16..).map(f32::from).take(n).collect();
    written(&config, &params, Naming::HuggingFace)
});

fn written(config: &GptConfig, params: &[f32], naming: Naming) -> Vec<u8> {
    let mut file = Vec::new();
    write_model(&mut file, config, params, naming, &BTreeMap::new()).expect("memory takes it");
    file
}

fn is_told_briefly(error: &WeightsError) {
    let message = error.to_string();
    assert!(message.len() <= MAX_MESSAGE_BYTES, "{} bytes", message.len());
    assert!(!message.contains(|char: char| char.is_control()), "{message:?}");
}

/// Step by step, as the page reads a dropped file.
fn in_steps(file: &[u8], hints: &Hints) -> Result<(Catalogue, Vec<f32>), WeightsError> {
    let place = |at: u64| usize::try_from(at).expect("within the file");
    let range = header_range(&file[..file.len().min(8)], file.len() as u64)?;
    let header = Header::parse(&file[place(range.start)..place(range.end)], file.len() as u64)?;
    let catalogue = Catalogue::new(&header, hints)?;
    // The narrowest weights have two bytes.
    assert!(catalogue.layout().len() * 2 <= file.len(), "more weights than the file has bytes for");
    let mut params = vec![f32::NAN; catalogue.layout().len()];
    for read in catalogue.reads(READ_BYTES) {
        catalogue.take(&read, &file[place(read.range.start)..place(read.range.end)], &mut params)?;
    }
    Ok((catalogue, params))
}

fn is_read_or_refused(file: &[u8], hints: &Hints) {
    let whole = match load(&mut Cursor::new(file), hints) {
        Err(LoadError::Weights(error)) => Err(error),
        other => Ok(other.expect("memory can be read")),
    };
    let (catalogue, params) = match (in_steps(file, hints), whole) {
        (Ok(in_steps), Ok(whole)) => {
            assert_eq!(in_steps, whole);
            whole
        }
        (Err(in_steps), Err(whole)) => {
            is_told_briefly(&whole);
            // A number that is none is not equal to itself.
            assert_eq!(in_steps.to_string(), whole.to_string());
            return;
        }
        (in_steps, whole) => panic!("{in_steps:?} in steps, {whole:?} at once"),
    };
    assert!(params.iter().all(|weight| weight.is_finite()));
    let config = catalogue.config();
    let again = written(config, &params, Naming::NanoGpt);
    let (again, same) = in_steps(&again, &Hints::with_heads(config.n_head())).expect("what is written is read");
    assert_eq!((again.config().shape().n_layer, same), (config.n_layer(), params));
}

/// A file whose header is the text, with as many zeros behind it as the text claims.
fn with_header(text: &[u8]) -> Option<Vec<u8>> {
    let beyond = u64::MAX / 2;
    let claimed = match Header::parse(text, beyond) {
        Err(WeightsError::Gap { bytes, .. }) => beyond - 8 - text.len() as u64 - bytes,
        _ => 0,
    };
    if claimed > MAX_DATA_BYTES {
        return None;
    }
    let mut file = (text.len() as u64).to_le_bytes().to_vec();
    file.extend(text);
    file.resize(file.len() + usize::try_from(claimed).ok()?, 0);
    Some(file)
}

/// The good file with bytes changed, each by a place and what is put there, and cut or grown.
fn changed(data: &[u8]) -> Vec<u8> {
    let mut file = GOOD.clone();
    for change in data.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        match file.get_mut(at) {
            Some(byte) => *byte = change[2],
            None => file.resize(at % 4096, change[2]),
        }
    }
    file
}

fuzz_target!(|data: &[u8]| {
    let hints = match Hints::from_config_json(data) {
        Ok(hints) => hints,
        Err(error) => {
            is_told_briefly(&error);
            Hints::with_heads(1)
        }
    };
    is_read_or_refused(data, &hints);
    is_read_or_refused(&changed(data), &Hints::with_heads(1));
    if let Some(file) = with_header(data) {
        is_read_or_refused(&file, &Hints::with_heads(1));
    }
});
