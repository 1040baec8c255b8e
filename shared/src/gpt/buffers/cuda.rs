//! What the trainer on a CUDA card allocates: one arena, once, whose every buffer has its place in it.
//!
//! Weights are kept in float32 and, for the kernels, in bfloat16; gradients and AdamW's moments are float32; what is
//! computed on the way is bfloat16, with statistics in float32. What backward needs of a block's forward is kept, or
//! computed again: [`Recompute`] says how much, for each block.

mod activations;
mod moment;
mod planner;
pub mod workspace;

pub use activations::{BLOCK_TENSORS, Recompute};
pub use moment::Moment;
pub use planner::{DoesNotFit, RESERVE_BYTES, Sized, plan, plan_with, size, size_with};
pub use workspace::{Attender, Libraries, Multiplier};

use std::collections::BTreeSet;

use super::{
    Buffer, Buffers, Companion,
    pack::{Packed, Piece, aligned, pack},
};
use crate::{
    dtype::Dtype,
    gpt::{
        GptConfig,
        tensors::{Category, Dims, Role, Stored, Tensor, TensorTooLarge, parameters},
    },
};
use activations::activations;

/// Contiguous axes are a multiple of this, so that every row begins at a multiple of 16 bytes.
pub const ROW_MULTIPLE: u64 = 8;

/// Logits that are held at a time take no more than this: rows enough to keep a product busy, and little beside the rest.
const LOGITS_BYTES_MAX: u64 = 512 << 20;

/// Rows whose logits are held at a time are a multiple of this, the side of a product's tile.
const CHUNK_MULTIPLE: u64 = 128;

/// A buffer of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// What it is.
    pub buffer: Buffer,
    /// When it is needed first, and last.
    pub alive: (Moment, Moment),
    /// Where it begins.
    pub offset: u64,
}

/// The arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaTraining {
    /// All buffers, in the order in which the trainer asks for them.
    pub slots: Vec<Slot>,
    /// What it takes, to the byte.
    pub bytes: u64,
    /// What is computed again, by blocks.
    pub recompute: Vec<Recompute>,
    /// Rows whose logits are held at a time.
    pub chunk_rows: u64,
    /// Rows of the embedding with padding: what logits have columns.
    pub padded_vocab_size: u64,
    /// Who does what our kernels need not do.
    pub libraries: Libraries,
}

/// A buffer before it has a place.
type Wanted = (Buffer, Moment, Moment);

/// Puts a run's list together, and places it.
pub(super) struct List {
    buffers: Buffers,
    alive: Vec<(Moment, Moment)>,
}

impl List {
    fn add(
        &mut self,
        stored: impl Into<Stored>,
        layer: Option<u64>,
        alive: (Moment, Moment),
    ) -> Result<(), TensorTooLarge> {
        self.buffers.add(stored, layer)?;
        self.alive.push(alive);
        Ok(())
    }

    fn with_dims(self, dims: Dims) -> Self {
        Self { buffers: self.buffers.then(dims), ..self }
    }

    fn wanted(self) -> Vec<Wanted> {
        self.buffers.all().iter().zip(self.alive).map(|(&buffer, (from, to))| (buffer, from, to)).collect()
    }
}

impl CudaTraining {
    /// The arena of a run with micro-batches of `batch_size` sequences that our own kernels do all of; `recompute` has
    /// an entry for each block.
    ///
    /// # Errors
    /// A tensor is larger than any machine's memory.
    pub fn new(config: &GptConfig, batch_size: u64, recompute: Vec<Recompute>) -> Result<Self, TensorTooLarge> {
        Self::with_libraries(config, batch_size, recompute, Libraries::NONE)
    }

    /// The same, with the room that libraries need besides.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_libraries(
        config: &GptConfig,
        batch_size: u64,
        recompute: Vec<Recompute>,
        libraries: Libraries,
    ) -> Result<Self, TensorTooLarge> {
        let run = Run::of(config, batch_size, libraries);
        let list = run.with_passing(run.whole(config)?, &recompute)?;
        let (slots, bytes) = place(list.wanted());
        let Run { chunk_rows, dims, .. } = run;
        Ok(Self { slots, bytes, recompute, chunk_rows, padded_vocab_size: dims.v, libraries })
    }

    /// What is alive by categories in the moment in which most is, in their order; what the arena has besides lies between
    /// buffers, or is another moment's.
    #[must_use]
    pub fn fullest(&self) -> Vec<(Category, u64)> {
        let at = |moment: Moment| {
            let alive = |slot: &&Slot| slot.alive.0 <= moment && moment <= slot.alive.1;
            let bytes = |category| {
                let of = self.slots.iter().filter(alive).filter(|slot| slot.buffer.category() == category);
                of.map(|slot| slot.buffer.bytes).fold(0, u64::saturating_add)
            };
            Category::ALL.map(|category| (category, bytes(category)))
        };
        let sum = |bytes: &[(Category, u64)]| bytes.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        // Only where something begins can more be alive than before.
        let begins: BTreeSet<Moment> = self.slots.iter().map(|slot| slot.alive.0).collect();
        let fullest = begins.into_iter().map(at).max_by_key(|bytes| sum(bytes)).unwrap_or_else(|| at(Moment::FIRST));
        fullest.into_iter().filter(|(_, bytes)| *bytes > 0).collect()
    }
}

/// What a run's buffers are made of.
#[derive(Clone, Copy, Debug)]
struct Run {
    dims: Dims,
    chunk_rows: u64,
    drops: bool,
    /// Room of attention's backward beside its tensors.
    backward_bytes: u64,
}

impl Run {
    fn of(config: &GptConfig, batch_size: u64, libraries: Libraries) -> Self {
        let padded_vocab_size = config.vocab_size().next_multiple_of(ROW_MULTIPLE);
        let rows = batch_size.saturating_mul(config.block_size());
        let chunk_rows = chunk_rows(rows, padded_vocab_size);
        let trainer_parts = workspace::parts_elements(rows, chunk_rows, config.n_embd(), padded_vocab_size);
        let unpadded = Dims::without_card(config, batch_size);
        let Libraries { multiplier, attender } = libraries;
        let (cublas_workspace_bytes, cudnn_workspace_bytes) = (multiplier.workspace_bytes(), attender.forward_bytes());
        let padded = Dims { compute: Dtype::Bfloat16, v: padded_vocab_size, ..unpadded };
        let dims = Dims { trainer_parts, cublas_workspace_bytes, cudnn_workspace_bytes, ..padded };
        let backward_bytes = attender.backward_bytes(batch_size, config.n_head(), config.block_size());
        Self { dims, chunk_rows, drops: config.dropout() > 0.0, backward_bytes }
    }

    fn list(&self) -> List {
        List { buffers: Buffers::new(self.dims), alive: vec![] }
    }

    /// What is needed from first to last.
    fn whole(&self, config: &GptConfig) -> Result<List, TensorTooLarge> {
        let mut list = self.list();
        let whole = (Moment::FIRST, Moment::LAST);
        for parameter in parameters(config) {
            list.add(Stored { tensor: parameter.tensor, role: Role::Half }, parameter.layer, whole)?;
        }
        for role in [Companion::Itself, Companion::Gradient, Companion::ExpAvg, Companion::ExpAvgSq] {
            list.buffers.add_parameters(config, role)?;
        }
        list.alive.resize(list.buffers.all().len(), whole);
        // Inputs, and targets.
        for tensor in [Tensor::Tokens, Tensor::Tokens, Tensor::TokenOrder, Tensor::OptimizerTable, Tensor::TrainerParts]
        {
            list.add(tensor, None, whole)?;
        }
        if self.dims.cublas_workspace_bytes > 0 {
            list.add(Tensor::CublasWorkspace, None, whole)?;
        }
        // Of attention's forward, which may be computed again in backward.
        if self.dims.cudnn_workspace_bytes > 0 {
            list.add(Tensor::CudnnWorkspace, None, whole)?;
        }
        for scalar in [Tensor::Loss, Tensor::GradNorm] {
            list.add(scalar, None, whole)?;
        }
        Ok(list)
    }

    /// Besides, what as many blocks as `recompute` has levels for need for a while.
    fn with_passing(&self, mut list: List, recompute: &[Recompute]) -> Result<List, TensorTooLarge> {
        activations(&mut list, self.drops, recompute)?;
        let mut list = list.with_dims(Dims { b: 1, t: self.chunk_rows, ..self.dims });
        list.add(Tensor::Logits, None, (Moment::Head, Moment::Head))?;
        if self.backward_bytes > 0 {
            list = list.with_dims(Dims { cudnn_workspace_bytes: self.backward_bytes, ..self.dims });
            list.add(Tensor::CudnnWorkspace, None, (Moment::DAttention, Moment::DAttention))?;
        }
        Ok(list)
    }
}

/// Whether nothing of any size could share its place: it is needed in every block's forward and backward.
fn is_kept((_, from, to): &Wanted) -> bool {
    *from <= Moment::Norm1 && *to >= Moment::DNorm1
}

/// Bytes of what is kept, and of the rest, where what is never needed together may lie in one place.
fn sizes(wanted: &[Wanted]) -> (u64, Packed) {
    let passing = wanted.iter().filter(|wanted| !is_kept(wanted));
    let pieces: Vec<Piece> =
        passing.map(|(buffer, from, to)| Piece { bytes: buffer.bytes, alive: *from as u8..=*to as u8 }).collect();
    let kept = wanted.iter().filter(|wanted| is_kept(wanted));
    (kept.map(|(buffer, ..)| aligned(buffer.bytes)).fold(0, u64::saturating_add), pack(&pieces))
}

/// Places what is kept in its order, and the rest above it.
fn place(wanted: Vec<Wanted>) -> (Vec<Slot>, u64) {
    let (kept_bytes, Packed { offsets, bytes: passing_bytes }) = sizes(&wanted);
    let (mut next, mut offsets) = (0, offsets.into_iter());
    let slots = wanted.into_iter().map(|wanted| {
        let offset = if is_kept(&wanted) {
            let offset = next;
            next += aligned(wanted.0.bytes);
            offset
        } else {
            kept_bytes.saturating_add(offsets.next().unwrap_or_default())
        };
        let (buffer, from, to) = wanted;
        Slot { buffer, alive: (from, to), offset }
    });
    (slots.collect(), kept_bytes.saturating_add(passing_bytes))
}

fn chunk_rows(rows: u64, padded_vocab_size: u64) -> u64 {
    let most = LOGITS_BYTES_MAX / Dtype::Bfloat16.bytes() / padded_vocab_size.max(1);
    let most = most / CHUNK_MULTIPLE * CHUNK_MULTIPLE;
    rows.min(most.max(CHUNK_MULTIPLE))
}

#[cfg(test)]
mod tests;
