//! Checkpoint of a run: one file that contains everything to resume the run exactly.
//!
//! `ckpt.safetensors` holds the weights under nanoGPT's names, followed by AdamW's moments under the same names with
//! the prefixes `exp_avg.` and `exp_avg_sq.`. Checksums of each part and of the header come last. All other state is
//! JSON in the header. As everything is in one file, a rename replaces it atomically. The weights come first, so that a
//! page can read them alone.
//!
//! `ckpt.safetensors` is the last checkpoint, from which a run resumes. If a later checkpoint does not improve the
//! validation loss, the best one is kept as `ckpt.best.safetensors`.
//!
//! This module does not depend on the training loop.

mod choice;
mod error;
mod folder;
mod format;
mod progress;
pub mod pytorch;
mod space;
mod store;

use std::collections::BTreeMap;

use headroom_kernels::{rng::Stream, weights::Tokenizer};
use headroom_planner::gpt::GptConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use choice::{CheckpointChoice, chosen};
pub use error::{CheckpointError, Part};
pub use folder::{existing, find, of_nanogpt};
pub use format::{load, load_meta, load_weights};
pub use progress::{open_last, progress};
pub use space::{DiskSpaceNeeded, free_bytes, needed};
pub use store::{SavedCheckpoint, Store, check_folder, check_is_folder, is_busy};

/// File name of the last checkpoint.
pub const FILE: &str = "ckpt.safetensors";
/// File name of the checkpoint with the lowest validation loss, if it is not the last one.
pub const BEST: &str = "ckpt.best.safetensors";

/// State of a run without its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// Shape of the model: nanoGPT's `model_args`.
    pub gpt: GptConfig,
    /// nanoGPT's `config`, by its keys.
    pub config: Map<String, Value>,
    /// Progress of the run.
    pub state: State,
    /// Tokenizer of the data set. `None` if the data set has none.
    pub tokenizer: Option<Tokenizer>,
}

/// Progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// nanoGPT's `iter_num`: completed iterations.
    pub iter_num: u64,
    /// Updates performed by AdamW.
    pub optimizer_step: u64,
    /// nanoGPT's `best_val_loss`. `None` before the first evaluation.
    pub best_val_loss: Option<f64>,
    /// Validation loss of exactly these weights. `None` if they were saved without an evaluation.
    #[serde(default)]
    pub val_loss: Option<f64>,
    /// Random streams, by purpose.
    pub streams: BTreeMap<String, StreamState>,
    /// Position of the data loader, in its own format.
    #[serde(default)]
    pub data: Value,
}

impl State {
    /// State with the maximum number of digits, whose checkpoint has the maximum length.
    #[must_use]
    pub fn longest(dataset: &str) -> Self {
        // The `f64` value with the longest decimal text.
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

/// Key of the random stream for training batches.
pub const TRAIN_BATCHES: &str = "train_batches";

/// Position of the data loader: the data set, and the number of batches read.
#[must_use]
pub fn data(dataset: &str, batches: u64) -> Value {
    json!({ "dataset": dataset, "batches": batches })
}

/// Position in a random stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamState {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the stream within the seed.
    pub name: u64,
    /// Count of numbers drawn.
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

/// Tensors of a run, each flat in the order of [`headroom_kernels::layout::Layout`]. Borrowed, so that saving makes no
/// copy.
#[derive(Clone, Copy, Debug)]
pub struct Tensors<'a> {
    /// Weights.
    pub params: &'a [f32],
    /// First moments of AdamW.
    pub exp_avg: &'a [f32],
    /// Second moments of AdamW.
    pub exp_avg_sq: &'a [f32],
}

/// A checkpoint in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// State without the tensors.
    pub meta: Meta,
    /// Weights, flat in the order of [`headroom_kernels::layout::Layout`].
    pub params: Vec<f32>,
    /// First moments of AdamW.
    pub exp_avg: Vec<f32>,
    /// Second moments of AdamW.
    pub exp_avg_sq: Vec<f32>,
}

#[cfg(test)]
impl Checkpoint {
    /// Borrows the tensors.
    #[must_use]
    pub fn tensors(&self) -> Tensors<'_> {
        Tensors { params: &self.params, exp_avg: &self.exp_avg, exp_avg_sq: &self.exp_avg_sq }
    }
}

#[cfg(test)]
pub mod tests;
