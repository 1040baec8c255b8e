//! Training: what a run is to do, on what it is computed, the loop, what it leaves on disk, and
//! the weights that one starts from.

pub mod card;
pub mod checkpoint;
pub mod device;
pub mod divergence;
pub mod files;
pub mod keys;
pub mod memory;
pub mod model;
pub mod pace;
pub mod pretrained;
pub mod run;
pub mod schedule;
pub mod settings;
pub mod shortage;
pub mod stop;

/// The config where nothing else is asked for: a small model on the built-in stories.
pub const STORIES: &str = include_str!("../config/stories.py");
