//! Linear layers.

use super::RealNumber;

/// Computes a linear layer over rows.
///
/// Shapes: `inp` (N, C), `weight` (OC, C), optional `bias` (OC) → `out` (N, OC), with N = B * T.
/// Source: `torch.nn.functional.linear`.
///
/// # Panics
/// If slice lengths are inconsistent.
pub fn matmul_forward<F: RealNumber>(out: &mut [F], inp: &[F], weight: &[F], bias: Option<&[F]>, c: usize) {
    let oc = weight.len() / c;
    assert_eq!(weight.len(), oc * c, "weight is (OC, C)");
    assert_eq!(inp.len() * oc, out.len() * c, "inp is (N, C) and out (N, OC)");
    assert!(bias.is_none_or(|bias| bias.len() == oc), "bias is (OC)");
    for (inp, out) in inp.chunks_exact(c).zip(out.chunks_exact_mut(oc)) {
        for (o, (out, weight)) in out.iter_mut().zip(weight.chunks_exact(c)).enumerate() {
            let dot: F = inp.iter().zip(weight).map(|(&x, &w)| x * w).sum();
            *out = dot + bias.map_or(F::zero(), |bias| bias[o]);
        }
    }
}

/// The gradients that [`matmul_backward`] adds to.
#[derive(Debug)]
pub struct Gradients<'a, F> {
    /// The gradient of the rows, (N, C).
    pub dinp: &'a mut [F],
    /// The gradient of the weight, (OC, C).
    pub dweight: &'a mut [F],
    /// The gradient of the optional bias, (OC).
    pub dbias: Option<&'a mut [F]>,
}

/// Adds the gradients of [`matmul_forward`].
///
/// Shapes: `dout` (N, OC), `inp` (N, C), `weight` (OC, C) → adds to `dinp` (N, C), `dweight` (OC, C), `dbias` (OC).
///
/// # Panics
/// If slice lengths are inconsistent.
pub fn matmul_backward<F: RealNumber>(gradients: Gradients<'_, F>, dout: &[F], inp: &[F], weight: &[F], c: usize) {
    let Gradients { dinp, dweight, mut dbias } = gradients;
    let oc = weight.len() / c;
    assert_eq!(weight.len(), oc * c, "weight is (OC, C)");
    assert_eq!(inp.len() * oc, dout.len() * c, "inp is (N, C) and dout (N, OC)");
    assert!(dinp.len() == inp.len() && dweight.len() == weight.len(), "gradients have their tensors' shapes");
    for ((inp, dinp), dout) in inp.chunks_exact(c).zip(dinp.chunks_exact_mut(c)).zip(dout.chunks_exact(oc)) {
        for (o, &d) in dout.iter().enumerate() {
            for i in 0..c {
                dinp[i] += d * weight[o * c + i];
                dweight[o * c + i] += d * inp[i];
            }
            if let Some(dbias) = dbias.as_deref_mut() {
                dbias[o] += d;
            }
        }
    }
}
