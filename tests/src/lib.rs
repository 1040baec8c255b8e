//! End-to-end tests; nothing imports this crate. What several of them share is here.

pub mod grounds;
pub mod server;
pub mod skips;
