//! Training: what a run is to do, the loop, what it leaves on disk, and the weights that one starts from.

pub mod checkpoint;
pub mod files;
pub mod memory;
pub mod pretrained;
pub mod run;
pub mod schedule;
pub mod settings;
