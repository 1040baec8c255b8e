//! A moment of both runs: the same column of the chart.

use headroom_planner::{
    gpt::tensors::Category,
    memory::{program::Phase, simulate::EventIndex},
};

use super::{super::tensors::Live, rows::MemoryRow, run::ComparedPlan};
use crate::text::{self, t};

/// The number of tensors that a moment lists.
const TENSORS_MAX: usize = 3;

/// Both runs at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedMoment {
    /// The phase.
    pub phase: Phase,
    /// The live tensors by category, in the order of the calculator's chart.
    pub categories: Vec<MemoryRow>,
    /// All live tensors.
    pub total: MemoryRow,
    /// The largest tensors of either run. A tensor of several blocks is one row.
    pub tensors: Vec<MemoryRow>,
}

impl ComparedMoment {
    /// Compares the live tensors of two plans; a plan without a moment lacks the phase.
    pub fn of(phase: Phase, plans: [&ComparedPlan; 2], moments: [Option<EventIndex>; 2]) -> Self {
        let [pinned, changed] = [0, 1].map(|run| moments[run].map(|moment| plans[run].live(moment)));
        let runs = [pinned.as_ref(), changed.as_ref()];
        let row =
            |label: String, bytes: &dyn Fn(&Live) -> u64| MemoryRow { label, bytes: runs.map(|live| live.map(bytes)) };
        let categories = Category::ALL.into_iter().enumerate().rev();
        let categories =
            categories.map(|(at, category)| row(t(category.text()).to_owned(), &|live| live.by_category[at]));
        let mut names: Vec<&str> = Vec::new();
        for line in runs.iter().flatten().flat_map(|live| live.lines.iter().take(TENSORS_MAX)) {
            if !names.contains(&line.name.as_str()) {
                names.push(&line.name);
            }
        }
        let of_name = |name: &str, live: &Live| {
            let lines = live.lines.iter().filter(|line| line.name == name);
            lines.map(|line| line.bytes).sum()
        };
        let mut tensors: Vec<MemoryRow> =
            names.into_iter().map(|name| row(name.to_owned(), &|live| of_name(name, live))).collect();
        tensors.sort_by_key(|row| std::cmp::Reverse(row.bytes.into_iter().flatten().max()));
        tensors.truncate(TENSORS_MAX);
        Self {
            phase,
            categories: categories.filter(|row| row.bytes.into_iter().flatten().any(|bytes| bytes > 0)).collect(),
            total: row(t(text::LIVE).to_owned(), &|live| live.total_bytes),
            tensors,
        }
    }
}
