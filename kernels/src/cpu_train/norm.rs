//! Layer norms, and the additions to the residual stream before them, for a range of rows.

use super::math::{sum, sum2, sum3, vectorized};
use crate::reference::{dropout::Dropout, layernorm_forward::EPS};

/// Adds a branch with dropout, and its bias, to the residual stream. Reference: `reference/residual_forward.rs`.
///
/// Shapes: `residual`, `branch` (N, C). `start` is the number of their first element in the whole tensor.
#[expect(clippy::cast_possible_truncation, reason = "a mask of more than 2^32 elements repeats itself")]
pub fn add_dropped(residual: &mut [f32], branch: &[f32], bias: Option<&[f32]>, dropout: Dropout, start: usize) {
    let width = bias.map_or(residual.len(), <[f32]>::len);
    vectorized!({
        let rows = residual.chunks_exact_mut(width).zip(branch.chunks_exact(width)).zip((start..).step_by(width));
        for ((residual, branch), start) in rows {
            for (j, (x, branch)) in residual.iter_mut().zip(branch).enumerate() {
                let bias = bias.map_or(0.0, |bias| bias[j]);
                *x += (branch + bias) * dropout.factor((start + j) as u32);
            }
        }
    });
}

pub fn add_bias(rows: &mut [f32], bias: &[f32]) {
    vectorized!({
        rows.chunks_exact_mut(bias.len()).for_each(|row| row.iter_mut().zip(bias).for_each(|(x, b)| *x += b));
    });
}

/// A layer norm's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// The scale, (C).
    pub weight: &'a [f32],
    /// The optional shift, (C).
    pub bias: Option<&'a [f32]>,
}

/// The outputs of a layer norm's forward.
#[derive(Debug)]
pub struct Output<'a> {
    /// The normalised rows before scale and shift, (N, C); saved for backward.
    pub xhat: &'a mut [f32],
    /// Each row's inverse standard deviation, (N); saved for backward.
    pub rstd: &'a mut [f32],
    /// The layer norm's output, (N, C).
    pub ln: &'a mut [f32],
}

/// Normalises rows. Reference: `reference/layernorm_forward.rs`.
///
/// Shapes: `inp` (N, C).
pub fn norm_forward(output: Output<'_>, inp: &[f32], affine: Affine<'_>) {
    let c = affine.weight.len();
    let Output { xhat, rstd, ln } = output;
    vectorized!({
        let rows = inp.chunks_exact(c).zip(xhat.chunks_exact_mut(c)).zip(ln.chunks_exact_mut(c));
        for (((inp, xhat), ln), rstd) in rows.zip(rstd.iter_mut()) {
            *rstd = normalize(xhat, inp);
            scale_and_shift(ln, xhat, affine);
        }
    });
}

#[inline(always)]
fn normalize(xhat: &mut [f32], row: &[f32]) -> f32 {
    let n = row.len() as f32;
    let mean = sum(row, |x| x) / n;
    let rstd = 1.0 / (sum(row, |x| (x - mean) * (x - mean)) / n + EPS).sqrt();
    xhat.iter_mut().zip(row).for_each(|(xhat, x)| *xhat = (x - mean) * rstd);
    rstd
}

#[inline(always)]
fn scale_and_shift(ln: &mut [f32], xhat: &[f32], affine: Affine<'_>) {
    let scaled = ln.iter_mut().zip(xhat).zip(affine.weight);
    match affine.bias {
        None => scaled.for_each(|((ln, xhat), w)| *ln = xhat * w),
        Some(bias) => scaled.zip(bias).for_each(|(((ln, xhat), w), b)| *ln = xhat * w + b),
    }
}

/// Recomputes a layer norm's output from the saved `xhat`.
pub fn restore(ln: &mut [f32], xhat: &[f32], affine: Affine<'_>) {
    let c = affine.weight.len();
    vectorized!({
        ln.chunks_exact_mut(c).zip(xhat.chunks_exact(c)).for_each(|(ln, xhat)| scale_and_shift(ln, xhat, affine));
    });
}

/// The inputs of a layer norm's backward.
#[derive(Clone, Copy, Debug)]
pub struct NormInputs<'a> {
    /// The gradient of the layer norm's output, (N, C).
    pub dln: &'a [f32],
    /// The normalised rows, (N, C).
    pub xhat: &'a [f32],
    /// Each row's inverse standard deviation, (N).
    pub rstd: &'a [f32],
    /// The scale, (C).
    pub weight: &'a [f32],
}

/// Computes the gradient of a layer norm's input, plus `past`, the gradient of the residual connection around it.
///
/// Shapes: `past` (N, C) → `dinp` (N, C). Reference: `reference/layernorm_backward.rs`.
pub fn norm_backward(dinp: &mut [f32], past: Option<&[f32]>, normalized: NormInputs<'_>) {
    let NormInputs { dln, xhat, rstd, weight } = normalized;
    let c = weight.len();
    vectorized!({
        let rows = dinp.chunks_exact_mut(c).zip(dln.chunks_exact(c)).zip(xhat.chunks_exact(c));
        for (i, (((dinp, dln), xhat), &rstd)) in rows.zip(rstd).enumerate() {
            let mean = sum2(dln, weight, |d, w| d * w) / c as f32;
            let mean_xhat = sum3(dln, weight, xhat, |d, w, x| d * w * x) / c as f32;
            let gradients = dln.iter().zip(weight).zip(xhat).map(|((d, w), x)| rstd * (d * w - mean - x * mean_xhat));
            match past {
                None => dinp.iter_mut().zip(gradients).for_each(|(dinp, gradient)| *dinp = gradient),
                Some(past) => {
                    let past = &past[i * c..][..c];
                    dinp.iter_mut()
                        .zip(gradients.zip(past))
                        .for_each(|(dinp, (gradient, past))| *dinp = past + gradient);
                }
            }
        }
    });
}
