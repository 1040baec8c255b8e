//! The rows of the tables: memory by category and by phase, and the settings that differ.

use headroom_planner::memory::program::Phase;

use super::run::{ComparedPlan, ComparedRun, Setting};
use crate::text::{self, t};

/// Memory of both runs. `None` for a run that lacks the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRow {
    /// The label.
    pub label: String,
    /// The bytes of the pinned and of the changed run.
    pub bytes: [Option<u64>; 2],
}

impl MemoryRow {
    /// The bytes that the changed run needs more; negative if it needs less.
    pub fn difference(&self) -> Option<i64> {
        let [pinned, changed] = self.bytes;
        i64::try_from(i128::from(changed?) - i128::from(pinned?)).ok()
    }
}

/// The memory at the peak by category, the largest difference first, and the total as the last row. The rows add up to
/// it.
pub fn categories(plans: [&ComparedPlan; 2]) -> Vec<MemoryRow> {
    let [pinned, changed] = plans.map(ComparedPlan::parts);
    let row = |label, bytes: [u64; 2]| MemoryRow { label: t(label).to_owned(), bytes: bytes.map(Some) };
    let pairs = pinned.into_iter().zip(changed);
    let pairs = pairs.map(|((label, pinned), (_, changed))| row(label, [pinned, changed]));
    let mut rows: Vec<MemoryRow> = pairs.filter(|row| row.bytes != [Some(0); 2]).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.difference().map_or(0, i64::unsigned_abs)));
    rows.push(row(text::FIGURE_USED, plans.map(|plan| plan.peak().device_used_bytes)));
    rows
}

/// The most live bytes of each phase, in the order of the run.
pub fn phases(plans: [&ComparedPlan; 2]) -> Vec<MemoryRow> {
    let row = |phase: Phase| {
        let bytes = plans.map(|plan| plan.phase_bytes(phase));
        MemoryRow { label: t(phase.text()).to_owned(), bytes }
    };
    Phase::ALL.map(row).into_iter().filter(|row| row.bytes != [None; 2]).collect()
}

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingRow {
    /// A key of the trainer, or the label of another setting.
    pub name: String,
    /// Whether the name is a key.
    pub is_key: bool,
    /// The values of the pinned and of the changed run.
    pub values: [String; 2],
}

/// The settings that differ: the GPU, the keys, then the other options. Names and paths, which no link contains, are
/// left out.
pub fn settings(runs: [&ComparedRun; 2]) -> Vec<SettingRow> {
    let [pinned, changed] = runs;
    let word = |value: &str| match value {
        "" => t(text::COMPARE_UNSET).to_owned(),
        value => value.to_owned(),
    };
    let row =
        |name: &str, is_key, values: [&str; 2]| SettingRow { name: name.to_owned(), is_key, values: values.map(word) };
    let is_new = |key: &&Setting| !pinned.keys.iter().any(|other| other.name == key.name);
    let keys = pinned.keys.iter().chain(changed.keys.iter().filter(is_new));
    let keys = keys.map(|key| row(&key.name, true, runs.map(|run| value_of(&run.keys, &key.name))));
    let options = pinned.options.iter().zip(&changed.options);
    let options = options.map(|(one, other)| row(&one.name, false, [&one.value, &other.value]));
    let gpu = row(t(text::GPU), false, [&pinned.gpu, &changed.gpu]);
    [gpu].into_iter().chain(keys).chain(options).filter(|row| row.values[0] != row.values[1]).collect()
}

fn value_of<'a>(settings: &'a [Setting], name: &str) -> &'a str {
    settings.iter().find(|setting| setting.name == name).map_or("", |setting| &setting.value)
}
