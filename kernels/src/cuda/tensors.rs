//! A run's tensors on the GPU, taken from the arena in the order of the plan.

use headroom_planner::gpt::{
    GptConfig,
    buffers::cuda::{BLOCK_TENSORS, Backends, CudaTraining, Recompute, workspace},
    tensors::{Role, Tensor, TensorId, parameters},
};

use super::{Bf16, CudaError, Device, Element, Slice, arena::Arena};

/// A block's tensor. If saved for backward, both slices are the same; otherwise one is shared by all blocks' forward,
/// and one by their backward.
#[derive(Debug)]
pub(super) struct ForwardBackward<T> {
    pub forward: Slice<T>,
    pub backward: Slice<T>,
}

impl<T> Clone for ForwardBackward<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ForwardBackward<T> {}

/// Activations of a block: computed by forward, read by backward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub ln1: ForwardBackward<Bf16>,
    pub ln1_mean: ForwardBackward<f32>,
    pub ln1_rstd: ForwardBackward<f32>,
    pub qkv: ForwardBackward<Bf16>,
    pub atty: ForwardBackward<Bf16>,
    pub lse: ForwardBackward<f32>,
    pub residual2: ForwardBackward<Bf16>,
    pub ln2: ForwardBackward<Bf16>,
    pub ln2_mean: ForwardBackward<f32>,
    pub ln2_rstd: ForwardBackward<f32>,
    pub fch: ForwardBackward<Bf16>,
    pub fch_gelu: ForwardBackward<Bf16>,
}

/// Tensors of a model with dropout.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branches {
    pub attproj: ForwardBackward<Bf16>,
    pub fcproj: Slice<Bf16>,
    pub dfcproj: Slice<Bf16>,
    pub dattproj: Slice<Bf16>,
}

/// A parameter's tensors, in the layout's order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub weight: Slice<Bf16>,
    pub master: Slice<f32>,
    pub grad: Slice<f32>,
    pub m: Slice<f32>,
    pub v: Slice<f32>,
}

/// All tensors of a run. A tensor's rows are N = B * T.
#[derive(Debug)]
pub(super) struct RunTensors {
    pub arena: Arena,
    pub parameters: Vec<Parameter>,
    /// All gradients, including the gaps between them.
    pub grads: Slice<f32>,
    pub inputs: Slice<u32>,
    pub targets: Slice<u32>,
    pub token_order: Slice<u32>,
    pub table: Slice<u64>,
    pub parts: Slice<f32>,
    /// Workspace of the GEMM backend; empty if it needs none.
    pub workspace: Slice<u8>,
    /// Workspaces of the attention backend, forward and backward; empty if it needs none.
    pub attention: [Slice<u8>; 2],
    pub loss: Slice<f32>,
    pub norm: Slice<f32>,
    /// Residual stream before each block and after the last.
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
    /// Logits of one chunk of rows.
    pub logits: Slice<Bf16>,
}

impl RunTensors {
    /// Allocates the arena and takes every tensor from it.
    ///
    /// # Errors
    /// [`CudaError::OutOfDeviceMemory`] if less is free; [`CudaError::NotPlanned`] if the plan is for another model.
    pub fn new(device: &Device, config: &GptConfig, plan: &CudaTraining) -> Result<Self, CudaError> {
        let mut arena = Arena::planned(device, plan)?;
        let parameters = Self::parameters(&mut arena, config)?;
        let grads = span(parameters.iter().map(|parameter| parameter.grad));
        let take = &mut arena;
        let [inputs, targets] = [take.take(Tensor::Tokens, None)?, take.take(Tensor::Tokens, None)?];
        // The list pads the vocabulary with rows that no token uses.
        let token_words = workspace::token_words(inputs.len(), config.vocab_size());
        let token_order = take.take(Tensor::TokenOrder, None)?.part(0, token_words)?;
        let table = take.take(Tensor::OptimizerTable, None)?;
        let parts = take.take(Tensor::TrainerParts, None)?;
        let Backends { gemm_backend, attention_backend } = plan.libraries;
        let workspace = room_of(take, Tensor::CublasWorkspace, gemm_backend.workspace_bytes())?;
        let forward = room_of(take, Tensor::CudnnWorkspace, attention_backend.forward_bytes())?;
        let [loss, norm] = [take.take(Tensor::Loss, None)?, take.take(Tensor::GradNorm, None)?];
        let residual = |layer| take.take(half(Tensor::Residual), Some(layer));
        let residuals = (0..=config.n_layer()).map(residual).collect::<Result<_, _>>()?;
        let blocks = Self::blocks(&mut arena, &plan.recompute)?;
        let batch_size = inputs.len() / config.block_size().max(1);
        let backward_bytes = attention_backend.backward_bytes(batch_size, config.n_head(), config.block_size());
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
        let mut floats = |stored: fn(&headroom_planner::gpt::tensors::Parameter) -> TensorId| {
            list.iter().map(|p| arena.take(stored(p), p.layer)).collect::<Result<Vec<Slice<f32>>, CudaError>>()
        };
        let masters = floats(|p| p.tensor.into())?;
        let grads = floats(|p| p.gradient.into())?;
        let ms = floats(|p| TensorId { tensor: p.tensor, role: Role::ExpAvg })?;
        let vs = floats(|p| TensorId { tensor: p.tensor, role: Role::ExpAvgSq })?;
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
        Ok(Self { attproj: ForwardBackward { forward, backward }, fcproj, dfcproj, dattproj })
    }
}

/// Takes a library's workspace; empty if it needs none.
fn room_of(arena: &mut Arena, tensor: Tensor, bytes: u64) -> Result<Slice<u8>, CudaError> {
    if bytes > 0 { arena.take(tensor, None) } else { Ok(Slice::new(0, 0)) }
}

const fn half(tensor: Tensor) -> TensorId {
    TensorId { tensor, role: Role::Half }
}

/// The range from the start of the first slice to the end of the last.
fn span(slices: impl Iterator<Item = Slice<f32>> + Clone) -> Slice<f32> {
    let start = slices.clone().map(Slice::address).min().unwrap_or_default();
    let end = slices.map(|slice| slice.address() + slice.bytes()).max().unwrap_or_default();
    Slice::new(start, (end - start) / size_of::<f32>() as u64)
}

/// Takes a tensor of [`BLOCK_TENSORS`] for every block: one slice for each block that saves it, and two that the others
/// share.
fn twice<T: Element>(
    arena: &mut Arena,
    index: usize,
    recompute: &[Recompute],
) -> Result<Vec<ForwardBackward<T>>, CudaError> {
    let tensor = &BLOCK_TENSORS[index];
    let mut kept = Vec::with_capacity(recompute.len());
    for (layer, &level) in (0_u64..).zip(recompute) {
        let is_kept = level < tensor.again_from;
        kept.push(if is_kept { Some(arena.take(tensor.stored, Some(layer))?) } else { None });
    }
    let shared = if kept.iter().any(Option::is_none) {
        let forward = arena.take(tensor.stored, None)?;
        Some(ForwardBackward { forward, backward: arena.take(tensor.stored, None)? })
    } else {
        None
    };
    let of = |kept: Option<Slice<T>>| kept.map(|slice| ForwardBackward { forward: slice, backward: slice }).or(shared);
    Ok(kept.into_iter().filter_map(of).collect())
}
