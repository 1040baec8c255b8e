//! End-to-end tests and their shared code; no crate depends on this one.

pub mod server;
pub mod training_root;
