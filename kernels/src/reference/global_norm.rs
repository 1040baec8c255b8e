//! The global gradient norm, for gradient clipping.

use super::RealNumber;

/// The sum of squares in f64, of which the norm is the square root.
#[must_use]
pub fn sum_of_squares<F: RealNumber>(gradients: &[F]) -> f64 {
    gradients.iter().map(|g| g.wide() * g.wide()).sum()
}

/// The factor of gradients that limits their norm to `grad_clip`; 1 if `grad_clip` is 0.
///
/// Source: `torch.nn.utils.clip_grad_norm_`.
#[must_use]
pub fn clip_scale(norm: f64, grad_clip: f64) -> f64 {
    if grad_clip > 0.0 { (grad_clip / (norm + 1e-6)).min(1.0) } else { 1.0 }
}
