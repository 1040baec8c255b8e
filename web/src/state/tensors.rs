//! What is live at a moment, the same tensor of many blocks as one line.

use headroom_shared::{
    gpt::tensors::{Category, Lifetime, Stored},
    memory::{simulate::Moment, timeline::LiveTensor},
    plan::Plan,
};

/// Lines listed; the rest is summed up.
pub const LINES_MAX: usize = 24;

/// One line of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The tensor's name; where it is of several blocks, with their numbers.
    pub name: String,
    /// How many of that name and shape are live.
    pub n_tensors: usize,
    /// The axes of one.
    pub shape: Vec<u64>,
    /// The element type.
    pub dtype: &'static str,
    /// Bytes of all of them together.
    pub bytes: u64,
    /// What it is for.
    pub category: Category,
    /// Why it is alive.
    pub lifetime: Lifetime,
}

/// What is live at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// The largest first.
    pub lines: Vec<Line>,
    /// Tensors that are not listed.
    pub n_more: usize,
    /// Their bytes.
    pub more_bytes: u64,
    /// Bytes of all.
    pub total_bytes: u64,
}

struct Group {
    stored: Stored,
    first: LiveTensor,
    layers: Vec<u64>,
    n_tensors: usize,
    bytes: u64,
}

/// What is live at a moment of a plan.
pub fn live(plan: &Plan, moment: Moment) -> Live {
    lines(plan.live_at(moment))
}

fn lines(tensors: Vec<LiveTensor>) -> Live {
    let total_bytes = tensors.iter().map(|tensor| tensor.bytes).sum();
    let mut groups: Vec<Group> = Vec::new();
    for tensor in tensors {
        let same = |group: &&mut Group| {
            group.stored == tensor.stored
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
    while lines.len() < LINES_MAX {
        // Few are picked from few: no need for a sort.
        let largest = (0..groups.len()).rev().max_by_key(|index| groups[*index].bytes);
        let Some(largest) = largest else { break };
        lines.push(line(groups.remove(largest)));
    }
    let rest = groups;
    Live {
        lines,
        n_more: rest.iter().map(|group| group.n_tensors).sum(),
        more_bytes: rest.iter().map(|group| group.bytes).sum(),
        total_bytes,
    }
}

fn line(group: Group) -> Line {
    let name = match (group.layers.iter().min(), group.layers.iter().max()) {
        (Some(first), Some(last)) if first < last => {
            // The full name of one block, with the range in the place of its number.
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
    use crate::state::answer::Answer;

    #[test]
    fn what_is_live_at_the_peak_sums_to_the_peak() {
        let answer = Answer::of_text("batch_size = 4\ncompile = False\n");
        let plan = answer.plan().expect("a plan");
        let live = live(plan, plan.peak.moment);
        assert_eq!(live.total_bytes, plan.peak.live_bytes);
        let listed: u64 = live.lines.iter().map(|line| line.bytes).sum();
        assert_eq!(listed + live.more_bytes, live.total_bytes);
        assert!(live.lines.len() <= LINES_MAX);
        assert!(live.lines.windows(2).all(|pair| pair[0].bytes >= pair[1].bytes));
    }

    #[test]
    fn the_same_tensor_of_many_blocks_is_one_line() {
        let answer = Answer::of_text("batch_size = 4\ncompile = False\n");
        let plan = answer.plan().expect("a plan");
        let live = live(plan, plan.peak.moment);
        let blocks = live.lines.iter().find(|line| line.name.contains("h.0–11.")).expect("tensors of all blocks");
        assert!(blocks.n_tensors >= 12);
    }
}
