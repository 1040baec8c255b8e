//! The tensors live at a moment. The same tensor of several blocks is one line.

use headroom_planner::{
    gpt::tensors::{Category, Lifetime},
    memory::{
        program::Phase,
        simulate::{ByCategory, EventIndex},
        stored::StoredTensor,
        timeline::LiveTensor,
    },
    plan::{Plan, RunOnMachine, basis::Certainty},
};

use super::{
    course::phase_at,
    course::{Drawable, PlanWithTimeline},
    format,
};
use crate::text::{self, Key, say, t};

/// A line of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The tensor.
    pub stored: StoredTensor,
    /// The tensor's name; for several blocks, with the range of their numbers.
    pub name: String,
    /// The block of each tensor; empty outside of the blocks.
    pub layers: Vec<u64>,
    /// The number of live tensors of that name and shape.
    pub n_tensors: usize,
    /// The shape of each.
    pub shape: Vec<u64>,
    /// The element type.
    pub dtype: &'static str,
    /// The total size, in bytes.
    pub bytes: u64,
    /// The category.
    pub category: Category,
    /// The lifetime.
    pub lifetime: Lifetime,
}

/// The tensors live at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// The lines, the largest first.
    pub lines: Vec<Line>,
    /// The total size, in bytes.
    pub total_bytes: u64,
    /// The size per category, in bytes.
    pub by_category: ByCategory,
}

/// The shown moment and its live tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownMoment {
    /// The phase.
    pub phase: Phase,
    /// The certainty of the sizes.
    pub certainty: Certainty,
    /// Whether the run fits.
    pub fits: bool,
    /// The live tensors.
    pub live: Live,
}

impl ShownMoment {
    /// The moment of a column; with `at_failure`, that of the failure if the run fails.
    pub fn of<R: Drawable>(planned: &PlanWithTimeline<R>, column: usize, at_failure: bool) -> Option<Self> {
        let (plan, timeline) = (&planned.plan, &planned.timeline);
        // A column shows its largest moment, which may differ from the failure's.
        let failure = plan.failure.filter(|_| at_failure);
        let moment = failure.map_or(timeline.points.get(column)?.moment, |failure| failure.moment);
        let phase = phase_at(timeline, column)?;
        Some(Self { phase, certainty: plan.basis.allocated, fits: plan.fits, live: live(plan, moment) })
    }
}

impl Line {
    /// Shape and element type of one tensor, preceded by the number of tensors if there are several.
    pub fn shape_text(&self) -> String {
        let count = if self.n_tensors > 1 { format!("{} × ", self.n_tensors) } else { String::new() };
        format!("{count}{} {}", format::shape(&self.shape), self.dtype)
    }

    /// The source line, or the category with the reason for its lifetime.
    fn why(&self) -> String {
        let why = match self.stored.source() {
            "" => text::why_alive(self.lifetime),
            source => source,
        };
        say(&text::labelled(t(self.category.text()), why.to_owned()))
    }

    /// The fields of the line in the order of web/tensors.js.
    fn fields(&self) -> String {
        let block = self.layers.first().map(|_| "#");
        let layers: Vec<String> = self.layers.iter().map(u64::to_string).collect();
        // Of tensors outside of the blocks, only the number counts.
        let layers = if layers.is_empty() { ",".repeat(self.n_tensors.saturating_sub(1)) } else { layers.join(",") };
        let band = Category::ALL.iter().position(|category| *category == self.category).unwrap_or(0) + 2;
        let category = t(self.category.text());
        [
            &self.stored.name_in(block),
            &self.stored.module_in(block),
            &layers,
            &band.to_string(),
            category,
            self.category.name(),
            &self.why(),
            &format::shape(&self.shape),
            self.dtype,
            &(self.bytes / self.n_tensors as u64).to_string(),
        ]
        .join("\t")
    }
}

impl Live {
    /// The lines in the form of web/tensors.js. The number of the block is `#` in the names of a block's tensor and module.
    pub fn table(&self) -> String {
        let mut table = LABELS.map(t).join("\t");
        for label in [text::tensors_counted(1_u64), text::tensors_counted("#"), text::show_all("{n}", "{size}")] {
            table.push('\t');
            table.push_str(&say(&label));
        }
        for line in &self.lines {
            table.push('\n');
            table.push_str(&line.fields());
        }
        table
    }
}

/// The labels of the list, in the order of web/tensors.js. Those with an argument follow them.
const LABELS: [Key; 12] = [
    text::SEARCH_TENSORS,
    text::GROUP_BY,
    text::GROUP_BY_NOTHING,
    text::LAYER,
    text::CATEGORY,
    text::MODULE,
    text::OUTSIDE_OF_LAYERS,
    text::NO_TENSOR,
    text::SHOW_LARGEST,
    text::DECIMAL_MARK,
    text::THOUSANDS_MARK,
    text::BYTES,
];

struct Group {
    stored: StoredTensor,
    first: LiveTensor,
    layers: Vec<u64>,
    n_tensors: usize,
    bytes: u64,
}

/// The tensors live at a moment of a plan.
pub fn live<R: RunOnMachine>(plan: &Plan<R>, moment: EventIndex) -> Live {
    lines(plan.live_at(moment))
}

fn lines(tensors: Vec<LiveTensor>) -> Live {
    let mut by_category = ByCategory::default();
    for tensor in &tensors {
        by_category[tensor.category() as usize] += tensor.bytes;
    }
    let mut groups: Vec<Group> = Vec::new();
    for tensor in tensors {
        let same = |group: &&mut Group| {
            group.stored == tensor.stored
                && group.first.in_eval == tensor.in_eval
                && group.first.layer.is_some() == tensor.layer.is_some()
                && group.first.shape == tensor.shape
        };
        match groups.iter_mut().find(same) {
            Some(group) => {
                group.layers.extend(tensor.layer);
                group.n_tensors += 1;
                group.bytes += tensor.bytes;
            }
            None => groups.push(Group {
                stored: tensor.stored.clone(),
                layers: tensor.layer.into_iter().collect(),
                n_tensors: 1,
                bytes: tensor.bytes,
                first: tensor,
            }),
        }
    }
    let mut lines = Vec::new();
    // There are few groups, so no sort is necessary.
    while let Some(largest) = (0..groups.len()).rev().max_by_key(|index| groups[*index].bytes) {
        lines.push(line(groups.remove(largest)));
    }
    Live { lines, total_bytes: by_category.iter().sum(), by_category }
}

fn line(group: Group) -> Line {
    let block = match (group.layers.iter().min(), group.layers.iter().max()) {
        (Some(first), Some(last)) if first < last => Some(format!("{first}–{last}")),
        (only, _) => only.map(u64::to_string),
    };
    Line {
        name: group.stored.name_in(block.as_deref()),
        stored: group.stored,
        layers: group.layers,
        n_tensors: group.n_tensors,
        dtype: group.first.dtype.name(),
        category: group.first.category(),
        lifetime: group.first.lifetime(),
        bytes: group.bytes,
        shape: group.first.shape,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::answer::PlannedSession;

    #[test]
    fn live_tensors_at_peak_sum_to_peak() {
        let answer = PlannedSession::of_text("batch_size = 4\ncompile = False\n");
        let plan = answer.plan().expect("a plan");
        let live = live(plan, plan.peak.moment);
        assert_eq!(live.total_bytes, plan.peak.live_bytes);
        let listed: u64 = live.lines.iter().map(|line| line.bytes).sum();
        assert_eq!(listed, live.total_bytes);
        assert_eq!(live.by_category.iter().sum::<u64>(), live.total_bytes);
        assert!(live.lines.windows(2).all(|pair| pair[0].bytes >= pair[1].bytes));
    }

    #[test]
    fn evaluation_saves_nothing_for_backward() {
        for compile in ["True", "False"] {
            let answer = PlannedSession::of_text(&format!("batch_size = 4\ncompile = {compile}\n"));
            let planned = answer.planned.as_ref().expect("a plan");
            let timeline = &planned.timeline;
            let saved_in = |is_eval: bool| {
                let columns = (0..timeline.points.len()).filter(|column| {
                    let phase = phase_at(timeline, *column).expect("each column is in a phase");
                    is_eval == matches!(phase, Phase::EvalFirst | Phase::Eval)
                });
                let mut moments = columns.filter_map(|column| ShownMoment::of(planned, column, false));
                moments.any(|m| m.live.lines.iter().any(|line| line.lifetime == Lifetime::SavedForBackward))
            };
            assert!(saved_in(false), "forward saves activations");
            assert!(!saved_in(true), "compile = {compile}");
        }
    }

    #[test]
    fn table_has_the_labels_and_every_tensor() {
        let answer = PlannedSession::of_text("batch_size = 4\ncompile = False\n");
        let plan = answer.plan().expect("a plan");
        let live = live(plan, plan.peak.moment);
        let table = live.table();
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!((lines[0].len(), lines[0][0]), (15, "Search by name"));
        assert_eq!(lines.len(), live.lines.len() + 1);
        let bytes = |line: &&[&str]| line[9].parse::<u64>().expect("bytes") * line[2].split(',').count() as u64;
        assert_eq!(lines[1..].iter().map(|line| bytes(&line.as_slice())).sum::<u64>(), live.total_bytes);
        let of = |name: &str| lines.iter().find(|line| line[0] == name).unwrap_or_else(|| panic!("{name}: {table}"));
        let wte = of("transformer.wte.weight");
        assert_eq!(wte[1..6], ["transformer.wte", "", "2", "parameters", "parameters"]);
        assert_eq!(wte[7..], ["(50304, 768)", "float32", "154533888"]);
        let state = of("exp_avg of transformer.h.#.mlp.c_fc.weight");
        assert_eq!(state[1..3], ["transformer.h.#.mlp", "0,1,2,3,4,5,6,7,8,9,10,11"]);
    }

    #[test]
    fn the_same_tensor_of_many_blocks_is_one_line() {
        let answer = PlannedSession::of_text("batch_size = 4\ncompile = False\n");
        let plan = answer.plan().expect("a plan");
        let live = live(plan, plan.peak.moment);
        let blocks = live.lines.iter().find(|line| line.name.contains("h.0–11.")).expect("tensors of all blocks");
        assert!(blocks.n_tensors >= 12);
    }
}
