//! A transformer block: `x + attn(ln_1(x))`, then `x + mlp(ln_2(x))`.

use super::{
    super::{context::Run, program::Slot},
    Norm, SavePolicy, attention,
};
use crate::gpt::tensors::Tensor;

/// Tensors that a block's forward saves for its backward.
pub(super) struct SavedBlock {
    pub(super) ln1: SavedNorm,
    pub(super) qkv_linear: SavedLinear,
    pub(super) attention: attention::SavedAttention,
    pub(super) att_proj_linear: SavedLinear,
    pub(super) attproj_mask: Option<Slot>,
    pub(super) residual2: Slot,
    pub(super) ln2: SavedNorm,
    pub(super) fc_linear: SavedLinear,
    pub(super) fch: Slot,
    pub(super) fch_gelu: Slot,
    pub(super) fc_proj_linear: SavedLinear,
    pub(super) fcproj_mask: Option<Slot>,
}

/// A layer norm's statistics.
pub(super) struct SavedNorm {
    pub(super) mean: Slot,
    pub(super) rstd: Slot,
}

/// Saved tensors of a linear layer that it owns: its weight's cast and its input.
#[derive(Clone, Copy, Default)]
pub(super) struct SavedLinear {
    pub(super) weight_cast: Option<Slot>,
    pub(super) input: Option<Slot>,
}

/// Autocast's copies of the weights of one forward.
#[derive(Default)]
pub(super) struct CastCache {
    /// In order of creation, together with `biases`, which autograd does not save.
    block_weights: Vec<Slot>,
    biases: Vec<Slot>,
    lm_head: Option<Slot>,
}

impl CastCache {
    /// Copies that autocast releases at the end of its context: all that autograd does not save.
    ///
    /// The cache is an unordered map of pointers, so the order in a real run is arbitrary.
    pub(super) fn released(self, trains: bool, checkpoints: bool) -> Vec<Slot> {
        let mut released = self.biases;
        if !trains || checkpoints {
            released.extend(self.block_weights);
        }
        if !trains {
            released.extend(self.lm_head);
        }
        released
    }

    pub(super) fn lm_head(&mut self, run: &mut Run<'_>) -> Option<Slot> {
        let cast = run.train.is_half().then(|| run.w.alloc(Tensor::WteCast, None));
        self.lm_head = cast;
        cast
    }
}

/// Owner of the cast copies of a block's weights.
pub(super) enum CastOwner<'a> {
    /// The forward's cache, up to the end of autocast.
    Cache(&'a mut CastCache),
    /// A recomputed block: the biases are freed at its end.
    Recomputed(Vec<Slot>),
}

impl CastOwner<'_> {
    fn weight(&mut self, run: &mut Run<'_>, layer: u64, tensor: Tensor) -> Option<Slot> {
        let slot = run.train.is_half().then(|| run.w.alloc(tensor, Some(layer)))?;
        if let Self::Cache(cache) = self {
            cache.block_weights.push(slot);
        }
        Some(slot)
    }

    fn bias(&mut self, run: &mut Run<'_>, layer: u64, tensor: Tensor) {
        if run.train.is_half() && run.config.bias() {
            let slot = run.w.alloc(tensor, Some(layer));
            match self {
                Self::Cache(cache) => cache.biases.push(slot),
                Self::Recomputed(biases) => biases.push(slot),
            }
        }
    }
}

/// Extent of a block's computation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// Recomputation ends with the last tensor that backward needs.
    UntilLastSaved,
}

/// A block's forward inside the model's forward: returns its output and the saved tensors.
pub(super) fn forward(
    run: &mut Run<'_>,
    layer: u64,
    x: Slot,
    trains: bool,
    saves: SavePolicy,
    cache: &mut CastCache,
) -> (Slot, Option<SavedBlock>) {
    let mut casts = CastOwner::Cache(cache);
    let (out, saved) = compute(run, layer, trains, saves, &mut casts, Extent::Whole);
    (out.unwrap_or(x), saved)
}

/// Recomputation of a checkpointed block, at the first tensor that its backward needs.
pub(super) fn recompute(run: &mut Run<'_>, layer: u64) -> Option<SavedBlock> {
    let mut casts = CastOwner::Recomputed(Vec::new());
    let (_, saved) = compute(run, layer, true, SavePolicy::All, &mut casts, Extent::UntilLastSaved);
    if let CastOwner::Recomputed(biases) = casts {
        run.w.free_all(biases);
    }
    saved
}

fn norm(run: &mut Run<'_>, layer: u64, saves: SavePolicy, rows: [Tensor; 3]) -> Norm {
    let [out, mean, rstd] = rows.map(|row| run.w.alloc(row, Some(layer)));
    if saves == SavePolicy::Nothing {
        run.w.free_all([mean, rstd]);
    }
    Norm { out, mean, rstd }
}

/// Dropout of a branch's output, which is freed: returns the result, and the mask if autograd saves it.
fn dropout(run: &mut Run<'_>, layer: u64, saves: SavePolicy, input: Slot, rows: [Tensor; 2]) -> (Slot, Option<Slot>) {
    let [dropped, mask] = rows.map(|row| run.w.alloc(row, Some(layer)));
    run.w.free(input);
    if saves == SavePolicy::All {
        return (dropped, Some(mask));
    }
    run.w.free(mask);
    (dropped, None)
}

fn compute(
    run: &mut Run<'_>,
    layer: u64,
    trains: bool,
    saves: SavePolicy,
    casts: &mut CastOwner<'_>,
    extent: Extent,
) -> (Option<Slot>, Option<SavedBlock>) {
    let half = run.train.is_half();
    let keeps = saves == SavePolicy::All;
    let drops = run.drops() && trains;
    let at = Some(layer);

    let ln1 = norm(run, layer, saves, [Tensor::Ln1, Tensor::Ln1Mean, Tensor::Ln1Rstd]);
    casts.bias(run, layer, Tensor::QkvBCast);
    let qkv_weight = casts.weight(run, layer, Tensor::QkvWCast);
    let ln1_cast = half.then(|| run.w.alloc(Tensor::Ln1Cast, at));
    let qkv = run.w.alloc(Tensor::Qkv, at);
    // The autograd thread recomputes.
    run.cublaslt_workspace(extent == Extent::UntilLastSaved);
    run.cublas_workspace(false);
    if !keeps {
        run.w.free_some(ln1_cast);
    }
    let attended = attention::forward(run, layer, qkv, trains, saves);
    casts.bias(run, layer, Tensor::AttProjBCast);
    let att_proj_weight = casts.weight(run, layer, Tensor::AttProjWCast);
    let mut attproj = run.w.alloc(Tensor::Attproj, at);
    let mut attproj_mask = None;
    if drops {
        (attproj, attproj_mask) = dropout(run, layer, saves, attproj, [Tensor::AttprojDropped, Tensor::AttprojMask]);
    }
    // attn returns: y, q, k, v and its argument are freed unless autograd saves them.
    run.w.free_all(attended.dead.iter().copied());
    if !keeps || half {
        run.w.free(ln1.out);
    }
    let residual2 = run.w.alloc(Tensor::Residual2, at);
    run.w.free(attproj);

    let ln2 = norm(run, layer, saves, [Tensor::Ln2, Tensor::Ln2Mean, Tensor::Ln2Rstd]);
    casts.bias(run, layer, Tensor::FcBCast);
    let fc_weight = casts.weight(run, layer, Tensor::FcWCast);
    let ln2_cast = half.then(|| run.w.alloc(Tensor::Ln2Cast, at));
    let fch = run.w.alloc(Tensor::Fch, at);
    if !keeps {
        run.w.free_some(ln2_cast);
    }
    let fch_gelu = run.w.alloc(Tensor::FchGelu, at);
    if !keeps {
        run.w.free(fch);
    }
    casts.bias(run, layer, Tensor::FcProjBCast);
    let fc_proj_weight = casts.weight(run, layer, Tensor::FcProjWCast);
    let mut out = None;
    let mut fcproj_mask = None;
    if extent == Extent::Whole || drops {
        let mut fcproj = run.w.alloc(Tensor::Fcproj, at);
        if !keeps {
            run.w.free(fch_gelu);
        }
        if drops {
            (fcproj, fcproj_mask) = dropout(run, layer, saves, fcproj, [Tensor::FcprojDropped, Tensor::FcprojMask]);
        }
        if !keeps || half {
            run.w.free(ln2.out);
        }
        if extent == Extent::Whole {
            out = Some(run.w.alloc(Tensor::Residual3, at));
        }
        run.w.free(fcproj);
    } else if half {
        run.w.free(ln2.out);
    }
    if !keeps {
        run.w.free(residual2);
        return (out, None);
    }
    let saved = SavedBlock {
        ln1: SavedNorm { mean: ln1.mean, rstd: ln1.rstd },
        qkv_linear: SavedLinear { weight_cast: qkv_weight, input: Some(ln1_cast.unwrap_or(ln1.out)) },
        attention: attended.saved,
        att_proj_linear: SavedLinear { weight_cast: att_proj_weight, input: attended.output },
        attproj_mask,
        residual2,
        ln2: SavedNorm { mean: ln2.mean, rstd: ln2.rstd },
        fc_linear: SavedLinear { weight_cast: fc_weight, input: Some(ln2_cast.unwrap_or(ln2.out)) },
        fch,
        fch_gelu,
        fc_proj_linear: SavedLinear { weight_cast: fc_proj_weight, input: None },
        fcproj_mask,
    };
    (out, Some(saved))
}
