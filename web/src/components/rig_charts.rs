//! Charts of the rig page: a GPU's history and a run's losses. They do not depend on the agent; their data is passed
//! in.

mod context;
mod drawing;
mod frame;
mod history;
mod history_plot;
mod history_table;
mod loss;
mod memory;
mod per_frame;

pub use context::{Fetch, ZONE};
pub use frame::width_of;
pub use history::HistoryChart;
pub use loss::LossChart;
pub use memory::MemoryChart;
