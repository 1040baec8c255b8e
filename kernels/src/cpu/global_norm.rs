//! The length of all gradients together, for clipping.

use super::Real;

/// The sum of squares in f64; the norm is its root.
#[must_use]
pub fn sum_of_squares<F: Real>(gradients: &[F]) -> f64 {
    gradients.iter().map(|g| g.wide() * g.wide()).sum()
}

/// What gradients are multiplied with so that their norm is at most `grad_clip`; 1 where it is 0.
///
/// Source: `torch.nn.utils.clip_grad_norm_`.
#[must_use]
pub fn clip_scale(norm: f64, grad_clip: f64) -> f64 {
    if grad_clip > 0.0 { (grad_clip / (norm + 1e-6)).min(1.0) } else { 1.0 }
}
