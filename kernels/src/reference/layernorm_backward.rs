//! Backward of layer normalisation.

use super::RealNumber;

/// The gradients that a call adds to.
#[derive(Debug)]
pub struct Gradients<'a, F> {
    /// The gradient of the rows, (B, T, C).
    pub dinp: &'a mut [F],
    /// The gradient of the scale, (C).
    pub dweight: &'a mut [F],
    /// The gradient of the optional shift, (C).
    pub dbias: Option<&'a mut [F]>,
}

/// The tensors saved by forward.
#[derive(Clone, Copy, Debug)]
pub struct SavedNorm<'a, F> {
    /// The rows before normalisation, (B, T, C).
    pub inp: &'a [F],
    /// Each row's mean, (B, T).
    pub mean: &'a [F],
    /// Each row's inverse standard deviation, (B, T).
    pub rstd: &'a [F],
}

/// Adds the gradients of [`super::layernorm_forward`].
///
/// Shapes: `dout` (B, T, C), `weight` (C) → adds to `dinp` (B, T, C), `dweight` (C), `dbias` (C).
/// Source: with xhat = (x - mean) * rstd and g = dout * weight,
/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)).
///
/// # Panics
/// If slice lengths are inconsistent.
pub fn layernorm_backward<F: RealNumber>(
    gradients: Gradients<'_, F>,
    dout: &[F],
    saved: SavedNorm<'_, F>,
    weight: &[F],
) {
    let Gradients { dinp, dweight, mut dbias } = gradients;
    let SavedNorm { inp, mean, rstd } = saved;
    let c = weight.len();
    assert!(c > 0 && dweight.len() == c, "weight and dweight are (C)");
    assert_eq!(inp.len(), dout.len(), "inp and dout are both (B, T, C)");
    assert_eq!(inp.len(), dinp.len(), "inp and dinp are both (B, T, C)");
    assert_eq!(inp.len(), mean.len() * c, "mean is (B, T)");
    assert_eq!(mean.len(), rstd.len(), "rstd is (B, T)");
    let rows = inp.chunks_exact(c).zip(dout.chunks_exact(c)).zip(dinp.chunks_exact_mut(c)).zip(mean.iter().zip(rstd));
    for (((inp, dout), dinp), (&m, &r)) in rows {
        let (mut sum_g, mut sum_g_xhat) = (F::zero(), F::zero());
        for i in 0..c {
            let xhat = (inp[i] - m) * r;
            let g = dout[i] * weight[i];
            sum_g += g;
            sum_g_xhat += g * xhat;
            dweight[i] += dout[i] * xhat;
            if let Some(dbias) = dbias.as_deref_mut() {
                dbias[i] += dout[i];
            }
        }
        let (mean_g, mean_g_xhat) = (sum_g / F::count(c), sum_g_xhat / F::count(c));
        for i in 0..c {
            let xhat = (inp[i] - m) * r;
            dinp[i] += r * (dout[i] * weight[i] - mean_g - xhat * mean_g_xhat);
        }
    }
}
