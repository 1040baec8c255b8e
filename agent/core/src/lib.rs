//! What every part of the agent needs: readings of the GPUs and the machine, the history, directories, processes, the
//! clock, random bytes and log targets.
//!
//! It depends on no other part of the agent. Nothing here computes memory; that is in `headroom_planner`.

pub mod ancestry;
pub mod clock;
pub mod folders;
pub mod logging;
pub mod platform;
pub mod random;
pub mod store;
pub mod telemetry;
pub mod utf8;
