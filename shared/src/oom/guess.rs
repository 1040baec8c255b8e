//! Which tensors of a GPT have a size, where nothing is known of the model: the size alone, over the shapes that people
//! train.

use super::{
    Size,
    explain::{MAX_MATCHES, Match},
    words::shape,
};
use crate::{
    dtype::Dtype,
    gpt::presets::GPT2_FAMILY,
    memory::allocator::segment_bytes,
    text::{self, Text},
};

/// Vocabularies that people train with: nanoGPT's padded one, GPT-2's own, and characters.
const VOCABULARIES: [u64; 2] = [50_304, 50_257];
/// Lengths of a sequence, the usual ones first.
const BLOCK_SIZES: [u64; 6] = [1024, 512, 256, 2048, 128, 4096];
/// Widths beside GPT-2's own.
const WIDTHS: [u64; 3] = [384, 512, 576];
/// The most sequences in a batch that are thought of.
const MAX_BATCH: u64 = 512;

/// One tensor of that size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess {
    name: Text,
    shape: Vec<u64>,
    dtype: Dtype,
    /// Sequences and their length, in each way that comes to the same, where it depends on them.
    batches: Vec<(u64, u64)>,
}

impl Guess {
    pub(super) fn into_match(self) -> Match {
        Match { tensor: self.name, shape: self.shape, dtype: self.dtype, phase: None, exact: false }
    }

    pub(super) fn text(&self) -> Text {
        let tensor = text::tensor(self.name.clone(), shape(&self.shape), self.dtype.name());
        let batch = |(b, t): &(u64, u64)| text::verbatim(format!("{b} x {t}"));
        let batches = self.batches.iter().take(4).map(batch).reduce(text::or);
        match batches {
            Some(batches) => text::of_batches(tensor, batches),
            None => tensor,
        }
    }
}

/// Whether a tensor of so many bytes is asked for with that size.
fn asks_for(bytes: u64, size: Size) -> bool {
    size.is_printed_for(segment_bytes(bytes.next_multiple_of(512)))
}

/// The tensors of that size, the most plausible first.
#[must_use]
pub fn guesses(size: Size) -> Vec<Guess> {
    let mut found: Vec<(u32, Guess)> = Vec::new();
    let mut offer = |name: Text, shape: Vec<u64>, dtype: Dtype, batch: Option<(u64, u64)>| {
        let odds = odds_against(&name, batch);
        let same = |known: &Guess| known.name == name && known.dtype == dtype && known.shape == shape;
        let mut batches: Vec<(u64, u64)> = batch.into_iter().collect();
        let mut least = odds;
        if let Some(at) = found.iter().position(|(_, known)| same(known)) {
            let (known_odds, known) = found.remove(at);
            // The likelier batch first.
            batches =
                if odds < known_odds { [batches, known.batches].concat() } else { [known.batches, batches].concat() };
            least = odds.min(known_odds);
        }
        let at = found.partition_point(|(known, _)| *known <= least);
        found.insert(at, (least, Guess { name, shape, dtype, batches }));
    };
    let halves = [(Dtype::Bfloat16, 2), (Dtype::Float32, 4)];
    // The logits first: nothing else of a GPT is as large.
    for v in VOCABULARIES {
        for (dtype, element) in halves {
            for t in BLOCK_SIZES {
                if let Some(b) = batch(size, t.saturating_mul(v).saturating_mul(element)) {
                    let name = if dtype == Dtype::Float32 { text::LOGITS_OR_GRADIENT } else { text::LOGITS };
                    offer(name.into(), vec![b * t, v], dtype, Some((b, t)));
                }
            }
        }
    }
    // Attention without a fused kernel holds T x T for each head.
    for t in BLOCK_SIZES {
        for (n_head, _) in widths() {
            for (dtype, element) in halves {
                if let Some(b) = batch(size, n_head.saturating_mul(t).saturating_mul(t).saturating_mul(element)) {
                    offer(text::verbatim("att"), vec![b, n_head, t, t], dtype, Some((b, t)));
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
                    offer(name, vec![v, c], dtype, None);
                }
            }
        }
        for (name, factor) in [("mlp.c_fc.weight", 4), ("attn.c_attn.weight", 3)] {
            if asks_for(factor * c * c * 4, size) {
                offer(text::gradient_or_moment(name), vec![factor * c, c], Dtype::Float32, None);
            }
        }
        for t in BLOCK_SIZES {
            for (name, factor, dtype, element) in [
                (text::MLP_ACTIVATION.into(), 4, Dtype::Bfloat16, 2),
                (text::RESIDUAL_STREAM.into(), 1, Dtype::Float32, 4),
                (text::verbatim("qkv"), 3, Dtype::Bfloat16, 2),
            ] {
                if let Some(b) = batch(size, t * c * factor * element) {
                    offer(name, vec![b, t, factor * c], dtype, Some((b, t)));
                }
            }
        }
    }
    found.into_iter().take(MAX_MATCHES).map(|(_, guess)| guess).collect()
}

/// How much speaks against a tensor, 0 being nothing: what is large is most often the logits, and people take batches that
/// are powers of two, or at least even, of sequences as long as GPT-2's.
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

/// Heads and channels: GPT-2's, then what small cards get.
fn widths() -> impl Iterator<Item = (u64, u64)> {
    let own = GPT2_FAMILY.into_iter().map(|preset| (preset.n_head, preset.n_embd));
    own.chain(WIDTHS.into_iter().map(|c| (c / 64, c)))
}

/// The number of sequences, of so many bytes each, that make the size.
fn batch(size: Size, sequence_bytes: u64) -> Option<u64> {
    let near = size.bytes.checked_div(sequence_bytes)?;
    (near.max(1)..=near.saturating_add(1))
        .find(|b| *b <= MAX_BATCH && b.checked_mul(sequence_bytes).is_some_and(|bytes| asks_for(bytes, size)))
}
