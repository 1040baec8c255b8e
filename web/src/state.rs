//! What the page thinks: plain values and functions on them, tested natively. Nothing here touches the browser.

pub mod answer;
pub mod budget;
pub mod builtin;
pub mod card;
pub mod chart;
pub mod command;
pub mod course;
pub mod demo;
pub mod diagnosis;
pub mod edit;
pub mod entry;
pub mod fields;
pub mod fixes;
pub mod format;
pub mod json;
pub mod no_plan;
pub mod places;
pub mod presets;
pub mod rig;
pub mod rig_charts;
pub mod session;
pub mod share;
pub mod snippet;
pub mod tensors;
pub mod verdict;
