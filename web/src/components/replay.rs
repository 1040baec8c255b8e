//! Parts of the page of recordings.

pub mod empty;
pub mod fixes;
pub mod gpus;
pub mod size;
