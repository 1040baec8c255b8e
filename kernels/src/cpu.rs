//! The CPU reference of every kernel: plain loops over slices that define what is correct.
//!
//! Generic over [`Real`], so that tests can hold gradients against finite differences in f64. Shapes are slowest axis
//! first; B sequences of T tokens, C channels, NH heads of HS channels each, OC channels out, V rows of the embedding.
//! Results come first among the arguments, then what they are computed from, then sizes. `_forward` writes its results;
//! `_backward` adds to gradients, so that micro-steps accumulate. Slice lengths that disagree are a caller's bug and
//! panic; nothing here reads input from outside.

pub mod adamw_update;
pub mod attention_backward;
pub mod attention_forward;
pub mod cached;
pub mod crossentropy;
pub mod dropout;
pub mod encoder;
pub mod gelu;
pub mod global_norm;
pub mod gpt;
pub mod layernorm_backward;
pub mod layernorm_forward;
pub mod matmul;
pub mod matvec_forward;
pub mod pack;
pub mod real;
pub mod residual_forward;

pub use real::Real;
