//! Benchmark of native WebGPU inference: a token of the prompt, a generated token, and the latter's memory traffic as a
//! fraction of the device's copy bandwidth.

use std::time::Instant;

use headroom_planner::gpt::{
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
// The module of this crate. The crate of the same name is used inside that module only.
use crate::wgpu::{Generator, Gpu, GpuError, Options, Request, block_on, copy_bytes_per_second};

/// An open device, and its copy bandwidth.
#[derive(Debug)]
pub struct Device {
    gpu: Gpu,
    copied: f64,
}

/// The results of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Whether the adapter is a software one, on the CPU.
    pub software: bool,
    /// Whether its shaders support f16.
    pub f16: bool,
    /// The element type of weights: f32 or f16.
    pub weights: &'static str,
    /// The speed of generation.
    #[serde(flatten)]
    pub speed: TextSpeed,
    /// Dispatches per token.
    pub dispatches_a_token: usize,
    /// Milliseconds to allocate buffers and compile shaders.
    #[serde(serialize_with = "significant")]
    pub start_millis: f64,
    /// Bytes of weights read per token.
    pub bytes_a_token: u64,
    /// The bandwidth of a copy between two buffers in GB/s, reads and writes together.
    #[serde(serialize_with = "significant")]
    pub copy_gigabytes_per_second: f64,
    /// The bandwidth that tokens reach, as a fraction of the copy bandwidth.
    #[serde(serialize_with = "significant")]
    pub fraction_of_copy_bandwidth: f64,
}

impl Device {
    /// Opens the default device.
    ///
    /// # Errors
    /// No device exists, or it fails.
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

    /// Whether the adapter runs on the CPU, so that its memory is the machine's.
    #[must_use]
    pub const fn is_software(&self) -> bool {
        self.gpu.is_software()
    }

    /// Measures a model, with its matrices in half precision if `half`.
    ///
    /// # Errors
    /// The model does not fit the device's memory, or the device fails.
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

/// The name of the weights' element type.
#[must_use]
pub const fn weights_name(half: bool) -> &'static str {
    if half { "f16" } else { "f32" }
}

/// Bytes that [`Device::measure`] takes: device memory, and copies of a parameter during upload, on the host and in a
/// staging buffer.
///
/// # Errors
/// The model exceeds any machine's memory.
pub fn planned_bytes(config: &GptConfig, half: bool) -> Result<u64, GpuError> {
    let largest = Layout::new(config)?.largest();
    Ok(inference(half).buffers(config)?.bytes().saturating_add(12 * largest as u64))
}

const fn inference(half: bool) -> Inference {
    Inference { half, attention: false }
}

/// Bytes read per token: every parameter once; of the position embeddings only one row, which is neglected.
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
        // Sampling waits for the GPU to finish the prompt.
        self.token()
    }

    fn token(&mut self) -> Result<(), GpuError> {
        block_on(self.0.step(&SAMPLING, 0)).map(drop)
    }
}
