//! The CPU reference of every kernel: plain loops over slices that define what is correct.

pub mod layernorm_forward;
