//! A run's checkpoint: one file with all that is needed to go on as if nothing had happened.
//!
//! `ckpt.safetensors` holds the weights under nanoGPT's names, AdamW's moments under the same with `exp_avg.` and
//! `exp_avg_sq.` before them, and at last a checksum of each part and of the header; what is no tensor is JSON in the
//! header. As it is one file, renaming it into place replaces everything at once. The weights come first, so that a
//! page reads them alone.
//!
//! `ckpt.safetensors` is the checkpoint saved last, which a resumed run starts from. Once the run saves one whose
//! validation loss is no improvement, the best one stays beside it as `ckpt.best.safetensors`.
//!
//! What trains, and when it saves, is not known here.

mod choice;
mod error;
mod format;
mod space;
mod store;

use std::collections::BTreeMap;

use headroom_kernels::{rng::Stream, weights::Tokenizer};
use headroom_shared::gpt::GptConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use choice::{Which, chosen, find, unconverted};
pub use error::{CheckpointError, Part};
pub use format::{load, load_meta, load_weights};
pub use space::{Needed, free_bytes, needed};
pub use store::{Store, Written};

/// The name of the checkpoint that was saved last.
pub const FILE: &str = "ckpt.safetensors";
/// The name of the checkpoint with the lowest validation loss, where that is another one.
pub const BEST: &str = "ckpt.best.safetensors";

/// Everything of a run but its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// The model's shape: nanoGPT's `model_args`.
    pub gpt: GptConfig,
    /// nanoGPT's `config`, by its keys.
    pub config: Map<String, Value>,
    /// Where the run stands.
    pub state: State,
    /// How its tokens are made of text; none where the data set does not say.
    pub tokenizer: Option<Tokenizer>,
}

/// Where a run stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// nanoGPT's `iter_num`: iterations that are done.
    pub iter_num: u64,
    /// Updates that AdamW has made.
    pub optimizer_step: u64,
    /// nanoGPT's `best_val_loss`; none before the first evaluation.
    pub best_val_loss: Option<f64>,
    /// The validation loss of exactly these weights; none where they were saved without an evaluation.
    #[serde(default)]
    pub val_loss: Option<f64>,
    /// Every stream of random numbers, by what it is for.
    pub streams: BTreeMap<String, StreamState>,
    /// Where the data loader is, in its own words.
    #[serde(default)]
    pub data: Value,
}

impl State {
    /// The state with the most digits that a run can have, whose checkpoint is as long as any.
    #[must_use]
    pub fn longest(dataset: &str) -> Self {
        // The longest text of any float of 64 bits.
        let loss = Some(-f64::MIN_POSITIVE);
        let stream = StreamState { seed: u64::MAX, name: u64::MAX, position: u64::MAX };
        Self {
            iter_num: u64::MAX,
            optimizer_step: u64::MAX,
            best_val_loss: loss,
            val_loss: loss,
            streams: [(TRAIN_BATCHES.to_owned(), stream)].into(),
            data: data(dataset, u64::MAX),
        }
    }
}

/// The key of the stream that training batches are drawn from.
pub const TRAIN_BATCHES: &str = "train_batches";

/// Where the data loader is: the data set, and how many batches were read of it.
#[must_use]
pub fn data(dataset: &str, batches: u64) -> Value {
    json!({ "dataset": dataset, "batches": batches })
}

/// A stream of random numbers at some point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamState {
    /// The run's seed.
    pub seed: u64,
    /// Which of the seed's streams it is.
    pub name: u64,
    /// How many numbers were drawn.
    pub position: u64,
}

impl From<Stream> for StreamState {
    fn from(stream: Stream) -> Self {
        Self { seed: stream.seed(), name: stream.name(), position: stream.position }
    }
}

impl From<StreamState> for Stream {
    fn from(state: StreamState) -> Self {
        let mut stream = Self::new(state.seed, state.name);
        stream.position = state.position;
        stream
    }
}

/// A run's tensors, each flat as [`headroom_kernels::layout::Layout`] has them; written from where they are.
#[derive(Clone, Copy, Debug)]
pub struct Tensors<'a> {
    /// The weights.
    pub params: &'a [f32],
    /// AdamW's first moments.
    pub exp_avg: &'a [f32],
    /// AdamW's second moments.
    pub exp_avg_sq: &'a [f32],
}

/// A checkpoint in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Everything but the tensors.
    pub meta: Meta,
    /// The weights, flat as [`headroom_kernels::layout::Layout`] has them.
    pub params: Vec<f32>,
    /// AdamW's first moments.
    pub exp_avg: Vec<f32>,
    /// AdamW's second moments.
    pub exp_avg_sq: Vec<f32>,
}

#[cfg(test)]
impl Checkpoint {
    /// Its tensors.
    #[must_use]
    pub fn tensors(&self) -> Tensors<'_> {
        Tensors { params: &self.params, exp_avg: &self.exp_avg, exp_avg_sq: &self.exp_avg_sq }
    }
}

#[cfg(test)]
pub mod tests;
