//! Training on CPU threads, with the reference's arithmetic arranged for speed.
//!
//! Matrix products use the `gemm` crates. Operations on a token's row alone form one chain, from a layer norm through
//! products to the next. Each thread runs this chain for its own rows. Threads synchronise before and after attention,
//! and for the gradients of weights; they wait by spinning.
//!
//! Work is partitioned by sizes and the number of threads only, never by which thread is free, and sums are added in a
//! fixed order. A run is therefore bit-identical on the same number of threads of the same kind of machine.
//! [`Trainer::new`] allocates all memory, from the list of [`headroom_planner::gpt::buffers::cpu_training`].

mod adamw;
mod arena;
mod attention;
mod buffers;
mod classifier;
mod columns;
mod encoder;
mod gelu;
mod initial;
mod math;
mod model;
mod norm;
mod product;
mod thread_pool;
mod trainer;

pub use crate::reference::gpt::Micro;
pub use product::{GEMM_SIDE, gemm_rate, gemm_rate_bytes};
pub use thread_pool::ThreadPool;
pub use trainer::{Trainer, TrainerError};
