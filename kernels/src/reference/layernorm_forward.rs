//! Forward of layer normalisation.

use super::RealNumber;

/// The constant added to the variance: PyTorch's default.
pub const EPS: f32 = 1e-5;

/// The outputs of a call.
#[derive(Debug)]
pub struct Output<'a, F> {
    /// The normalised rows, (B, T, C).
    pub out: &'a mut [F],
    /// Each row's mean, (B, T); saved for backward.
    pub mean: &'a mut [F],
    /// Each row's inverse standard deviation, (B, T); saved for backward.
    pub rstd: &'a mut [F],
}

/// Normalises each token's channels, then scales and shifts them.
///
/// Shapes: `inp` (B, T, C), `weight` (C), optional `bias` (C) → `out` (B, T, C); `mean`, `rstd` (B, T) saved for
/// backward.
/// Numerics: biased variance, with eps 1e-5 inside the root.
/// Source: arXiv:1607.06450; matches `torch.nn.LayerNorm`.
///
/// # Panics
/// If slice lengths are inconsistent, which is the caller's bug.
pub fn layernorm_forward<F: RealNumber>(output: Output<'_, F>, inp: &[F], weight: &[F], bias: Option<&[F]>) {
    let Output { out, mean, rstd } = output;
    let c = weight.len();
    assert!(c > 0, "layernorm_forward needs at least one channel");
    assert_eq!(inp.len(), out.len(), "inp and out are both (B, T, C)");
    assert_eq!(inp.len(), mean.len() * c, "mean is (B, T)");
    assert_eq!(mean.len(), rstd.len(), "rstd is (B, T)");
    assert!(bias.is_none_or(|bias| bias.len() == c), "bias is (C)");
    let rows = inp.chunks_exact(c).zip(out.chunks_exact_mut(c)).zip(mean.iter_mut().zip(rstd));
    for ((inp, out), (mean, rstd)) in rows {
        let m = inp.iter().copied().sum::<F>() / F::count(c);
        let variance = inp.iter().map(|&x| (x - m) * (x - m)).sum::<F>() / F::count(c);
        let r = F::one() / (variance + F::of(f64::from(EPS))).sqrt();
        for (i, (out, &x)) in out.iter_mut().zip(inp).enumerate() {
            *out = (x - m) * r * weight[i] + bias.map_or(F::zero(), |bias| bias[i]);
        }
        *mean = m;
        *rstd = r;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(inp: &[f32], weight: &[f32], bias: Option<&[f32]>) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let rows = inp.len() / weight.len();
        let (mut out, mut mean, mut rstd) = (vec![0.0; inp.len()], vec![0.0; rows], vec![0.0; rows]);
        layernorm_forward(Output { out: &mut out, mean: &mut mean, rstd: &mut rstd }, inp, weight, bias);
        (out, mean, rstd)
    }

    #[track_caller]
    fn check_close(got: &[f32], want: &[f32]) {
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            // Written such that NaN fails.
            assert!((got - want).abs() <= 1e-6 + 1e-5 * want.abs(), "element {i}: {got} instead of {want}");
        }
    }

    /// Values of `torch.nn.functional.layer_norm`, computed by hand: mean 2.5, biased variance 1.25.
    #[test]
    fn matches_the_definition() {
        let (out, mean, rstd) = run(&[1.0, 2.0, 3.0, 4.0], &[1.0, 1.0, 2.0, 1.0], Some(&[0.0, 0.0, 0.0, 1.0]));
        check_close(&mean, &[2.5]);
        check_close(&rstd, &[0.894_423_6]);
        check_close(&out, &[-1.341_635_4, -0.447_211_8, 0.894_423_6, 2.341_635_4]);
    }

    #[test]
    fn a_constant_row_becomes_the_bias() {
        let (out, _, _) = run(&[7.0; 6], &[3.0; 3], Some(&[1.0, 2.0, 3.0]));
        check_close(&out, &[1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    #[should_panic(expected = "element 0")]
    fn the_comparison_can_fail() {
        check_close(&[f32::NAN], &[1.0]);
    }
}
