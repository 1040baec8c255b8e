//! The parts of the page that compares two runs.

pub mod chart;
pub mod fixes;
pub mod tables;
pub mod tiles;
