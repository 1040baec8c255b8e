//! Properties of the simulation: what holds for any run, found by trying many.

mod allocator;
mod any_config;
mod plans;
mod programs;
mod strategies;
mod work;
