//! Elementwise GELU.

use super::math::{normal, vectorized};

/// Computes GELU. Reference: `reference/gelu.rs`. Numerics: see [`normal`].
pub fn gelu_forward(out: &mut [f32], inp: &[f32]) {
    vectorized!(out.iter_mut().zip(inp).for_each(|(out, &x)| *out = x * normal(x).0));
}

/// Replaces the gradient of GELU's output by that of its input, in place.
pub fn gelu_backward(inout: &mut [f32], inp: &[f32]) {
    vectorized!({
        for (d, &x) in inout.iter_mut().zip(inp) {
            let (cdf, density) = normal(x);
            *d *= cdf + x * density;
        }
    });
}
