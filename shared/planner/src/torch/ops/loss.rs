//! Cross-entropy: whole, in chunks, or fused with the head into one kernel.

use super::Op;
use crate::{
    dtype::Dtype,
    gpt::tensors::{CROSS_ENTROPY_CHUNKS, fused_chunk_tokens},
    torch::{Tensor, Torch},
};

/// A cross-entropy that never has all logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossEntropyInput {
    /// Logits of a part of the tokens at a time, which backward recomputes.
    Chunks,
    /// A fused kernel, whose forward computes the gradients.
    Fused,
}

impl Torch {
    /// `F.cross_entropy(logits, targets)`. Autocast converts the log-probabilities to float32 for `nll_loss`.
    #[must_use]
    pub fn cross_entropy(&self, logits: &Tensor, targets: &Tensor) -> Tensor {
        self.cross_entropy_with(logits, targets, true)
    }

    /// `F.cross_entropy(logits, targets, reduction=...)`: the mean, or the loss of each token.
    #[must_use]
    pub fn cross_entropy_with(&self, logits: &Tensor, targets: &Tensor, is_mean: bool) -> Tensor {
        let mut recording = self.record(&[logits]);
        let mut log_probs = self.like("log_softmax", logits, logits.dtype());
        recording.save(&log_probs);
        recording.finish(Op::LogSoftmax(logits.dtype()), &mut [&mut log_probs]);
        let log_probs = self.upper(&log_probs);
        let mut recording = self.record(&[&log_probs]);
        recording.save(&log_probs);
        recording.save(targets);
        let sizes = if is_mean { &[] } else { targets.sizes() };
        let mut loss = self.empty("loss", sizes, log_probs.dtype());
        let weight = self.empty("loss total_weight", &[], log_probs.dtype());
        recording.save(&weight);
        recording.finish(Op::NllLoss, &mut [&mut loss]);
        loss
    }

    pub(super) fn nll_loss_backward(&self, saved: &[Option<Tensor>]) -> Vec<Option<Tensor>> {
        let Some(Some(log_probs)) = saved.first() else { return Vec::new() };
        vec![Some(self.like("gradient of nll_loss", log_probs, log_probs.dtype()))]
    }

    /// Loss of a linear head that never has all logits.
    #[must_use]
    pub fn linear_cross_entropy(
        &self,
        kind: CrossEntropyInput,
        x: &Tensor,
        weight: &Tensor,
        targets: &Tensor,
    ) -> Tensor {
        let weight = self.lower(weight);
        let x = self.lower(x);
        let mut recording = self.record(&[&x, &weight]);
        let mut loss = self.empty("loss", &[], Dtype::Float32);
        let (channels, vocabulary) = (weight.layout().from_last(0), weight.layout().from_last(1));
        let tokens = x.layout().elements() / channels.max(1);
        match kind {
            CrossEntropyInput::Chunks => {
                for _ in 0..CROSS_ENTROPY_CHUNKS {
                    let sizes = [tokens.div_ceil(CROSS_ENTROPY_CHUNKS), vocabulary];
                    let _logits = self.empty("logits of a chunk", &sizes, x.dtype());
                    self.cublas_workspace();
                    let log_probs = self.empty("log_softmax of a chunk", &sizes, x.dtype());
                    let _wide = self.wide(&log_probs);
                    drop(self.empty("scalar", &[], Dtype::Float32));
                }
            }
            CrossEntropyInput::Fused => {
                let gradients = recording
                    .is_recorded()
                    .then(|| [&x, &weight].map(|tensor| self.like("gradient of a fused loss", tensor, tensor.dtype())));
                let _losses = self.empty("losses a token", &[tokens], Dtype::Float32);
                // Every chunk makes the same allocations; the second one shows the reuse of the first one's memory.
                for _ in 0..2 {
                    let sizes = [tokens, vocabulary, channels].map(u128::from);
                    let rows = u64::try_from(fused_chunk_tokens(sizes[0], sizes[1], sizes[2])).unwrap_or(u64::MAX);
                    let _logits = self.empty("logits of a fused chunk", &[rows, vocabulary], x.dtype());
                    self.cublas_workspace();
                }
                gradients.iter().flatten().for_each(|gradient| recording.save(gradient));
            }
        }
        [&x, &weight, targets].into_iter().for_each(|tensor| recording.save(tensor));
        recording.finish(Op::LinearCrossEntropy(kind), &mut [&mut loss]);
        loss
    }

    /// A copy in float32 of a tensor in half precision.
    fn wide(&self, x: &Tensor) -> Option<Tensor> {
        (x.dtype() != Dtype::Float32).then(|| self.like("cast", x, Dtype::Float32))
    }

    pub(super) fn linear_cross_entropy_backward(
        &self,
        kind: CrossEntropyInput,
        saved: Vec<Option<Tensor>>,
    ) -> Vec<Option<Tensor>> {
        let mut saved = saved.into_iter().flatten();
        if kind == CrossEntropyInput::Fused {
            self.cublas_workspace();
            return saved.take(2).map(Some).collect();
        }
        let (Some(x), Some(weight)) = (saved.next(), saved.next()) else { return Vec::new() };
        let [dweight, part] = self.chunk_backward(&x, &weight);
        let dx = self.like("gradient of a chunked loss", &x, x.dtype());
        drop(part);
        for _ in 1..CROSS_ENTROPY_CHUNKS {
            drop(self.chunk_backward(&x, &weight));
        }
        vec![Some(dx), Some(dweight)]
    }

    /// One chunk: its part of the gradients of the weight and of the input.
    fn chunk_backward(&self, x: &Tensor, weight: &Tensor) -> [Tensor; 2] {
        let channels = weight.layout().from_last(0);
        let tokens = (x.layout().elements() / channels.max(1)).div_ceil(CROSS_ENTROPY_CHUNKS);
        let sizes = [tokens, weight.layout().from_last(1)];
        let chunk = |name| self.empty(name, &sizes, x.dtype());
        let logits = chunk("logits of a chunk");
        let log_probs = chunk("log_softmax of a chunk");
        let wide = self.wide(&log_probs);
        let nll_input = wide.as_ref().unwrap_or(&log_probs);
        let mut gradient = self.like("gradient of nll_loss", nll_input, nll_input.dtype());
        let is_half = wide.is_some();
        drop(wide);
        if is_half {
            gradient = chunk("gradient of a cast");
        }
        let dlogits = chunk("gradient of softmax");
        drop((gradient, log_probs, logits));
        let dweight = self.like("gradient of linear's weight", weight, weight.dtype());
        self.cublas_workspace();
        let dx = self.empty("gradient of linear", &[tokens, channels], x.dtype());
        drop(dlogits);
        [dweight, dx]
    }
}
