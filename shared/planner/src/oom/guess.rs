//! Guesses which tensor of a GPT has a given size when the model is unknown, from the shapes that people train.

use super::{
    Size,
    explanation::{MAX_MATCHES, Match, MatchingRun, shape},
};
use crate::{dtype::Dtype, gpt::presets::GPT2_FAMILY, memory::allocator::segment_bytes};
use headroom_text::{self as text, Text, units::MIB};

/// Common vocabulary sizes: nanoGPT's padded one and GPT-2's own.
const VOCABULARIES: [u64; 2] = [50_304, 50_257];
/// Common sequence lengths, most common first.
const BLOCK_SIZES: [u64; 6] = [1024, 512, 256, 2048, 128, 4096];
/// Embedding dimensions besides GPT-2's.
const WIDTHS: [u64; 3] = [384, 512, 576];
/// Maximum batch size considered.
const MAX_BATCH: u64 = 512;

/// A tensor of the given size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorGuess {
    name: Text,
    shape: Vec<u64>,
    dtype: Dtype,
    /// Possible pairs of batch size and sequence length, if the tensor depends on them.
    batches: Vec<(u64, u64)>,
    /// Embedding dimension, if the tensor depends on it.
    n_embd: Option<u64>,
}

/// Maximum number of batches offered per tensor.
const MAX_BATCHES: usize = 4;

impl TensorGuess {
    pub(super) fn into_match(self) -> Match {
        let n_embd = self.n_embd;
        let mut runs: Vec<_> =
            self.batches.iter().take(MAX_BATCHES).map(|batch| MatchingRun { batch: Some(*batch), n_embd }).collect();
        if runs.is_empty() && n_embd.is_some() {
            runs.push(MatchingRun { batch: None, n_embd });
        }
        Match { tensor: self.name, shape: self.shape, dtype: self.dtype, phase: None, exact: false, runs }
    }

    pub(super) fn text(&self) -> Text {
        let tensor = text::tensor(self.name.clone(), shape(&self.shape), self.dtype.name());
        let batch = |(b, t): &(u64, u64)| text::verbatim(format!("{b} x {t}"));
        let batches = self.batches.iter().take(MAX_BATCHES).map(batch).reduce(text::or);
        match batches {
            Some(batches) => text::of_batches(tensor, batches),
            None => tensor,
        }
    }
}

/// Size below which all tensors lead to requests of the same size, in bytes.
const MIN_OWN_SEGMENT_BYTES: u64 = 10 * MIB;

/// Returns whether a tensor of `bytes` leads to a request of its own size that prints as `size`.
fn asks_for(bytes: u64, size: Size) -> bool {
    bytes >= MIN_OWN_SEGMENT_BYTES && size.is_printed_for(segment_bytes(bytes.next_multiple_of(512)))
}

/// Returns tensors of the given size, most plausible first.
#[must_use]
pub fn guesses(size: Size) -> Vec<TensorGuess> {
    let mut found: Vec<(u32, TensorGuess)> = Vec::new();
    let mut offer = |name: Text, shape: Vec<u64>, dtype: Dtype, batch: Option<(u64, u64)>, n_embd: Option<u64>| {
        let odds = odds_against(&name, batch);
        let same = |known: &TensorGuess| known.name == name && known.dtype == dtype && known.shape == shape;
        let mut batches: Vec<(u64, u64)> = batch.into_iter().collect();
        let mut least = odds;
        if let Some(at) = found.iter().position(|(_, known)| same(known)) {
            let (known_odds, known) = found.remove(at);
            // More plausible batch first.
            batches =
                if odds < known_odds { [batches, known.batches].concat() } else { [known.batches, batches].concat() };
            least = odds.min(known_odds);
        }
        let at = found.partition_point(|(known, _)| *known <= least);
        found.insert(at, (least, TensorGuess { name, shape, dtype, batches, n_embd }));
    };
    let halves = [(Dtype::Bfloat16, 2), (Dtype::Float32, 4)];
    // Logits first: they are the largest tensor of a GPT.
    for v in VOCABULARIES {
        for (dtype, element) in halves {
            for t in BLOCK_SIZES {
                if let Some(b) = batch(size, t.saturating_mul(v).saturating_mul(element)) {
                    let name = if dtype == Dtype::Float32 { text::LOGITS_OR_GRADIENT } else { text::LOGITS };
                    offer(name.into(), vec![b * t, v], dtype, Some((b, t)), None);
                }
            }
        }
    }
    // Attention without a fused kernel stores a T × T matrix per head.
    for t in BLOCK_SIZES {
        for (n_head, c) in widths() {
            for (dtype, element) in halves {
                if let Some(b) = batch(size, n_head.saturating_mul(t).saturating_mul(t).saturating_mul(element)) {
                    offer(text::verbatim("att"), vec![b, n_head, t, t], dtype, Some((b, t)), Some(c));
                }
            }
        }
    }
    for (_, c) in widths() {
        for v in VOCABULARIES {
            for (name, dtype, element) in [
                (text::gradient_or_moment("transformer.wte.weight"), Dtype::Float32, 4),
                (text::half_precision("lm_head.weight"), Dtype::Bfloat16, 2),
            ] {
                if asks_for(v * c * element, size) {
                    offer(name, vec![v, c], dtype, None, Some(c));
                }
            }
        }
        for (name, factor) in [("mlp.c_fc.weight", 4), ("attn.c_attn.weight", 3)] {
            if asks_for(factor * c * c * 4, size) {
                offer(text::gradient_or_moment(name), vec![factor * c, c], Dtype::Float32, None, Some(c));
            }
        }
        for t in BLOCK_SIZES {
            for (name, factor, dtype, element) in [
                (text::MLP_ACTIVATION.into(), 4, Dtype::Bfloat16, 2),
                (text::RESIDUAL_STREAM.into(), 1, Dtype::Float32, 4),
                (text::verbatim("qkv"), 3, Dtype::Bfloat16, 2),
            ] {
                if let Some(b) = batch(size, t * c * factor * element) {
                    offer(name, vec![b, t, factor * c], dtype, Some((b, t)), Some(c));
                }
            }
        }
    }
    found.into_iter().take(MAX_MATCHES).map(|(_, guess)| guess).collect()
}

/// Returns a penalty for a tensor; 0 is the most plausible. Logits are most likely. Batches are usually powers of two
/// or at least multiples of 4, and sequences have GPT-2's length.
fn odds_against(name: &Text, batch: Option<(u64, u64)>) -> u32 {
    let is_logits = *name == text::LOGITS.into() || *name == text::LOGITS_OR_GRADIENT.into();
    let kind = if is_logits { 0 } else { 3 };
    let Some((b, t)) = batch else { return kind };
    let of_batch = match b {
        _ if b > 128 => 6,
        _ if b.is_power_of_two() => 0,
        _ if b.is_multiple_of(4) => 2,
        _ => 5,
    };
    kind + of_batch + if t == 1024 { 0 } else { 1 }
}

/// Returns pairs of head count and embedding dimension: GPT-2's first, then those common on small GPUs.
fn widths() -> impl Iterator<Item = (u64, u64)> {
    let own = GPT2_FAMILY.into_iter().map(|preset| (preset.n_head, preset.n_embd));
    own.chain(WIDTHS.into_iter().map(|c| (c / 64, c)))
}

/// Returns the number of sequences of `sequence_bytes` each that give the size.
fn batch(size: Size, sequence_bytes: u64) -> Option<u64> {
    let near = size.bytes.checked_div(sequence_bytes)?;
    (near.max(1)..=near.saturating_add(1))
        .find(|b| *b <= MAX_BATCH && b.checked_mul(sequence_bytes).is_some_and(|bytes| asks_for(bytes, size)))
}
