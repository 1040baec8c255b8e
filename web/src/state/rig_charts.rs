//! Charts of a rig: a GPU's history over a range of time, and a run's losses. Plain values; the time is a parameter.

pub mod axis;
pub mod feed;
pub mod fold;
pub mod history;
pub mod loss_axis;
mod loss_line;
pub mod loss_plot;
pub mod losses;
pub mod path;
pub mod plot;
pub mod reading;
pub mod scale;
pub mod small_plot;
pub mod time_axis;
pub mod view;
pub mod zone;
