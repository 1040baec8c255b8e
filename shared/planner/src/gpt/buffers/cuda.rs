//! Memory of the built-in trainer on a CUDA GPU: one arena, allocated once, with an offset for every buffer.
//!
//! Weights are stored in float32 and, for the kernels, in bfloat16; gradients and AdamW's moments in float32.
//! Activations are bfloat16, with statistics in float32. Activations that backward needs are saved or recomputed;
//! [`Recompute`] sets the level of each block.

mod activations;
mod moment;
mod planner;
pub mod workspace;

pub use activations::{BLOCK_TENSORS, Recompute};
pub use moment::PlanTime;
pub use planner::{ArenaSize, DoesNotFit, RESERVE_BYTES, plan, plan_with, size, size_with};
pub use workspace::{AttentionBackend, Backends, GemmBackend};

use super::{
    Buffer, Buffers, CompanionTensor,
    pack::{PackedBuffers, Piece, aligned, pack},
};
use crate::{
    dtype::Dtype,
    gpt::{
        GptConfig,
        tensors::{Category, Dims, Role, Tensor, TensorId, TensorTooLarge, parameters},
    },
};
use activations::activations;

/// Contiguous axes are a multiple of this, so that every row begins at a multiple of 16 bytes.
pub const ROW_MULTIPLE: u64 = 8;

/// Maximum bytes of logits held at a time: enough rows to keep a GEMM busy, and little compared with the other buffers.
const LOGITS_BYTES_MAX: u64 = 512 << 20;

/// The number of rows of logits held at a time is a multiple of this, the side of a GEMM tile.
const CHUNK_MULTIPLE: u64 = 128;

/// A buffer of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The buffer.
    pub buffer: Buffer,
    /// First and last moment at which the buffer is live.
    pub alive: (PlanTime, PlanTime),
    /// Offset in the arena, in bytes.
    pub offset: u64,
}

/// The arena of a training run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaTraining {
    /// All buffers, in the order in which the trainer requests them.
    pub slots: Vec<Slot>,
    /// Exact size of the arena in bytes.
    pub bytes: u64,
    /// Activation recomputation of each block.
    pub recompute: Vec<Recompute>,
    /// Rows of logits held at a time.
    pub chunk_rows: u64,
    /// Rows of the padded embedding, and columns of the logits.
    pub padded_vocab_size: u64,
    /// Libraries that the run uses besides Headroom's own kernels.
    pub libraries: Backends,
}

/// A buffer without an offset, with its first and last moment.
type BufferRequest = (Buffer, PlanTime, PlanTime);

/// Builder of a run's buffer list, which also assigns the offsets.
pub(super) struct List {
    buffers: Buffers,
    alive: Vec<(PlanTime, PlanTime)>,
}

impl List {
    fn add(
        &mut self,
        stored: impl Into<TensorId>,
        layer: Option<u64>,
        alive: (PlanTime, PlanTime),
    ) -> Result<(), TensorTooLarge> {
        self.buffers.add(stored, layer)?;
        self.alive.push(alive);
        Ok(())
    }

    fn with_dims(self, dims: Dims) -> Self {
        Self { buffers: self.buffers.then(dims), ..self }
    }

    fn wanted(self) -> Vec<BufferRequest> {
        self.buffers.all().iter().zip(self.alive).map(|(&buffer, (from, to))| (buffer, from, to)).collect()
    }
}

impl CudaTraining {
    /// The arena of a run with micro-batches of `batch_size` sequences that uses only Headroom's own kernels.
    /// `recompute` has an entry per block.
    ///
    /// # Errors
    /// [`TensorTooLarge`] if a tensor exceeds the maximum size.
    pub fn new(config: &GptConfig, batch_size: u64, recompute: Vec<Recompute>) -> Result<Self, TensorTooLarge> {
        Self::with_libraries(config, batch_size, recompute, Backends::NONE)
    }

    /// The same as [`Self::new`], with the workspace of the libraries.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_libraries(
        config: &GptConfig,
        batch_size: u64,
        recompute: Vec<Recompute>,
        libraries: Backends,
    ) -> Result<Self, TensorTooLarge> {
        let run = Run::of(config, batch_size, libraries);
        let list = run.with_passing(run.whole(config)?, &recompute)?;
        let (slots, bytes) = place(list.wanted());
        let Run { chunk_rows, dims, .. } = run;
        Ok(Self { slots, bytes, recompute, chunk_rows, padded_vocab_size: dims.v, libraries })
    }

    /// Live bytes by category, in the order of the categories, at the moment with the most live bytes. The rest of the
    /// arena is alignment or belongs to other moments.
    #[must_use]
    pub fn fullest(&self) -> Vec<(Category, u64)> {
        let at = |moment: PlanTime| {
            let alive = |slot: &&Slot| slot.alive.0 <= moment && moment <= slot.alive.1;
            let bytes = |category| {
                let of = self.slots.iter().filter(alive).filter(|slot| slot.buffer.category() == category);
                of.map(|slot| slot.buffer.bytes).fold(0, u64::saturating_add)
            };
            Category::ALL.map(|category| (category, bytes(category)))
        };
        let sum = |bytes: &[(Category, u64)]| bytes.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        // Live bytes can only reach a new maximum where a buffer begins.
        let begins = self.slots.iter().map(|slot| slot.alive.0);
        let totals = begins.map(|begin| (sum(&at(begin)), begin));
        let fullest = at(totals.max().map_or(PlanTime::FIRST, |(_, begin)| begin));
        fullest.into_iter().filter(|(_, bytes)| *bytes > 0).collect()
    }
}

/// Sizes of a run that determine its buffers.
#[derive(Clone, Copy, Debug)]
struct Run {
    dims: Dims,
    chunk_rows: u64,
    drops: bool,
    /// Workspace of attention's backward in bytes, besides its tensors.
    backward_bytes: u64,
}

impl Run {
    fn of(config: &GptConfig, batch_size: u64, libraries: Backends) -> Self {
        let padded_vocab_size = config.vocab_size().next_multiple_of(ROW_MULTIPLE);
        let rows = batch_size.saturating_mul(config.block_size());
        let chunk_rows = chunk_rows(rows, padded_vocab_size);
        let trainer_parts = workspace::parts_elements(rows, chunk_rows, config.n_embd(), padded_vocab_size);
        let unpadded = Dims::without_gpu(config, batch_size);
        let Backends { gemm_backend, attention_backend } = libraries;
        let (cublas_workspace_bytes, cudnn_workspace_bytes) =
            (gemm_backend.workspace_bytes(), attention_backend.forward_bytes());
        let padded = Dims { compute: Dtype::Bfloat16, v: padded_vocab_size, ..unpadded };
        let dims = Dims { trainer_parts, cublas_workspace_bytes, cudnn_workspace_bytes, ..padded };
        let backward_bytes = attention_backend.backward_bytes(batch_size, config.n_head(), config.block_size());
        Self { dims, chunk_rows, drops: config.dropout() > 0.0, backward_bytes }
    }

    fn list(&self) -> List {
        List { buffers: Buffers::new(self.dims), alive: vec![] }
    }

    /// Buffers that are live from the first to the last moment.
    fn whole(&self, config: &GptConfig) -> Result<List, TensorTooLarge> {
        let mut list = self.list();
        let whole = (PlanTime::FIRST, PlanTime::LAST);
        for parameter in parameters(config) {
            list.add(TensorId { tensor: parameter.tensor, role: Role::Half }, parameter.layer, whole)?;
        }
        for role in
            [CompanionTensor::Itself, CompanionTensor::Gradient, CompanionTensor::ExpAvg, CompanionTensor::ExpAvgSq]
        {
            list.buffers.add_parameters(config, role)?;
        }
        list.alive.resize(list.buffers.all().len(), whole);
        // Inputs and targets.
        for tensor in [Tensor::Tokens, Tensor::Tokens, Tensor::TokenOrder, Tensor::OptimizerTable, Tensor::TrainerParts]
        {
            list.add(tensor, None, whole)?;
        }
        if self.dims.cublas_workspace_bytes > 0 {
            list.add(Tensor::CublasWorkspace, None, whole)?;
        }
        // Attention's forward, which backward may recompute.
        if self.dims.cudnn_workspace_bytes > 0 {
            list.add(Tensor::CudnnWorkspace, None, whole)?;
        }
        for scalar in [Tensor::Loss, Tensor::GradNorm] {
            list.add(scalar, None, whole)?;
        }
        Ok(list)
    }

    /// Adds temporary buffers, for as many blocks as `recompute` has levels.
    fn with_passing(&self, mut list: List, recompute: &[Recompute]) -> Result<List, TensorTooLarge> {
        activations(&mut list, self.drops, recompute)?;
        let mut list = list.with_dims(Dims { b: 1, t: self.chunk_rows, ..self.dims });
        list.add(Tensor::Logits, None, (PlanTime::Head, PlanTime::Head))?;
        if self.backward_bytes > 0 {
            list = list.with_dims(Dims { cudnn_workspace_bytes: self.backward_bytes, ..self.dims });
            list.add(Tensor::CudnnWorkspace, None, (PlanTime::DAttention, PlanTime::DAttention))?;
        }
        Ok(list)
    }
}

/// Whether a buffer is permanent: live in every block's forward and backward, so that no large buffer can share its
/// memory.
fn is_kept((_, from, to): &BufferRequest) -> bool {
    *from <= PlanTime::Norm1 && *to >= PlanTime::DNorm1
}

/// Bytes of the permanent buffers, and the packing of the others, which may share memory if they are never live
/// together.
fn sizes(wanted: &[BufferRequest]) -> (u64, PackedBuffers) {
    let passing = wanted.iter().filter(|wanted| !is_kept(wanted));
    let pieces: Vec<Piece> =
        passing.map(|(buffer, from, to)| Piece { bytes: buffer.bytes, alive: *from as u8..=*to as u8 }).collect();
    let kept = wanted.iter().filter(|wanted| is_kept(wanted));
    (kept.map(|(buffer, ..)| aligned(buffer.bytes)).fold(0, u64::saturating_add), pack(&pieces))
}

/// Places the permanent buffers in order, and the others above them.
fn place(wanted: Vec<BufferRequest>) -> (Vec<Slot>, u64) {
    let (kept_bytes, PackedBuffers { offsets, bytes: passing_bytes }) = sizes(&wanted);
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
