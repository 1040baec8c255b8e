//! The residual stream.

use super::Real;

/// Adds a branch to the residual stream, in place.
///
/// # Panics
/// The lengths differ.
pub fn residual_forward<F: Real>(residual: &mut [F], branch: &[F]) {
    assert_eq!(residual.len(), branch.len(), "both are (B, T, C)");
    for (residual, &branch) in residual.iter_mut().zip(branch) {
        *residual += branch;
    }
}
