//! GPU memory of a training run: the events of a step, replayed through PyTorch's caching allocator.
//!
//! `schedule` orders the phases of a run. `eager`, `compiled` and `optimizer` write their events to a `program`. `simulate` replays the program through `allocator`.
//! `timeline` and `message` present the result.

pub mod allocator;
pub mod attention_kernel;
pub mod compiled;
pub mod context;
pub mod eager;
pub(crate) mod efficient_backward;
pub mod message;
pub mod optimizer;
pub mod program;
pub mod schedule;
pub mod simulate;
pub mod stored;
pub mod timeline;
pub mod tuned;
