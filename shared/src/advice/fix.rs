//! A fix: changes that go together, what they save and what they cost.

use std::cmp::Ordering;

use serde_json::{Map, Value as Json};

use super::Change;
use crate::text::{self, Key, Part, Table, Text};

/// A kind of change, by what a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A smaller micro-batch, accumulated more often.
    MicroBatch,
    /// A smaller batch in `estimate_loss`.
    EvalBatch,
    /// `del logits` in `estimate_loss`.
    DelEvalLogits,
    /// `torch.compile`.
    Compile,
    /// `expandable_segments:True`.
    ExpandableSegments,
    /// Flash attention in place of the slow one.
    FlashAttention,
    /// The loss in chunks.
    ChunkedLoss,
    /// Activations computed again.
    ActivationCheckpointing,
    /// Half precision.
    Dtype,
    /// Moments in one byte each.
    Adamw8bit,
    /// Other programs closed.
    OtherProcesses,
    /// Shorter sequences.
    BlockSize,
    /// A smaller model.
    Model,
}

/// What a fix does to training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The same mathematics; sums may be rounded in another order.
    None,
    /// Noise: the same model and data, other rounding.
    Small,
    /// Another model, or other data.
    ChangesModel,
}

impl Effect {
    /// In words, for a person.
    #[must_use]
    pub const fn text(self) -> Key {
        match self {
            Self::None => text::SAME_TRAINING,
            Self::Small => text::NEARLY_SAME_TRAINING,
            Self::ChangesModel => text::ANOTHER_MODEL,
        }
    }

    /// The word of the JSON contract.
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
    /// The id of the JSON contract; a combination's ids are joined by `+`.
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
            Self::Adamw8bit => "adamw_8bit",
            Self::OtherProcesses => "close_other_processes",
            Self::BlockSize => "block_size",
            Self::Model => "smaller_model",
        }
    }

    /// What it does to training.
    #[must_use]
    pub const fn effect(self) -> Effect {
        match self {
            Self::Dtype | Self::Adamw8bit => Effect::Small,
            Self::BlockSize | Self::Model => Effect::ChangesModel,
            _ => Effect::None,
        }
    }

    /// Why it helps and what it costs, in a sentence.
    #[must_use]
    pub const fn reason(self) -> Key {
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
            Self::Adamw8bit => text::WHY_ADAMW_8BIT,
            Self::OtherProcesses => text::WHY_NO_OTHERS,
            Self::BlockSize => text::WHY_BLOCK_SIZE,
            Self::Model => text::WHY_MODEL,
        }
    }
}

/// Changes that go together.
#[derive(Clone, Debug)]
pub struct Fix {
    /// What it is made of.
    pub kinds: Vec<Kind>,
    /// What is set.
    pub changes: Vec<Change>,
    /// By how much less the card holds at the peak.
    pub saves_bytes: u64,
    /// Whether the run then gets through.
    pub fits: bool,
    /// What the card then has left; negative by what is missing.
    pub headroom_bytes: i64,
    /// The time of an iteration against now, estimated; `None` where the card's rates are not known.
    pub step_time_ratio: Option<f64>,
}

/// Estimates of time closer than this are not told apart.
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

    /// What is left or still lacking, and why.
    #[must_use]
    pub fn outcome(&self) -> Text {
        let size: Part = text::size(self.headroom_bytes.unsigned_abs());
        if self.fits { text::outcome_leaves(size, self.note()) } else { text::outcome_lacks(size, self.note()) }
    }

    /// The JSON contract's `changes`.
    #[must_use]
    pub fn changes_json(&self) -> Map<String, Json> {
        let mut changes = Map::new();
        for change in &self.changes {
            changes.insert(change.name().to_owned(), change.json());
        }
        changes
    }

    /// The JSON contract's row, its note in a language.
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

    /// Less harm first: fixes that suffice, the same training, time, what has to be done by hand, room left.
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
