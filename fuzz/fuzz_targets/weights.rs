//! Fuzzes weight files: any bytes as a file, as its header, as changes to a valid file, and as a `config.json`. Each
//! input is parsed or rejected with a short message. Allocations are bounded by the file's size, and parsed weights
//! survive being written.
#![no_main]

use std::{collections::BTreeMap, io::Cursor, sync::LazyLock};

use headroom_kernels::weights::{
    Catalogue, Header, Hints, LoadError, NamingScheme, WeightsError, header_range, load, write_model,
};
use headroom_planner::gpt::{GptConfig, GptShape};
use libfuzzer_sys::fuzz_target;

/// Maximum length of a message: names and texts from the file are shortened, and shapes have few dimensions.
const MAX_MESSAGE_BYTES: usize = 2_000;
/// Maximum number of bytes of weights appended to a header.
const MAX_DATA_BYTES: u64 = 1 << 16;
/// A small number, so that a tensor is read in several chunks.
const READ_BYTES: usize = 6;

/// A valid file to modify.
static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let shape = GptShape { n_layer: 1, n_head: 1, n_embd: 2, block_size: 3, vocab_size: 4, dropout: 0.0, bias: true };
    let config = GptConfig::new(shape).expect("a shape");
    let n = usize::try_from(config.n_parameters().expect("few")).expect("few");
    let params: Vec<f32> = (0_u16..).map(f32::from).take(n).collect();
    written(&config, &params, NamingScheme::HuggingFace)
});

fn written(config: &GptConfig, params: &[f32], naming: NamingScheme) -> Vec<u8> {
    let mut file = Vec::new();
    write_model(&mut file, config, params, naming, &BTreeMap::new()).expect("writing to memory cannot fail");
    file
}

fn is_brief_message(error: &WeightsError) {
    let message = error.to_string();
    assert!(message.len() <= MAX_MESSAGE_BYTES, "{} bytes", message.len());
    assert!(!message.contains(|char: char| char.is_control()), "{message:?}");
}

/// Reads in steps, like the page with a dropped file.
fn in_steps(file: &[u8], hints: &Hints) -> Result<(Catalogue, Vec<f32>), WeightsError> {
    let place = |at: u64| usize::try_from(at).expect("within the file");
    let range = header_range(&file[..file.len().min(8)], file.len() as u64)?;
    let header = Header::parse(&file[place(range.start)..place(range.end)], file.len() as u64)?;
    let catalogue = Catalogue::new(&header, hints)?;
    // The smallest element type has two bytes.
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
            is_brief_message(&whole);
            // NaN does not equal itself.
            assert_eq!(in_steps.to_string(), whole.to_string());
            return;
        }
        (in_steps, whole) => panic!("{in_steps:?} in steps, {whole:?} at once"),
    };
    assert!(params.iter().all(|weight| weight.is_finite()));
    let config = catalogue.config();
    let again = written(config, &params, NamingScheme::NanoGpt);
    let (again, same) = in_steps(&again, &Hints::with_heads(config.n_head())).expect("written data can be read back");
    assert_eq!((again.config().shape().n_layer, same), (config.n_layer(), params));
}

/// Returns a file with the text as its header, followed by as many zeros as the header requires.
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

/// Returns the valid file with bytes changed, each given by a position and a value, and truncated or extended.
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
            is_brief_message(&error);
            Hints::with_heads(1)
        }
    };
    is_read_or_refused(data, &hints);
    is_read_or_refused(&changed(data), &Hints::with_heads(1));
    if let Some(file) = with_header(data) {
        is_read_or_refused(&file, &Hints::with_heads(1));
    }
});
