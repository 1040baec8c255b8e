//! Charts of the rig's page: a card's history, and a run's losses. They know no agent: what they show is given to them.

mod drawing;
mod frame;
mod history;
mod history_plot;
mod history_table;
mod loss;
mod memory;
mod per_frame;

pub use frame::width_of;
pub use history::{Fetch, HistoryChart, ZONE};
pub use loss::LossChart;
pub use memory::MemoryChart;
