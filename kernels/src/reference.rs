//! CPU reference implementation of every kernel: plain loops over slices that define correct results.
//!
//! Functions are generic over [`RealNumber`], so that tests can compare gradients with finite differences in f64.
//!
//! Shapes are slowest axis first: B sequences of T tokens, C channels, NH heads of HS channels each, OC output
//! channels, V rows of the embedding. Arguments are outputs first, then inputs, then sizes. `_forward` overwrites its
//! outputs; `_backward` adds to gradients, so that micro-steps accumulate. Mismatched slice lengths are the caller's
//! bug and panic, as no input here comes from outside.

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

pub use real::RealNumber;
