//! Text generation on any backend. The same seed gives the same text on each of them.

use headroom_kernels::{
    decode::{DecodeError, Decoder},
    sampling::{Candidate, Sampling, candidates},
    wgpu::{Generator, GpuError},
};
use headroom_planner::gpt::buffers::Buffer;
use headroom_protocol::demo::TensorSummary;
use headroom_text::{self as text, Text};
use headroom_tokenizer::order::sorted;

/// The backend that runs the model.
#[derive(Debug)]
pub enum Backend {
    /// The CPU, through WebAssembly.
    Cpu(Box<Decoder>),
    /// WebGPU.
    Gpu(Box<Generator>),
}

/// A failure of the backend, after which generation cannot continue.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineError {
    /// A failure on the CPU.
    Cpu(DecodeError),
    /// A failure on WebGPU.
    Gpu(GpuError),
}

impl EngineError {
    /// Returns the error as a short phrase.
    pub fn text(&self) -> Text {
        match self {
            Self::Cpu(error) => error.text(),
            Self::Gpu(error) => error.text(),
        }
    }

    /// Returns the error as a sentence. GPU errors are already sentences.
    pub fn sentence(&self) -> Text {
        match self {
            Self::Cpu(error) => text::demo_on_the_cpu(error.text()),
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

/// A sampled token with the most probable candidates for its position.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledToken {
    /// The id of the sampled token.
    pub token: u32,
    /// The candidates, most probable first.
    pub candidates: Vec<Candidate>,
}

/// Attention weights of one head for the last tokens of the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// The tokens of the rows and columns: the last ones of the text, in order.
    pub tokens: Vec<u32>,
    /// The weights, row by row, with one column per token in `tokens`.
    pub weights: Vec<f32>,
    /// For each row, the sum of its weights on tokens before `tokens`.
    pub earlier: Vec<f32>,
}

/// A model on a backend, with the text it generates.
#[derive(Debug)]
pub struct Engine {
    backend: Backend,
    block_size: usize,
    /// The text; of a longer prompt, only the part within the context.
    text: Vec<u32>,
    /// Index of the first token in the model's window.
    start: usize,
    /// Number of tokens of `text` that the model has processed: all, or all but the last one chosen.
    n_run: usize,
    n_draws: u32,
    scratch: Vec<f32>,
}

impl Engine {
    /// Creates an engine for a model whose weights are loaded. `block_size` is the context length in tokens.
    pub fn new(backend: Backend, block_size: u64) -> Self {
        let block_size = usize::try_from(block_size).unwrap_or(usize::MAX);
        Self { backend, block_size, text: Vec::new(), start: 0, n_run: 0, n_draws: 0, scratch: Vec::new() }
    }

    /// Returns the part of a text that fits into the context: its last `block_size` tokens.
    pub fn seen<'a>(&self, text: &'a [u32]) -> &'a [u32] {
        tail(text, self.block_size)
    }

    /// Starts a new text from a prompt. Only the last `block_size` tokens of a longer prompt count, as in nanoGPT.
    pub fn begin(&mut self, prompt: &[u32]) -> Result<(), EngineError> {
        self.text = self.seen(prompt).to_vec();
        self.n_draws = 0;
        if let Backend::Gpu(generator) = &mut self.backend {
            generator.reset();
        }
        self.run(self.text.len())
    }

    /// Samples the next token and returns it with up to `n_candidates` candidates.
    pub async fn next(&mut self, sampling: &Sampling, n_candidates: u32) -> Result<SampledToken, EngineError> {
        if self.window_start(self.text.len()) != self.start {
            self.run(self.text.len())?;
        }
        let chosen = match &mut self.backend {
            Backend::Cpu(decoder) => {
                decoder.prefill(&self.text[self.n_run..])?;
                let n = usize::try_from(n_candidates).unwrap_or(usize::MAX);
                let candidates = candidates(decoder.logits(), sampling, n, &mut self.scratch);
                SampledToken { token: decoder.choose(sampling, self.n_draws)?, candidates }
            }
            Backend::Gpu(generator) => {
                let step = generator.step(sampling, n_candidates).await?;
                SampledToken { token: step.token, candidates: step.candidates }
            }
        };
        self.n_run = self.text.len();
        self.text.push(chosen.token);
        self.n_draws += 1;
        Ok(chosen)
    }

    /// Returns the start of the window of a text with `n_tokens` tokens.
    ///
    /// A window that is full moves on by half of its length. The tokens that remain are processed again, because their
    /// absolute positions change. Moving by one token, as nanoGPT does, would process all of them for every token.
    const fn window_start(&self, n_tokens: usize) -> usize {
        let step = self.block_size / 2 + 1;
        n_tokens.saturating_sub(self.block_size).div_ceil(step) * step
    }

    /// Processes the window that ends after `n_tokens` tokens.
    fn run(&mut self, n_tokens: usize) -> Result<(), EngineError> {
        self.start = self.window_start(n_tokens);
        let window = &self.text[self.start..n_tokens];
        match &mut self.backend {
            Backend::Cpu(decoder) => {
                decoder.reset();
                decoder.prefill(window)?;
            }
            Backend::Gpu(generator) => {
                generator.forget_tokens();
                generator.prefill(window)?;
            }
        }
        self.n_run = n_tokens;
        Ok(())
    }

    /// Returns the attention weights among the last processed tokens, at most `n_max` of them.
    pub async fn attention(&mut self, layer: u64, head: u64, n_max: usize) -> Result<Attention, EngineError> {
        let seen = &self.text[self.start..self.n_run];
        let first = seen.len().saturating_sub(n_max);
        let tokens = seen[first..].to_vec();
        let mut rows = Vec::new();
        let mut stride = seen.len();
        match &mut self.backend {
            Backend::Cpu(decoder) => {
                // Attention of the prompt is not kept. The last tokens are run again, which gives the same logits.
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

    /// Returns the engine's tensors, each summed over the blocks, largest first.
    pub fn tensors(&self) -> Vec<TensorSummary> {
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

    /// Returns the CPU instruction set in use, or `None` on a GPU.
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

fn summed(buffers: &[(Buffer, u64)]) -> Vec<TensorSummary> {
    let mut tensors: Vec<TensorSummary> = Vec::new();
    for (planned, allocated_bytes) in buffers {
        let name = planned.stored.name(None);
        let tensor = match tensors.iter_mut().find(|tensor| tensor.name == name) {
            Some(tensor) => tensor,
            None => {
                let category = planned.category();
                tensors.push(TensorSummary { name, category, n: 0, planned_bytes: 0, allocated_bytes: 0 });
                tensors.last_mut().expect("it was just pushed")
            }
        };
        tensor.n += 1;
        tensor.planned_bytes += planned.bytes;
        tensor.allocated_bytes += allocated_bytes;
    }
    sorted(&tensors, |a, b| b.planned_bytes.cmp(&a.planned_bytes).then_with(|| a.name.cmp(&b.name)))
}

#[cfg(test)]
mod tests {
    use headroom_kernels::{
        decode::Storage,
        layout::Layout,
        rng::Stream,
        wgpu::{Gpu, Options, Request, block_on},
    };
    use headroom_planner::gpt::{GptConfig, GptShape, buffers::inference::Inference};

    use super::*;

    const SAMPLING: Sampling = Sampling { temperature: 0.9, top_k: 20, seed: 5 };

    fn model() -> (GptConfig, Vec<f32>) {
        let shape =
            GptShape { n_layer: 2, n_head: 2, n_embd: 32, block_size: 12, vocab_size: 29, dropout: 0.0, bias: true };
        let config = GptConfig::new(shape).expect("a shape");
        let mut stream = Stream::new(3, 0);
        let len = Layout::new(&config).expect("small").len();
        #[expect(clippy::cast_possible_truncation, reason = "any weights will do")]
        let weights = (0..len).map(|_| 0.3 * stream.normal() as f32).collect();
        (config, weights)
    }

    fn on_cpu() -> Engine {
        let (config, weights) = model();
        let decoder = Decoder::new(&config, &weights, Storage::F32).expect("it fits");
        Engine::new(Backend::Cpu(Box::new(decoder)), config.block_size())
    }

    fn on_gpu() -> Engine {
        let (config, weights) = model();
        let options = Options { inference: Inference { half: false, attention: true }, ..Options::default() };
        let gpu = block_on(Gpu::request(Request::default())).expect("a software driver at least");
        let generator = block_on(Generator::new(&gpu, &config, options)).expect("it fits");
        generator.write_parameters(&weights).expect("its own weights");
        Engine::new(Backend::Gpu(Box::new(generator)), config.block_size())
    }

    /// Generates twice as many tokens as the context holds.
    fn written(engine: &mut Engine) -> Vec<u32> {
        (0..24).map(|_| block_on(engine.next(&SAMPLING, 3)).expect("a token").token).collect()
    }

    #[test]
    fn within_the_context_a_text_is_the_decoders() {
        let (config, weights) = model();
        let mut decoder = Decoder::new(&config, &weights, Storage::F32).expect("it fits");
        let mut engine = on_cpu();
        engine.begin(&[1, 2, 3]).expect("a prompt");
        decoder.prefill(&[1, 2, 3]).expect("a prompt");
        let expected: Vec<u32> = (0..9).map(|draw| decoder.next(&SAMPLING, draw).expect("a token")).collect();
        assert_eq!(written(&mut engine)[..9], expected);
    }

    /// Past the context each token continues the window that the engine documents, without any state of earlier ones.
    #[test]
    fn past_the_context_a_window_moves_by_half_of_its_length() {
        let (config, weights) = model();
        let mut decoder = Decoder::new(&config, &weights, Storage::F32).expect("it fits");
        let mut engine = on_cpu();
        let prompt: Vec<u32> = (0..10).collect();
        engine.begin(&prompt).expect("a prompt");
        let text = [&prompt[..], &written(&mut engine)].concat();
        let starts = [(12, 0), (13, 7), (19, 7), (20, 14), (26, 14), (27, 21), (33, 21)];
        for (n_tokens, start) in starts {
            assert_eq!(engine.window_start(n_tokens), start, "{n_tokens} tokens");
            decoder.reset();
            decoder.prefill(&text[start..n_tokens]).expect("a window");
            let draw = u32::try_from(n_tokens - prompt.len()).expect("small");
            assert_eq!(decoder.choose(&SAMPLING, draw), Ok(text[n_tokens]), "after {n_tokens} tokens");
        }
    }

    #[test]
    fn of_a_prompt_beyond_the_context_its_end_is_seen() {
        let engine = on_cpu();
        assert_eq!(engine.seen(&[1, 2, 3]), [1, 2, 3]);
        let long: Vec<u32> = (0..100_000).collect();
        assert_eq!(engine.seen(&long), &long[99_988..]);
    }

    #[test]
    fn gpu_generates_the_same_tokens_as_cpu_after_restart() {
        let (mut cpu, mut gpu) = (on_cpu(), on_gpu());
        for prompt in [&[1, 2, 3][..], &[7; 30], &[1, 2, 3]] {
            cpu.begin(prompt).expect("a prompt");
            gpu.begin(prompt).expect("a prompt");
            assert_eq!(written(&mut cpu), written(&mut gpu));
        }
    }

    #[test]
    fn a_look_at_attention_changes_nothing() {
        for mut engine in [on_cpu(), on_gpu()] {
            engine.begin(&[1, 2, 3]).expect("a prompt");
            let undisturbed = written(&mut engine);
            engine.begin(&[1, 2, 3]).expect("a prompt");
            let disturbed: Vec<u32> = (0..24)
                .map(|n| {
                    let attention = block_on(engine.attention(1, 0, 5)).expect("a map");
                    let n_run = 3 + n - usize::from(n > 0);
                    let n_seen = n_run - engine.window_start(n_run);
                    assert_eq!(attention.tokens.len(), n_seen.min(5), "after {n}");
                    for (row, earlier) in attention.weights.chunks_exact(attention.tokens.len()).zip(&attention.earlier)
                    {
                        let sum = row.iter().sum::<f32>() + earlier;
                        assert!((sum - 1.0).abs() < 1e-5, "after {n}: a row gives {sum}");
                    }
                    let above = attention.weights.get(1).filter(|_| attention.tokens.len() > 1);
                    assert!(above.is_none_or(|above| above.to_bits() == 0), "the first token looks ahead: {above:?}");
                    block_on(engine.next(&SAMPLING, 3)).expect("a token").token
                })
                .collect();
            assert_eq!(disturbed, undisturbed);
        }
    }

    #[test]
    fn tensors_are_summed_over_blocks_and_were_planned() {
        for engine in [on_cpu(), on_gpu()] {
            let tensors = engine.tensors();
            assert!(tensors.iter().any(|tensor| tensor.n == 2), "{tensors:?}");
            assert!(tensors.iter().all(|tensor| tensor.planned_bytes == tensor.allocated_bytes), "{tensors:?}");
            assert!(tensors.is_sorted_by(|a, b| a.planned_bytes >= b.planned_bytes), "{tensors:?}");
        }
    }
}
