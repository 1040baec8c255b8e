//! A model that writes, whatever it runs on: the same text from the same seed.

use headroom_kernels::{
    decode::{DecodeError, Decoder},
    sampling::{Candidate, Sampling, candidates},
    wgpu::{Generator, GpuError},
};
use headroom_shared::{demo::Allocated, gpt::buffers::Buffer, order::sorted, text::Text};

/// What it runs on.
#[derive(Debug)]
pub enum Backend {
    /// The CPU, in WebAssembly.
    Cpu(Box<Decoder>),
    /// WebGPU.
    Gpu(Box<Generator>),
}

/// Why it does not go on.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineError {
    /// On the CPU.
    Cpu(DecodeError),
    /// On WebGPU.
    Gpu(GpuError),
}

impl EngineError {
    /// In a sentence.
    pub fn text(&self) -> Text {
        match self {
            Self::Cpu(error) => error.text(),
            Self::Gpu(error) => error.text(),
        }
    }
}

impl From<DecodeError> for EngineError {
    fn from(error: DecodeError) -> Self {
        Self::Cpu(error)
    }
}

impl From<GpuError> for EngineError {
    fn from(error: GpuError) -> Self {
        Self::Gpu(error)
    }
}

/// A token that was chosen, and the likeliest in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The token.
    pub token: u32,
    /// Likeliest first.
    pub candidates: Vec<Candidate>,
}

/// Rows of a head's attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// The tokens that rows and columns are, the text's last.
    pub tokens: Vec<u32>,
    /// A row each, as long as there are tokens.
    pub weights: Vec<f32>,
    /// What each row gives to tokens before those.
    pub earlier: Vec<f32>,
}

/// A model and its text.
#[derive(Debug)]
pub struct Engine {
    backend: Backend,
    block_size: usize,
    text: Vec<u32>,
    /// Tokens of the text that the model has seen: all, or all but the one chosen last.
    n_run: usize,
    n_draws: u32,
    scratch: Vec<f32>,
}

impl Engine {
    /// With a model whose weights are loaded.
    pub fn new(backend: Backend, block_size: u64) -> Self {
        let block_size = usize::try_from(block_size).unwrap_or(usize::MAX);
        Self { backend, block_size, text: Vec::new(), n_run: 0, n_draws: 0, scratch: Vec::new() }
    }

    /// Begins a text. Of a prompt beyond the context its end counts, as in nanoGPT.
    pub fn begin(&mut self, prompt: &[u32]) -> Result<(), EngineError> {
        self.text.clear();
        self.text.extend_from_slice(prompt);
        self.n_draws = 0;
        let seen = tail(prompt, self.block_size);
        match &mut self.backend {
            Backend::Cpu(decoder) => {
                decoder.reset();
                decoder.prefill(seen)?;
            }
            Backend::Gpu(generator) => {
                generator.reset();
                generator.prefill(seen)?;
            }
        }
        self.n_run = self.text.len();
        Ok(())
    }

    /// Chooses the next token.
    pub async fn next(&mut self, sampling: &Sampling, n_candidates: u32) -> Result<Chosen, EngineError> {
        let chosen = match &mut self.backend {
            Backend::Cpu(decoder) => {
                decoder.prefill(&self.text[self.n_run..])?;
                let n = usize::try_from(n_candidates).unwrap_or(usize::MAX);
                let candidates = candidates(decoder.logits(), sampling, n, &mut self.scratch);
                Chosen { token: decoder.choose(sampling, self.n_draws)?, candidates }
            }
            Backend::Gpu(generator) => {
                if generator.n_tokens() > self.block_size as u64 {
                    // Absolute positions leave no way past the context but to move all others by one, as nanoGPT does.
                    generator.forget_tokens();
                    generator.prefill(tail(&self.text, self.block_size))?;
                }
                let step = generator.step(sampling, n_candidates).await?;
                Chosen { token: step.token, candidates: step.candidates }
            }
        };
        self.n_run = self.text.len();
        self.text.push(chosen.token);
        self.n_draws += 1;
        Ok(chosen)
    }

    /// How the last tokens that were run attend to each other; at most `n_max` of them.
    pub async fn attention(&mut self, layer: u64, head: u64, n_max: usize) -> Result<Attention, EngineError> {
        let seen = tail(&self.text[..self.n_run], self.block_size);
        let first = seen.len().saturating_sub(n_max);
        let tokens = seen[first..].to_vec();
        let mut rows = Vec::new();
        let mut stride = seen.len();
        match &mut self.backend {
            Backend::Cpu(decoder) => {
                // A whole prompt's attention is not kept: the last tokens are run again, to the same logits.
                let narrow = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                decoder.reset();
                if first > 0 {
                    decoder.prefill(&seen[..first])?;
                }
                for &token in &tokens {
                    decoder.step(token)?;
                    let row = decoder.attention(narrow(layer), narrow(head)).unwrap_or_default();
                    rows.extend_from_slice(row);
                    rows.resize(rows.len() + seen.len() - row.len(), 0.0);
                }
            }
            Backend::Gpu(generator) => {
                if !tokens.is_empty() {
                    rows = generator.attention(layer, head, first as u64..seen.len() as u64).await?;
                    stride = self.block_size;
                }
            }
        }
        let mut attention = Attention { tokens, weights: Vec::new(), earlier: Vec::new() };
        for row in rows.chunks_exact(stride.max(1)) {
            attention.earlier.push(row[..first].iter().sum());
            attention.weights.extend_from_slice(&row[first..seen.len()]);
        }
        Ok(attention)
    }

    /// Its tensors, each summed over the blocks, largest first.
    pub fn tensors(&self) -> Vec<Allocated> {
        let buffers: Vec<(Buffer, u64)> = match &self.backend {
            Backend::Cpu(decoder) => {
                decoder.buffers().iter().map(|buffer| (buffer.planned, buffer.allocated_bytes)).collect()
            }
            Backend::Gpu(generator) => {
                generator.buffers().iter().map(|buffer| (buffer.planned, buffer.bytes)).collect()
            }
        };
        summed(&buffers)
    }

    /// The instructions that it computes with, where that is the CPU.
    pub fn instructions(&self) -> Option<&'static str> {
        match &self.backend {
            Backend::Cpu(decoder) => Some(decoder.instructions()),
            Backend::Gpu(_) => None,
        }
    }
}

fn tail(tokens: &[u32], n: usize) -> &[u32] {
    &tokens[tokens.len().saturating_sub(n)..]
}

fn summed(buffers: &[(Buffer, u64)]) -> Vec<Allocated> {
    let mut tensors: Vec<Allocated> = Vec::new();
    for (planned, allocated_bytes) in buffers {
        let name = planned.stored.name(None);
        let tensor = match tensors.iter_mut().find(|tensor| tensor.name == name) {
            Some(tensor) => tensor,
            None => {
                let category = planned.category();
                tensors.push(Allocated { name, category, n: 0, planned_bytes: 0, allocated_bytes: 0 });
                tensors.last_mut().expect("it was just pushed")
            }
        };
        tensor.n += 1;
        tensor.planned_bytes += planned.bytes;
        tensor.allocated_bytes += allocated_bytes;
    }
    sorted(&tensors, |a, b| b.planned_bytes.cmp(&a.planned_bytes).then_with(|| a.name.cmp(&b.name)))
}
