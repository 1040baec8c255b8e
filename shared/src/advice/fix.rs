//! A fix: changes that go together, what they save and what they cost.

use std::cmp::Ordering;

use serde_json::{Map, Value as Json};

use super::Change;
use crate::units::human_size;

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
    pub const fn reason(self) -> &'static str {
        match self {
            Self::MicroBatch => "fewer sequences at a time, accumulated to the same tokens an iteration",
            Self::EvalBatch => "evaluation alone runs on fewer sequences; nanoGPT's get_batch needs a line for it",
            Self::DelEvalLogits => {
                "the last evaluation batch's logits go before the next are made; one line in estimate_loss"
            }
            Self::Compile => "torch.compile never holds the float32 copies of the logits, and is faster",
            Self::ExpandableSegments => {
                "memory is cached but in pieces that are too small; segments that grow avoid that"
            }
            Self::FlashAttention => "attention's T x T matrices are never stored, and it is faster",
            Self::ChunkedLoss => "logits exist for one chunk of tokens at a time; the loss in model.py is rewritten",
            Self::ActivationCheckpointing => {
                "only each block's input is kept, the rest computed again in backward; a line in model.py, and slower"
            }
            Self::Dtype => {
                "activations and logits take two bytes an element, and products run on tensor cores where the card has them"
            }
            Self::Adamw8bit => "AdamW's moments take one byte each instead of four; needs bitsandbytes",
            Self::OtherProcesses => "what other programs hold on the card is free again",
            Self::BlockSize => {
                "shorter sequences, at the same number of tokens an iteration: the model sees less context"
            }
            Self::Model => "a smaller model",
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
    pub fn note(&self) -> String {
        let reasons: Vec<&str> = self.kinds.iter().map(|kind| kind.reason()).collect();
        reasons.join("; ")
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

    /// The JSON contract's row.
    #[must_use]
    pub fn json(&self) -> Json {
        let mut row = Map::new();
        let mut put = |key: &str, value: Json| row.insert(key.to_owned(), value);
        put("id", Json::from(self.id()));
        put("changes", Json::Object(self.changes_json()));
        put("saves_bytes", Json::from(self.saves_bytes));
        put("fits", Json::from(self.fits));
        put("step_time_ratio", Json::from(self.step_time_ratio));
        put("effect_on_training", Json::from(self.effect().name()));
        let size = human_size(self.headroom_bytes.unsigned_abs());
        let left = if self.fits { format!("leaves {size}") } else { format!("{size} short still") };
        put("note", Json::from(format!("{left}: {}", self.note())));
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
