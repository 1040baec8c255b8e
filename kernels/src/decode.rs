//! Inference on the CPU, natively and in wasm: one token after the other, with the keys and values of earlier ones kept.
//!
//! [`Decoder`] allocates all it will ever need at the start, from the list that `headroom_shared::gpt::buffers::decoder`
//! plans. A prompt goes through in pieces, so that each row of a matrix is read once for several tokens; a token's
//! logits are the same to the bit however it came in. Kernels are written once, in [`crate::simd`]'s vectors, for AVX-512,
//! AVX2, simd128 and machines with none of them. [`crate::cpu`] is what they are held against.
//!
//! Absolute positions leave no cheaper way past the context than nanoGPT's own: with it full, every further token moves
//! all others by one, and the last `block_size` are computed anew.

mod attention;
pub(crate) mod int16;
mod linear;
mod math;
mod memory;
mod weights;

use headroom_shared::{
    gpt::{
        GptConfig,
        buffers::{self, Buffer, PREFILL_TOKENS},
        tensors::{Tensor, TensorTooLarge},
    },
    text::{self, Text},
};
use thiserror::Error;

use self::{
    attention::{Attention, Heads},
    math::{Each, Gelu, Softmax},
    memory::Supply,
    weights::{Block, Weights},
};
use crate::{
    cpu::gpt::Sizes,
    layout::{Layout, TooLarge},
    sampling::{Sampling, sample},
    simd::Level,
};

pub use headroom_shared::gpt::buffers::Storage;

/// Why a decoder cannot do what it was asked.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum DecodeError {
    /// A tensor is beyond any plan.
    #[error(transparent)]
    Plan(#[from] TensorTooLarge),
    /// The model is beyond this machine's addresses.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The machine refused the memory.
    OutOfMemory {
        /// Which buffer.
        tensor: String,
        /// Its bytes.
        requested_bytes: u64,
    },
    /// The model has no such parameter.
    NoSuchTensor {
        /// Its name.
        tensor: String,
    },
    /// A parameter is not of the model's shape.
    WrongLength {
        /// Its name; none for all of them in one buffer.
        tensor: Option<String>,
        /// What was given.
        elements: usize,
        /// What its shape says.
        expected: usize,
    },
    /// A matrix that has infinities or NaN cannot be kept in 16-bit integers.
    NotFinite {
        /// Its name.
        tensor: String,
    },
    /// A token has no row in the embedding.
    NoSuchToken {
        /// The token.
        token: u32,
        /// Rows of the embedding.
        vocab_size: usize,
    },
    /// There is nothing yet that a next token could follow.
    NoTokens,
}

impl DecodeError {
    /// What is wrong.
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

/// A buffer of the decoder's, as planned and as it came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// What was planned.
    pub planned: Buffer,
    /// The bytes that were allocated.
    pub allocated_bytes: u64,
}

/// What a block keeps of earlier tokens.
#[derive(Debug)]
struct Cache {
    /// (2, NH, HS * T): see [`attention`].
    kv: Vec<f32>,
    /// (NH, T): the last token's attention.
    att: Vec<f32>,
}

/// Activations of a piece of N tokens.
#[derive(Debug)]
struct Activations {
    /// The residual stream, (N, C).
    encoded: Vec<f32>,
    /// Normalised, (N, C).
    ln: Vec<f32>,
    /// (N, 3C).
    qkv: Vec<f32>,
    /// (N, C).
    atty: Vec<f32>,
    /// (N, 4C).
    fch_gelu: Vec<f32>,
}

/// Which instructions a decoder computes with on this machine, for a report.
#[must_use]
pub fn instructions() -> &'static str {
    Level::detect().name()
}

/// A model that continues a text.
#[derive(Debug)]
pub struct Decoder {
    /// `t` is the context, `block_size`.
    sizes: Sizes,
    level: Level,
    allocated: Vec<Allocated>,
    weights: Weights,
    caches: Vec<Cache>,
    acts: Activations,
    /// The text's last tokens, as many as are cached.
    tokens: Vec<i64>,
    n_tokens: usize,
    /// Of the last token.
    logits: Vec<f32>,
    /// As many elements as logits, to choose among them.
    scratch: Vec<f32>,
}

impl Decoder {
    /// A decoder of these weights.
    ///
    /// Shapes: `weights` flat as [`Layout`] has them.
    ///
    /// # Errors
    /// The model does not fit this machine, or the weights do not fit the model.
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

    /// A decoder whose weights are zeros, for [`Self::load`] to fill one by one, with no second copy of all.
    ///
    /// # Errors
    /// The model does not fit this machine.
    pub fn empty(config: &GptConfig, storage: Storage) -> Result<Self, DecodeError> {
        let plan = buffers::decoder(config, storage)?;
        let t = usize::try_from(config.block_size()).map_err(|_| TooLarge)?;
        let sizes = Sizes::new(config, t)?;
        let mut supply = Supply::default();
        let mut allocated = Vec::new();
        for &planned in plan.all() {
            allocated.push(Allocated { planned, allocated_bytes: supply.allocate(&planned)? });
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
        assert!(supply.is_empty(), "what is planned is used");
        Ok(Self { sizes, level, allocated, weights, caches, acts, tokens, n_tokens: 0, logits, scratch })
    }

    /// Copies a parameter in.
    ///
    /// # Errors
    /// The model has no such parameter, or not of that length, or 16-bit integers cannot stand for it.
    pub fn load(&mut self, tensor: Tensor, layer: Option<usize>, from: &[f32]) -> Result<(), DecodeError> {
        self.weights.load(tensor, layer, from)
    }

    /// Every buffer, as planned and as allocated.
    #[must_use]
    pub fn buffers(&self) -> &[Allocated] {
        &self.allocated
    }

    /// Which instructions it computes with, for a report.
    #[must_use]
    pub fn instructions(&self) -> &'static str {
        self.level.name()
    }

    /// Forgets the text.
    pub fn reset(&mut self) {
        self.n_tokens = 0;
    }

    /// Tokens that the next one will see: of the text's, the last `block_size` at most.
    #[must_use]
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Goes on with tokens of a prompt, and gives the logits of what follows the last.
    ///
    /// Where they leave the context, the last `block_size` of the text count, as in nanoGPT.
    ///
    /// # Errors
    /// A token is beyond the vocabulary, and nothing was done; or the text is empty.
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

    /// Goes on with a token, and gives the logits of the next.
    ///
    /// # Errors
    /// The token is beyond the vocabulary, and nothing was done.
    pub fn step(&mut self, token: u32) -> Result<&[f32], DecodeError> {
        self.prefill(&[token])
    }

    /// Chooses a token and goes on with it; `draw` counts the text's choices.
    ///
    /// # Errors
    /// The text is empty.
    pub fn next(&mut self, sampling: &Sampling, draw: u32) -> Result<u32, DecodeError> {
        let token = self.choose(sampling, draw)?;
        self.step(token)?;
        Ok(token)
    }

    /// Chooses a token, and stays where it is: for a text's last.
    ///
    /// # Errors
    /// The text is empty.
    pub fn choose(&mut self, sampling: &Sampling, draw: u32) -> Result<u32, DecodeError> {
        if self.n_tokens == 0 {
            return Err(DecodeError::NoTokens);
        }
        Ok(sample(&self.logits, sampling, draw, &mut self.scratch))
    }

    /// The last token's logits, (V); without meaning before the first.
    #[must_use]
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// How much the last token attended to each position up to its own; none where there is no such layer or head.
    ///
    /// A whole map takes a [`Self::step`] for each token of the prompt: what [`Self::prefill`] computes on the way is not
    /// kept. The logits are the same to the bit.
    #[must_use]
    pub fn attention(&self, layer: usize, head: usize) -> Option<&[f32]> {
        let row = self.caches.get(layer)?.att.chunks_exact(self.sizes.t).nth(head)?;
        row.get(..self.n_tokens)
    }

    /// The likeliest next tokens with their probabilities, the likeliest first, of equals the one of the smaller number.
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

    /// Runs the cached text's tokens `first..end` through the model, at most [`PREFILL_TOKENS`].
    fn piece(&mut self, first: usize, end: usize) {
        let Sizes { t, c, nh, .. } = self.sizes;
        let Activations { encoded, ln, qkv, atty, fch_gelu } = &mut self.acts;
        let (level, n) = (self.level, end - first);
        assert!(n as u64 <= PREFILL_TOKENS && end <= t, "a piece fits its buffers and the context");
        let encoded = &mut encoded[..n * c];
        for (i, encoded) in encoded.chunks_exact_mut(c).enumerate() {
            let token = usize::try_from(self.tokens[first + i]).expect("checked when it came in");
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

/// A piece of tokens on its way through the blocks.
struct Piece<'a> {
    level: Level,
    heads: Heads,
    c: usize,
    /// The position of its first token.
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
        level.run(Each(self.fch_gelu, Gelu));
        block.fc_proj.forward(level, encoded, self.fch_gelu, true);
    }
}
