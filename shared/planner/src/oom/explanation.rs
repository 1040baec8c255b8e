//! The explanation of a message as data: tensors, figures and causes.

use serde_json::{Map, Value as Json};

use super::{Difference, Message, Size};
use crate::{
    dtype::Dtype,
    gpt::presets::GPT2_FAMILY,
    memory::program::Phase,
    plan::{Plan, Request},
};
use headroom_text::{Text, decimal};

/// Maximum number of tensors listed.
pub(super) const MAX_MATCHES: usize = 8;

/// Formats a shape as `(65536, 50304)`.
#[must_use]
pub fn shape(axes: &[u64]) -> String {
    format!("({})", decimal::list(axes))
}

/// A tensor that the message may refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The tensor's name, described in words if several tensors match.
    pub tensor: Text,
    /// Dimensions, slowest first.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: Dtype,
    /// Phase of the allocation; `None` without a config.
    pub phase: Option<Phase>,
    /// Whether every figure agrees to the printed digit.
    pub exact: bool,
    /// Runs that have this tensor, if no config is known.
    pub runs: Vec<MatchingRun>,
}

/// A run that has a tensor of the requested size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchingRun {
    /// Batch size and sequence length, if the tensor depends on them.
    pub batch: Option<(u64, u64)>,
    /// Embedding dimension, if the tensor depends on it.
    pub n_embd: Option<u64>,
}

impl MatchingRun {
    /// Returns a config of that run, one nanoGPT key per line. Keys that the tensor does not determine keep nanoGPT's
    /// defaults.
    #[must_use]
    pub fn config(&self) -> String {
        let mut config = String::new();
        if let Some(n_embd) = self.n_embd {
            let known = GPT2_FAMILY.into_iter().find(|preset| preset.n_embd == n_embd);
            let (n_layer, n_head) = known.map_or((n_embd / 64, n_embd / 64), |preset| (preset.n_layer, preset.n_head));
            config = format!("n_layer = {n_layer}\nn_head = {n_head}\nn_embd = {n_embd}\n");
        }
        if let Some((batch_size, block_size)) = self.batch {
            config.push_str(&format!("batch_size = {batch_size}\nblock_size = {block_size}\n"));
        }
        config
    }
}

impl Match {
    /// Returns the row of the JSON contract.
    #[must_use]
    pub fn json(&self) -> Json {
        let mut row = Map::new();
        let mut put = |key: &str, value: Json| row.insert(key.to_owned(), value);
        put("tensor", Json::from(self.tensor.to_string()));
        put("shape", Json::from(self.shape.clone()));
        put("dtype", Json::from(self.dtype.name()));
        put("phase", Json::from(self.phase.map(Phase::name)));
        put("exact", Json::from(self.exact));
        Json::Object(row)
    }
}

/// Agreement between a simulated run and the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// The requested and allocated figures agree to every printed digit.
    Exact,
    /// Same tensor, but the totals differ slightly.
    Close,
    /// No allocation of the run matches.
    None,
}

/// Memory of the GPU when the allocation fails, by owner, in bytes. A value that the message does not give is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arithmetic {
    /// Total memory of the GPU.
    pub total: Option<u64>,
    /// Memory of other processes. For old messages it includes the CUDA context.
    pub others: Option<u64>,
    /// Memory of this process outside PyTorch, such as the CUDA context.
    pub context: Option<u64>,
    /// Memory of live tensors.
    pub allocated: Option<u64>,
    /// Memory that PyTorch has reserved but not allocated.
    pub unallocated: Option<u64>,
    /// Free memory.
    pub free: Option<u64>,
    /// Requested size.
    pub requested: Option<u64>,
    /// Requested size minus free memory.
    pub missing: Option<u64>,
}

impl Arithmetic {
    /// Computes the totals of a message.
    #[must_use]
    pub fn of(message: &Message) -> Self {
        let bytes = |size: Option<Size>| size.map(|size| size.bytes);
        let [total, free, process, reserved] =
            [message.total, message.free, message.process, message.reserved].map(bytes);
        // In a container, PyTorch lists this process by PID, like the others.
        let own = message.own_process.and_then(|at| message.other_processes.get(at)).map(|own| own.bytes.bytes);
        let process = process.or(own);
        let (requested, allocated) = (bytes(message.requested), bytes(message.allocated));
        let inside = process.or(reserved);
        // The figures are rounded: a difference within the combined rounding error is not another process.
        let noise = [message.total, message.free, message.process.or(message.reserved)];
        let noise: u64 = noise.into_iter().flatten().map(|size| size.resolution_bytes).sum::<u64>() / 2;
        let others = match (total, free, inside) {
            (Some(total), Some(free), Some(inside)) => {
                let others = total.saturating_sub(free).saturating_sub(inside);
                Some(if others > noise { others } else { 0 })
            }
            _ => None,
        };
        let both = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_sub(b));
        Self {
            total,
            others,
            context: both(process, reserved),
            allocated,
            unallocated: bytes(message.unallocated).or_else(|| both(reserved, allocated)),
            free,
            requested,
            missing: both(requested, free),
        }
    }
}

/// Explanation of a message. `R` is the request of the run.
#[derive(Clone, Debug)]
pub struct Explanation<R = Request> {
    /// Tensors that the message may refer to, most probable first.
    pub matches: Vec<Match>,
    /// Agreement of the best match; `None` without a config.
    pub agreement: Option<Agreement>,
    /// Whether the simulated run also reproduces the message's reserved memory.
    pub reserved_agrees: bool,
    /// The explanation in words.
    pub text: Text,
    /// Memory by owner.
    pub arithmetic: Arithmetic,
    /// Figures of the message that the run never reaches, if the run does not agree.
    pub differences: Vec<Difference>,
    /// Causes of the failure, most important first. Empty if the message has no figures.
    pub causes: Vec<Cause>,
    /// Plan of the run on this GPU, if a config is known.
    pub plan: Option<Plan<R>>,
}

/// A cause of the failure, with the figures from the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Other processes hold the memory that the allocation needs.
    OtherProcess {
        /// PID of the only other process with a notable share, if that share suffices for the allocation.
        pid: Option<u64>,
        /// Memory of that process in bytes; without a PID, the memory of all other processes.
        bytes: u64,
    },
    /// Live tensors fill the GPU.
    GpuFull,
    /// The memory reserved by PyTorch would suffice if it were contiguous.
    Fragmentation {
        /// Memory that is reserved but not allocated, in bytes. `None` if it is too small for the request or a
        /// negligible share of the GPU.
        unallocated_bytes: Option<u64>,
    },
}

impl Cause {
    /// Returns the cause's name in the JSON contract.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OtherProcess { .. } => "other_process",
            Self::GpuFull => "gpu_full",
            Self::Fragmentation { .. } => "fragmentation",
        }
    }
}
