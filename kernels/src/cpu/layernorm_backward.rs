//! Layer normalisation, backward.

use super::Real;

/// What a call adds to, as slices the caller owns.
#[derive(Debug)]
pub struct Gradients<'a, F> {
    /// Gradient of the rows, (B, T, C).
    pub dinp: &'a mut [F],
    /// Gradient of the scale, (C).
    pub dweight: &'a mut [F],
    /// Gradient of the shift, (C), where there is one.
    pub dbias: Option<&'a mut [F]>,
}

/// What forward kept.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a, F> {
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
/// A slice length disagrees with the others.
pub fn layernorm_backward<F: Real>(gradients: Gradients<'_, F>, dout: &[F], saved: Saved<'_, F>, weight: &[F]) {
    let Gradients { dinp, dweight, mut dbias } = gradients;
    let Saved { inp, mean, rstd } = saved;
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
