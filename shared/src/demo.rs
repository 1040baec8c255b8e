//! What the demo's page and its worker say to each other: JSON texts, and files beside them.
//!
//! A worker opens one model and keeps it; another model, or another way to run the same, is another worker. So nothing of
//! one is left when the next begins.

pub mod files;
pub mod plain;

use serde::{Deserialize, Serialize};

use crate::{
    gpt::tensors::Category,
    text::{self, Key, Text},
};

/// A way to run a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// WebGPU, weights in float32.
    WebGpu,
    /// WebGPU, matrices in half precision.
    WebGpuHalf,
    /// The CPU in WebAssembly, weights in float32.
    Cpu,
    /// The CPU in WebAssembly, matrices in 16-bit integers with a scale a row.
    CpuInt16,
}

impl Way {
    /// All, in the order in which a page lists them.
    pub const ALL: [Self; 4] = [Self::WebGpu, Self::WebGpuHalf, Self::Cpu, Self::CpuInt16];

    /// Whether it computes on WebGPU.
    #[must_use]
    pub const fn is_webgpu(self) -> bool {
        matches!(self, Self::WebGpu | Self::WebGpuHalf)
    }

    /// Whether matrices are stored less exactly than a file in float32 has them.
    #[must_use]
    pub const fn is_compact(self) -> bool {
        matches!(self, Self::WebGpuHalf | Self::CpuInt16)
    }

    /// What a person calls it.
    #[must_use]
    pub const fn text(self) -> Key {
        match self {
            Self::WebGpu => text::WAY_WEBGPU,
            Self::WebGpuHalf => text::WAY_WEBGPU_HALF,
            Self::Cpu => text::WAY_CPU,
            Self::CpuInt16 => text::WAY_CPU_INT16,
        }
    }
}

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The one that ships, at this address.
    Shipped(String),
    /// Files that a person chose, which travel beside.
    Files,
}

/// What the page asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// The first of all.
    Open {
        /// Which model.
        source: Source,
        /// The way that a person chose.
        way: Option<Way>,
        /// The GPU's memory, where a person said it: no browser does.
        gpu_bytes: Option<u64>,
    },
    /// A text from its beginning; one that is being written ends.
    Write(Write),
    /// The text is long enough.
    Stop,
    /// Milliseconds between two tokens from now on, of the text that is being written.
    Pace(u32),
    /// Another layer and head of the map of attention.
    Attention(Head),
}

/// A text to be written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// How it begins.
    pub prompt: String,
    /// What logits are divided by; 0 takes the likeliest token.
    pub temperature: f32,
    /// Tokens that are chosen among; 0 for all.
    pub top_k: u32,
    /// The same seed makes the same text.
    pub seed: u64,
    /// Tokens to write.
    pub n_tokens: u32,
    /// Milliseconds between two, for those who like to watch.
    pub pause_millis: u32,
    /// The map of attention to send at the end.
    pub head: Head,
}

/// A head of a layer, both from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The block.
    pub layer: u64,
    /// The head in it.
    pub head: u64,
}

/// What the worker tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Tell {
    /// The file's head was read, and what each way would take is known.
    Opened(Opened),
    /// Weights on their way in.
    Progress {
        /// Bytes read.
        read_bytes: u64,
        /// Of so many.
        all_bytes: u64,
    },
    /// The model can write.
    Ready(Ready),
    /// The prompt is read.
    Began(Began),
    /// What was written since the last of these.
    Wrote(Wrote),
    /// The text ended.
    Ended(End),
    /// The map that was asked for.
    Attention(Map),
    /// Something is not as it should be.
    Failed(Failure),
}

/// A model that was opened, and the plan of each way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The file's name; empty for the one that ships.
    pub name: String,
    /// Blocks.
    pub n_layer: u64,
    /// Heads.
    pub n_head: u64,
    /// Channels.
    pub n_embd: u64,
    /// Tokens that the model sees.
    pub block_size: u64,
    /// Tokens that there are.
    pub vocab_size: u64,
    /// Weights.
    pub n_parameters: u64,
    /// What a person should know of it.
    #[serde(with = "packed_list")]
    pub notes: Vec<Text>,
    /// What each way takes.
    pub plans: Vec<Plan>,
    /// The way that is taken, where there is one.
    pub way: Option<Way>,
    /// Why that one.
    #[serde(with = "packed")]
    pub why: Text,
}

/// What a way takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The way.
    pub way: Way,
    /// Bytes of its buffers; none where a tensor is beyond any machine.
    pub bytes: Option<u64>,
    /// Why it cannot be taken.
    #[serde(with = "packed_option")]
    pub refusal: Option<Text>,
}

/// A model that can write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// How it runs.
    pub way: Way,
    /// What it runs on: the adapter's name, which may be empty, or the CPU's instructions.
    pub device: String,
    /// Every tensor that was allocated, largest first.
    pub tensors: Vec<Allocated>,
}

/// A tensor, over all blocks that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocated {
    /// Its name without the block's number.
    pub name: String,
    /// What it is for.
    pub category: Category,
    /// How many there are.
    pub n: u64,
    /// Bytes as planned.
    pub planned_bytes: u64,
    /// Bytes as allocated.
    pub allocated_bytes: u64,
}

/// A prompt that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    /// The tokens that the model sees, which are the last ones, as texts.
    pub tokens: Vec<String>,
    /// How many the whole prompt has.
    pub n_tokens: u64,
}

/// Tokens that were written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wrote {
    /// In order.
    pub tokens: Vec<Token>,
    /// Tokens of the whole text that were written so far.
    pub n_tokens: u32,
    /// Microseconds that the engine took for those. No fractions travel: writing them takes a program ten kilobytes.
    pub micros: u64,
}

/// A token that was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Token {
    /// Its number.
    pub id: u32,
    /// What it adds to the text: nothing where a character is not whole yet.
    pub adds: String,
    /// The likeliest tokens in its place with their probabilities in millionths, likeliest first.
    pub candidates: Vec<(u32, String, u32)>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It has as many tokens as were asked for.
    Length,
    /// It was stopped.
    Stopped,
}

/// How much tokens attend to earlier ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// Of which head.
    pub head: Head,
    /// The last tokens of the text, which are rows and columns.
    pub tokens: Vec<String>,
    /// A row each, as long as there are tokens, in thousandths.
    pub weights: Vec<u16>,
    /// What each row gives to tokens before those, in thousandths.
    pub earlier: Vec<u16>,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind, which decides what can be done.
    pub kind: FailureKind,
    /// In a sentence.
    #[serde(with = "packed")]
    pub text: Text,
    /// What to do.
    #[serde(with = "packed_option")]
    pub hint: Option<Text>,
}

/// What a failure leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// No model: the files are none, or not all.
    Files,
    /// No model: there is no way that it fits.
    DoesNotFit,
    /// No device: it was lost, is full, or does not do what it should. Another way, or another time.
    Device,
    /// The model is still there; the text cannot begin like that.
    Prompt,
}

/// A text between two programs of one build.
mod packed {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error};

    use crate::text::Text;

    pub fn serialize<S: Serializer>(text: &Text, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text.packed())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        Text::unpacked(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("no text"))
    }
}

/// The same where there may be none.
mod packed_option {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::text::Text;

    #[allow(clippy::ref_option, reason = "serde's signature")]
    pub fn serialize<S: Serializer>(text: &Option<Text>, serializer: S) -> Result<S::Ok, S::Error> {
        text.as_ref().map(Text::packed).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.and_then(|packed| Text::unpacked(&packed)))
    }
}

/// The same of several.
mod packed_list {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::text::Text;

    pub fn serialize<S: Serializer>(texts: &[Text], serializer: S) -> Result<S::Ok, S::Error> {
        texts.iter().map(Text::packed).collect::<Vec<_>>().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Text>, D::Error> {
        Ok(Vec::<String>::deserialize(deserializer)?.iter().filter_map(|packed| Text::unpacked(packed)).collect())
    }
}
