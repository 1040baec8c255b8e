//! Inference on WebGPU, natively: a token of a prompt, a token behind it, and the bytes that one reads as a share of
//! what the device copies.

use std::time::Instant;

use headroom_shared::gpt::{
    GptConfig,
    buffers::inference::Inference,
    tensors::{Category, Tensor},
};
use serde::Serialize;

use super::{
    Effort, Model, RandomWeights, TextSpeed, significant,
    text::{Writer, speed},
};
use crate::{layout::Layout, sampling::Sampling};
// Of this package; the crate of that name is known in its own folder alone.
use crate::wgpu::{Generator, Gpu, GpuError, Options, Request, block_on, copy_bytes_per_second};

/// A device, and how fast it copies.
#[derive(Debug)]
pub struct Device {
    gpu: Gpu,
    copied: f64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Whether the adapter computes on the CPU.
    pub software: bool,
    /// Whether its shaders know f16.
    pub f16: bool,
    /// How weights are kept: f32 or f16.
    pub weights: &'static str,
    /// How fast it writes.
    #[serde(flatten)]
    pub speed: TextSpeed,
    /// Dispatches of a token.
    pub dispatches_a_token: usize,
    /// Until buffers are allocated and shaders compiled.
    #[serde(serialize_with = "significant")]
    pub start_millis: f64,
    /// Bytes of weights that a token reads.
    pub bytes_a_token: u64,
    /// What a copy between two buffers reads and writes.
    #[serde(serialize_with = "significant")]
    pub copy_gigabytes_per_second: f64,
    /// What tokens read, of that.
    #[serde(serialize_with = "significant")]
    pub fraction_of_copy_bandwidth: f64,
}

impl Device {
    /// Opens the device that a program gets by default.
    ///
    /// # Errors
    /// There is none, or it fails.
    pub fn open() -> Result<Self, GpuError> {
        let gpu = block_on(Gpu::request(Request::default()))?;
        let copied = copy_bytes_per_second(&gpu)?;
        Ok(Self { gpu, copied })
    }

    /// The adapter's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.gpu.name()
    }

    /// Whether it computes on the CPU, and its memory is this machine's.
    #[must_use]
    pub const fn is_software(&self) -> bool {
        self.gpu.is_software()
    }

    /// Measures a model, with its matrices in half precision or not.
    ///
    /// # Errors
    /// It does not fit the device, or the device fails.
    pub fn measure(&self, model: &Model, config: &GptConfig, half: bool, effort: Effort) -> Result<Figures, GpuError> {
        let options = Options { inference: inference(half), ..Options::default() };
        let start = Instant::now();
        let generator = block_on(Generator::new(&self.gpu, config, options))?;
        let start_millis = start.elapsed().as_secs_f64() * 1e3;
        let weights = RandomWeights::new();
        for entry in Layout::new(config)?.entries() {
            let values = weights.take(entry.range.len());
            generator.write_parameter(entry.parameter.tensor, entry.parameter.layer, &values)?;
            generator.flush();
        }
        let (bytes_a_token, dispatches_a_token) = (bytes_a_token(&generator), generator.n_dispatches());
        let speed = speed(model, effort, &mut Text(generator))?;
        Ok(Figures {
            software: self.gpu.is_software(),
            f16: self.gpu.has_f16(),
            weights: weights_name(half),
            speed,
            dispatches_a_token,
            start_millis,
            bytes_a_token,
            copy_gigabytes_per_second: self.copied / 1e9,
            fraction_of_copy_bandwidth: bytes_a_token as f64 * speed.tokens_per_second / self.copied,
        })
    }
}

/// The word for how matrices are kept.
#[must_use]
pub const fn weights_name(half: bool) -> &'static str {
    if half { "f16" } else { "f32" }
}

/// Bytes of the device that [`Device::measure`] takes, and of a parameter on its way there, here and in a buffer between.
///
/// # Errors
/// The model is beyond any machine.
pub fn planned_bytes(config: &GptConfig, half: bool) -> Result<u64, GpuError> {
    let largest = Layout::new(config)?.largest();
    Ok(inference(half).buffers(config)?.bytes().saturating_add(12 * largest as u64))
}

const fn inference(half: bool) -> Inference {
    Inference { half, attention: false }
}

/// Every parameter once; of the positions a token reads one row.
fn bytes_a_token(generator: &Generator) -> u64 {
    let buffers = generator.buffers();
    let read = buffers.iter().filter(|buffer| {
        buffer.planned.category() == Category::Parameters && buffer.planned.stored.tensor != Tensor::Wpe
    });
    read.map(|buffer| buffer.bytes).sum()
}

struct Text(Generator);

const SAMPLING: Sampling = Sampling { temperature: 0.8, top_k: 200, seed: 1 };

impl Writer for Text {
    type Error = GpuError;

    fn prompt(&mut self, tokens: &[u32]) -> Result<(), GpuError> {
        self.0.reset();
        self.0.prefill(tokens)?;
        // A choice ends a prompt, as only then it is known to be done.
        self.token()
    }

    fn token(&mut self) -> Result<(), GpuError> {
        block_on(self.0.step(&SAMPLING, 0)).map(drop)
    }
}
