//! The training forward: one kernel a layer norm, products as they are, casts of weights kept for backward.

use super::{
    Saved, SavedEmbedding, SavedLayer, attention,
    residual::Residual,
    wrapper::{Buf, Graph, Planned},
};
use crate::{
    gpt::tensors::Tensor,
    memory::run::{Name, Run},
};

/// Whether the partitioner saves both embeddings and the first norm's statistics rather than its normalized input.
///
/// It minimises what is saved, each tensor weighted by how far it is from backward. The position embedding costs 1/B of
/// the token embedding and the statistics 1/C: seen with B = 2 from C = 768 on and not with C = 320, never with B = 1.
fn saves_parts(batch: u64, n_embd: u64) -> bool {
    batch > 2 || (batch == 2 && n_embd > PARTS_CHANNELS_AT_TWO)
}

/// Between the widths seen either way.
const PARTS_CHANNELS_AT_TWO: u64 = 512;

struct Norm {
    xhat: Buf,
    out: Buf,
    rstd: Buf,
}

struct Layer {
    ln1: Option<Norm>,
    ln1_out: Buf,
    qkv_weight: Option<Buf>,
    attention: attention::Attended,
    att_proj_weight: Option<Buf>,
    attproj_mask: Option<Buf>,
    ln2: Norm,
    fc_weight: Option<Buf>,
    fch: Buf,
    fch_gelu: Buf,
    fc_proj_weight: Option<Buf>,
    fcproj_mask: Option<Buf>,
}

/// The graph, and what it returns.
pub(super) struct Forward {
    planned: Planned,
    pos: Buf,
    embedding: Embedded,
    layers: Vec<Layer>,
    lnf: Norm,
    wte_cast: Option<Buf>,
    max: Buf,
    log_sum: Buf,
    loss: Buf,
    count: Buf,
}

/// Writes the graph and the scalar operations around it.
pub(super) fn forward(run: &mut Run<'_>, has_logits: bool) -> Option<Saved> {
    let forward = match run.graphs.train.take() {
        Some(forward) => forward,
        None => graph(run)?,
    };
    let saved = forward.write(run, has_logits);
    run.graphs.train = Some(forward);
    saved
}

fn graph(run: &Run<'_>) -> Option<Forward> {
    let mut graph = Graph::new();
    let g = &mut graph;
    let pos = g.planned(Tensor::Pos, None);
    g.keep(pos);
    g.kernel(&[pos], &[]);
    let seeds = run.drops().then(|| g.planned(Tensor::DropoutSeeds, None));
    if let Some(seeds) = seeds {
        g.kernel(&[seeds], &[]);
    }
    let (embedding, mut ln1_out, mut residual) = embedding(run, g, pos, seeds);
    let mut ln1 = None;
    let mut layers = Vec::new();
    for layer in 0..run.config.n_layer() {
        let at = Some(layer);
        let qkv = linear(run, g, at, ln1_out, [Tensor::QkvWCast, Tensor::QkvBCast, Tensor::Qkv]);
        let attention = attention::forward(run, g, layer, qkv.out, true);
        let att_proj = linear(run, g, at, attention.out, [Tensor::AttProjWCast, Tensor::AttProjBCast, Tensor::Attproj]);
        let attproj_mask = seeds.map(|_| kept(g, Tensor::AttprojMask, at));
        residual.add(att_proj.out, attproj_mask);
        let ln2 = norm(
            g,
            at,
            [Tensor::Xhat2, Tensor::Ln2Out, Tensor::Ln2Rstd],
            &mut residual,
            &Masked { mask: attproj_mask, seeds },
        );
        let fc = linear(run, g, at, ln2.out, [Tensor::FcWCast, Tensor::FcBCast, Tensor::Fch]);
        g.keep(fc.out);
        // Without a bias the next weight is cast before the activation, with one after it.
        let fc_proj_rows = [Tensor::FcProjWCast, Tensor::FcProjBCast, Tensor::Fcproj];
        let early = (!run.config.bias()).then(|| cast(run, g, at, fc_proj_rows[0])).flatten();
        let fch_gelu = kept(g, Tensor::FchGelu, at);
        g.kernel(&[fch_gelu], &[fc.out]);
        let fc_proj = linear_with(run, g, at, fch_gelu, fc_proj_rows, early);
        let fcproj_mask = seeds.map(|_| kept(g, Tensor::FcprojMask, at));
        residual.add(fc_proj.out, fcproj_mask);
        let is_last = layer + 1 == run.config.n_layer();
        let rows = if is_last {
            [Tensor::XhatF, Tensor::LnfOut, Tensor::LnfRstd]
        } else {
            [Tensor::Xhat1, Tensor::Ln1Out, Tensor::Ln1Rstd]
        };
        let next = norm(g, at.filter(|_| !is_last), rows, &mut residual, &Masked { mask: fcproj_mask, seeds });
        let next_out = next.out;
        layers.push(Layer {
            ln1: ln1.replace(next),
            ln1_out,
            qkv_weight: qkv.weight,
            attention,
            att_proj_weight: att_proj.weight,
            attproj_mask,
            ln2,
            fc_weight: fc.weight,
            fch: fc.out,
            fch_gelu,
            fc_proj_weight: fc_proj.weight,
            fcproj_mask,
        });
        ln1_out = next_out;
    }
    let lnf = ln1?;
    let wte_cast = cast(run, g, None, Tensor::WteCast);
    let logits = g.planned(Tensor::Logits, None);
    g.keep_in(logits, run.name(Name::NewLogits));
    let mut reads = vec![lnf.out];
    reads.extend(wte_cast);
    g.kernel(&[logits], &reads).product();
    let (max, log_sum) = (kept(g, Tensor::LogitsMax, None), kept(g, Tensor::LogitsLogSum, None));
    g.kernel(&[max, log_sum], &[logits]);
    let loss = kept(g, Tensor::Loss, None);
    let count = kept(g, Tensor::LossCount, None);
    g.kernel(&[loss, count], &[logits, max, log_sum]);

    let planned = graph.plan(run);
    Some(Forward { planned, pos, embedding, layers, lnf, wte_cast, max, log_sum, loss, count })
}

impl Forward {
    fn write(&self, run: &mut Run<'_>, has_logits: bool) -> Option<Saved> {
        let slots = self.planned.write(run, false);
        release_names(run, has_logits, Name::Logits, Name::Loss);
        run.w.alloc_in(run.name(Name::NewLoss), Tensor::ScaledLoss, None);
        run.w.free(slots.of(self.loss)?);
        let norm_slots = |norm: &Norm| Some([slots.of(norm.xhat)?, slots.of(norm.rstd)?]);
        let optional = |buf: Option<Buf>| buf.map(|buf| slots.of(buf));
        let mut saved_layers = Vec::new();
        for layer in &self.layers {
            saved_layers.push(SavedLayer {
                ln1: match &layer.ln1 {
                    Some(norm) => Some(norm_slots(norm)?),
                    None => None,
                },
                ln1_out: slots.of(layer.ln1_out)?,
                qkv_weight: optional(layer.qkv_weight).flatten(),
                attention: layer.attention.saved(&slots)?,
                att_proj_weight: optional(layer.att_proj_weight).flatten(),
                attproj_mask: optional(layer.attproj_mask).flatten(),
                ln2: norm_slots(&layer.ln2)?,
                ln2_out: slots.of(layer.ln2.out)?,
                fc_weight: optional(layer.fc_weight).flatten(),
                fch: slots.of(layer.fch)?,
                fch_gelu: slots.of(layer.fch_gelu)?,
                fc_proj_weight: optional(layer.fc_proj_weight).flatten(),
                fcproj_mask: optional(layer.fcproj_mask).flatten(),
            });
        }
        Some(Saved {
            pos: slots.of(self.pos)?,
            embedding: match &self.embedding {
                Embedded::Parts(parts) => {
                    let [a, b, c, d] = parts.map(|buf| slots.of(buf));
                    SavedEmbedding::Parts([a?, b?, c?, d?])
                }
                Embedded::Normalized { xhat, rstd, mask } => SavedEmbedding::Normalized {
                    xhat: slots.of(*xhat)?,
                    rstd: slots.of(*rstd)?,
                    mask: optional(*mask).flatten(),
                },
            },
            layers: saved_layers,
            lnf: norm_slots(&self.lnf)?,
            lnf_out: slots.of(self.lnf.out)?,
            wte_cast: optional(self.wte_cast).flatten(),
            logits_max: slots.of(self.max)?,
            logits_log_sum: slots.of(self.log_sum)?,
            loss_count: slots.of(self.count)?,
        })
    }
}

/// `logits, loss = model(X, Y)` lets go of what the names held before.
pub(super) fn release_names(run: &mut Run<'_>, has_logits: bool, logits: Name, loss: Name) {
    if has_logits && run.keeps_logits() {
        for name in [logits, loss] {
            run.w.free_kept(run.name(name));
        }
    }
}

enum Embedded {
    Parts([Buf; 4]),
    Normalized { xhat: Buf, rstd: Buf, mask: Option<Buf> },
}

/// The embeddings and the first layer norm.
fn embedding(run: &Run<'_>, g: &mut Graph, pos: Buf, seeds: Option<Buf>) -> (Embedded, Buf, Residual) {
    if saves_parts(run.train.batch_size, run.config.n_embd()) && seeds.is_none() {
        let pos_emb = kept(g, Tensor::PosEmb, None);
        g.kernel(&[pos_emb], &[pos]);
        let tok_emb = kept(g, Tensor::TokEmb, None);
        let mean = kept(g, Tensor::Ln1Mean, Some(0));
        let rstd = kept(g, Tensor::Ln1Rstd, Some(0));
        let out = kept(g, Tensor::Ln1Out, Some(0));
        g.kernel(&[tok_emb, mean, rstd, out], &[pos_emb]);
        let residual = Residual::starting(vec![tok_emb, pos_emb], 2);
        return (Embedded::Parts([tok_emb, pos_emb, mean, rstd]), out, residual);
    }
    let mask = seeds.map(|_| kept(g, Tensor::EncodedMask, None));
    let xhat = kept(g, Tensor::Xhat1, Some(0));
    let first = kept(g, Tensor::Ln1Out, Some(0));
    let second = kept(g, Tensor::Ln1Rstd, Some(0));
    let outputs: Vec<_> = mask.into_iter().chain([xhat, first, second]).collect();
    let reads: Vec<_> = seeds.into_iter().collect();
    g.kernel(&outputs, &reads);
    // Gathered anew by each reader: indices and two tables, and the mask where there is one.
    let residual = Residual::starting(mask.into_iter().collect(), if mask.is_some() { 4 } else { 3 });
    (Embedded::Normalized { xhat, rstd: second, mask }, first, residual)
}

fn kept(g: &mut Graph, tensor: Tensor, layer: Option<u64>) -> Buf {
    let buf = g.planned(tensor, layer);
    g.keep(buf);
    buf
}

/// The dropout of a branch that a norm's kernel computes on the way.
struct Masked {
    mask: Option<Buf>,
    seeds: Option<Buf>,
}

/// A layer norm after a branch: it adds up the residual stream, stores it where it would be read too often, and writes
/// the normalized stream, its output and the inverse deviation.
fn norm(g: &mut Graph, at: Option<u64>, rows: [Tensor; 3], residual: &mut Residual, masked: &Masked) -> Norm {
    let summed = residual.summed();
    let is_last = rows[0] == Tensor::XhatF;
    let stored = (summed.stores && !is_last).then(|| g.planned(Tensor::Residual, at));
    let [xhat, out, rstd] = rows.map(|row| kept(g, row, at));
    let outputs: Vec<_> = masked.mask.into_iter().chain(stored).chain([xhat, out, rstd]).collect();
    let reads: Vec<_> =
        summed.reads.iter().copied().filter(|read| Some(*read) != masked.mask).chain(masked.seeds).collect();
    let kernel = g.kernel(&outputs, &reads);
    match stored {
        Some(sum) => {
            kernel.in_place(sum, &summed.reads);
            residual.stored(sum);
        }
        None if is_last => {
            kernel.in_place(xhat, &summed.reads);
        }
        None => {}
    }
    Norm { xhat, out, rstd }
}

struct Linear {
    weight: Option<Buf>,
    out: Buf,
}

fn cast(run: &Run<'_>, g: &mut Graph, at: Option<u64>, tensor: Tensor) -> Option<Buf> {
    run.train.is_half().then(|| {
        let cast = kept(g, tensor, at);
        g.kernel(&[cast], &[]);
        cast
    })
}

fn linear(run: &Run<'_>, g: &mut Graph, at: Option<u64>, input: Buf, rows: [Tensor; 3]) -> Linear {
    linear_with(run, g, at, input, rows, None)
}

/// A linear layer: the weight's cast, the bias's, and the product.
fn linear_with(
    run: &Run<'_>,
    g: &mut Graph,
    at: Option<u64>,
    input: Buf,
    [weight, bias, out]: [Tensor; 3],
    early: Option<Buf>,
) -> Linear {
    let weight = early.or_else(|| cast(run, g, at, weight));
    let bias = (run.config.bias() && run.train.is_half()).then(|| {
        let bias = g.planned(bias, at);
        g.kernel(&[bias], &[]);
        bias
    });
    let out = g.planned(out, at);
    let reads: Vec<_> = [input].into_iter().chain(weight).chain(bias).collect();
    g.kernel(&[out], &reads).product();
    g.keep(input);
    Linear { weight, out }
}
