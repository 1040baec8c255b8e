//! The rows of the tables: memory by category and by phase, and the settings that differ.

use headroom_planner::{
    gpt::tensors::Category,
    link::is_private,
    memory::program::Phase,
    nanogpt::{Value, defaults},
    optimizer_spec::Optimizer,
    plan::Plan,
    session::Options,
    train_config::{Attention, CrossEntropy},
};

use super::super::{answer::PlannedSession, format, gpu};
use crate::text::{self, Key, t};

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
pub fn categories(plans: [&Plan; 2]) -> Vec<MemoryRow> {
    let row = |label, bytes: [u64; 2]| MemoryRow { label: t(label).to_owned(), bytes: bytes.map(Some) };
    let peaks = plans.map(|plan| &plan.peak);
    let requests = plans.map(|plan| &plan.request);
    let tensors = Category::ALL.into_iter().enumerate();
    let tensors = tensors.map(|(index, category)| row(category.text(), peaks.map(|peak| peak.by_category[index])));
    let outside = [
        row(text::COMPARE_UNUSED, peaks.map(|peak| peak.max_reserved_bytes.saturating_sub(peak.live_bytes))),
        row(text::CONTEXT_BAND, requests.map(|request| request.machine.context.bytes)),
        row(text::OTHERS_BAND, requests.map(|request| request.machine.other_processes_bytes)),
    ];
    let mut rows: Vec<MemoryRow> = tensors.chain(outside).filter(|row| row.bytes != [Some(0); 2]).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.difference().map_or(0, i64::unsigned_abs)));
    rows.push(row(text::FIGURE_USED, peaks.map(|peak| peak.device_used_bytes)));
    rows
}

/// The most live bytes of each phase, in the order of the run.
pub fn phases(plans: [&Plan; 2]) -> Vec<MemoryRow> {
    let of =
        |plan: &Plan, phase: Phase| plan.phases.iter().find(|peak| peak.phase == phase).map(|peak| peak.live_bytes);
    let rows = Phase::ALL
        .map(|phase| MemoryRow { label: t(phase.text()).to_owned(), bytes: plans.map(|plan| of(plan, phase)) });
    rows.into_iter().filter(|row| row.bytes != [None; 2]).collect()
}

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingRow {
    /// nanoGPT's key, or the label of an option.
    pub name: String,
    /// Whether the name is a key.
    pub is_key: bool,
    /// The values of the pinned and of the changed run.
    pub values: [String; 2],
}

/// The settings that differ: the GPU, the keys, then the other options. Names and paths, which no link contains, are
/// left out.
pub fn settings(answers: [&PlannedSession; 2], options: [&Options; 2]) -> Vec<SettingRow> {
    let row = |name: &str, is_key, values: [String; 2]| SettingRow { name: name.to_owned(), is_key, values };
    let mut rows = vec![row(t(text::GPU), false, options.map(gpu::field))];
    let configs = answers.map(|answer| &answer.resolved.config);
    let is_shown = |key: &str, value: &Value| {
        !is_private(key) && (defaults::find(key).is_some() || !matches!(value, Value::Str(_) | Value::Opaque(_)))
    };
    let mut keys: Vec<&str> = Vec::new();
    for (key, value) in configs.iter().flat_map(|config| config.iter()) {
        if is_shown(key, value) && !keys.contains(&key) {
            keys.push(key);
        }
    }
    let value = |value: Option<&Value>| match value {
        None | Some(Value::None) => t(text::COMPARE_UNSET).to_owned(),
        Some(value) => value.to_string(),
    };
    rows.extend(keys.into_iter().map(|key| row(key, true, configs.map(|config| value(config.get(key))))));
    let words = |label: Key, values: [String; 2]| row(t(label), false, values);
    let flag = |label: Key, read: fn(&Options) -> bool| {
        words(label, options.map(|o| t(if read(o) { text::COMPARE_ON } else { text::COMPARE_OFF }).to_owned()))
    };
    rows.extend([
        words(text::OTHERS_BAND, options.map(|o| format::size(o.other_processes_bytes))),
        words(text::ATTENTION, options.map(|o| attention(o.attention).to_owned())),
        words(text::OPTIMIZER, options.map(|o| optimizer(o.optimizer).to_owned())),
        words(text::CROSS_ENTROPY, options.map(|o| cross_entropy(o.cross_entropy).to_owned())),
        flag(text::CHECKPOINTING, |o| o.activation_checkpointing),
        flag(text::DEL_EVAL_LOGITS, |o| o.del_eval_logits),
        flag(text::DEL_TRAIN_LOGITS, |o| o.del_train_logits),
        flag(text::EXPANDABLE, |o| o.expandable_segments),
        words(text::PROCESSES, options.map(|o| o.world_size.to_string())),
        words(text::TORCH, options.map(|o| o.torch.clone())),
        words(
            text::CONTEXT_BAND,
            options.map(|o| o.context_bytes.map_or_else(|| t(text::COMPARE_UNSET).to_owned(), format::size)),
        ),
    ]);
    rows.retain(|row| row.values[0] != row.values[1]);
    rows
}

fn attention(attention: Attention) -> &'static str {
    match attention {
        Attention::Flash => "flash",
        Attention::Math => "math",
    }
}

fn optimizer(optimizer: Optimizer) -> &'static str {
    t(optimizer.spec().label)
}

fn cross_entropy(cross_entropy: CrossEntropy) -> &'static str {
    t(match cross_entropy {
        CrossEntropy::Whole => text::CROSS_ENTROPY_WHOLE,
        CrossEntropy::Chunked => text::CROSS_ENTROPY_CHUNKED,
        CrossEntropy::Fused => text::CROSS_ENTROPY_FUSED,
    })
}
