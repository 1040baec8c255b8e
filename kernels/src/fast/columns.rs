//! Sums down the columns: the gradients of biases and of layer norms' parameters.

use rayon::prelude::*;

use super::math::vectorized;

/// Columns a task.
const COLUMNS: usize = 64;

/// Adds each column's sum of `src` to `dst`.
///
/// Shapes: `src` (N, OC) → `dst` (OC).
pub fn add_column_sums(dst: &mut [f32], src: &[f32]) {
    let width = dst.len();
    dst.par_chunks_mut(COLUMNS).enumerate().for_each(|(i, dst)| {
        vectorized(|| {
            let mut sums = [0.0_f32; COLUMNS];
            let n = dst.len();
            for row in src.chunks_exact(width) {
                let row = &row[i * COLUMNS..][..n];
                sums[..n].iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
            dst.iter_mut().zip(&sums).for_each(|(dst, sum)| *dst += sum);
        });
    });
}

/// Adds a layer norm's parameters' gradients.
///
/// Shapes: `dln`, `xhat` (N, C) → adds to `dweight` (C) and, where there is one, `dbias` (C).
pub fn add_norm_gradients(dweight: &mut [f32], dbias: Option<&mut [f32]>, dln: &[f32], xhat: &[f32]) {
    let width = dweight.len();
    dweight.par_chunks_mut(COLUMNS).enumerate().for_each(|(i, dweight)| {
        vectorized(|| {
            let mut sums = [0.0_f32; COLUMNS];
            let n = dweight.len();
            for (dln, xhat) in dln.chunks_exact(width).zip(xhat.chunks_exact(width)) {
                let (dln, xhat) = (&dln[i * COLUMNS..][..n], &xhat[i * COLUMNS..][..n]);
                sums[..n].iter_mut().zip(dln.iter().zip(xhat)).for_each(|(sum, (d, x))| *sum += d * x);
            }
            dweight.iter_mut().zip(&sums).for_each(|(dst, sum)| *dst += sum);
        });
    });
    if let Some(dbias) = dbias {
        add_column_sums(dbias, dln);
    }
}
