//! Views, and the copies where a view is impossible.

use super::Op;
use crate::torch::{Layout, Tensor, Torch};

impl Torch {
    /// `x.view(sizes)`, or `x.reshape(sizes)` where that copies.
    #[must_use]
    pub fn reshape(&self, x: &Tensor, sizes: &[u64]) -> Tensor {
        match x.layout().viewed(sizes) {
            Some(layout) => self.viewed(Op::View(*x.layout()), x, layout),
            None => self.reshape(&self.contiguous(x), sizes),
        }
    }

    /// `x.transpose(a, b)`; axes are counted from the last one.
    #[must_use]
    pub fn transpose(&self, x: &Tensor, axes: [usize; 2]) -> Tensor {
        self.viewed(Op::Transpose(axes), x, x.layout().transposed(axes))
    }

    fn viewed(&self, op: Op, x: &Tensor, layout: Layout) -> Tensor {
        let mut out = x.with_layout(layout);
        self.record(&[x]).finish(op, &mut [&mut out]);
        out
    }

    /// `x.contiguous()`.
    #[must_use]
    pub fn contiguous(&self, x: &Tensor) -> Tensor {
        if x.layout().is_contiguous() {
            return x.clone();
        }
        let recording = self.record(&[x]);
        let mut out = self.empty("contiguous copy", x.sizes(), x.dtype());
        recording.finish(Op::Copy, &mut [&mut out]);
        out
    }

    /// `x.clone()`.
    #[must_use]
    pub fn copied(&self, x: &Tensor) -> Tensor {
        let recording = self.record(&[x]);
        let mut out = self.like("copy", x, x.dtype());
        recording.finish(Op::Copy, &mut [&mut out]);
        out
    }

    /// Each head of a tensor (B, H, T, D) this number of times: `expand` and `reshape`, which is a view of a single head.
    #[must_use]
    pub fn expand_heads(&self, x: &Tensor, times: u64) -> Tensor {
        if x.layout().from_last(2) == 1 && times > 1 {
            self.viewed(Op::RepeatHeads(*x.layout()), x, x.layout().expanded(2, times))
        } else {
            self.repeat_heads(x, times)
        }
    }

    /// Copies of each head of a tensor (B, H, T, D), next to each other: `repeat_interleave`.
    #[must_use]
    pub fn repeat_heads(&self, x: &Tensor, times: u64) -> Tensor {
        let &[b, h, t, d] = x.sizes() else { return x.clone() };
        if times == 1 {
            return x.clone();
        }
        let recording = self.record(&[x]);
        let mut out = self.empty("repeated heads", &[b, h * times, t, d], x.dtype());
        recording.finish(Op::RepeatHeads(*x.layout()), &mut [&mut out]);
        out
    }

    /// Three views of equal parts of the last axis: `x.split(size, dim=-1)`.
    #[must_use]
    pub fn split3(&self, x: &Tensor) -> [Tensor; 3] {
        let size = x.layout().from_last(0) / 3;
        let mut parts = [(); 3].map(|()| x.with_layout(x.layout().narrowed(size)));
        let [a, b, c] = &mut parts;
        self.record(&[x]).finish(Op::Extent("gradient of split", *x.layout()), &mut [a, b, c]);
        parts
    }

    /// `constant_pad_nd` of the last axis to this size.
    pub(super) fn pad_last(&self, x: &Tensor, size: u64) -> Tensor {
        let recording = self.record(&[x]);
        let mut out = self.empty("padded", x.layout().narrowed(size).sizes(), x.dtype());
        recording.finish(Op::Extent("gradient of padding", *x.layout()), &mut [&mut out]);
        out
    }

    /// A slice of an axis, counted from the last one: `size` of its elements. A slice of all elements is `x` itself.
    #[must_use]
    pub fn slice(&self, x: &Tensor, axis: usize, size: u64) -> Tensor {
        if x.layout().from_last(axis) == size {
            return x.clone();
        }
        self.viewed(Op::Extent("gradient of a slice", *x.layout()), x, x.layout().sliced(axis, size))
    }

    /// An element of a vector: `x[i]`.
    #[must_use]
    pub fn element(&self, x: &Tensor) -> Tensor {
        self.viewed(Op::Extent("gradient of a slice", *x.layout()), x, Layout::scalar())
    }

    /// `torch.cat([a, b], axis)`; the axis is counted from the last one.
    #[must_use]
    pub fn cat(&self, a: &Tensor, b: &Tensor, axis: usize) -> Tensor {
        let recording = self.record(&[a, b]);
        let sizes = [a, b].map(|x| x.layout().from_last(axis));
        let layout = a.layout().sliced(axis, sizes[0].saturating_add(sizes[1]));
        let mut out = self.empty("cat", layout.sizes(), a.dtype());
        recording.finish(Op::Cat(axis, sizes), &mut [&mut out]);
        out
    }

    /// A gradient with other sizes, outside of autograd's graph.
    pub(super) fn reshaped(&self, x: &Tensor, sizes: &[u64]) -> Tensor {
        match x.layout().viewed(sizes) {
            Some(layout) => x.with_layout(layout),
            None => self.empty("contiguous gradient", sizes, x.dtype()),
        }
    }
}
