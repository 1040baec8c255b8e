//! Matrix products.

use super::{Gradients, Op};
use crate::{
    gpt::tensors::Category,
    torch::{Layout, Tensor, Torch},
};

impl Torch {
    /// `F.linear(x, weight, bias)`: `addmm` with a bias, otherwise `mm`.
    ///
    /// Autocast casts the arguments from the last to the first, as the compiler evaluates them.
    #[must_use]
    pub fn linear(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let bias = bias.map(|bias| self.lower(bias));
        let weight = self.lower(weight);
        let mut x = self.lower(x);
        if self.record(&[&x]).is_recorded() {
            x = self.rows(&x);
        }
        let mut recording = match &bias {
            Some(bias) => self.record(&[&x, &weight, bias]),
            None => self.record(&[&x, &weight]),
        };
        // In the order of the arguments' names: `mat1`, `mat2` of `addmm`, and `mat2`, `self` of `mm`.
        let saved = [(1, &x), (0, &weight)];
        let order = if bias.is_some() { [0, 1] } else { [1, 0] };
        for (needed_by, tensor) in order.map(|at| saved[at]) {
            if recording.needs(needed_by) {
                recording.save(tensor);
            }
        }
        let sizes = x.layout().narrowed(weight.layout().from_last(1));
        let mut out = self.empty("linear", sizes.sizes(), x.dtype());
        if bias.is_some() {
            self.cublaslt_workspace();
        }
        self.cublas_workspace();
        recording.finish(Op::Linear, &mut [&mut out]);
        out
    }

    /// `torch.addmm(bias, x, weight)` of matrices: a linear layer whose weight has the inputs as its first axis.
    ///
    /// Autocast casts the arguments from the last to the first.
    #[must_use]
    pub fn addmm(&self, bias: &Tensor, x: &Tensor, weight: &Tensor) -> Tensor {
        let weight = self.lower(weight);
        let x = self.lower(x);
        let bias = self.lower(bias);
        let mut recording = self.record(&[&x, &weight, &bias]);
        if recording.needs(1) {
            recording.save(&x);
        }
        if recording.needs(0) {
            recording.save(&weight);
        }
        let mut out = self.empty("linear", x.layout().narrowed(weight.layout().from_last(0)).sizes(), x.dtype());
        self.cublaslt_workspace();
        self.cublas_workspace();
        recording.finish(Op::Addmm, &mut [&mut out]);
        out
    }

    /// The input's gradient, then the weight's. The gradient of the bias is reduced afterwards.
    pub(super) fn addmm_backward(
        &self,
        gradients: Gradients<'_>,
        gradient: &Tensor,
        saved: &[Option<Tensor>],
    ) -> Vec<Option<Tensor>> {
        let mut saved = saved.iter();
        let mut next = |needs: bool| if needs { saved.next().cloned().flatten() } else { None };
        let [x, weight] = [next(gradients.needs(1)), next(gradients.needs(0))];
        let [rows, columns] = [1, 0].map(|n| gradient.layout().from_last(n));
        let product = |name, sizes: [u64; 2]| {
            let out = self.empty(name, &sizes, gradient.dtype());
            self.cublas_workspace();
            out
        };
        let dx = weight.map(|weight| product("gradient of linear", [rows, weight.layout().from_last(1)]));
        let dweight = x.map(|x| {
            let _scope = self.enter_category(Category::Gradients);
            product("gradient of linear's weight", [x.layout().from_last(0), columns])
        });
        vec![dx, dweight, gradients.needs(2).then(|| gradient.clone())]
    }

    /// A tensor whose axes but the last can be joined: `should_fold` in LinearAlgebra.cpp copies the others.
    pub(super) fn rows(&self, x: &Tensor) -> Tensor {
        let channels = x.layout().from_last(0);
        match x.layout().viewed(&[x.layout().elements() / channels.max(1), channels]) {
            Some(_) => x.clone(),
            None => self.contiguous(x),
        }
    }

    /// `addmm` computes the input's gradient first, `mm` the weight's. The gradient of a bias is reduced afterwards.
    pub(super) fn linear_backward(
        &self,
        gradients: Gradients<'_>,
        gradient: &Tensor,
        saved: &[Option<Tensor>],
    ) -> Vec<Option<Tensor>> {
        let mut saved = saved.iter();
        let mut next = |needs: bool| if needs { saved.next().cloned().flatten() } else { None };
        let has_bias = gradients.needs.len() == 3;
        let (x, weight);
        if has_bias {
            x = next(gradients.needs(1));
            weight = next(gradients.needs(0));
        } else {
            weight = next(gradients.needs(0));
            x = next(gradients.needs(1));
        }
        let input = || {
            let weight = weight.as_ref()?;
            let sizes = gradient.layout().narrowed(weight.layout().from_last(0));
            let out = self.empty("gradient of linear", sizes.sizes(), gradient.dtype());
            self.cublas_workspace();
            // `mm` has two axes: its result is viewed with the axes of the input.
            Some(if sizes.sizes().len() == 2 { out } else { out.into_view() })
        };
        let parameter = || {
            let _scope = self.enter_category(Category::Gradients);
            let channels = [gradient.layout().from_last(0), x.as_ref()?.layout().from_last(0)];
            let out = self.empty("gradient of linear's weight", &channels, gradient.dtype());
            self.cublas_workspace();
            // A transpose of the product.
            Some(out.into_view())
        };
        let (dx, dweight);
        if has_bias {
            dx = input();
            dweight = parameter();
        } else {
            dweight = parameter();
            dx = input();
        }
        let dbias = gradients.needs(2).then(|| gradient.clone());
        if has_bias { vec![dx, dweight, dbias] } else { vec![dx, dweight] }
    }

    /// `a @ b` of tensors with four axes: `bmm` of their matrices, each copied if its first axes cannot be joined.
    ///
    /// Source: `_matmul_impl` in aten/src/ATen/native/LinearAlgebra.cpp (2.11).
    #[must_use]
    pub fn matmul(&self, a: &Tensor, b: &Tensor) -> Tensor {
        let b = self.lower(b);
        let a = self.lower(a);
        let joined = |x: &Tensor| {
            let [rows, columns] = [1, 0].map(|n| x.layout().from_last(n));
            self.reshape(x, &[x.layout().elements() / (rows * columns).max(1), rows, columns])
        };
        let (left, right) = (joined(&a), joined(&b));
        let mut recording = self.record(&[&left, &right]);
        // The gradient of a factor requires the other factor.
        for (needed, factor) in [(1, &left), (0, &right)] {
            if recording.needs(needed) {
                recording.save(factor);
            }
        }
        let columns = right.layout().from_last(0);
        let mut out = self.empty("matmul", left.layout().narrowed(columns).sizes(), left.dtype());
        self.cublas_workspace();
        recording.finish(Op::Bmm([*left.layout(), *right.layout()]), &mut [&mut out]);
        drop((left, right));
        self.reshape(&out, a.layout().narrowed(columns).sizes())
    }

    /// `bmm` computes the second factor's gradient first.
    pub(super) fn bmm_backward(
        &self,
        gradients: Gradients<'_>,
        gradient: &Tensor,
        [left, right]: &[Layout; 2],
    ) -> Vec<Option<Tensor>> {
        let of = |at: usize, factor: &Layout| {
            gradients.needs(at).then(|| {
                let out = self.empty("gradient of matmul", factor.sizes(), gradient.dtype());
                self.cublas_workspace();
                out
            })
        };
        let of_right = of(1, right);
        vec![of(0, left), of_right]
    }
}
