//! One change to a run: a key of nanoGPT's config, or an option of ours, with everything that is made of it.

use serde_json::Value as Json;

use crate::{
    memory::message::TorchVersion,
    nanogpt::{Settings, Value},
    session::Options,
    text::{self, Key},
    train_config::{Attention, CrossEntropy, Optimizer},
};

/// What one change sets.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A key of nanoGPT.
    Key(&'static str, Value),
    /// Something that nanoGPT has no key for.
    Switch(Switch),
}

/// What nanoGPT has no key for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// `del logits` after each batch of `estimate_loss`.
    DelEvalLogits,
    /// The loss in chunks of tokens.
    ChunkedLoss,
    /// Each block computed again in backward.
    ActivationCheckpointing,
    /// `scaled_dot_product_attention` in place of products and softmax.
    FlashAttention,
    /// bitsandbytes' `AdamW8bit`.
    Adamw8bit,
    /// `expandable_segments:True`.
    ExpandableSegments,
    /// Nothing else on the card.
    NoOtherProcesses,
}

impl Switch {
    /// Its name in JSON; with hyphens, `headroom plan`'s option.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DelEvalLogits => "del_eval_logits",
            Self::ChunkedLoss => "cross_entropy",
            Self::ActivationCheckpointing => "activation_checkpointing",
            Self::FlashAttention => "attention",
            Self::Adamw8bit => "optimizer",
            Self::ExpandableSegments => "expandable_segments",
            Self::NoOtherProcesses => "other_processes",
        }
    }

    /// Its name for a person.
    #[must_use]
    pub const fn text(self) -> Key {
        match self {
            Self::DelEvalLogits => text::SWITCH_DEL_EVAL_LOGITS,
            Self::ChunkedLoss => text::SWITCH_CHUNKED_LOSS,
            Self::ActivationCheckpointing => text::SWITCH_CHECKPOINTING,
            Self::FlashAttention => text::SWITCH_FLASH_ATTENTION,
            Self::Adamw8bit => text::SWITCH_ADAMW_8BIT,
            Self::ExpandableSegments => text::SWITCH_EXPANDABLE,
            Self::NoOtherProcesses => text::SWITCH_NO_OTHERS,
        }
    }

    /// The word behind the option; `None` where the option stands alone.
    #[must_use]
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::ChunkedLoss => Some("chunked"),
            Self::FlashAttention => Some("flash"),
            Self::Adamw8bit => Some("adamw-8bit"),
            Self::NoOtherProcesses => Some("0"),
            Self::DelEvalLogits | Self::ActivationCheckpointing | Self::ExpandableSegments => None,
        }
    }

    /// Makes the change.
    pub fn set(self, options: &mut Options) {
        match self {
            Self::DelEvalLogits => options.del_eval_logits = true,
            Self::ChunkedLoss => options.cross_entropy = CrossEntropy::Chunked,
            Self::ActivationCheckpointing => options.activation_checkpointing = true,
            Self::FlashAttention => options.attention = Attention::Flash,
            Self::Adamw8bit => options.optimizer = Optimizer::Adamw8bit,
            Self::ExpandableSegments => options.expandable_segments = true,
            Self::NoOtherProcesses => options.other_processes_bytes = 0,
        }
    }
}

impl Change {
    /// A count.
    pub(super) fn count(key: &'static str, value: u64) -> Self {
        Self::Key(key, Value::Int(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    /// Makes the change.
    pub fn apply(&self, settings: &mut Settings, options: &mut Options) {
        match self {
            Self::Key(key, value) => settings.assign(key, value.clone()),
            Self::Switch(switch) => switch.set(options),
        }
    }

    /// The name in JSON's `changes`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Key(key, _) => key,
            Self::Switch(switch) => switch.name(),
        }
    }

    /// The value in JSON's `changes`.
    #[must_use]
    pub fn json(&self) -> Json {
        match self {
            Self::Key(_, Value::Int(count)) => Json::from(*count),
            Self::Key(_, Value::Bool(on)) => Json::from(*on),
            Self::Key(_, Value::Str(word)) => Json::from(word.as_str()),
            Self::Key(_, other) => Json::from(other.to_string()),
            Self::Switch(Switch::NoOtherProcesses) => Json::from(0),
            Self::Switch(switch) => switch.word().map_or(Json::Bool(true), Json::from),
        }
    }

    /// The change as `headroom plan` takes it: `--batch_size=8` or `--activation-checkpointing`.
    #[must_use]
    pub fn argument(&self) -> String {
        match self {
            Self::Key(key, Value::Str(word)) => format!("--{key}={word}"),
            Self::Key(key, value) => format!("--{key}={value}"),
            Self::Switch(switch) => {
                let name = switch.name().replace('_', "-");
                switch.word().map_or_else(|| format!("--{name}"), |word| format!("--{name}={word}"))
            }
        }
    }

    /// The environment variable a change is made by, if it is made by one.
    #[must_use]
    pub fn environment(&self, torch: TorchVersion) -> Option<String> {
        (*self == Self::Switch(Switch::ExpandableSegments))
            .then(|| format!("{}=expandable_segments:True", torch.allocator_variable()))
    }

    /// Whether it is made in the config: every other change needs an edit of the program, a variable, or a hand.
    #[must_use]
    pub fn is_in_config(&self) -> bool {
        matches!(self, Self::Key(key, _) if *key != "eval_batch_size")
    }
}
