//! One change to a run: a key of nanoGPT's config, or one of Headroom's own options, with its representations.

use serde_json::Value as Json;

use crate::{
    memory::{allocator::SegmentKind, message::TorchVersion},
    nanogpt::{Settings, Value},
    optimizer_spec::Optimizer,
    request::Request,
    session::Options,
    train_config::{Attention, CrossEntropy},
};
use headroom_text::{self as text, Key};

/// Target of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A key of nanoGPT's config.
    Key(&'static str, Value),
    /// A setting without a nanoGPT key.
    Switch(RunSwitch),
}

/// Settings without a nanoGPT key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunSwitch {
    /// `del logits` after each batch of `estimate_loss`.
    DelEvalLogits,
    /// Chunked loss.
    ChunkedLoss,
    /// Activation recomputation of each block in backward.
    ActivationCheckpointing,
    /// `scaled_dot_product_attention` instead of explicit products and softmax.
    FlashAttention,
    /// Another optimizer.
    Optimizer(Optimizer),
    /// `expandable_segments:True`.
    ExpandableSegments,
    /// No other processes on the GPU.
    NoOtherProcesses,
}

impl RunSwitch {
    /// Name in JSON; with hyphens, the option of `headroom plan`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DelEvalLogits => "del_eval_logits",
            Self::ChunkedLoss => "cross_entropy",
            Self::ActivationCheckpointing => "activation_checkpointing",
            Self::FlashAttention => "attention",
            Self::Optimizer(_) => "optimizer",
            Self::ExpandableSegments => "expandable_segments",
            Self::NoOtherProcesses => "other_processes",
        }
    }

    /// Translation key of the name.
    #[must_use]
    pub const fn text(self) -> Key {
        match self {
            Self::DelEvalLogits => text::SWITCH_DEL_EVAL_LOGITS,
            Self::ChunkedLoss => text::SWITCH_CHUNKED_LOSS,
            Self::ActivationCheckpointing => text::SWITCH_CHECKPOINTING,
            Self::FlashAttention => text::SWITCH_FLASH_ATTENTION,
            Self::Optimizer(optimizer) => optimizer.spec().label,
            Self::ExpandableSegments => text::SWITCH_EXPANDABLE,
            Self::NoOtherProcesses => text::SWITCH_NO_OTHERS,
        }
    }

    /// Value of the command-line option; `None` if the option takes no value.
    #[must_use]
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::ChunkedLoss => Some("chunked"),
            Self::FlashAttention => Some("flash"),
            Self::Optimizer(optimizer) => Some(optimizer.spec().name),
            Self::NoOtherProcesses => Some("0"),
            Self::DelEvalLogits | Self::ActivationCheckpointing | Self::ExpandableSegments => None,
        }
    }

    /// Applies the switch to `options`.
    pub fn set(self, options: &mut Options) {
        match self {
            Self::DelEvalLogits => options.del_eval_logits = true,
            Self::ChunkedLoss => options.cross_entropy = CrossEntropy::Chunked,
            Self::ActivationCheckpointing => options.activation_checkpointing = true,
            Self::FlashAttention => options.attention = Attention::Flash,
            Self::Optimizer(optimizer) => options.optimizer = optimizer,
            Self::ExpandableSegments => options.expandable_segments = true,
            Self::NoOtherProcesses => options.other_processes_bytes = 0,
        }
    }
}

impl Request {
    /// The environment variable of the allocator that the run needs, with its value.
    #[must_use]
    pub fn environment(&self) -> Option<String> {
        let expandable = Change::Switch(RunSwitch::ExpandableSegments);
        expandable.environment(self.machine.torch).filter(|_| self.machine.segments == SegmentKind::Expandable)
    }
}

impl Change {
    /// A change of an integer key.
    pub(super) fn count(key: &'static str, value: u64) -> Self {
        Self::Key(key, Value::Int(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    /// Applies the change to the settings or options.
    pub fn apply(&self, settings: &mut Settings, options: &mut Options) {
        match self {
            Self::Key(key, value) => settings.assign(key, value.clone()),
            Self::Switch(switch) => switch.set(options),
        }
    }

    /// Name in the JSON object `changes`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Key(key, _) => key,
            Self::Switch(switch) => switch.name(),
        }
    }

    /// Value in the JSON object `changes`.
    #[must_use]
    pub fn json(&self) -> Json {
        match self {
            Self::Key(_, Value::Int(count)) => Json::from(*count),
            Self::Key(_, Value::Bool(on)) => Json::from(*on),
            Self::Key(_, Value::Str(word)) => Json::from(word.as_str()),
            Self::Key(_, other) => Json::from(other.to_string()),
            Self::Switch(RunSwitch::NoOtherProcesses) => Json::from(0),
            Self::Switch(switch) => switch.word().map_or(Json::Bool(true), Json::from),
        }
    }

    /// The change as an argument of `headroom plan`: `--batch_size=8` or `--activation-checkpointing`.
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

    /// The environment variable that makes the change, if there is one.
    #[must_use]
    pub fn environment(&self, torch: TorchVersion) -> Option<String> {
        (*self == Self::Switch(RunSwitch::ExpandableSegments))
            .then(|| format!("{}=expandable_segments:True", torch.allocator_variable()))
    }

    /// Whether the config makes the change. Other changes need an edit of the program, an environment variable, or
    /// manual action.
    #[must_use]
    pub fn is_in_config(&self) -> bool {
        matches!(self, Self::Key(key, _) if *key != "eval_batch_size")
    }
}
