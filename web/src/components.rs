//! Components render; what they show is decided in `state`. One file and one style file each.

pub mod actions;
pub mod builtin;
pub mod card_picker;
pub mod chart;
pub mod code_changes;
pub mod config;
pub mod demo;
pub mod dynamic;
pub mod field;
pub mod fixes;
pub mod form;
pub mod header;
pub mod language;
pub mod long_text;
pub mod message;
pub mod more;
pub mod notice;
pub mod open_file;
pub mod phases;
pub mod problems;
pub mod rig;
pub mod rig_charts;
pub mod tensors;
pub mod to_diagnose;
pub mod verdict;
