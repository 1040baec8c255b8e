//! A fix: a set of changes, the memory it saves and what it costs.

use std::cmp::Ordering;

use serde_json::{Map, Value as Json};

use super::Change;
use crate::optimizer_spec::Optimizer;
use headroom_text::{self as text, Key, Part, Table, Text};

/// Kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A smaller micro-batch with more accumulation steps.
    MicroBatch,
    /// A smaller batch in `estimate_loss`.
    EvalBatch,
    /// `del logits` in `estimate_loss`.
    DelEvalLogits,
    /// `torch.compile`.
    Compile,
    /// `expandable_segments:True`.
    ExpandableSegments,
    /// Flash attention instead of math attention.
    FlashAttention,
    /// Chunked loss.
    ChunkedLoss,
    /// Activation recomputation.
    ActivationCheckpointing,
    /// Half precision.
    Dtype,
    /// An optimizer with less state.
    Optimizer(Optimizer),
    /// Closing other programs.
    OtherProcesses,
    /// Shorter sequences.
    BlockSize,
    /// A smaller model.
    Model,
}

/// Effect of a fix on training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The same mathematics; summation order may differ.
    None,
    /// Rounding noise: the same model and data with different rounding.
    Small,
    /// A different model or different data.
    ChangesModel,
}

impl Effect {
    /// Translation key of the description.
    #[must_use]
    pub const fn text(self) -> Key {
        match self {
            Self::None => text::SAME_TRAINING,
            Self::Small => text::NEARLY_SAME_TRAINING,
            Self::ChangesModel => text::ANOTHER_MODEL,
        }
    }

    /// Name in the JSON schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Small => "small",
            Self::ChangesModel => "changes_model",
        }
    }
}

impl Kind {
    /// Id in the JSON schema; a combination's ids are joined by `+`.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::MicroBatch => "micro_batch",
            Self::EvalBatch => "eval_batch",
            Self::DelEvalLogits => "del_eval_logits",
            Self::Compile => "compile",
            Self::ExpandableSegments => "expandable_segments",
            Self::FlashAttention => "flash_attention",
            Self::ChunkedLoss => "chunked_cross_entropy",
            Self::ActivationCheckpointing => "activation_checkpointing",
            Self::Dtype => "dtype",
            Self::Optimizer(optimizer) => optimizer.spec().id,
            Self::OtherProcesses => "close_other_processes",
            Self::BlockSize => "block_size",
            Self::Model => "smaller_model",
        }
    }

    /// Effect on training.
    #[must_use]
    pub const fn effect(self) -> Effect {
        match self {
            Self::Dtype | Self::Optimizer(_) => Effect::Small,
            Self::BlockSize | Self::Model => Effect::ChangesModel,
            _ => Effect::None,
        }
    }

    /// Sentence with the reason why the change helps and its cost.
    #[must_use]
    pub fn reason(self) -> Key {
        match self {
            Self::MicroBatch => text::WHY_MICRO_BATCH,
            Self::EvalBatch => text::WHY_EVAL_BATCH,
            Self::DelEvalLogits => text::WHY_DEL_EVAL_LOGITS,
            Self::Compile => text::WHY_COMPILE,
            Self::ExpandableSegments => text::WHY_EXPANDABLE,
            Self::FlashAttention => text::WHY_FLASH_ATTENTION,
            Self::ChunkedLoss => text::WHY_CHUNKED_LOSS,
            Self::ActivationCheckpointing => text::WHY_CHECKPOINTING,
            Self::Dtype => text::WHY_DTYPE,
            Self::Optimizer(optimizer) => optimizer.spec().reason.unwrap_or(optimizer.spec().label),
            Self::OtherProcesses => text::WHY_NO_OTHERS,
            Self::BlockSize => text::WHY_BLOCK_SIZE,
            Self::Model => text::WHY_MODEL,
        }
    }
}

/// A fix: changes that are applied together.
#[derive(Clone, Debug)]
pub struct Fix {
    /// Kinds of its changes.
    pub kinds: Vec<Kind>,
    /// The changes.
    pub changes: Vec<Change>,
    /// Reduction of the peak memory on the GPU, in bytes.
    pub saves_bytes: u64,
    /// Whether the run fits with the fix.
    pub fits: bool,
    /// Memory left on the GPU with the fix, in bytes; negative if the run does not fit.
    pub headroom_bytes: i64,
    /// Estimated time per iteration relative to the current run; `None` if the GPU's rates are unknown.
    pub step_time_ratio: Option<f64>,
}

/// Resolution of time ratios: estimates within this distance count as equal.
const RATIO_STEP: f64 = 0.1;

impl Fix {
    /// The ids of its kinds, joined by `+`.
    #[must_use]
    pub fn id(&self) -> String {
        let ids: Vec<&str> = self.kinds.iter().map(|kind| kind.id()).collect();
        ids.join("+")
    }

    /// The strongest effect among its kinds.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.kinds.iter().map(|kind| kind.effect()).max().unwrap_or(Effect::None)
    }

    /// The reasons of its kinds.
    #[must_use]
    pub fn note(&self) -> Text {
        let mut reasons = self.kinds.iter().map(|kind| Text::from(kind.reason()));
        let first = reasons.next().unwrap_or_else(|| text::verbatim(""));
        reasons.fold(first, text::and_also)
    }

    /// Sentence about the memory that is left or missing, with the reasons.
    #[must_use]
    pub fn outcome(&self) -> Text {
        let size: Part = text::size(self.headroom_bytes.unsigned_abs());
        if self.fits { text::outcome_leaves(size, self.note()) } else { text::outcome_lacks(size, self.note()) }
    }

    /// The `changes` object of the JSON schema.
    #[must_use]
    pub fn changes_json(&self) -> Map<String, Json> {
        let mut changes = Map::new();
        for change in &self.changes {
            changes.insert(change.name().to_owned(), change.json());
        }
        changes
    }

    /// The fix as a row of the JSON schema, with its note translated by `table`.
    #[must_use]
    pub fn json(&self, table: &Table) -> Json {
        let mut row = Map::new();
        let mut put = |key: &str, value: Json| row.insert(key.to_owned(), value);
        put("id", Json::from(self.id()));
        put("changes", Json::Object(self.changes_json()));
        put("saves_bytes", Json::from(self.saves_bytes));
        put("fits", Json::from(self.fits));
        put("step_time_ratio", Json::from(self.step_time_ratio));
        put("effect_on_training", Json::from(self.effect().name()));
        put("note", Json::from(table.say(&self.outcome())));
        Json::Object(row)
    }

    /// Order of fixes, least harmful first: whether they suffice, their effect on training, time, manual work, memory
    /// left.
    pub(super) fn harm(&self, other: &Self) -> Ordering {
        if !self.fits && !other.fits {
            return other.saves_bytes.cmp(&self.saves_bytes);
        }
        let slower = |fix: &Self| fix.step_time_ratio.map_or(0.0, |ratio| (ratio / RATIO_STEP).round());
        let by_hand = |fix: &Self| fix.changes.iter().filter(|change| !change.is_in_config()).count();
        (other.fits.cmp(&self.fits))
            .then_with(|| self.effect().cmp(&other.effect()))
            .then_with(|| slower(self).total_cmp(&slower(other)))
            .then_with(|| by_hand(self).cmp(&by_hand(other)))
            .then_with(|| other.headroom_bytes.cmp(&self.headroom_bytes))
    }
}

/// Description of the change in time per iteration for a ratio of times.
#[must_use]
pub fn time_text(ratio: f64) -> Text {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let percent = ((ratio - 1.0) * 100.0).round().abs().clamp(0.0, 100_000.0) as u64;
    match percent {
        0 => text::FIX_SAME_TIME.into(),
        _ if ratio > 1.0 => text::fix_slower(percent),
        _ => text::fix_faster(percent),
    }
}

#[cfg(test)]
mod tests {
    use super::time_text;

    #[test]
    fn a_ratio_of_times_is_reported_as_a_difference() {
        for (ratio, text) in [
            (1.04, "about 4 % slower"),
            (3.0, "about 200 % slower"),
            (0.8, "about 20 % less time"),
            (1.004, "same speed"),
            (0.996, "same speed"),
            (f64::INFINITY, "about 100000 % slower"),
        ] {
            assert_eq!(time_text(ratio).to_string(), text, "{ratio}");
        }
    }
}
