//! Training: settings, data sets, devices, the training loop, checkpoints and pretrained weights.

pub mod checkpoint;
pub mod data;
pub mod device;
pub mod divergence;
pub mod files;
pub mod gpu;
pub mod gpu_request;
pub mod keys;
pub mod memory;
pub mod model;
pub mod out_of_memory;
pub mod output;
pub mod pretrained;
pub mod resume;
pub mod run;
pub mod schedule;
pub mod settings;
pub mod shards;
pub mod status;
pub mod stop;
pub mod throughput;

/// The default config: a small model on the built-in stories.
pub const STORIES: &str = include_str!("../../config/stories.py");
