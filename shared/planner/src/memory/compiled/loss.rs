//! lm_head and the cross-entropy in compiled code: whole as in nanoGPT, or chunked or fused as in a patched model.
//!
//! The chunks follow the patches' code, which the compiler can fuse but not merge: a chunk's logits are live only
//! during that chunk. No run of that kind was recorded.

use super::{
    BufferUse,
    block::Context,
    wrapper::{Buf, Graph},
};
use crate::{
    gpt::tensors::Tensor,
    memory::context::{Name, Run},
    train_config::CrossEntropy,
};

/// Number of chunks that are written: every chunk makes the same allocations, and the second reuses the first one's
/// memory.
const N_WRITTEN_CHUNKS: usize = 2;

/// Tensors that lm_head and the loss save for backward.
pub(super) struct Tail {
    pub(super) wte_cast: Option<Buf>,
    pub(super) loss: Buf,
    pub(super) saved: Vec<(Tensor, Buf)>,
}

/// The end of the training forward: lm_head and the loss.
pub(super) fn forward(run: &Run<'_>, g: &mut Graph, lnf_out: Buf) -> Tail {
    g.keep(lnf_out);
    let kept = |g: &mut Graph, tensor| {
        let buf = g.planned(tensor, None);
        g.keep(buf);
        buf
    };
    let wte_cast = Context { run, at: None, keeps: BufferUse::ForBackward }.cast(g, Tensor::WteCast);
    let reads: Vec<_> = [lnf_out].into_iter().chain(wte_cast).collect();
    match run.train.cross_entropy {
        CrossEntropy::Whole => {
            let logits = g.planned(Tensor::Logits, None);
            g.keep_in(logits, run.name(Name::NewLogits));
            g.kernel(&[logits], &reads).product();
            let (max, log_sum) = (kept(g, Tensor::LogitsMax), kept(g, Tensor::LogitsLogSum));
            g.kernel(&[max, log_sum], &[logits]);
            let loss = kept(g, Tensor::Loss);
            let count = kept(g, Tensor::LossCount);
            g.kernel(&[loss, count], &[logits, max, log_sum]);
            let saved = vec![(Tensor::LogitsMax, max), (Tensor::LogitsLogSum, log_sum), (Tensor::LossCount, count)];
            Tail { wte_cast, loss, saved }
        }
        CrossEntropy::Chunked => {
            let loss = kept(g, Tensor::Loss);
            chunks(g, Tensor::ChunkLogits, &reads, loss);
            Tail { wte_cast, loss, saved: Vec::new() }
        }
        CrossEntropy::Fused => {
            // The forward computes the gradients.
            let dlnf = kept(g, Tensor::DlnfCast);
            let dlm_head = kept(g, if run.train.is_half() { Tensor::DlmHeadCast } else { Tensor::DlmHead });
            g.kernel(&[dlnf, dlm_head], &[]);
            let loss = kept(g, Tensor::Loss);
            chunks(g, Tensor::FusedLogits, &reads, loss);
            Tail { wte_cast, loss, saved: vec![(Tensor::DlmHeadCast, dlm_head), (Tensor::DlnfCast, dlnf)] }
        }
    }
}

fn chunks(g: &mut Graph, row: Tensor, reads: &[Buf], loss: Buf) {
    for _ in 0..N_WRITTEN_CHUNKS {
        let logits = g.planned(row, None);
        g.kernel(&[logits], reads).product();
        g.kernel(&[loss], &[logits]);
    }
}

/// The end of the evaluation forward.
pub(super) fn inference(run: &Run<'_>, g: &mut Graph, lnf_out: Buf, weight: Option<Buf>) {
    let reads: Vec<_> = [lnf_out].into_iter().chain(weight).collect();
    let loss = g.planned(Tensor::Loss, None);
    match run.train.cross_entropy {
        CrossEntropy::Whole => {
            let logits = g.planned(Tensor::Logits, None);
            g.keep_in(logits, run.name(Name::NewLogits));
            g.kernel(&[logits], &reads).product();
            let (max, log_sum) = (g.planned(Tensor::LogitsMax, None), g.planned(Tensor::LogitsLogSum, None));
            g.kernel(&[max, log_sum], &[logits]);
            g.kernel(&[loss], &[logits, max, log_sum]);
        }
        CrossEntropy::Chunked => chunks(g, Tensor::ChunkLogits, &reads, loss),
        CrossEntropy::Fused => chunks(g, Tensor::FusedLogits, &reads, loss),
    }
    g.keep_in(loss, run.name(Name::NewLoss));
}

/// Gradients of lm_head's weight and of its input from a chunked loss. Each chunk's logits are recomputed and
/// overwritten by their gradient, and the chunk's part is added to the sum.
pub(super) fn chunked_backward(run: &Run<'_>, g: &mut Graph, lnf_out: Buf, weight: Option<Buf>) -> (Buf, Buf) {
    let dlm_head = g.planned(if run.train.is_half() { Tensor::DlmHeadCast } else { Tensor::DlmHead }, None);
    let dlnf = g.planned(Tensor::DlnfCast, None);
    for chunk in 0..N_WRITTEN_CHUNKS {
        let logits = g.planned(Tensor::ChunkLogits, None);
        let reads: Vec<_> = [lnf_out].into_iter().chain(weight).collect();
        g.kernel(&[logits], &reads).product();
        let dlogits = g.planned(Tensor::ChunkDlogits, None);
        g.kernel(&[dlogits], &[logits]).in_place(dlogits, &[logits]);
        let reads: Vec<_> = [dlogits].into_iter().chain(weight).collect();
        g.kernel(&[dlnf], &reads).product();
        if chunk == 0 {
            g.kernel(&[dlm_head], &[dlogits, lnf_out]).product();
        } else {
            let part = g.planned(if run.train.is_half() { Tensor::DlmHeadCast } else { Tensor::DlmHead }, None);
            g.kernel(&[part], &[dlogits, lnf_out]).product();
            g.kernel(&[dlm_head], &[part]);
        }
    }
    (dlm_head, dlnf)
}
