//! The evaluation forward: nothing is saved, and nearly every buffer reuses a dead one.

use super::{
    BufferUse, Graphs, attention,
    forward::release_names,
    loss,
    residual::Residual,
    wrapper::{Buf, Graph, PlannedGraph},
};
use crate::{
    gpt::tensors::Tensor,
    memory::{
        context::{Name, Run},
        program::Batch,
    },
};

/// Writes the forward of a batch; `has_logits` if a variable still holds an earlier batch's logits.
pub(super) fn forward(run: &mut Run<'_>, graphs: &mut Graphs, has_logits: bool) {
    let planned = graphs.eval.take().unwrap_or_else(|| graph(run));
    let _ = planned.write(run, false);
    graphs.eval = Some(planned);
    release_names(run, has_logits, Name::EvalLogits, Name::EvalLoss);
}

fn graph(run: &Run<'_>) -> PlannedGraph {
    let mut graph = Graph::new();
    let g = &mut graph;
    let mut ln1_out = g.planned(Tensor::Ln1Out, Some(0));
    g.kernel(&[ln1_out], &[]);
    // Every norm gathers the embedding again: indices and two tables.
    let mut residual = Residual::starting(Vec::new(), 3);
    for layer in 0..run.config.n_layer() {
        let at = Some(layer);
        let qkv = linear(run, g, at, ln1_out, [Tensor::QkvWCast, Tensor::QkvBCast, Tensor::Qkv]);
        let attended = attention::forward(run, g, layer, qkv, BufferUse::Nothing);
        let attproj = linear(run, g, at, attended.out.1, [Tensor::AttProjWCast, Tensor::AttProjBCast, Tensor::Attproj]);
        residual.add(attproj, None);
        let ln2_out = norm(g, at, Tensor::Ln2Out, &mut residual);
        let fch = linear(run, g, at, ln2_out, [Tensor::FcWCast, Tensor::FcBCast, Tensor::Fch]);
        let fch_gelu = g.planned(Tensor::FchGelu, at);
        g.kernel(&[fch_gelu], &[fch]).in_place(fch_gelu, &[fch]);
        let fcproj = linear(run, g, at, fch_gelu, [Tensor::FcProjWCast, Tensor::FcProjBCast, Tensor::Fcproj]);
        residual.add(fcproj, None);
        let is_last = layer + 1 == run.config.n_layer();
        ln1_out = norm(g, at, if is_last { Tensor::LnfOut } else { Tensor::Ln1Out }, &mut residual);
    }
    let weight = cast(run, g, None, Tensor::WteCast);
    loss::inference(run, g, ln1_out, weight);
    graph.plan(run, Batch::Eval)
}

fn cast(run: &Run<'_>, g: &mut Graph, at: Option<u64>, tensor: Tensor) -> Option<Buf> {
    run.train.is_half().then(|| {
        let cast = g.planned(tensor, at);
        g.kernel(&[cast], &[]);
        cast
    })
}

fn linear(run: &Run<'_>, g: &mut Graph, at: Option<u64>, input: Buf, [weight, bias, out]: [Tensor; 3]) -> Buf {
    let weight = cast(run, g, at, weight);
    let bias = if run.config.bias() { cast(run, g, at, bias) } else { None };
    let out = g.planned(out, at);
    let reads: Vec<_> = [input].into_iter().chain(weight).chain(bias).collect();
    g.kernel(&[out], &reads).product();
    out
}

fn norm(g: &mut Graph, at: Option<u64>, row: Tensor, residual: &mut Residual) -> Buf {
    let summed = residual.summed();
    let stored = summed.stores.then(|| g.planned(Tensor::Residual, at));
    let out = g.planned(row, at);
    let outputs: Vec<_> = stored.into_iter().chain([out]).collect();
    let kernel = g.kernel(&outputs, &summed.reads);
    if let Some(sum) = stored {
        kernel.in_place(sum, &summed.reads);
        residual.stored(sum);
    } else {
        kernel.in_place(out, &summed.reads);
    }
    out
}
