//! Charts of the rig's page: a card's history, and a run's losses. They know no agent: what they show is given to them.

mod frame;
mod history;
mod history_plot;
mod history_table;
mod loss;
mod per_frame;

pub use history::{Fetch, HistoryChart};
pub use loss::LossChart;
