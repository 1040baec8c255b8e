//! The kernels as functions: each checks that tensors are as long as the sizes say, chooses the grid, and launches.
//!
//! Twins of [`crate::cpu`]: results come first, then what they are computed from, then sizes.

pub mod adamw_update;
pub mod attention_backward;
pub mod attention_forward;
pub mod bias_backward;
pub mod classifier;
pub mod dropout;
pub mod encoder_backward;
pub mod encoder_forward;
pub mod gelu;
pub mod global_norm;
pub mod layernorm_backward;
pub mod layernorm_forward;
pub mod losses;
pub mod matmul;
mod sum_planes;

use super::CudaError;

/// Elements of 16 bits that a kernel moves at once.
const EIGHT: u64 = 8;

/// A count as kernels take it.
fn count(op: &'static str, what: &'static str, value: u64) -> Result<u32, CudaError> {
    u32::try_from(value).map_err(|_| CudaError::Size { op, what, value, needed: "below 2^32" })
}

/// A count of elements that are moved by eights.
fn eights(op: &'static str, what: &'static str, value: u64) -> Result<u64, CudaError> {
    if value.is_multiple_of(EIGHT) {
        return Ok(value / EIGHT);
    }
    Err(CudaError::Size { op, what, value, needed: "a multiple of 8" })
}
