//! The residual stream's additions and its layer norms, a row at a time while it is in cache.

use rayon::prelude::*;

use super::math::{sum, sum2, sum3, vectorized};
use crate::cpu::{dropout::Dropout, layernorm_forward::EPS};

/// Rows a task; few enough to share, many enough to be worth waking a thread.
const ROWS: usize = 16;

/// What is still to be added to the residual stream before it is normalised.
#[derive(Clone, Copy, Debug)]
pub enum Pending<'a> {
    /// Nothing: the product was added already, and there is no bias.
    Nothing,
    /// The branch's bias; its product was added already.
    Bias(&'a [f32]),
    /// The branch, its bias, and what dropout takes of both.
    Dropped(&'a [f32], Option<&'a [f32]>, Dropout),
}

/// A layer norm's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// (C).
    pub weight: &'a [f32],
    /// (C), where there is one.
    pub bias: Option<&'a [f32]>,
}

/// Where a layer norm writes.
#[derive(Debug)]
pub struct Output<'a> {
    /// The normalised rows before scale and shift, (N, C); kept for backward.
    pub xhat: &'a mut [f32],
    /// Each row's inverse standard deviation, (N); kept for backward.
    pub rstd: &'a mut [f32],
    /// The result, (N, C).
    pub ln: &'a mut [f32],
}

/// Adds what is pending to the residual stream, in place, and normalises it.
///
/// Shapes: `residual` (N, C). Twin: `cpu/layernorm_forward.rs`, after `cpu/residual_forward.rs`.
pub fn add_and_norm(output: Output<'_>, residual: &mut [f32], pending: Pending<'_>, affine: Affine<'_>) {
    let c = affine.weight.len();
    let Output { xhat, rstd, ln } = output;
    let rows = residual.par_chunks_mut(ROWS * c).zip(xhat.par_chunks_mut(ROWS * c));
    let rows = rows.zip(ln.par_chunks_mut(ROWS * c)).zip(rstd.par_chunks_mut(ROWS)).enumerate();
    rows.for_each(|(task, (((residual, xhat), ln), rstd))| {
        vectorized(|| {
            let rows = residual.chunks_exact_mut(c).zip(xhat.chunks_exact_mut(c)).zip(ln.chunks_exact_mut(c));
            for (i, (((residual, xhat), ln), rstd)) in rows.zip(rstd).enumerate() {
                add(residual, pending, (task * ROWS + i) * c);
                *rstd = normalize(xhat, residual);
                scale_and_shift(ln, xhat, affine);
            }
        });
    });
}

/// Adds what is pending to the residual stream, for a pass that normalises nothing afterwards.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a mask of more than 2^32 elements repeats itself")]
fn add(residual: &mut [f32], pending: Pending<'_>, start: usize) {
    match pending {
        Pending::Nothing => {}
        Pending::Bias(bias) => residual.iter_mut().zip(bias).for_each(|(x, b)| *x += b),
        Pending::Dropped(branch, bias, dropout) => {
            let branch = &branch[start..][..residual.len()];
            for (j, (x, branch)) in residual.iter_mut().zip(branch).enumerate() {
                let bias = bias.map_or(0.0, |bias| bias[j]);
                *x += (branch + bias) * dropout.factor((start + j) as u32);
            }
        }
    }
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

/// A layer norm's result again from what forward kept.
pub fn restore(ln: &mut [f32], xhat: &[f32], affine: Affine<'_>) {
    let c = affine.weight.len();
    ln.par_chunks_mut(ROWS * c).zip(xhat.par_chunks(ROWS * c)).for_each(|(ln, xhat)| {
        vectorized(|| {
            ln.chunks_exact_mut(c).zip(xhat.chunks_exact(c)).for_each(|(ln, xhat)| scale_and_shift(ln, xhat, affine));
        });
    });
}

/// Adds the gradient of a layer norm's input to the residual stream's, or writes it there.
///
/// Shapes: `dln` (N, C), `xhat` (N, C), `rstd` (N), `weight` (C) → `dresidual` (N, C).
/// Twin: `cpu/layernorm_backward.rs`.
pub fn norm_backward(dresidual: &mut [f32], adds: bool, dln: &[f32], xhat: &[f32], rstd: &[f32], weight: &[f32]) {
    let c = weight.len();
    let rows = dresidual.par_chunks_mut(ROWS * c).zip(dln.par_chunks(ROWS * c));
    rows.zip(xhat.par_chunks(ROWS * c)).zip(rstd.par_chunks(ROWS)).for_each(|(((dresidual, dln), xhat), rstd)| {
        vectorized(|| {
            let rows = dresidual.chunks_exact_mut(c).zip(dln.chunks_exact(c)).zip(xhat.chunks_exact(c));
            for (((dresidual, dln), xhat), &rstd) in rows.zip(rstd) {
                let mean = sum2(dln, weight, |d, w| d * w) / c as f32;
                let mean_xhat = sum3(dln, weight, xhat, |d, w, x| d * w * x) / c as f32;
                let rows = dresidual.iter_mut().zip(dln).zip(weight).zip(xhat);
                for (((dresidual, d), w), xhat) in rows {
                    let gradient = rstd * (d * w - mean - xhat * mean_xhat);
                    *dresidual = if adds { *dresidual + gradient } else { gradient };
                }
            }
        });
    });
}
