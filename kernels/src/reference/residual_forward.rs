//! The residual stream.

use super::RealNumber;

/// Adds a branch to the residual stream, in place.
///
/// # Panics
/// If the lengths differ.
pub fn residual_forward<F: RealNumber>(residual: &mut [F], branch: &[F]) {
    assert_eq!(residual.len(), branch.len(), "both are (B, T, C)");
    for (residual, &branch) in residual.iter_mut().zip(branch) {
        *residual += branch;
    }
}
