//! The kernels as functions: each checks that tensors are as long as the sizes say, chooses the grid, and launches.
//!
//! Twins of [`crate::cpu`]: results come first, then what they are computed from, then sizes.

pub mod global_norm;
