//! The training forward: one kernel per layer norm, separate products, and casts of weights saved for backward. With
//! checkpointing, only the residual stream between the blocks is saved.

use super::{
    BufferUse, CompiledSavedTensors, Graphs, SavedBlock, SavedBlocks, SavedEmbedding,
    block::{self, Block, Context, FusedDropout, Sum},
    loss::{self, Tail},
    residual::Residual,
    saved::slots_of,
    wrapper::{Buf, Graph, PlannedGraph},
};
use crate::{
    gpt::tensors::Tensor,
    memory::{
        context::{Name, Run},
        program::Batch,
    },
};

/// Whether the partitioner saves both embeddings and the first norm's statistics instead of its normalised input.
///
/// The partitioner minimises the size of the saved tensors, each weighted by its distance from backward. The position
/// embedding costs 1/B of the token embedding and the statistics 1/C. Observed with B = 2 from C = 768 on and not with
/// C = 320, never with B = 1.
fn saves_parts(batch: u64, n_embd: u64) -> bool {
    batch > 2 || (batch == 2 && n_embd > PARTS_CHANNELS_AT_TWO)
}

/// Empirical threshold between the two recorded widths (320 and 768).
const PARTS_CHANNELS_AT_TWO: u64 = 512;

/// The planned graph and its outputs.
pub(super) struct Forward {
    planned: PlannedGraph,
    pos: Buf,
    embedded: EmbeddingTensors,
    /// Saved tensors of each block; unused with checkpointing.
    blocks: Vec<Block>,
    /// The residual stream between checkpointed blocks.
    boundaries: Option<Vec<Buf>>,
    lnf: Vec<(Tensor, Buf)>,
    lnf_out: Buf,
    tail: Tail,
}

/// Writes the graph and the scalar operations around it.
pub(super) fn forward(run: &mut Run<'_>, graphs: &mut Graphs, has_logits: bool) -> Option<CompiledSavedTensors> {
    let forward = match graphs.train.take() {
        Some(forward) => forward,
        None => graph(run)?,
    };
    let saved = forward.write(run, has_logits);
    graphs.train = Some(forward);
    saved
}

fn graph(run: &Run<'_>) -> Option<Forward> {
    let checkpoints = run.train.activation_checkpointing;
    let keeps = if checkpoints { BufferUse::Nothing } else { BufferUse::ForBackward };
    let mut graph = Graph::new();
    let g = &mut graph;
    let pos = kept(g, Tensor::Pos, None);
    g.kernel(&[pos], &[]);
    let seeds = run.drops().then(|| g.planned(Tensor::DropoutSeeds, None));
    if let Some(seeds) = seeds {
        g.kernel(&[seeds], &[]);
    }
    let (embedded, mut ln1_out, mut residual) = embedding(run, g, pos, seeds);
    let mut ln1 = None;
    let mut blocks = Vec::new();
    let mut boundaries = Vec::new();
    let n_layer = run.config.n_layer();
    for layer in 0..n_layer {
        let mut block = block::write(run, g, layer, (ln1_out, &mut residual), seeds, (keeps, true));
        block.ln1 = ln1.take();
        let masked = FusedDropout { mask: block.fcproj_mask, seeds };
        if layer + 1 < n_layer {
            let rows = [Tensor::Xhat1, Tensor::Ln1Mean, Tensor::Ln1Rstd, Tensor::Ln1Out];
            let ctx = Context { run, at: Some(layer + 1), keeps };
            let sum = if checkpoints { Sum::Always } else { Sum::WhenRead };
            let next = block::norm(g, ctx, rows, &mut residual, masked, sum);
            if checkpoints {
                boundaries.extend(residual.summed().reads.iter().map(|&sum| {
                    g.keep(sum);
                    sum
                }));
            }
            ln1 = Some(next.saved);
            ln1_out = next.out;
        } else {
            // With checkpointing, the statistics are saved and the stream is summed again.
            let rows = if checkpoints {
                [Tensor::Ln1Mean, Tensor::LnfMean, Tensor::LnfRstd, Tensor::LnfOut]
            } else {
                [Tensor::XhatF, Tensor::LnfMean, Tensor::LnfRstd, Tensor::LnfOut]
            };
            let ctx = Context { run, at: None, keeps: BufferUse::ForBackward };
            let lnf = block::norm(g, ctx, rows, &mut residual, masked, Sum::Never);
            ln1 = Some(lnf.saved);
            ln1_out = lnf.out;
        }
        blocks.push(block);
    }
    let (lnf, lnf_out) = (ln1?, ln1_out);
    let tail = loss::forward(run, g, lnf_out);

    let planned = graph.plan(run, Batch::Train);
    let boundaries = checkpoints.then_some(boundaries);
    Some(Forward { planned, pos, embedded, blocks, boundaries, lnf, lnf_out, tail })
}

impl Forward {
    fn write(&self, run: &mut Run<'_>, has_logits: bool) -> Option<CompiledSavedTensors> {
        let slots = self.planned.write(run, false);
        release_names(run, has_logits, Name::Logits, Name::Loss);
        run.w.alloc_in(run.name(Name::NewLoss), Tensor::ScaledLoss, None);
        run.w.free(slots.of(self.tail.loss)?);
        let blocks = match &self.boundaries {
            Some(boundaries) => {
                SavedBlocks::Checkpointed(boundaries.iter().map(|&buf| slots.of(buf)).collect::<Option<_>>()?)
            }
            None => {
                let saved = self.blocks.iter().map(|block| SavedBlock::of(block, &slots));
                SavedBlocks::Whole(saved.collect::<Option<_>>()?)
            }
        };
        let mask = self.embedded.mask.and_then(|mask| slots.of(mask));
        let saved = slots_of(&slots, &self.embedded.saved)?;
        Some(CompiledSavedTensors {
            pos: slots.of(self.pos)?,
            embedding: if self.embedded.in_parts {
                SavedEmbedding::Parts { terms: saved, mask }
            } else {
                SavedEmbedding::Normalized { saved, mask }
            },
            blocks,
            lnf: slots_of(&slots, &self.lnf)?,
            lnf_out: slots.of(self.lnf_out)?,
            wte_cast: self.tail.wte_cast.and_then(|buf| slots.of(buf)),
            loss: slots_of(&slots, &self.tail.saved)?,
        })
    }
}

/// `logits, loss = model(X, Y)` releases the previous tensors of these variables.
pub(super) fn release_names(run: &mut Run<'_>, has_logits: bool, logits: Name, loss: Name) {
    if has_logits && run.keeps_logits() {
        for name in [logits, loss] {
            run.w.free_kept(run.name(name));
        }
    }
}

/// Tensors that the embeddings save for backward.
struct EmbeddingTensors {
    in_parts: bool,
    saved: Vec<(Tensor, Buf)>,
    mask: Option<Buf>,
}

/// The embeddings and the first layer norm.
fn embedding(run: &Run<'_>, g: &mut Graph, pos: Buf, seeds: Option<Buf>) -> (EmbeddingTensors, Buf, Residual) {
    let checkpoints = run.train.activation_checkpointing;
    let first = Some(0);
    let in_parts = checkpoints || (saves_parts(run.train.batch_size, run.config.n_embd()) && seeds.is_none());
    let mask = seeds.map(|_| kept(g, Tensor::EncodedMask, None));
    if in_parts {
        let pos_emb = kept(g, Tensor::PosEmb, None);
        g.kernel(&[pos_emb], &[pos]);
        let tok_emb = kept(g, Tensor::TokEmb, None);
        let mut saved = vec![(Tensor::TokEmb, tok_emb), (Tensor::PosEmb, pos_emb)];
        if !checkpoints {
            saved.extend([Tensor::Ln1Mean, Tensor::Ln1Rstd].map(|row| (row, kept(g, row, first))));
        }
        let out = if checkpoints { g.planned(Tensor::Ln1Out, first) } else { kept(g, Tensor::Ln1Out, first) };
        let statistics = saved[2..].iter().map(|&(_, buf)| buf);
        let outputs: Vec<_> = mask.into_iter().chain([tok_emb]).chain(statistics).chain([out]).collect();
        let reads: Vec<_> = [pos_emb].into_iter().chain(seeds).collect();
        g.kernel(&outputs, &reads);
        let terms = [tok_emb, pos_emb].into_iter().chain(mask).collect::<Vec<_>>();
        let reads = terms.len();
        return (EmbeddingTensors { in_parts, saved, mask }, out, Residual::starting(terms, reads));
    }
    let xhat = kept(g, Tensor::Xhat1, first);
    let out = kept(g, Tensor::Ln1Out, first);
    let rstd = kept(g, Tensor::Ln1Rstd, first);
    let outputs: Vec<_> = mask.into_iter().chain([xhat, out, rstd]).collect();
    let reads: Vec<_> = seeds.into_iter().collect();
    g.kernel(&outputs, &reads);
    // Each reader gathers the embedding again: indices, two tables, and the mask if there is one.
    let residual = Residual::starting(mask.into_iter().collect(), if mask.is_some() { 4 } else { 3 });
    let saved = vec![(Tensor::Xhat1, xhat), (Tensor::Ln1Rstd, rstd)];
    (EmbeddingTensors { in_parts, saved, mask }, out, residual)
}

fn kept(g: &mut Graph, tensor: Tensor, layer: Option<u64>) -> Buf {
    let buf = g.planned(tensor, layer);
    g.keep(buf);
    buf
}
