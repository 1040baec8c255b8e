//! The simulation against what was recorded: live bytes a phase, the allocator's figures, event lists and messages.
//!
//! The records lie in tests/golden, each folder with a README that says where they come from. `records` reads them and
//! makes runs of them; every comparison has a negative control beside it, which must find a falsified record.

mod allocator_limited;
mod allocator_replay;
mod cudnn;
mod event_list;
mod events;
mod extra_rows;
mod figures;
mod live_bytes;
mod measured;
mod messages;
mod random_rows;
mod records;
