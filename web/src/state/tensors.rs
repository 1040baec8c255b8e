//! The tensors live at a moment. The same tensor of several blocks is one line.

use std::fmt::Write;

use headroom_planner::{
    gpt::tensors::{Category, Lifetime, TensorId},
    memory::{
        program::Phase,
        simulate::{ByCategory, EventIndex},
        timeline::LiveTensor,
    },
    plan::{Plan, basis::Certainty},
};

use super::{answer::PlannedSession, course::phase_at, format};

/// The lines listed until the user expands the list.
pub const LINES_SHOWN: usize = 6;

/// A line of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The tensor's name; for several blocks, with the range of their numbers.
    pub name: String,
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
    pub fn of(answer: &PlannedSession, column: usize, at_failure: bool) -> Option<Self> {
        let planned = answer.drawn()?;
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
}

impl Live {
    /// The lines whose name contains a text, ignoring case.
    pub fn named(&self, part: &str) -> Vec<&Line> {
        let part = part.trim().to_ascii_lowercase();
        self.lines.iter().filter(|line| line.name.to_ascii_lowercase().contains(&part)).collect()
    }

    /// All lines as CSV (RFC 4180).
    pub fn to_csv(&self) -> String {
        let mut csv = "name,category,tensors,shape,dtype,bytes\r\n".to_owned();
        for line in &self.lines {
            let (name, category, shape) = (&line.name, line.category.name(), format::shape(&line.shape));
            let (n, dtype, bytes) = (line.n_tensors, line.dtype, line.bytes);
            let written = write!(csv, "{name},{category},{n},\"{shape}\",{dtype},{bytes}\r\n");
            debug_assert!(written.is_ok(), "writing to a string cannot fail");
        }
        csv
    }
}

struct Group {
    stored: TensorId,
    first: LiveTensor,
    layers: Vec<u64>,
    n_tensors: usize,
    bytes: u64,
}

/// The tensors live at a moment of a plan.
pub fn live(plan: &Plan, moment: EventIndex) -> Live {
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
                stored: tensor.stored,
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
    let name = match (group.layers.iter().min(), group.layers.iter().max()) {
        (Some(first), Some(last)) if first < last => {
            // The full name of one block, with the range instead of its number.
            group.first.name().replacen(
                &format!("h.{}.", group.first.layer.unwrap_or(0)),
                &format!("h.{first}–{last}."),
                1,
            )
        }
        _ => group.first.name(),
    };
    Line {
        name,
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
            let timeline = &answer.planned.as_ref().expect("a plan").timeline;
            let saved_in = |is_eval: bool| {
                let columns = (0..timeline.points.len()).filter(|column| {
                    let phase = phase_at(timeline, *column).expect("each column is in a phase");
                    is_eval == matches!(phase, Phase::EvalFirst | Phase::Eval)
                });
                let mut moments = columns.filter_map(|column| ShownMoment::of(&answer, column, false));
                moments.any(|m| m.live.lines.iter().any(|line| line.lifetime == Lifetime::SavedForBackward))
            };
            assert!(saved_in(false), "forward saves activations");
            assert!(!saved_in(true), "compile = {compile}");
        }
    }

    #[test]
    fn lines_are_found_by_name_and_exported() {
        let answer = PlannedSession::of_text("batch_size = 4\ncompile = False\n");
        let plan = answer.plan().expect("a plan");
        let live = live(plan, plan.peak.moment);
        let found = live.named(" MLP.c_fc");
        assert!(!found.is_empty() && found.len() < live.lines.len());
        assert!(found.iter().all(|line| line.name.contains("mlp.c_fc")));
        assert!(live.named("no such tensor").is_empty());
        let csv = live.to_csv();
        assert_eq!(csv.lines().count(), live.lines.len() + 1);
        let wte = csv.lines().find(|line| line.starts_with("transformer.wte.weight,")).expect("the embedding");
        assert_eq!(wte, "transformer.wte.weight,parameters,1,\"(50304, 768)\",float32,154533888");
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
