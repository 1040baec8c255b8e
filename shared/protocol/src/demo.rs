//! Messages between the demo's page and its worker: JSON texts, and files next to them.
//!
//! A worker opens one model and keeps it. Another model or another backend uses a new worker, so that no state remains.

pub mod files;
pub mod plain;

use serde::{Deserialize, Serialize};

use headroom_planner::gpt::tensors::Category;
use headroom_text::{self as text, Key, Text};

/// Backend and precision for running a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DemoBackend {
    /// WebGPU with float32 weights.
    WebGpu,
    /// WebGPU with half-precision matrices.
    WebGpuHalf,
    /// CPU in WebAssembly with float32 weights.
    Cpu,
    /// CPU in WebAssembly with matrices of 16-bit integers and one scale per row.
    CpuInt16,
}

impl DemoBackend {
    /// All variants, in display order.
    pub const ALL: [Self; 4] = [Self::WebGpu, Self::WebGpuHalf, Self::Cpu, Self::CpuInt16];

    /// Returns whether it computes on WebGPU.
    #[must_use]
    pub const fn is_webgpu(self) -> bool {
        matches!(self, Self::WebGpu | Self::WebGpuHalf)
    }

    /// Returns whether matrices are stored with less precision than float32.
    #[must_use]
    pub const fn is_compact(self) -> bool {
        matches!(self, Self::WebGpuHalf | Self::CpuInt16)
    }

    /// Returns the display name.
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

/// Source of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The bundled model at this URL.
    Shipped(String),
    /// Files that the user chose, sent with the message.
    Files,
}

/// A request from the page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerRequest {
    /// Opens a model. It is the first request.
    Open {
        /// The model's source.
        source: Source,
        /// The user's choice; `None` for the default.
        way: Option<DemoBackend>,
        /// The GPU's memory in bytes, if the user entered it. Browsers do not report it.
        gpu_bytes: Option<u64>,
    },
    /// Starts a new text; a text in progress ends.
    Write(GenerationRequest),
    /// Stops the text.
    Stop,
    /// Sets the delay between tokens of the current text, in milliseconds.
    Pace(u32),
    /// Requests the attention weights of a token of the text, by its index. A text in progress continues.
    Attention(u64),
}

/// Parameters of a text to generate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationRequest {
    /// The prompt.
    pub prompt: String,
    /// Sampling temperature; 0 selects the most probable token.
    pub temperature: f32,
    /// Number of candidate tokens; 0 for all.
    pub top_k: u32,
    /// Seed of the random numbers. The same seed gives the same text.
    pub seed: u64,
    /// Number of tokens to generate.
    pub n_tokens: u32,
    /// Delay between tokens in milliseconds.
    pub pause_millis: u32,
    /// Whether attention maps are sent.
    pub maps: bool,
}

/// A message from the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerResponse {
    /// The file's header was read, and the memory of each backend is known.
    Opened(ModelPlans),
    /// Progress of loading the weights.
    Progress {
        /// Number of bytes read.
        read_bytes: u64,
        /// Total number of bytes.
        all_bytes: u64,
    },
    /// The model is ready to generate text.
    Ready(ModelReport),
    /// The prompt was processed.
    Began(PromptReport),
    /// Tokens generated since the last such message.
    Wrote(TokenReport),
    /// The text ended.
    Ended(End),
    /// The attention among the last tokens of the text. It is sent several times per second, and at the end.
    Maps(Maps),
    /// The requested attention of a token.
    Attention(TokenAttention),
    /// An error.
    Failed(Failure),
}

/// An opened model, and the plan of each backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelPlans {
    /// Name of the file; empty for the bundled model.
    pub name: String,
    /// Number of blocks.
    pub n_layer: u64,
    /// Number of heads.
    pub n_head: u64,
    /// Embedding dimension.
    pub n_embd: u64,
    /// Context length in tokens.
    pub block_size: u64,
    /// Vocabulary size.
    pub vocab_size: u64,
    /// Number of parameters.
    pub n_parameters: u64,
    /// Remarks for the user.
    #[serde(with = "packed_list")]
    pub notes: Vec<Text>,
    /// Plan of each backend.
    pub plans: Vec<Plan>,
    /// The selected backend; `None` if none is usable.
    pub way: Option<DemoBackend>,
    /// Reason for the selection.
    #[serde(with = "packed")]
    pub why: Text,
}

/// Memory requirements of a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The backend.
    pub way: DemoBackend,
    /// Total size of its buffers in bytes; `None` if a tensor exceeds the size of any machine.
    pub bytes: Option<u64>,
    /// Reason why it cannot be used.
    #[serde(with = "packed_option")]
    pub refusal: Option<Text>,
}

/// A model that is ready to generate text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelReport {
    /// The backend in use.
    pub way: DemoBackend,
    /// Name of the device: the adapter's name, which may be empty, or the CPU's instruction set.
    pub device: String,
    /// Every allocated tensor, largest first.
    pub tensors: Vec<TensorSummary>,
}

/// A tensor, summed over all blocks that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSummary {
    /// Name without the block's index.
    pub name: String,
    /// Category of its use.
    pub category: Category,
    /// Number of tensors.
    pub n: u64,
    /// Planned size in bytes.
    pub planned_bytes: u64,
    /// Allocated size in bytes.
    pub allocated_bytes: u64,
}

/// A processed prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptReport {
    /// Texts of the tokens in the context, which are the last ones of the prompt.
    pub tokens: Vec<String>,
    /// Number of tokens in the whole prompt.
    pub n_tokens: u64,
}

/// Generated tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenReport {
    /// The tokens, in order.
    pub tokens: Vec<Token>,
    /// Number of tokens generated so far in the whole text.
    pub n_tokens: u32,
    /// Time the engine took for these tokens in microseconds. It is an integer because formatting fractions adds ten
    /// kilobytes to a program.
    pub micros: u64,
}

/// A sampled token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Text that it adds; empty while a character is incomplete.
    pub adds: String,
    /// The most probable tokens at this position, with probabilities in millionths, most probable first.
    pub candidates: Vec<(u32, String, u32)>,
}

/// Reason why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The requested number of tokens was reached.
    Length,
    /// The text was stopped.
    Stopped,
}

/// Attention maps: the weights with which the last tokens of the text attend to themselves and to those before them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maps {
    /// Texts of the tokens, which are the rows and columns of each map.
    pub tokens: Vec<String>,
    /// Weights in thousandths: by layer, head, row and column. The rest of a row is the weight on tokens before these.
    pub weights: Vec<u16>,
}

/// The attention of a token: the weights with which it attends to itself and to tokens before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenAttention {
    /// Index of the token in the text.
    pub token: u64,
    /// Index of the first token that it attends to.
    pub first: u64,
    /// Weights in thousandths: by layer, head and attended token.
    pub weights: Vec<u16>,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Kind of failure, which determines the possible next steps.
    pub kind: FailureKind,
    /// Message for the user.
    #[serde(with = "packed")]
    pub text: Text,
    /// Suggested next step.
    #[serde(with = "packed_option")]
    pub hint: Option<Text>,
}

/// Effect of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// No model: the files are invalid or incomplete.
    Files,
    /// No model: it does not fit with any backend.
    DoesNotFit,
    /// The device was lost, is out of memory or is faulty. Another backend or a later attempt may work.
    Device,
    /// The prompt is invalid; the model stays loaded.
    Prompt,
}

/// Serialization of a text between two programs of the same build.
mod packed {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error};

    use headroom_text::Text;

    pub fn serialize<S: Serializer>(text: &Text, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text.packed())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        Text::unpacked(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("no text"))
    }
}

/// Serialization of an optional text.
mod packed_option {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use headroom_text::Text;

    #[allow(clippy::ref_option, reason = "serde's signature")]
    pub fn serialize<S: Serializer>(text: &Option<Text>, serializer: S) -> Result<S::Ok, S::Error> {
        text.as_ref().map(Text::packed).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.and_then(|packed| Text::unpacked(&packed)))
    }
}

/// Serialization of a list of texts.
mod packed_list {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use headroom_text::Text;

    pub fn serialize<S: Serializer>(texts: &[Text], serializer: S) -> Result<S::Ok, S::Error> {
        texts.iter().map(Text::packed).collect::<Vec<_>>().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Text>, D::Error> {
        Ok(Vec::<String>::deserialize(deserializer)?.iter().filter_map(|packed| Text::unpacked(packed)).collect())
    }
}
