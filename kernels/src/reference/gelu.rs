//! The MLP's activation: exact GELU, which nanoGPT uses as `torch.nn.GELU()`, and the tanh form of OpenAI's weights.

use super::RealNumber;

/// Computes GELU: x * Phi(x), where Phi is the normal distribution's cumulative function.
///
/// Shapes: `inp` → `out`, elementwise. Source: arXiv:1606.08415, the exact form with the error function.
///
/// # Panics
/// If the lengths differ.
pub fn gelu_forward<F: RealNumber>(out: &mut [F], inp: &[F]) {
    assert_eq!(out.len(), inp.len(), "out and inp have one shape");
    for (out, &x) in out.iter_mut().zip(inp) {
        *out = x * cdf(x);
    }
}

/// Computes GELU's tanh approximation, `gelu_new` in the configs of OpenAI's weights. Differs from the exact form by up
/// to 5e-4.
///
/// Shapes: `inp` → `out`, elementwise. Source: arXiv:1606.08415, section 2.
///
/// # Panics
/// If the lengths differ.
pub fn gelu_tanh_forward<F: RealNumber>(out: &mut [F], inp: &[F]) {
    assert_eq!(out.len(), inp.len(), "out and inp have one shape");
    let factor = F::of((2.0 / std::f64::consts::PI).sqrt());
    for (out, &x) in out.iter_mut().zip(inp) {
        *out = F::of(0.5) * x * (F::one() + (factor * (x + F::of(0.044_715) * x * x * x)).tanh());
    }
}

/// Adds the gradient of [`gelu_forward`].
///
/// Source: d/dx x Phi(x) = Phi(x) + x phi(x), where phi is the normal density.
///
/// # Panics
/// If the lengths differ.
pub fn gelu_backward<F: RealNumber>(dinp: &mut [F], dout: &[F], inp: &[F]) {
    assert!(dinp.len() == inp.len() && dout.len() == inp.len(), "dinp, dout and inp have one shape");
    for ((dinp, &dout), &x) in dinp.iter_mut().zip(dout).zip(inp) {
        let density = (-x * x * F::of(0.5)).exp()
            * F::of(std::f64::consts::FRAC_2_SQRT_PI * 0.5 * std::f64::consts::FRAC_1_SQRT_2);
        *dinp += dout * (cdf(x) + x * density);
    }
}

fn cdf<F: RealNumber>(x: F) -> F {
    F::of(0.5) * (F::one() + (x * F::of(std::f64::consts::FRAC_1_SQRT_2)).erf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_near_each_other_and_not_the_same() {
        let inp: Vec<f64> = (-60..=60).map(|x| f64::from(x) * 0.1).collect();
        let (mut exact, mut tanh) = (vec![0.0; inp.len()], vec![0.0; inp.len()]);
        gelu_forward(&mut exact, &inp);
        gelu_tanh_forward(&mut tanh, &inp);
        let worst = exact.iter().zip(&tanh).map(|(exact, tanh)| (exact - tanh).abs()).fold(0.0, f64::max);
        assert!((1e-4..5e-4).contains(&worst), "{worst}");
    }
}
