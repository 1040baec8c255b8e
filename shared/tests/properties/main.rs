//! Properties of the simulation: what holds for any run, found by trying many.

mod allocator;
mod any_config;
mod compute;
mod plans;
mod programs;
mod repetition;
mod strategies;
mod work;
