//! GELU over whole tensors.

use rayon::prelude::*;

use super::math::{normal, vectorized};

/// Elements a task.
const PIECE: usize = 8192;

/// Twin: `cpu/gelu.rs`; numerics: see [`normal`].
pub fn gelu_forward(out: &mut [f32], inp: &[f32]) {
    out.par_chunks_mut(PIECE).zip(inp.par_chunks(PIECE)).for_each(|(out, inp)| {
        vectorized(|| out.iter_mut().zip(inp).for_each(|(out, &x)| *out = x * normal(x).0));
    });
}

/// Makes the gradient of GELU's result that of its input, in place.
pub fn gelu_backward(inout: &mut [f32], inp: &[f32]) {
    inout.par_chunks_mut(PIECE).zip(inp.par_chunks(PIECE)).for_each(|(inout, inp)| {
        vectorized(|| {
            for (d, &x) in inout.iter_mut().zip(inp) {
                let (cdf, density) = normal(x);
                *d *= cdf + x * density;
            }
        });
    });
}
