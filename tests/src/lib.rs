//! End-to-end tests; nothing imports this crate.
