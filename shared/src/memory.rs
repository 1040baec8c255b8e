//! What a training run takes in GPU memory: the events of a step, replayed through PyTorch's caching allocator.
//!
//! `program` is the list of events, `eager` and `compiled` write it, `allocator` holds the segments, `simulate` runs
//! one against the other, `timeline` and `report` say what came of it.

pub mod allocator;
pub mod compiled;
pub mod eager;
pub mod message;
pub mod optimizer;
pub mod program;
pub mod run;
pub mod simulate;
pub mod timeline;
