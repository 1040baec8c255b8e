//! The decoder as a WebAssembly module with plain exports, without glue code. `benches/ort/compare.mjs` times it in
//! Node.
//!
//! `cargo build --release -p headroom-kernels --target wasm32-unknown-unknown --example decode_wasm`

use std::sync::Mutex;

use headroom_kernels::{
    decode::{Decoder, Storage},
    layout::Layout,
    rng::Stream,
    sampling::Sampling,
};
use headroom_planner::gpt::{GptConfig, GptShape};

static DECODER: Mutex<Option<Decoder>> = Mutex::new(None);

/// Result of an export for an invalid model, token or position.
const NONE: u32 = u32::MAX;

fn with<T>(run: impl FnOnce(&mut Decoder) -> Option<T>) -> Option<T> {
    run(DECODER.lock().ok()?.as_mut()?)
}

/// Replaces the model with one of random weights; `int16` is 0 or 1. Returns whether it fits into memory.
#[unsafe(no_mangle)]
pub extern "C" fn open(n_layer: u32, n_head: u32, n_embd: u32, block_size: u32, vocab_size: u32, int16: u32) -> u32 {
    let [n_layer, n_head, n_embd, block_size, vocab_size] =
        [n_layer, n_head, n_embd, block_size, vocab_size].map(u64::from);
    let shape = GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout: 0.0, bias: true };
    let storage = if int16 == 0 { Storage::F32 } else { Storage::Int16 };
    let made = random(shape, storage);
    let fits = made.is_some();
    if let Ok(mut decoder) = DECODER.lock() {
        *decoder = made;
    }
    u32::from(fits)
}

/// Frees the model. A large model is freed before the next [`open`]: two of GPT-2 124M do not fit into 4 GiB.
#[unsafe(no_mangle)]
pub extern "C" fn close() {
    if let Ok(mut decoder) = DECODER.lock() {
        *decoder = None;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "random weights")]
fn random(shape: GptShape, storage: Storage) -> Option<Decoder> {
    let config = GptConfig::new(shape).ok()?;
    let mut decoder = Decoder::empty(&config, storage).ok()?;
    let mut stream = Stream::new(1, 1);
    for entry in Layout::new(&config).ok()?.entries() {
        let layer = entry.parameter.layer.and_then(|layer| usize::try_from(layer).ok());
        let weights: Vec<f32> = entry.range.clone().map(|_| (stream.uniform() as f32 - 0.5) * 0.08).collect();
        decoder.load(entry.parameter.tensor, layer, &weights).ok()?;
    }
    Some(decoder)
}

/// Clears the text.
#[unsafe(no_mangle)]
pub extern "C" fn reset() {
    with(|decoder| {
        decoder.reset();
        Some(())
    });
}

/// Appends a token; returns the address of the logits.
#[unsafe(no_mangle)]
pub extern "C" fn step(token: u32) -> *const f32 {
    with(|decoder| decoder.step(token).ok().map(<[f32]>::as_ptr)).unwrap_or(std::ptr::null())
}

/// Appends `n` tokens, 0, 1, 2 and so on; returns the number of cached tokens.
#[unsafe(no_mangle)]
pub extern "C" fn prefill(n: u32) -> u32 {
    let tokens: Vec<u32> = (0..n).collect();
    with(|decoder| {
        decoder.prefill(&tokens).ok()?;
        u32::try_from(decoder.n_tokens()).ok()
    })
    .unwrap_or(NONE)
}

/// Selects a token with the defaults of `headroom sample`, and appends it.
#[unsafe(no_mangle)]
pub extern "C" fn next(draw: u32) -> u32 {
    let sampling = Sampling { temperature: 0.8, top_k: 200, seed: 1337 };
    with(|decoder| decoder.next(&sampling, draw).ok()).unwrap_or(NONE)
}
