//! The activation between the two linear layers of a block: `torch.nn.GELU()`, as nanoGPT has it.

use super::Real;

/// x * Phi(x), Phi being the normal distribution's cumulative function.
///
/// Shapes: `inp` → `out`, element by element. Source: arXiv:1606.08415, the exact form with the error function.
///
/// # Panics
/// The lengths differ.
pub fn gelu_forward<F: Real>(out: &mut [F], inp: &[F]) {
    assert_eq!(out.len(), inp.len(), "out and inp have one shape");
    for (out, &x) in out.iter_mut().zip(inp) {
        *out = x * cdf(x);
    }
}

/// Adds the gradient of [`gelu_forward`].
///
/// Source: d/dx x Phi(x) = Phi(x) + x phi(x), phi being the normal density.
///
/// # Panics
/// The lengths differ.
pub fn gelu_backward<F: Real>(dinp: &mut [F], dout: &[F], inp: &[F]) {
    assert!(dinp.len() == inp.len() && dout.len() == inp.len(), "dinp, dout and inp have one shape");
    for ((dinp, &dout), &x) in dinp.iter_mut().zip(dout).zip(inp) {
        let density = (-x * x * F::of(0.5)).exp()
            * F::of(std::f64::consts::FRAC_2_SQRT_PI * 0.5 * std::f64::consts::FRAC_1_SQRT_2);
        *dinp += dout * (cdf(x) + x * density);
    }
}

fn cdf<F: Real>(x: F) -> F {
    F::of(0.5) * (F::one() + (x * F::of(std::f64::consts::FRAC_1_SQRT_2)).erf())
}
