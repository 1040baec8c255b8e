//! Comparison of the simulation with recordings: live bytes per phase, the allocator's figures, event lists and
//! messages.
//!
//! The recordings are in tests/golden; each directory has a README with their origin. `records` reads them and converts
//! them to runs. Every comparison has a negative control, which must detect a falsified record.

mod allocator_limited;
mod allocator_replay;
mod allocator_settings;
mod cudnn;
mod engine;
mod event_list;
mod events;
mod extra_rows;
mod figures;
mod hf;
mod live_bytes;
mod measured;
mod messages;
mod nanochat;
mod quantized;
mod random_rows;
mod recorded;
mod records;
mod series;
mod snapshots;
