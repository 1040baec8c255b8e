//! Quick checks before a simulation: whether a run stores a tensor of the requested size, and whether it may hold the
//! allocated memory at that moment.

use super::{
    Candidate, Mode, TrainerSearch,
    candidate::{Model, Shape},
    growth::{Growth, Walk, terms},
};
use crate::{gpt::tensors::BLOCK_BYTES, memory::allocator::segment_bytes, oom::words};

/// How a mode is extrapolated: layers of the two runs, and the divisor of the allocated memory within which the
/// extrapolation is near. Layers of nanochat differ: two have one value embedding.
const OF_HF: ([u64; 2], u64) = ([2, 3], 400);
const OF_NANOCHAT: ([u64; 2], u64) = ([2, 4], 100);

/// Rarest runs that are kept for a size that does not depend on the batch.
const MAX_ODDS: u32 = 1;

impl TrainerSearch {
    /// Returns whether some run of a mode may store a tensor of the requested size and hold the allocated memory, by its
    /// widths.
    pub(super) fn stores(&self, mode: Mode) -> bool {
        let Some(allocated) = self.target.message.allocated else { return false };
        let asks = self.asks();
        let Shape { layers, hidden, inner, widths } = mode.shape;
        let matrix_bytes = mode.matrix_bytes();
        let is_large_enough = |tokens: u64, length: u64| {
            let each = 4 * layers * (48 * hidden + 16 * inner + 2 * length) + 20 * widths.iter().max().unwrap_or(&0);
            matrix_bytes.saturating_mul(8).saturating_add(each.saturating_mul(tokens)) >= allocated.bytes
        };
        let is_product = |factor: u64| widths.iter().any(|width| asks(2 * width * factor) || asks(4 * width * factor));
        matrix_bytes <= allocated.bytes
            && (widths.iter().any(|width| is_product(*width))
                || mode.candidates(false).any(|candidate| {
                    let [batch, length, _] = candidate.numbers();
                    let tokens = batch * length;
                    is_large_enough(tokens, length)
                        && (is_product(tokens) || (1..=64).any(|heads| asks(heads * tokens * length * 2)))
                }))
    }

    /// Adds the runs of a mode that may hold the allocated memory when they request a tensor of the requested size.
    pub(super) fn filter(&mut self, mode: Mode) {
        let Some(allocated) = self.target.message.allocated else { return };
        let is_checkpointed = self.target.hint.checkpointing;
        let is_nanochat = matches!(mode.model, Model::Nanochat(_));
        let (few_layers, divisor) = if is_nanochat { OF_NANOCHAT } else { OF_HF };
        let near = (allocated.bytes, allocated.bytes / divisor + allocated.resolution_bytes);
        let phases = self.target.hint.phase.and_then(words::place).map(|(_, phases)| phases);
        let asks = self.asks();
        // The rank of adapters determines no large tensor.
        let batches = mode.candidates(false).step_by(mode.n_ranks());
        let batches: Vec<_> = batches.map(|candidate| terms(candidate.numbers())).collect();
        for checkpointing in [false, true] {
            if checkpointing && is_nanochat || is_checkpointed && !checkpointing && !is_nanochat {
                continue;
            }
            let probe = Candidate::probe(mode, checkpointing);
            let walks = few_layers.map(|layers| {
                let program = self.program(probe.run(Some(layers))?.with_steps(1))?;
                Walk::of(&program, |size| batches.iter().any(|terms| asks(size.bytes(terms))))
            });
            let [Some(few), Some(more)] = walks else { continue };
            let growth = Growth::of(few_layers, &few, &more);
            let may_hold = |candidate: &Candidate| {
                growth.may_hold(&terms(candidate.numbers()), mode.shape.layers, &asks, phases, near)
            };
            let found: Vec<_> = mode.candidates(checkpointing).filter(may_hold).collect();
            // A size that does not depend on the batch matches every one: only common ones are kept.
            let is_many = found.len() > batches.len() * mode.n_ranks() / 2;
            self.queue.extend(found.into_iter().filter(|candidate| !is_many || candidate.odds() <= MAX_ODDS));
        }
    }

    /// Returns a function that compares sizes with the requested one.
    fn asks(&self) -> impl Fn(u64) -> bool + use<> {
        let requested = self.target.message.requested;
        move |bytes| {
            let rounded = bytes.checked_next_multiple_of(BLOCK_BYTES);
            bytes > 0 && rounded.zip(requested).is_some_and(|(bytes, size)| size.is_printed_for(segment_bytes(bytes)))
        }
    }
}
