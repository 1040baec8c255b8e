//! Benchmark of CPU inference: a token of the prompt, and a generated token.

use headroom_planner::gpt::{GptConfig, buffers};
use serde::{Serialize, Serializer};

use super::{
    Effort, Model, RandomWeights, TextSpeed,
    text::{Writer, speed},
};
use crate::{
    decode::{DecodeError, Decoder, Storage},
    layout::Layout,
    sampling::Sampling,
};

/// The storage types of weights, in the order of measurement.
pub const STORAGES: [Storage; 2] = [Storage::F32, Storage::Int16];

/// The results of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Threads that compute. The decoder uses the calling thread only.
    pub threads: usize,
    /// The SIMD instruction set in use.
    pub instructions: &'static str,
    /// The storage type of weights.
    #[serde(serialize_with = "storage_name")]
    pub weights: Storage,
    /// The speed of generation.
    #[serde(flatten)]
    pub speed: TextSpeed,
}

/// The name of a storage type.
#[must_use]
pub const fn name(storage: Storage) -> &'static str {
    match storage {
        Storage::F32 => "f32",
        Storage::Int16 => "int16",
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn storage_name<S: Serializer>(storage: &Storage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name(*storage))
}

/// Bytes that [`measure`] allocates: the decoder's, and the largest parameter while it is loaded.
///
/// # Errors
/// The model exceeds any machine's memory.
pub fn planned_bytes(config: &GptConfig, storage: Storage) -> Result<u64, DecodeError> {
    let largest = Layout::new(config)?.largest();
    Ok(buffers::decoder(config, storage)?.bytes().saturating_add(4 * largest as u64))
}

/// Measures the inference speed of a model.
///
/// # Errors
/// The model does not fit this machine's memory.
pub fn measure(model: &Model, config: &GptConfig, storage: Storage, effort: Effort) -> Result<Figures, DecodeError> {
    let mut decoder = Decoder::empty(config, storage)?;
    let weights = RandomWeights::new();
    for entry in Layout::new(config)?.entries() {
        let layer = entry.parameter.layer.and_then(|layer| usize::try_from(layer).ok());
        decoder.load(entry.parameter.tensor, layer, &weights.take(entry.range.len()))?;
    }
    let instructions = decoder.instructions();
    let speed = speed(model, effort, &mut Text { decoder, draw: 0 })?;
    Ok(Figures { threads: 1, instructions, weights: storage, speed })
}

struct Text {
    decoder: Decoder,
    draw: u32,
}

impl Writer for Text {
    type Error = DecodeError;

    fn prompt(&mut self, tokens: &[u32]) -> Result<(), DecodeError> {
        self.decoder.reset();
        self.decoder.prefill(tokens).map(drop)
    }

    fn token(&mut self) -> Result<(), DecodeError> {
        self.draw += 1;
        self.decoder.next(&Sampling { temperature: 0.8, top_k: 200, seed: 1 }, self.draw).map(drop)
    }
}
