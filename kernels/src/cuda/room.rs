//! A run's tensors on the card: each is taken from the arena in the order of the list that planned it.

use headroom_shared::gpt::{
    GptConfig,
    buffers::cuda::{BLOCK_TENSORS, CudaTraining, Libraries, Recompute, workspace},
    tensors::{Role, Stored, Tensor, parameters},
};

use super::{Bf16, CudaError, Device, Element, Slice, arena::Arena};

/// A tensor of a block: one slice where it is kept for backward, else one that all blocks' forward share and one of their
/// backward.
#[derive(Debug)]
pub(super) struct Twice<T> {
    pub forward: Slice<T>,
    pub backward: Slice<T>,
}

impl<T> Clone for Twice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Twice<T> {}

/// What a block's forward computes and its backward reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub ln1: Twice<Bf16>,
    pub ln1_mean: Twice<f32>,
    pub ln1_rstd: Twice<f32>,
    pub qkv: Twice<Bf16>,
    pub atty: Twice<Bf16>,
    pub lse: Twice<f32>,
    pub residual2: Twice<Bf16>,
    pub ln2: Twice<Bf16>,
    pub ln2_mean: Twice<f32>,
    pub ln2_rstd: Twice<f32>,
    pub fch: Twice<Bf16>,
    pub fch_gelu: Twice<Bf16>,
}

/// What only a model with dropout has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branches {
    pub attproj: Twice<Bf16>,
    pub fcproj: Slice<Bf16>,
    pub dfcproj: Slice<Bf16>,
    pub dattproj: Slice<Bf16>,
}

/// A parameter in all its forms, in the layout's order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub weight: Slice<Bf16>,
    pub master: Slice<f32>,
    pub grad: Slice<f32>,
    pub m: Slice<f32>,
    pub v: Slice<f32>,
}

/// All of them. Rows are N = B * T.
#[derive(Debug)]
pub(super) struct Room {
    pub arena: Arena,
    pub parameters: Vec<Parameter>,
    /// Every gradient, and what lies between them.
    pub grads: Slice<f32>,
    pub inputs: Slice<u32>,
    pub targets: Slice<u32>,
    pub token_order: Slice<u32>,
    pub table: Slice<u64>,
    pub parts: Slice<f32>,
    /// Of whoever multiplies matrices; empty where it needs none.
    pub workspace: Slice<u8>,
    /// Of whoever computes attention, forward and backward; likewise.
    pub attention: [Slice<u8>; 2],
    pub loss: Slice<f32>,
    pub norm: Slice<f32>,
    /// Before each block, and after the last.
    pub residuals: Vec<Slice<Bf16>>,
    pub blocks: Vec<Block>,
    pub branches: Option<Branches>,
    pub lnf: Slice<Bf16>,
    pub lnf_mean: Slice<f32>,
    pub lnf_rstd: Slice<f32>,
    pub losses: Slice<f32>,
    pub dresidual: Slice<Bf16>,
    pub datty: Slice<Bf16>,
    pub dqkv: Slice<Bf16>,
    pub datt_rows: Slice<f32>,
    /// Of a chunk of rows.
    pub logits: Slice<Bf16>,
}

impl Room {
    /// Allocates the arena and hands it out.
    ///
    /// # Errors
    /// [`CudaError::OutOfDeviceMemory`] where less is free; [`CudaError::NotPlanned`] where the list is another's.
    pub fn new(device: &Device, config: &GptConfig, plan: &CudaTraining) -> Result<Self, CudaError> {
        let mut arena = Arena::planned(device, plan)?;
        let parameters = Self::parameters(&mut arena, config)?;
        let grads = span(parameters.iter().map(|parameter| parameter.grad));
        let take = &mut arena;
        let [inputs, targets] = [take.take(Tensor::Tokens, None)?, take.take(Tensor::Tokens, None)?];
        // The list pads the vocabulary, whose rows of padding no token has.
        let token_words = workspace::token_words(inputs.len(), config.vocab_size());
        let token_order = take.take(Tensor::TokenOrder, None)?.part(0, token_words)?;
        let table = take.take(Tensor::OptimizerTable, None)?;
        let parts = take.take(Tensor::TrainerParts, None)?;
        let Libraries { multiplier, attender } = plan.libraries;
        let workspace = room_of(take, Tensor::CublasWorkspace, multiplier.workspace_bytes())?;
        let forward = room_of(take, Tensor::CudnnWorkspace, attender.forward_bytes())?;
        let [loss, norm] = [take.take(Tensor::Loss, None)?, take.take(Tensor::GradNorm, None)?];
        let residual = |layer| take.take(half(Tensor::Residual), Some(layer));
        let residuals = (0..=config.n_layer()).map(residual).collect::<Result<_, _>>()?;
        let blocks = Self::blocks(&mut arena, &plan.recompute)?;
        let batch_size = inputs.len() / config.block_size().max(1);
        let backward_bytes = attender.backward_bytes(batch_size, config.n_head(), config.block_size());
        let branches = if config.dropout() > 0.0 { Some(Branches::take(&mut arena)?) } else { None };
        Ok(Self {
            parameters,
            grads,
            inputs,
            targets,
            token_order,
            table,
            parts,
            workspace,
            loss,
            norm,
            residuals,
            blocks,
            branches,
            lnf: arena.take(half(Tensor::Lnf), None)?,
            lnf_mean: arena.take(Tensor::LnfMean, None)?,
            lnf_rstd: arena.take(Tensor::LnfRstd, None)?,
            losses: arena.take(Tensor::FusedLosses, None)?,
            dresidual: arena.take(half(Tensor::Dresidual), None)?,
            datty: arena.take(Tensor::Datty, None)?,
            dqkv: arena.take(Tensor::Dqkv, None)?,
            datt_rows: arena.take(Tensor::AttSum, None)?,
            logits: arena.take(Tensor::Logits, None)?,
            attention: [forward, room_of(&mut arena, Tensor::CudnnWorkspace, backward_bytes)?],
            arena,
        })
    }

    fn parameters(arena: &mut Arena, config: &GptConfig) -> Result<Vec<Parameter>, CudaError> {
        let list = parameters(config);
        let weights: Vec<_> =
            list.iter().map(|p| arena.take(half(p.tensor), p.layer)).collect::<Result<_, CudaError>>()?;
        let mut floats = |stored: fn(&headroom_shared::gpt::tensors::Parameter) -> Stored| {
            list.iter().map(|p| arena.take(stored(p), p.layer)).collect::<Result<Vec<Slice<f32>>, CudaError>>()
        };
        let masters = floats(|p| p.tensor.into())?;
        let grads = floats(|p| p.gradient.into())?;
        let ms = floats(|p| Stored { tensor: p.tensor, role: Role::ExpAvg })?;
        let vs = floats(|p| Stored { tensor: p.tensor, role: Role::ExpAvgSq })?;
        let all = weights.into_iter().zip(masters).zip(grads).zip(ms).zip(vs);
        Ok(all.map(|((((weight, master), grad), m), v)| Parameter { weight, master, grad, m, v }).collect())
    }

    fn blocks(arena: &mut Arena, recompute: &[Recompute]) -> Result<Vec<Block>, CudaError> {
        // In the order of `BLOCK_TENSORS`.
        let ln1 = twice::<Bf16>(arena, 0, recompute)?;
        let [ln1_mean, ln1_rstd] = [twice::<f32>(arena, 1, recompute)?, twice(arena, 2, recompute)?];
        let [qkv, atty] = [twice::<Bf16>(arena, 3, recompute)?, twice(arena, 4, recompute)?];
        let lse = twice::<f32>(arena, 5, recompute)?;
        let [residual2, ln2] = [twice::<Bf16>(arena, 6, recompute)?, twice(arena, 7, recompute)?];
        let [ln2_mean, ln2_rstd] = [twice::<f32>(arena, 8, recompute)?, twice(arena, 9, recompute)?];
        let [fch, fch_gelu] = [twice::<Bf16>(arena, 10, recompute)?, twice(arena, 11, recompute)?];
        let block = |i: usize| Block {
            ln1: ln1[i],
            ln1_mean: ln1_mean[i],
            ln1_rstd: ln1_rstd[i],
            qkv: qkv[i],
            atty: atty[i],
            lse: lse[i],
            residual2: residual2[i],
            ln2: ln2[i],
            ln2_mean: ln2_mean[i],
            ln2_rstd: ln2_rstd[i],
            fch: fch[i],
            fch_gelu: fch_gelu[i],
        };
        Ok((0..recompute.len()).map(block).collect())
    }
}

impl Branches {
    fn take(arena: &mut Arena) -> Result<Self, CudaError> {
        let [forward, backward] = [arena.take(Tensor::Attproj, None)?, arena.take(Tensor::Attproj, None)?];
        let fcproj = arena.take(Tensor::Fcproj, None)?;
        let [dfcproj, dattproj] = [arena.take(Tensor::Ddropped, None)?, arena.take(Tensor::Ddropped, None)?];
        Ok(Self { attproj: Twice { forward, backward }, fcproj, dfcproj, dattproj })
    }
}

/// A library's room; empty where it has none.
fn room_of(arena: &mut Arena, tensor: Tensor, bytes: u64) -> Result<Slice<u8>, CudaError> {
    if bytes > 0 { arena.take(tensor, None) } else { Ok(Slice::new(0, 0)) }
}

const fn half(tensor: Tensor) -> Stored {
    Stored { tensor, role: Role::Half }
}

/// From the first one's beginning to the last one's end.
fn span(slices: impl Iterator<Item = Slice<f32>> + Clone) -> Slice<f32> {
    let start = slices.clone().map(Slice::address).min().unwrap_or_default();
    let end = slices.map(|slice| slice.address() + slice.bytes()).max().unwrap_or_default();
    Slice::new(start, (end - start) / size_of::<f32>() as u64)
}

/// A tensor of [`BLOCK_TENSORS`] for every block: those that keep it take one each, then the others share two.
fn twice<T: Element>(arena: &mut Arena, index: usize, recompute: &[Recompute]) -> Result<Vec<Twice<T>>, CudaError> {
    let tensor = &BLOCK_TENSORS[index];
    let mut kept = Vec::with_capacity(recompute.len());
    for (layer, &level) in (0_u64..).zip(recompute) {
        let is_kept = level < tensor.again_from;
        kept.push(if is_kept { Some(arena.take(tensor.stored, Some(layer))?) } else { None });
    }
    let shared = if kept.iter().any(Option::is_none) {
        let forward = arena.take(tensor.stored, None)?;
        Some(Twice { forward, backward: arena.take(tensor.stored, None)? })
    } else {
        None
    };
    let of = |kept: Option<Slice<T>>| kept.map(|slice| Twice { forward: slice, backward: slice }).or(shared);
    Ok(kept.into_iter().filter_map(of).collect())
}
