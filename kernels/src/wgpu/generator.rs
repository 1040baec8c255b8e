//! Text generation: a model's parameters on the GPU, the text so far, and the next token.

use std::ops::Range;

use headroom_planner::gpt::{GptConfig, buffers::inference::Inference, tensors::Tensor};
use headroom_text as text;

use super::{
    Gpu, GpuError,
    forward::{DispatchBuilder, Forward, Tuning, pass_tokens_max},
    memory::{Memory, PlannedBuffer},
    pass::{Pass, decode_output, floats, output_bytes},
    pipelines::{Dispatch, Pipelines, checked},
    read::read,
    shader::Weights,
    weights::{self, Axes},
};
use crate::{
    layout::Layout,
    reference::matvec_forward::Epilogue,
    sampling::{Candidate, Sampling},
};

/// Options of an engine beyond the model's shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Planned buffers: whether weights have half precision, and whether queries are stored.
    pub inference: Inference,
    /// Whether the weights were trained with the tanh form of GELU, `gelu_new`, as OpenAI's were.
    pub gelu_tanh: bool,
    /// Maximum size of a binding in bytes, if below the device's limit.
    pub binding_bytes_max: Option<u64>,
}

/// A generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Selected token.
    pub token: u32,
    /// Most likely candidates in descending order; as many as requested, and at most thirty.
    pub candidates: Vec<Candidate>,
}

/// A copy of bytes between two buffers.
#[derive(Clone, Copy, Debug)]
struct BufferCopy<'a> {
    from: &'a wgpu::Buffer,
    /// Position of the first byte in `from`.
    first: u64,
    to: &'a wgpu::Buffer,
    /// Position of the first byte in `to`.
    at: u64,
    bytes: u64,
}

/// A model on a GPU that generates text.
#[derive(Debug)]
pub struct Generator {
    gpu: Gpu,
    config: GptConfig,
    options: Options,
    axes: Axes,
    memory: Memory,
    forward: Forward,
    /// Number of tokens in the text.
    n_tokens: u64,
    /// Number of tokens whose keys and values are in the cache: all, or all but the last one selected.
    n_cached: u64,
    /// Number of draws so far.
    n_draws: u32,
}

impl Generator {
    /// Allocates all buffers and compiles all kernels. Parameters are zero until they are written.
    ///
    /// # Errors
    /// [`GpuError::LimitTooSmall`], [`GpuError::OutOfMemory`], [`GpuError::DeviceLost`], or a model beyond the memory
    /// of any machine.
    pub async fn new(gpu: &Gpu, config: &GptConfig, options: Options) -> Result<Self, GpuError> {
        let inference = options.inference;
        let axes = Axes::new(config, inference)?;
        let tuning = Tuning::of(gpu, axes.hs);
        if tuning.attention() > gpu.device.limits().max_compute_invocations_per_workgroup {
            return Err(GpuError::LimitTooSmall {
                what: text::gpu_head(axes.head_size),
                limit: "maxComputeInvocationsPerWorkgroup".into(),
                needed: u64::from(tuning.attention()),
                available: u64::from(gpu.device.limits().max_compute_invocations_per_workgroup),
            });
        }
        let binding_bytes_max =
            options.binding_bytes_max.map_or(gpu.binding_bytes_max(), |max| max.min(gpu.binding_bytes_max()));
        let list = inference.buffers(config)?;
        let memory = Memory::allocate(gpu, &list, axes.c as u64, binding_bytes_max).await?;
        let weights = match (inference.half, gpu.has_f16()) {
            (false, _) => Weights::F32,
            (true, false) => Weights::Packed,
            (true, true) => Weights::F16,
        };
        let forward = checked(gpu, || {
            let gelu = if options.gelu_tanh { Epilogue::GeluTanh } else { Epilogue::Gelu };
            let pipelines = Pipelines::default();
            DispatchBuilder { gpu, memory: &memory, config, axes, inference, weights, gelu, tuning, pipelines }
                .forward()
        })
        .await?;
        let (gpu, config) = (gpu.clone(), *config);
        Ok(Self { gpu, config, options, axes, memory, forward, n_tokens: 0, n_cached: 0, n_draws: 0 })
    }

    /// Shape of the model.
    #[must_use]
    pub const fn config(&self) -> &GptConfig {
        &self.config
    }

    /// Options of the engine.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// All buffers, as planned and as allocated.
    #[must_use]
    pub fn buffers(&self) -> Vec<PlannedBuffer> {
        self.memory.allocated()
    }

    /// Number of tokens in the text.
    #[must_use]
    pub const fn n_tokens(&self) -> u64 {
        self.n_tokens
    }

    /// Number of dispatches per token.
    #[must_use]
    pub const fn n_dispatches(&self) -> usize {
        self.forward.decode.len() + 1
    }

    /// Writes a parameter, with the axes of nanoGPT.
    ///
    /// # Errors
    /// [`GpuError::NoSuchParameter`], [`GpuError::WrongLength`], [`GpuError::DeviceLost`].
    pub fn write_parameter(&self, tensor: Tensor, layer: Option<u64>, values: &[f32]) -> Result<(), GpuError> {
        weights::write(&self.gpu, &self.memory, &self.axes, self.options.inference, (tensor, layer), values)
    }

    /// Writes all parameters, flat in the order of [`Layout`].
    ///
    /// # Errors
    /// As [`Self::write_parameter`].
    pub fn write_parameters(&self, flat: &[f32]) -> Result<(), GpuError> {
        let layout = Layout::new(&self.config)?;
        if flat.len() != layout.len() {
            return Err(GpuError::WrongLength { name: None, expected: layout.len(), given: flat.len() });
        }
        for entry in layout.entries() {
            self.write_parameter(entry.parameter.tensor, entry.parameter.layer, &flat[entry.range.clone()])?;
            self.flush();
        }
        Ok(())
    }

    /// Submits pending writes to the device now, so that they do not accumulate.
    pub fn flush(&self) {
        self.gpu.queue.submit([]);
    }

    /// Clears the text and restarts the sequence of draws.
    pub const fn reset(&mut self) {
        self.forget_tokens();
        self.n_draws = 0;
    }

    /// Clears the text and continues the sequence of draws: for a text that exceeds the context, whose last tokens are
    /// prefilled again.
    pub const fn forget_tokens(&mut self) {
        (self.n_tokens, self.n_cached) = (0, 0);
    }

    /// Appends tokens to the text and runs the model over them, so that [`Self::step`] can continue the text.
    ///
    /// # Errors
    /// [`GpuError::NoSuchToken`], [`GpuError::ContextFull`], [`GpuError::NoTokens`] for an empty slice,
    /// [`GpuError::DeviceLost`].
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<(), GpuError> {
        let vocab_size = self.config.vocab_size();
        if let Some(&token) = tokens.iter().find(|&&token| u64::from(token) >= vocab_size) {
            return Err(GpuError::NoSuchToken { token, vocab_size });
        }
        if tokens.is_empty() {
            return Err(GpuError::NoTokens);
        }
        let n_tokens = self.n_tokens + tokens.len() as u64;
        let block_size = self.config.block_size();
        if n_tokens > block_size {
            return Err(GpuError::ContextFull { block_size, tokens: n_tokens });
        }
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        self.gpu.queue.write_buffer(self.memory.whole(Tensor::Tokens, None, 0), 4 * self.n_tokens, &bytes);
        self.n_tokens = n_tokens;
        while self.n_cached < n_tokens {
            let n = pass_tokens_max(&self.config).min(n_tokens - self.n_cached);
            let pass = Pass { first: narrow(self.n_cached), n: narrow(n), ..Pass::default() };
            let is_last = self.n_cached + n == n_tokens;
            let logits = if is_last { &self.forward.prompt_logits[..] } else { &[] };
            self.submit(pass, self.forward.prefill.iter().chain(logits), &[])?;
            self.n_cached += n;
        }
        Ok(())
    }

    /// Runs the model over the previous token if needed and selects the next one, in one submission.
    ///
    /// # Errors
    /// [`GpuError::NoTokens`], [`GpuError::ContextFull`], [`GpuError::DeviceLost`].
    pub async fn step(&mut self, sampling: &Sampling, n_candidates: u32) -> Result<Step, GpuError> {
        let block_size = self.config.block_size();
        if self.n_tokens == 0 {
            return Err(GpuError::NoTokens);
        }
        if self.n_tokens > block_size {
            return Err(GpuError::ContextFull { block_size, tokens: self.n_tokens });
        }
        let pending = self.n_tokens - self.n_cached;
        let pass = Pass { first: narrow(self.n_tokens - 1), n: 1, ..Pass::default() };
        let pass = pass.choosing(sampling, self.n_draws, n_candidates);
        let forward = if pending == 0 { &[] } else { &self.forward.decode[..] };
        let bytes = output_bytes(n_candidates);
        let [from, to] = [1, 2].map(|place| self.memory.whole(Tensor::Exchange, None, place));
        self.submit(
            pass,
            forward.iter().chain([&self.forward.sample]),
            &[BufferCopy { from, first: 0, to, at: 0, bytes }],
        )?;
        let (token, candidates) = decode_output(&read(&self.gpu, to, bytes).await?);
        self.n_cached = self.n_tokens;
        self.n_tokens += 1;
        self.n_draws += 1;
        Ok(Step { token, candidates })
    }

    /// Number of tokens that the model has processed, whose attention weights are available.
    #[must_use]
    pub const fn n_cached(&self) -> u64 {
        self.n_cached
    }

    /// Reads the logits of the last selection, or of the next one after [`Self::prefill`].
    ///
    /// # Errors
    /// [`GpuError::NoTokens`], [`GpuError::DeviceLost`].
    pub async fn logits(&self) -> Result<Vec<f32>, GpuError> {
        if self.n_cached == 0 {
            return Err(GpuError::NoTokens);
        }
        let bytes = 4 * self.config.vocab_size();
        let [from, to] = [0, 1].map(|place| self.memory.whole(Tensor::Logits, None, place));
        self.submit(Pass::default(), [], &[BufferCopy { from, first: 0, to, at: 0, bytes }])?;
        Ok(floats(&read(&self.gpu, to, bytes).await?))
    }

    /// Computes the attention weights of some processed tokens in all layers and heads, for some keys: (L, NH, queries,
    /// keys).
    ///
    /// # Errors
    /// [`GpuError::NoAttention`], [`GpuError::DeviceLost`].
    pub async fn attention(&self, queries: Range<u64>, keys: Range<u64>) -> Result<Vec<f32>, GpuError> {
        let missing = |reason| Err(GpuError::NoAttention { reason });
        if !self.options.inference.attention {
            return missing(text::GPU_KEEPS_NO_QUERIES);
        }
        if queries.is_empty() || keys.is_empty() || queries.end.max(keys.end) > self.n_cached {
            return missing(text::GPU_NOT_RUN_YET);
        }
        let [from, to] = [0, 1].map(|place| self.memory.whole(Tensor::Att, None, place));
        let (row_bytes, part_bytes) = (4 * self.config.block_size(), 4 * (keys.end - keys.start));
        let head_bytes = part_bytes * (queries.end - queries.start);
        let n_heads = u64::try_from(self.forward.attention_weights.len()).unwrap_or(u64::MAX) * self.config.n_head();
        let heads: Vec<u64> = (0..n_heads).collect();
        let mut weights = Vec::new();
        // The buffer to read has room for at least one head.
        for heads in heads.chunks(usize::try_from(to.size() / head_bytes).unwrap_or(usize::MAX)) {
            let mut end = 0;
            for head in heads {
                let layer = usize::try_from(head / self.config.n_head()).unwrap_or(usize::MAX);
                let pass = Pass {
                    first: narrow(queries.start),
                    n: narrow(queries.end - queries.start),
                    head: narrow(head % self.config.n_head()),
                    ..Pass::default()
                };
                let copies = queries.clone().zip((end..).step_by(usize::try_from(part_bytes).unwrap_or(usize::MAX)));
                let copies = copies.map(|(query, at)| (query * row_bytes + 4 * keys.start, at));
                let copies: Vec<_> =
                    copies.map(|(first, at)| BufferCopy { from, first, to, at, bytes: part_bytes }).collect();
                self.submit(pass, [&self.forward.attention_weights[layer]], &copies)?;
                end += head_bytes;
            }
            weights.extend(floats(&read(&self.gpu, to, end).await?));
        }
        Ok(weights)
    }

    /// Submits a pass to the device: its settings, its dispatches, and copies of the results to read.
    fn submit<'a>(
        &self,
        pass: Pass,
        dispatches: impl IntoIterator<Item = &'a Dispatch>,
        copies: &[BufferCopy<'_>],
    ) -> Result<(), GpuError> {
        self.gpu.check()?;
        self.gpu.queue.write_buffer(self.memory.whole(Tensor::Exchange, None, 0), 0, &pass.bytes());
        let mut encoder = self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        let mut compute = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for dispatch in dispatches {
            dispatch.encode(&mut compute, pass.n);
        }
        drop(compute);
        for BufferCopy { from, first, to, at, bytes } in copies {
            encoder.copy_buffer_to_buffer(from, *first, to, *at, *bytes);
        }
        self.gpu.queue.submit([encoder.finish()]);
        self.gpu.check()
    }
}

/// Converts a position or count. It fits, as a cache of more than 2^32 tokens exceeds the memory of any GPU.
fn narrow(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
