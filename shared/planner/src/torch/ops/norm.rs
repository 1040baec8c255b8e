//! Layer norm and embedding.

use super::{Gradients, Op};
use crate::{
    dtype::Dtype,
    gpt::tensors::Category,
    memory::eager::EMBEDDING_SORT_ABOVE,
    torch::{Layout, Tensor, Torch},
};

/// Numbers of elements of the integers that the gradient of an embedding holds, for `n` indices into a table of `rows`. The
/// last is that of the partial sums, one row of channels each. `None` if the kernel does not sort.
///
/// Source: `Embedding.cu` and `EmbeddingBackwardKernel.cu` of PyTorch 2.11.
pub(crate) fn embedding_backward_numbers(n: u64, rows: u64) -> Option<[u64; 8]> {
    let segments = n.min(rows);
    (n > EMBEDDING_SORT_ABOVE).then(|| [n, n, n, 1, segments, segments, 1, n / 10 + segments])
}

impl Torch {
    /// `F.layer_norm(x, weight.shape, weight, bias)`. Autocast casts the arguments from the last to the first.
    #[must_use]
    pub fn layer_norm(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let bias = &bias.map(|bias| self.upper(bias));
        let weight = &self.upper(weight);
        let x = &self.upper(x);
        let mut recording = match bias {
            Some(bias) => self.record(&[x, weight, bias]),
            None => self.record(&[x, weight]),
        };
        [x, weight].into_iter().chain(bias).for_each(|input| recording.save(input));
        let mut out = self.empty("layer_norm", x.sizes(), x.dtype());
        let rows = x.layout().narrowed(1);
        let [mean, rstd] =
            ["layer_norm mean", "layer_norm rstd"].map(|name| self.empty(name, rows.sizes(), Dtype::Float32));
        recording.save(&mean);
        recording.save(&rstd);
        recording.finish(Op::LayerNorm, &mut [&mut out]);
        out
    }

    pub(super) fn layer_norm_backward(&self, gradients: Gradients<'_>, gradient: &Tensor) -> Vec<Option<Tensor>> {
        let channels = [gradient.layout().from_last(0)];
        let parameter = || self.empty("gradient of layer_norm's parameter", &channels, gradient.dtype());
        let input = gradients.needs(0).then(|| self.like("gradient of layer_norm", gradient, gradient.dtype()));
        let rest = gradients.needs.iter().skip(1).map(|&needs| needs.then(parameter));
        std::iter::once(input).chain(rest).collect()
    }

    /// `F.rms_norm(x, (x.size(-1),))`, without a weight.
    #[must_use]
    pub fn rms_norm(&self, x: &Tensor) -> Tensor {
        let mut recording = self.record(&[x]);
        recording.save(x);
        let mut out = self.empty("rms_norm", x.sizes(), x.dtype());
        let rstd = self.empty("rms_norm rstd", x.layout().narrowed(1).sizes(), Dtype::Float32);
        recording.save(&rstd);
        recording.finish(Op::Unary("gradient of rms_norm"), &mut [&mut out]);
        out
    }

    /// `F.embedding(indices, weight)`.
    #[must_use]
    pub fn embedding(&self, indices: &Tensor, weight: &Tensor) -> Tensor {
        let mut recording = self.record(&[weight]);
        recording.save(indices);
        let sizes: Vec<_> = indices.sizes().iter().copied().chain([weight.layout().from_last(0)]).collect();
        let mut out = self.empty("embedding", &sizes, weight.dtype());
        recording.finish(Op::Embedding(*weight.layout()), &mut [&mut out]);
        out
    }

    /// `embedding_dense_backward`, with the scratch memory of the sort and of the segmented sum.
    pub(super) fn embedding_backward(&self, weight: &Layout, gradient: &Tensor) -> Tensor {
        let _scope = self.enter_category(Category::Gradients);
        let out = self.empty("gradient of embedding", weight.sizes(), gradient.dtype());
        let channels = gradient.layout().from_last(0);
        let n = gradient.layout().elements() / channels.max(1);
        if let Some(numbers) = embedding_backward_numbers(n, weight.from_last(1)) {
            let _scope = self.enter_category(Category::Workspace);
            let index = |elements: u64| self.empty("scratch of embedding's gradient", &[elements], Dtype::Int64);
            let _held = numbers.map(index);
            let [.., sums] = numbers;
            let _sums = self.empty("scratch of embedding's gradient", &[sums, channels], Dtype::Float32);
        }
        out
    }
}
