//! Property tests of the simulation, with many random runs.

mod allocator;
mod any_config;
mod compute;
mod engine;
mod plans;
mod programs;
mod repetition;
mod strategies;
mod work;
