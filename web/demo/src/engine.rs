//! Text generation on any backend. The same seed gives the same text on each of them.

mod recent_attention;

use headroom_kernels::{
    decode::{DecodeError, Decoder},
    sampling::{Candidate, Sampling, candidates},
    wgpu::{Generator, GpuError},
};
use headroom_planner::gpt::buffers::Buffer;
use headroom_protocol::demo::TensorSummary;
use headroom_text::{self as text, Text};
use headroom_tokenizer::order::sorted;
use recent_attention::{RecentAttention, tail};

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
    recent: RecentAttention,
    scratch: Vec<f32>,
}

impl Engine {
    /// Creates an engine for a model whose weights are loaded. `block_size` is the context length in tokens.
    pub fn new(backend: Backend, block_size: u64) -> Self {
        let block_size = usize::try_from(block_size).unwrap_or(usize::MAX);
        Self {
            backend,
            block_size,
            text: Vec::new(),
            start: 0,
            n_run: 0,
            n_draws: 0,
            recent: RecentAttention::default(),
            scratch: Vec::new(),
        }
    }

    /// Returns the part of a text that fits into the context: its last `block_size` tokens.
    pub fn seen<'a>(&self, text: &'a [u32]) -> &'a [u32] {
        tail(text, self.block_size)
    }

    /// Starts a new text from a prompt. Only the last `block_size` tokens of a longer prompt count, as in nanoGPT.
    ///
    /// [`Self::maps`] returns up to `n_map_tokens` tokens.
    pub fn begin(&mut self, prompt: &[u32], n_map_tokens: usize) -> Result<(), EngineError> {
        self.text = self.seen(prompt).to_vec();
        (self.start, self.n_draws) = (0, 0);
        let first = self.text.len().saturating_sub(n_map_tokens);
        self.recent = RecentAttention::new(n_map_tokens, first);
        match &mut self.backend {
            Backend::Cpu(decoder) => {
                decoder.reset();
                decoder.prefill(&self.text)?;
                // A step of its own for each of these tokens would compute its logits too.
                for position in first..self.text.len() {
                    let weights = decoder.attention_of(position).unwrap_or_default();
                    self.recent.add(&weights, position + 1);
                }
            }
            Backend::Gpu(generator) => {
                generator.reset();
                generator.prefill(&self.text)?;
            }
        }
        self.n_run = self.text.len();
        Ok(())
    }

    /// Samples the next token and returns it with up to `n_candidates` candidates.
    pub async fn next(&mut self, sampling: &Sampling, n_candidates: u32) -> Result<SampledToken, EngineError> {
        if self.window_start(self.text.len()) != self.start {
            self.run(self.text.len())?;
        }
        self.catch_up()?;
        let chosen = match &mut self.backend {
            Backend::Cpu(decoder) => {
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
        self.keep_attention();
        Ok(())
    }

    /// Processes the tokens that the CPU has not processed yet. The GPU does this with its next step.
    fn catch_up(&mut self) -> Result<(), EngineError> {
        while let (Backend::Cpu(decoder), Some(&token)) = (&mut self.backend, self.text.get(self.n_run)) {
            decoder.step(token)?;
            self.n_run += 1;
            self.keep_attention();
        }
        Ok(())
    }

    /// Keeps the attention of the token that the CPU has processed last, unless it was processed again.
    fn keep_attention(&mut self) {
        let Backend::Cpu(decoder) = &mut self.backend else { return };
        let n_keys = decoder.n_tokens();
        if self.recent.n_max > 0 && self.n_run > self.recent.n_seen {
            self.recent.add(&decoder.attention_of(n_keys - 1).unwrap_or_default(), n_keys);
        }
    }

    /// Returns the last processed tokens and the attention among them in all layers and heads, (L, NH, tokens, tokens).
    pub async fn maps(&self) -> Result<(Vec<u32>, Vec<f32>), EngineError> {
        match &self.backend {
            Backend::Cpu(_) => {
                let tokens = tail(&self.text[..self.recent.n_seen], self.recent.tokens.len());
                Ok((tokens.to_vec(), self.recent.maps()))
            }
            Backend::Gpu(generator) => {
                let tokens = tail(&self.text[self.start..self.n_run], self.recent.n_max);
                let end = generator.n_cached();
                let last = end - tokens.len() as u64..end;
                Ok((tokens.to_vec(), generator.attention(last.clone(), last).await?))
            }
        }
    }

    /// Returns the attention of a token in all layers and heads, (L, NH, keys), and the index of its first key. `None`
    /// for a token beyond the text.
    ///
    /// The weights are those of the window in which the token was processed first.
    pub async fn attention_of(&mut self, token: usize) -> Result<Option<(usize, Vec<f32>)>, EngineError> {
        if token >= self.text.len() {
            return Ok(None);
        }
        let first = self.window_start(token + 1);
        if token >= self.n_run || first != self.start {
            self.run(token + 1)?;
        }
        let position = token - first;
        let weights = match &mut self.backend {
            Backend::Cpu(decoder) => decoder.attention_of(position).unwrap_or_default(),
            Backend::Gpu(generator) => {
                let position = position as u64;
                generator.attention(position..position + 1, 0..position + 1).await?
            }
        };
        // The next token continues the whole text.
        if self.n_run + 1 < self.text.len() {
            self.run(self.text.len())?;
        }
        Ok(Some((first, weights)))
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
        engine.begin(&[1, 2, 3], 5).expect("a prompt");
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
        engine.begin(&prompt, 5).expect("a prompt");
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
            cpu.begin(prompt, 5).expect("a prompt");
            gpu.begin(prompt, 5).expect("a prompt");
            assert_eq!(written(&mut cpu), written(&mut gpu));
        }
    }

    /// The weights of a token from a decoder that has processed its window and nothing else, (L, NH, keys).
    fn attention_in(window: &[u32]) -> Vec<f32> {
        let (config, weights) = model();
        let mut decoder = Decoder::new(&config, &weights, Storage::F32).expect("it fits");
        decoder.prefill(window).expect("a window");
        let heads = [(0, 0), (0, 1), (1, 0), (1, 1)];
        heads.iter().flat_map(|&(layer, head)| decoder.attention(layer, head).expect("there").to_vec()).collect()
    }

    fn assert_near(found: &[f32], expected: &[f32], what: &str) {
        assert_eq!(found.len(), expected.len(), "{what}");
        let is_near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-4);
        assert!(is_near, "{what}: {found:?} instead of {expected:?}");
    }

    /// After every token, each token of the text is looked at, and the last ones together. The text stays the same.
    #[test]
    fn a_look_at_attention_changes_nothing() {
        for mut engine in [on_cpu(), on_gpu()] {
            engine.begin(&[1, 2, 3], 5).expect("a prompt");
            let undisturbed = written(&mut engine);
            engine.begin(&[1, 2, 3], 5).expect("a prompt");
            let mut disturbed = Vec::new();
            for n in 0..24 {
                let text = engine.text.clone();
                for token in 0..text.len() {
                    let (first, weights) = block_on(engine.attention_of(token)).expect("it runs").expect("a token");
                    assert_eq!(first, engine.window_start(token + 1));
                    assert_near(&weights, &attention_in(&text[first..=token]), &format!("token {token} of {n}"));
                }
                assert_eq!(block_on(engine.attention_of(text.len())), Ok(None));
                disturbed.push(block_on(engine.next(&SAMPLING, 3)).expect("a token").token);
            }
            assert_eq!(disturbed, undisturbed);
        }
    }

    #[test]
    fn maps_are_the_attention_of_the_last_tokens() {
        for mut engine in [on_cpu(), on_gpu()] {
            engine.begin(&[1, 2, 3], 5).expect("a prompt");
            for n in 0..24 {
                let (tokens, maps) = block_on(engine.maps()).expect("maps");
                let (text, end) = (engine.text.clone(), engine.n_run);
                assert_eq!(tokens, tail(&text[engine.start..end], 5), "after {n}");
                let side = tokens.len();
                let first_token = end - side;
                for (row, token) in (first_token..end).enumerate() {
                    let first = engine.window_start(token + 1);
                    // The GPU computes maps from its cache, which begins with the current window.
                    let first = if matches!(engine.backend, Backend::Gpu(_)) { engine.start } else { first };
                    let all = attention_in(&text[first..=token]);
                    for (map, keys) in maps.chunks_exact(side * side).zip(all.chunks_exact(token + 1 - first)) {
                        let mut expected = vec![0.0; side];
                        let keys = tail(keys, row + 1);
                        expected[row + 1 - keys.len()..=row].copy_from_slice(keys);
                        assert_near(&map[row * side..][..side], &expected, &format!("token {token} of {n}"));
                    }
                }
                block_on(engine.next(&SAMPLING, 3)).expect("a token");
            }
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
