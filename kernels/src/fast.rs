//! Training on CPU threads: the reference's arithmetic, arranged for speed.
//!
//! Products are the `gemm` crates's. What needs a token's row alone, from a layer norm through products to the next, is one
//! chain of work that each thread does for rows of its own; threads meet before and after attention, and for the gradients
//! of weights, and wait for each other awake.
//! Every piece of work is cut by sizes and the number of threads alone, never by which thread was free, and sums are
//! added in a fixed order: a run repeats bit for bit on as many threads of the same kind of machine. All memory is
//! allocated by [`Trainer::new`], from the list that
//! [`headroom_shared::gpt::buffers::cpu_training`] gives.

mod adamw;
mod arena;
mod attention;
mod classifier;
mod columns;
mod encoder;
mod gelu;
mod initial;
mod math;
mod model;
mod norm;
mod product;
mod room;
mod team;
mod trainer;

pub use crate::cpu::gpt::Micro;
pub use product::{GEMM_SIDE, gemm_rate, gemm_rate_bytes};
pub use team::Team;
pub use trainer::{Trainer, TrainerError};
