//! Operations that compute each element alone, casts, and autocast.

use super::{Gradients, Op};
use crate::{
    dtype::Dtype,
    gpt::tensors::Category,
    torch::{Layout, Recorder, Tensor, Torch, tensor::Edge},
};

/// Broadcast sizes of two tensors: those of the one with more elements, which suffices for the models here.
fn broadcast(a: &Tensor, b: &Tensor) -> Layout {
    let larger = if b.layout().elements() > a.layout().elements() { b } else { a };
    larger.layout().dense()
}

/// The dtype of a result. A scalar tensor does not change the dtype of a tensor with axes.
fn promoted(a: &Tensor, b: &Tensor) -> Dtype {
    match (a.sizes().is_empty(), b.sizes().is_empty()) {
        (true, false) => b.dtype(),
        (false, true) => a.dtype(),
        _ if b.dtype() == Dtype::Float32 => b.dtype(),
        _ => a.dtype(),
    }
}

impl Torch {
    /// A dense tensor with the layout of another, as `empty_like` allocates it.
    pub(in crate::torch) fn like(&self, name: &'static str, x: &Tensor, dtype: Dtype) -> Tensor {
        self.empty_with(name, x.layout().dense(), dtype)
    }

    /// A function of each element.
    fn unary(&self, op: Op, name: &'static str, x: &Tensor, saves: bool) -> Tensor {
        let mut recording = self.record(&[x]);
        if saves {
            recording.save(x);
        }
        let mut out = self.like(name, x, x.dtype());
        recording.finish(op, &mut [&mut out]);
        out
    }

    /// A function of the elements of two tensors, with type promotion and broadcasting. With `saves`, the gradient of
    /// each needs the other.
    fn binary(&self, op: Op, name: &'static str, [a, b]: [&Tensor; 2], saves: bool) -> Tensor {
        let mut recording = self.record(&[a, b]);
        if saves && recording.needs(0) {
            recording.save(b);
        }
        if saves && recording.needs(1) {
            recording.save(a);
        }
        let mut out = self.empty_with(name, broadcast(a, b), promoted(a, b));
        recording.finish(op, &mut [&mut out]);
        out
    }

    /// `a + b`, with type promotion and broadcasting.
    #[must_use]
    pub fn add(&self, a: &Tensor, b: &Tensor) -> Tensor {
        self.binary(Op::Add, "sum", [a, b], false)
    }

    /// `a - b`.
    #[must_use]
    pub fn sub(&self, a: &Tensor, b: &Tensor) -> Tensor {
        self.binary(Op::Sub, "difference", [a, b], false)
    }

    /// `a * b`, with type promotion and broadcasting.
    #[must_use]
    pub fn mul(&self, a: &Tensor, b: &Tensor) -> Tensor {
        self.binary(Op::Mul, "product", [a, b], true)
    }

    /// Autograd computes gradients in the alphabetical order of arguments: `other`, then `self`.
    pub(super) fn mul_backward(&self, gradients: Gradients<'_>, gradient: &Tensor) -> Vec<Option<Tensor>> {
        let of = |at| gradients.needs(at).then(|| self.like("gradient of a product", gradient, gradient.dtype()));
        let other = of(1);
        vec![of(0), other]
    }

    /// `a * (-b)`, for a `b` that requires no gradient.
    #[must_use]
    pub fn mul_by_negative(&self, a: &Tensor, b: &Tensor) -> Tensor {
        let negative = self.like("negation", b, b.dtype());
        self.mul(a, &negative)
    }

    /// `torch.sigmoid(x)`, `torch.tanh(x)` or `F.relu(x)`, named by `name`.
    #[must_use]
    pub fn function(&self, name: &'static str, x: &Tensor) -> Tensor {
        let mut recording = self.record(&[x]);
        let mut out = self.like(name, x, x.dtype());
        recording.save(&out);
        recording.finish(Op::Unary("gradient of a function"), &mut [&mut out]);
        out
    }

    /// `x.square()`.
    #[must_use]
    pub fn square(&self, x: &Tensor) -> Tensor {
        self.unary(Op::Square, "square", x, true)
    }

    /// `torch.pow(x, exponent)`, which autocast computes in float32.
    #[must_use]
    pub fn pow(&self, x: &Tensor) -> Tensor {
        self.unary(Op::Square, "power", &self.upper(x), true)
    }

    /// `grad * (exponent * self.pow(exponent - 1))`.
    pub(super) fn square_backward(&self, gradient: &Tensor) -> Vec<Option<Tensor>> {
        let [_power, _factor, out] =
            ["power", "factor", "gradient of square"].map(|name| self.like(name, gradient, gradient.dtype()));
        vec![Some(out)]
    }

    /// `x.mean(-1, keepdim=True)`.
    #[must_use]
    pub fn mean(&self, x: &Tensor) -> Tensor {
        let recording = self.record(&[x]);
        let mut out = self.empty("mean", x.layout().narrowed(1).sizes(), x.dtype());
        recording.finish(Op::Mean(*x.layout()), &mut [&mut out]);
        out
    }

    /// `torch.rsqrt(x)`.
    #[must_use]
    pub fn rsqrt(&self, x: &Tensor) -> Tensor {
        let mut recording = self.record(&[x]);
        let mut out = self.like("rsqrt", x, x.dtype());
        recording.save(&out);
        recording.finish(Op::Rsqrt, &mut [&mut out]);
        out
    }

    /// `-0.5 * grad * result.pow(3)`.
    pub(super) fn rsqrt_backward(&self, gradient: &Tensor) -> Vec<Option<Tensor>> {
        let [_power, _half, out] = ["power", "product with a number", "gradient of rsqrt"]
            .map(|name| self.like(name, gradient, gradient.dtype()));
        vec![Some(out)]
    }

    /// `x + number`.
    #[must_use]
    pub fn offset(&self, x: &Tensor) -> Tensor {
        self.unary(Op::Copy, "sum with a number", x, false)
    }

    /// `-x`.
    #[must_use]
    pub fn negate(&self, x: &Tensor) -> Tensor {
        self.unary(Op::Unary("gradient of a negation"), "negation", x, false)
    }

    /// `F.silu(x)`.
    #[must_use]
    pub fn silu(&self, x: &Tensor) -> Tensor {
        self.unary(Op::Unary("gradient of silu"), "silu", x, true)
    }

    /// `x / y`, for a `y` that requires no gradient.
    #[must_use]
    pub fn div(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let mut recording = self.record(&[x]);
        recording.save(y);
        let mut out = self.like("quotient", x, promoted(x, y));
        recording.finish(Op::Unary("gradient of a quotient"), &mut [&mut out]);
        out
    }

    /// `x *= number`, in place.
    #[must_use]
    pub fn scale_in_place(&self, x: &Tensor) -> Tensor {
        let recording = self.record(&[x]);
        let mut out = x.detached();
        recording.finish(Op::Unary("gradient of a product with a number"), &mut [&mut out]);
        out
    }

    /// `x * number` or `x / number`.
    #[must_use]
    pub fn scale(&self, x: &Tensor) -> Tensor {
        self.unary(Op::Unary("gradient of a product with a number"), "product with a number", x, false)
    }

    /// `F.gelu(x)`.
    #[must_use]
    pub fn gelu(&self, x: &Tensor) -> Tensor {
        self.unary(Op::Unary("gradient of gelu"), "gelu", x, true)
    }

    /// `F.dropout(x, p)` in training; without dropout, `x` itself.
    #[must_use]
    pub fn dropout(&self, x: &Tensor, drops: bool) -> Tensor {
        if !drops {
            return x.clone();
        }
        let mut recording = self.record(&[x]);
        let mask = || self.like("dropout mask", x, Dtype::Bool);
        // The CUDA kernel allocates the mask first, the kernel of fake tensors last.
        let first = (self.recorder == Recorder::Gpu).then(mask);
        let mut out = self.like("dropout", x, x.dtype());
        let mask = first.unwrap_or_else(mask);
        recording.save(&mask);
        recording.finish(Op::Unary("gradient of dropout"), &mut [&mut out]);
        out
    }

    /// `x.masked_fill(buffer[..] == 0, value)`; the comparison allocates a mask of these sizes.
    #[must_use]
    pub fn masked_fill_where_zero(&self, x: &Tensor, mask_sizes: &[u64]) -> Tensor {
        let mask = self.empty("mask", mask_sizes, Dtype::Bool);
        let mut recording = self.record(&[x]);
        recording.save(&mask);
        let mut out = self.like("masked_fill", x, x.dtype());
        recording.finish(Op::Unary("gradient of masked_fill"), &mut [&mut out]);
        out
    }

    /// `F.softmax(x, dim=-1)`. Autocast computes it in float32: float16 within the kernel, bfloat16 after a cast.
    #[must_use]
    pub fn softmax(&self, x: &Tensor) -> Tensor {
        let is_half = self.autocast_dtype().is_some() && x.dtype() != Dtype::Float32;
        let cast = (is_half && x.dtype() == Dtype::Bfloat16).then(|| self.cast(x, Dtype::Float32));
        let input = cast.as_ref().unwrap_or(x);
        let mut recording = self.record(&[input]);
        let mut out = self.like("softmax", input, if is_half { Dtype::Float32 } else { x.dtype() });
        recording.save(&out);
        recording.finish(Op::Softmax(input.dtype()), &mut [&mut out]);
        out
    }

    /// `F.softmax(x, dim=-1, dtype=torch.float32)`: float16 within the kernel, bfloat16 after a cast.
    #[must_use]
    pub fn softmax_float32(&self, x: &Tensor) -> Tensor {
        let input = if x.dtype() == Dtype::Bfloat16 { self.cast(x, Dtype::Float32) } else { x.clone() };
        let mut recording = self.record(&[&input]);
        let mut out = self.like("softmax", &input, Dtype::Float32);
        recording.save(&out);
        recording.finish(Op::Softmax(input.dtype()), &mut [&mut out]);
        out
    }

    /// `softmax_backward_cuda_out`, which multiplies the gradient by the output first.
    pub(super) fn softmax_backward(&self, gradient: &Tensor, dtype: Dtype) -> Tensor {
        let out = self.like("gradient of softmax", gradient, dtype);
        let _product = (self.recorder == Recorder::Gpu).then(|| self.like("product", gradient, gradient.dtype()));
        out
    }

    /// `x.to(dtype)`, which copies if the dtype differs.
    #[must_use]
    pub fn cast(&self, x: &Tensor, dtype: Dtype) -> Tensor {
        if x.dtype() == dtype {
            return x.clone();
        }
        let recording = self.record(&[x]);
        let is_parameter = matches!(x.edge, Some(Edge::Leaf(_)));
        let _scope = is_parameter.then(|| self.enter_category(Category::CastCache));
        let mut out = self.like("cast", x, dtype);
        recording.finish(Op::Cast(x.dtype()), &mut [&mut out]);
        out
    }

    /// The tensor in autocast's half precision. Copies of parameters stay in the cache until the context ends.
    ///
    /// Source: `cached_cast` in aten/src/ATen/autocast_mode.cpp (2.11).
    #[must_use]
    pub fn lower(&self, x: &Tensor) -> Tensor {
        let Some(dtype) = self.autocast_dtype() else { return x.clone() };
        if x.dtype() != Dtype::Float32 {
            return x.clone();
        }
        let Some(Edge::Leaf(leaf)) = x.edge else { return self.cast(x, dtype) };
        let find = |(cached, cast): &(u32, Tensor)| (*cached == leaf).then(|| cast.clone());
        let cached = self.state.borrow().autocast.as_ref().and_then(|autocast| autocast.cache.iter().find_map(find));
        if let Some(cast) = cached {
            return cast;
        }
        let cast = self.cast(x, dtype);
        if let Some(autocast) = &mut self.state.borrow_mut().autocast {
            autocast.cache.push((leaf, cast.clone()));
        }
        cast
    }

    /// The tensor in float32, for an operation that autocast keeps in full precision.
    pub(super) fn upper(&self, x: &Tensor) -> Tensor {
        if self.autocast_dtype().is_some() { self.cast(x, Dtype::Float32) } else { x.clone() }
    }

    /// Runs an operation's own operations, to which autocast does not apply.
    pub(super) fn without_autocast<R>(&self, run: impl FnOnce() -> R) -> R {
        let before = self.state.borrow_mut().autocast.take();
        let result = run();
        self.state.borrow_mut().autocast = before;
        result
    }
}
