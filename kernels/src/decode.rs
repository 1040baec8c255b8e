//! CPU inference, native and in WebAssembly: generates one token at a time with a KV cache.
//!
//! [`Decoder`] allocates all its memory at creation, from the list planned by `headroom_planner::gpt::buffers::decoder`.
//! A prompt is processed in pieces, so that each row of a matrix is read once for several tokens. A token's logits are
//! bit-identical however the text is divided. Kernels are written once, with the vectors of [`crate::simd`], for
//! AVX-512, AVX2, simd128 and machines without these. Tests compare them with [`crate::reference`].
//!
//! With absolute positions, a full context has no cheaper continuation than nanoGPT's: every further token shifts all
//! others by one position, and the last `block_size` tokens are recomputed.

mod attention;
mod int16;
mod linear;
mod math;
mod memory;
mod weights;

use headroom_planner::gpt::{
    GptConfig,
    buffers::{self, Buffer, PREFILL_TOKENS},
    tensors::{Tensor, TensorTooLarge},
};
use headroom_text::{self as text, Text};
use thiserror::Error;

use self::{
    attention::{Attention, Heads},
    math::{ElementKernel, Gelu, Softmax},
    memory::BufferPool,
    weights::{Block, Weights},
};
use crate::{
    layout::{Layout, TooLarge},
    reference::gpt::Sizes,
    sampling::{Sampling, sample},
    simd::Level,
};

pub use headroom_planner::gpt::buffers::Storage;

/// An error of the decoder.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum DecodeError {
    #[error(transparent)]
    Plan(#[from] TensorTooLarge),
    /// The model exceeds the address space.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A buffer could not be allocated.
    OutOfMemory {
        /// The buffer's name.
        tensor: String,
        /// The buffer's size in bytes.
        requested_bytes: u64,
    },
    /// The model has no parameter of this name.
    NoSuchTensor {
        /// The parameter's name.
        tensor: String,
    },
    /// A parameter has the wrong number of elements.
    WrongLength {
        /// The parameter's name; `None` for all parameters in one buffer.
        tensor: Option<String>,
        /// The given number of elements.
        elements: usize,
        /// The number of elements of the model's shape.
        expected: usize,
    },
    /// A matrix with infinities or NaN, which 16-bit integers cannot represent.
    NotFinite {
        /// The matrix's name.
        tensor: String,
    },
    /// A token outside the vocabulary.
    NoSuchToken {
        /// The token's id.
        token: u32,
        /// The number of rows of the embedding.
        vocab_size: usize,
    },
    /// The text is empty, so no next token can be predicted.
    NoTokens,
}

impl DecodeError {
    /// The error message.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Plan(error) => error.text(),
            Self::TooLarge(error) => error.text(),
            Self::OutOfMemory { tensor, requested_bytes } => {
                text::decode_out_of_memory(&**tensor, text::size(*requested_bytes))
            }
            Self::NoSuchTensor { tensor } => text::decode_no_such_tensor(&**tensor),
            Self::WrongLength { tensor: Some(tensor), elements, expected } => {
                text::decode_wrong_length(&**tensor, text::count(*elements as u64), text::count(*expected as u64))
            }
            Self::WrongLength { tensor: None, elements, expected } => {
                text::decode_wrong_total(text::count(*elements as u64), text::count(*expected as u64))
            }
            Self::NotFinite { tensor } => text::decode_not_finite(&**tensor),
            Self::NoSuchToken { token, vocab_size } => {
                text::decode_no_such_token(u64::from(*token), text::count(*vocab_size as u64))
            }
            Self::NoTokens => text::DECODE_NO_TOKENS.into(),
        }
    }
}

/// A buffer of the decoder, planned and actual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferReport {
    pub planned: Buffer,
    /// The bytes that were allocated.
    pub allocated_bytes: u64,
}

/// A block's cache of earlier tokens.
#[derive(Debug)]
struct Cache {
    /// The key-value cache, (2, NH, HS * T): see [`attention`].
    kv: Vec<f32>,
    /// The last token's attention weights, (NH, T).
    att: Vec<f32>,
}

/// The activations of a piece of N tokens.
#[derive(Debug)]
struct Activations {
    /// The residual stream, (N, C).
    encoded: Vec<f32>,
    /// The normalised stream, (N, C).
    ln: Vec<f32>,
    /// Queries, keys and values, (N, 3C).
    qkv: Vec<f32>,
    /// The attention's output, (N, C).
    atty: Vec<f32>,
    /// The MLP's hidden activations after GELU, (N, 4C).
    fch_gelu: Vec<f32>,
}

/// The name of this machine's SIMD instruction set, for reports.
#[must_use]
pub fn instructions() -> &'static str {
    Level::detect().name()
}

/// A GPT model that generates text, with its KV cache.
#[derive(Debug)]
pub struct Decoder {
    /// The model's sizes; `t` is the context length, `block_size`.
    sizes: Sizes,
    level: Level,
    allocated: Vec<BufferReport>,
    weights: Weights,
    caches: Vec<Cache>,
    acts: Activations,
    /// The cached tokens, which are the last ones of the text.
    tokens: Vec<i64>,
    n_tokens: usize,
    /// The logits of the last token.
    logits: Vec<f32>,
    /// A workspace for sampling, of the logits' length.
    scratch: Vec<f32>,
}

impl Decoder {
    /// Creates a decoder with weights.
    ///
    /// Shapes: `weights` flat, in [`Layout`]'s order.
    ///
    /// # Errors
    /// The model does not fit this machine's memory, or the weights do not fit the model.
    pub fn new(config: &GptConfig, weights: &[f32], storage: Storage) -> Result<Self, DecodeError> {
        let mut decoder = Self::empty(config, storage)?;
        let layout = Layout::new(config)?;
        if weights.len() != layout.len() {
            let (elements, expected) = (weights.len(), layout.len());
            return Err(DecodeError::WrongLength { tensor: None, elements, expected });
        }
        for entry in layout.entries() {
            let layer = entry.parameter.layer.and_then(|layer| usize::try_from(layer).ok());
            decoder.load(entry.parameter.tensor, layer, &weights[entry.range.clone()])?;
        }
        Ok(decoder)
    }

    /// Creates a decoder with zero weights. [`Self::load`] fills them one by one, without a second copy of all.
    ///
    /// # Errors
    /// The model does not fit this machine's memory.
    pub fn empty(config: &GptConfig, storage: Storage) -> Result<Self, DecodeError> {
        let plan = buffers::decoder(config, storage)?;
        let t = usize::try_from(config.block_size()).map_err(|_| TooLarge)?;
        let sizes = Sizes::new(config, t)?;
        let mut supply = BufferPool::default();
        let mut allocated = Vec::new();
        for &planned in plan.all() {
            allocated.push(BufferReport { planned, allocated_bytes: supply.allocate(&planned)? });
        }
        let level = Level::detect();
        let weights = Weights::take(&mut supply, config, level, sizes.c);
        let mut f32 = |tensor, layer| supply.f32(tensor, layer).expect("planned");
        let cache = |layer| Cache { kv: f32(Tensor::KvCache, Some(layer)), att: f32(Tensor::AttLast, Some(layer)) };
        let caches = (0..sizes.l).map(cache).collect();
        let acts = Activations {
            encoded: f32(Tensor::Encoded, None),
            ln: f32(Tensor::Ln1, None),
            qkv: f32(Tensor::Qkv, None),
            atty: f32(Tensor::AttyRows, None),
            fch_gelu: f32(Tensor::FchGelu, None),
        };
        let (logits, scratch) = (f32(Tensor::Logits, None), f32(Tensor::LogProbs, None));
        let tokens = supply.tokens().expect("planned");
        assert!(supply.is_empty(), "every planned buffer is used");
        Ok(Self { sizes, level, allocated, weights, caches, acts, tokens, n_tokens: 0, logits, scratch })
    }

    /// Copies a parameter into the decoder.
    ///
    /// # Errors
    /// The model lacks the parameter, the length is wrong, or a value is not finite with 16-bit integers.
    pub fn load(&mut self, tensor: Tensor, layer: Option<usize>, from: &[f32]) -> Result<(), DecodeError> {
        self.weights.load(tensor, layer, from)
    }

    /// Every buffer, planned and allocated.
    #[must_use]
    pub fn buffers(&self) -> &[BufferReport] {
        &self.allocated
    }

    /// The name of the decoder's SIMD instruction set, for reports.
    #[must_use]
    pub fn instructions(&self) -> &'static str {
        self.level.name()
    }

    /// Clears the text.
    pub fn reset(&mut self) {
        self.n_tokens = 0;
    }

    /// The number of tokens that the next one attends to: the text's last `block_size` at most.
    #[must_use]
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Appends tokens of a prompt, and returns the logits of the token after the last.
    ///
    /// If the text exceeds the context, only its last `block_size` tokens count, as in nanoGPT.
    ///
    /// # Errors
    /// A token is outside the vocabulary, in which case the state is unchanged; or the text is empty.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<&[f32], DecodeError> {
        let (t, v) = (self.sizes.t, self.sizes.v);
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= v) {
            return Err(DecodeError::NoSuchToken { token, vocab_size: v });
        }
        if self.n_tokens == 0 && tokens.is_empty() {
            return Err(DecodeError::NoTokens);
        }
        let tokens = &tokens[tokens.len().saturating_sub(t)..];
        let excess = (self.n_tokens + tokens.len()).saturating_sub(t);
        let (mut first, n) = (self.n_tokens, self.n_tokens + tokens.len() - excess);
        if excess > 0 {
            self.tokens.copy_within(excess..self.n_tokens, 0);
            first = 0;
        }
        for (to, &token) in self.tokens[n - tokens.len()..n].iter_mut().zip(tokens) {
            *to = i64::from(token);
        }
        self.n_tokens = n;
        let piece = self.acts.encoded.len() / self.sizes.c;
        while first < n {
            let end = n.min(first + piece);
            self.piece(first, end);
            first = end;
        }
        Ok(&self.logits)
    }

    /// Appends a token, and returns the logits of the next.
    ///
    /// # Errors
    /// The token is outside the vocabulary; the state is unchanged.
    pub fn step(&mut self, token: u32) -> Result<&[f32], DecodeError> {
        self.prefill(&[token])
    }

    /// Samples a token and appends it; `draw` is the number of tokens sampled for this text before.
    ///
    /// # Errors
    /// The text is empty.
    pub fn next(&mut self, sampling: &Sampling, draw: u32) -> Result<u32, DecodeError> {
        let token = self.choose(sampling, draw)?;
        self.step(token)?;
        Ok(token)
    }

    /// Samples a token without appending it, for a text's last token.
    ///
    /// # Errors
    /// The text is empty.
    pub fn choose(&mut self, sampling: &Sampling, draw: u32) -> Result<u32, DecodeError> {
        if self.n_tokens == 0 {
            return Err(DecodeError::NoTokens);
        }
        Ok(sample(&self.logits, sampling, draw, &mut self.scratch))
    }

    /// The last token's logits, (V); unspecified while the text is empty.
    #[must_use]
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// The last token's attention weights over the positions up to its own; `None` for a layer or head that does not
    /// exist.
    ///
    /// A whole attention map requires a [`Self::step`] per token of the prompt, as [`Self::prefill`] does not keep
    /// intermediate weights. The logits are bit-identical either way.
    #[must_use]
    pub fn attention(&self, layer: usize, head: usize) -> Option<&[f32]> {
        let row = self.caches.get(layer)?.att.chunks_exact(self.sizes.t).nth(head)?;
        row.get(..self.n_tokens)
    }

    /// The attention weights of a token of the cached text in all layers and heads, (L, NH, `position` + 1); `None` for a
    /// position that does not exist.
    ///
    /// The token runs again over the cache, which is bit-identical afterwards. So this takes two steps at most.
    #[must_use]
    pub fn attention_of(&mut self, position: usize) -> Option<Vec<f32>> {
        let last = self.n_tokens.checked_sub(1).filter(|&last| position <= last)?;
        if position != last {
            self.piece(position, position + 1);
        }
        let rows = self.caches.iter().flat_map(|cache| cache.att.chunks_exact(self.sizes.t));
        let weights = rows.flat_map(|row| &row[..=position]).copied().collect();
        if position != last {
            // The caches have the weights of the last token again.
            self.piece(last, last + 1);
        }
        Some(weights)
    }

    /// Writes the most likely next tokens and their probabilities to `out`, in descending order. Ties go to the smaller
    /// token id.
    pub fn likeliest(&mut self, n: usize, out: &mut Vec<(u32, f32)>) {
        out.clear();
        if self.n_tokens == 0 {
            return;
        }
        self.scratch.resize(self.logits.len(), 0.0);
        self.scratch.copy_from_slice(&self.logits);
        self.level.run(Softmax(&mut self.scratch));
        for (&p, token) in self.scratch.iter().zip(0_u32..) {
            let better = |&(_, other): &(u32, f32)| other >= p;
            if out.len() < n || out.last().is_some_and(|last| !better(last)) {
                out.insert(out.partition_point(better), (token, p));
                out.truncate(n);
            }
        }
    }

    /// Runs tokens `first..end` of the cached text through the model, at most [`PREFILL_TOKENS`].
    fn piece(&mut self, first: usize, end: usize) {
        let Sizes { t, c, nh, .. } = self.sizes;
        let Activations { encoded, ln, qkv, atty, fch_gelu } = &mut self.acts;
        let (level, n) = (self.level, end - first);
        assert!(n as u64 <= PREFILL_TOKENS && end <= t, "a piece fits its buffers and the context");
        let encoded = &mut encoded[..n * c];
        for (i, encoded) in encoded.chunks_exact_mut(c).enumerate() {
            let token = usize::try_from(self.tokens[first + i]).expect("checked on input");
            encoded.copy_from_slice(&self.weights.wpe[(first + i) * c..][..c]);
            self.weights.wte.add_row(encoded, token);
        }
        let mut work = Piece {
            level,
            heads: Heads { nh, hs: c / nh, t },
            c,
            first,
            ln: &mut ln[..n * c],
            qkv: &mut qkv[..3 * n * c],
            atty: &mut atty[..n * c],
            fch_gelu: &mut fch_gelu[..4 * n * c],
        };
        for (block, cache) in self.weights.blocks.iter().zip(&mut self.caches) {
            work.attend(encoded, block, cache);
            work.feed_forward(encoded, block);
        }
        if end == self.n_tokens {
            let ln = &mut work.ln[..c];
            self.weights.ln_f.forward(level, ln, &encoded[(n - 1) * c..]);
            self.weights.wte.forward(level, &mut self.logits, ln, false);
        }
    }
}

/// A piece of tokens that passes through the blocks.
struct Piece<'a> {
    level: Level,
    heads: Heads,
    c: usize,
    /// The position of the piece's first token.
    first: usize,
    ln: &'a mut [f32],
    qkv: &'a mut [f32],
    atty: &'a mut [f32],
    fch_gelu: &'a mut [f32],
}

impl Piece<'_> {
    fn attend(&mut self, encoded: &mut [f32], block: &Block, cache: &mut Cache) {
        let Self { level, heads, c, .. } = *self;
        block.ln_1.forward(level, self.ln, encoded);
        block.c_attn.forward(level, self.qkv, self.ln, false);
        let tokens = self.qkv.chunks_exact(3 * c).zip(self.atty.chunks_exact_mut(c));
        for (position, (qkv, out)) in (self.first..).zip(tokens) {
            heads.remember(&mut cache.kv, qkv, position);
            let (att, kv) = (&mut cache.att[..], &cache.kv[..]);
            level.run(Attention { out, att, q: &qkv[..c], kv, heads, n: position + 1 });
        }
        block.att_proj.forward(level, encoded, self.atty, true);
    }

    fn feed_forward(&mut self, encoded: &mut [f32], block: &Block) {
        let level = self.level;
        block.ln_2.forward(level, self.ln, encoded);
        block.c_fc.forward(level, self.fch_gelu, self.ln, false);
        level.run(ElementKernel(self.fch_gelu, Gelu));
        block.fc_proj.forward(level, encoded, self.fch_gelu, true);
    }
}
