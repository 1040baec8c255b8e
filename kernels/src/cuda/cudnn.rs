//! Attention backend on cuDNN, used if the user selects it: for forward, backward or both, whichever are faster.
//!
//! The library's results are verified. Before a run begins, both directions are computed on random numbers of the run's
//! sizes, by the library and by the built-in kernels. A direction is rejected if it differs by more than rounding, is
//! not reproducible bit for bit, or fails. [`Cudnn::notes`](Attention::notes) reports the reason. The remaining
//! directions are timed, and the faster of library and built-in kernels is used. Later runs in the same directory use
//! the same selection.
//!
//! Backward is requested with a fixed order of summation ("deterministic"). On most GPUs this takes a 16-bit gradient
//! for every score, so sequences are processed in groups that fit into the workspace. Attention with dropout uses the
//! built-in kernels, because cuDNN's random numbers differ.

mod autotune;
mod calls;
mod compare;
mod find;
mod graph;
mod plan;

pub use find::{LoadedLibrary, NEEDED, VARIABLE, Version};

use std::{
    fmt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use headroom_planner::gpt::buffers::cuda::AttentionBackend;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Bf16, BuiltinKernels, CudaError, Device, Slice,
    attention::{Attention, AutotuneInputs},
    driver::{self, Driver},
    libraries::{
        LibraryError, RejectedLibrary,
        algorithm_file::{AlgorithmFile, Choices, Key},
    },
    ops::attention_backward::SavedAttention,
};
use crate::reference::attention_forward::Heads;
use autotune::Autotuner;
use calls::{DescriptorGpu, Handle};
use graph::{Graph, Role, Sizes};
use plan::Plan;

/// Directions that the library computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CudnnDirections {
    forward: bool,
    backward: bool,
}

/// A direction that the library computes.
#[derive(Debug)]
struct Direction {
    plan: Plan,
    room: Slice<u8>,
    /// Sequences per execution.
    sequences: u64,
}

/// The library's handle and the selected plans.
#[derive(Debug)]
struct State {
    // Declared before the handle, which creates them.
    forward: Option<Direction>,
    backward: Option<Direction>,
    handle: Handle,
    is_settled: bool,
    notes: Vec<String>,
}

/// cuDNN on one GPU.
#[derive(Debug)]
pub struct Cudnn {
    found: LoadedLibrary,
    kept: Option<AlgorithmFile>,
    /// State of the library. Executions run one after the other, so those of a direction share its workspace.
    state: Mutex<State>,
}

/// Sizes of a run's attention, the key of a stored selection.
struct Shape {
    b: u64,
    heads: Heads,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Heads { t, nh, .. } = self.heads;
        write!(f, "attention, B {}, T {t}, NH {nh}, HS {}", self.b, self.heads.hs())
    }
}

impl Shape {
    fn of(trial: &AutotuneInputs) -> Self {
        let token = 3 * trial.heads.c as u64 * trial.heads.t as u64;
        Self { b: trial.saved.qkv.len() / token.max(1), heads: trial.heads }
    }

    /// Sizes for a number of sequences; `None` if they exceed the library's integers.
    fn sizes(&self, sequences: u64) -> Option<Sizes> {
        let [b, nh, t, hs] = [sequences, self.heads.nh as u64, self.heads.t as u64, self.heads.hs() as u64]
            .map(|n| i64::try_from(n).ok());
        #[expect(clippy::cast_possible_truncation, reason = "a factor is f32 on the GPU")]
        let scale = self.heads.scale() as f32;
        Some(Sizes { b: b?, nh: nh?, t: t?, hs: hs?, scale })
    }
}

/// Workspace in bytes, forward and backward, that the library needs on a GPU that is not present; `None` if no engine
/// supports the sizes. The library compiles its kernels for this, so a libcuda must be loadable, though it need not
/// find a GPU.
///
/// `properties` is the GPU's description in the library's format, a JSON object. B, NH, T and HS are the sizes of one
/// execution.
///
/// # Errors
/// The library is not supported, or it rejects the GPU or the graph.
pub fn room_elsewhere(
    library: &Path,
    properties: &str,
    [b, nh, t, hs]: [u64; 4],
) -> Result<[Option<u64>; 2], ElsewhereError> {
    let (_, loaded) = find::open(library)?;
    let gpu = loaded.described(properties)?;
    let channels = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let heads = Heads { t: channels(t), c: channels(nh.saturating_mul(hs)), nh: channels(nh), dropout: None };
    let sizes = Shape { b, heads }.sizes(b).ok_or(ElsewhereError::TooLarge)?;
    let of = |graph: Graph| -> Result<Option<u64>, ElsewhereError> {
        Ok(Plan::new(DescriptorGpu::Elsewhere(&gpu), &graph, u64::MAX)?.map(|plan| plan.workspace_bytes))
    };
    Ok([of(Graph::forward(sizes))?, of(Graph::backward(sizes))?])
}

/// Why the workspace on an absent GPU is unknown.
#[derive(Debug, Error)]
pub enum ElsewhereError {
    #[error("{0}")]
    Library(RejectedLibrary),
    /// The library failed.
    #[error(transparent)]
    Cudnn(#[from] CudaError),
    /// The sizes exceed the library's integers.
    #[error("the sizes are larger than cuDNN counts")]
    TooLarge,
}

impl From<RejectedLibrary> for ElsewhereError {
    fn from(refused: RejectedLibrary) -> Self {
        Self::Library(refused)
    }
}

impl Cudnn {
    /// Loads the library that [`VARIABLE`] names, or else the first usable one found. The selection is stored in the
    /// directory `keep_in`, if given.
    ///
    /// # Errors
    /// [`LibraryError`] if no library was loaded.
    pub fn find(device: &Device, keep_in: Option<&Path>) -> Result<Self, LibraryError> {
        find::find(device).map(|found| Self::new(device, found, keep_in))
    }

    /// Loads the library at a path; for tests, which cannot set an environment variable of their own process.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn at(device: &Device, library: &Path, keep_in: Option<&Path>) -> Result<Self, LibraryError> {
        find::named(device, library).map(|found| Self::new(device, found, keep_in))
    }

    fn new(device: &Device, (found, handle): (LoadedLibrary, Handle), keep_in: Option<&Path>) -> Self {
        let driver = Driver::get().map_or(driver::NEEDED, Driver::version);
        let key = Key::new(device.gpu(), driver, ("cudnn", found.version.0), 0);
        let kept = keep_in.map(|folder| AlgorithmFile::new(folder, key));
        let state = State { forward: None, backward: None, handle, is_settled: false, notes: vec![] };
        Self { found, kept, state: Mutex::new(state) }
    }

    #[must_use]
    pub fn found(&self) -> &LoadedLibrary {
        &self.found
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the stored selections, and that of `shape` if there is one.
    fn kept(&self, shape: &Shape, notes: &mut Vec<String>) -> (Choices<CudnnDirections>, Option<CudnnDirections>) {
        match self.kept.as_ref().map(AlgorithmFile::read::<CudnnDirections>) {
            Some(Ok(choices)) => {
                let taken = choices.get(&shape.to_string()).copied();
                (choices, taken)
            }
            Some(Err(error)) => {
                notes
                    .push(format!("cannot use the stored selection of cuDNN attention: {error}; it is measured again"));
                Default::default()
            }
            None => Default::default(),
        }
    }
}

impl Direction {
    #[track_caller]
    fn forward(
        &self,
        handle: &Handle,
        device: &Device,
        out: Slice<Bf16>,
        lse: Slice<f32>,
        qkv: Slice<Bf16>,
        heads: Heads,
    ) -> Result<(), CudaError> {
        let address = |role| match role {
            Role::Out => out.address(),
            Role::Lse => lse.address(),
            role => part(qkv, role, heads),
        };
        self.plan.execute(handle, device, address, self.room)
    }

    #[track_caller]
    fn backward(
        &self,
        handle: &Handle,
        device: &Device,
        (dqkv, rows, dout): (Slice<Bf16>, Slice<f32>, Slice<Bf16>),
        saved: SavedAttention,
        heads: Heads,
    ) -> Result<(), CudaError> {
        let Heads { t, c, nh, .. } = heads;
        let group = |of: u64| of * self.sequences * t as u64;
        let (token, rows_of) = (group(c as u64), group(nh as u64));
        for first in 0..saved.out.len() / token.max(1) {
            let halves = |slice: Slice<Bf16>, times: u64| slice.part(first * token * times, token * times);
            let floats = |slice: Slice<f32>| slice.part(first * rows_of, rows_of);
            let (qkv, dqkv) = (halves(saved.qkv, 3)?, halves(dqkv, 3)?);
            let (out, dout) = (halves(saved.out, 1)?, halves(dout, 1)?);
            let (lse, rows) = (floats(saved.lse)?, floats(rows)?);
            let address = |role| match role {
                Role::Out => out.address(),
                Role::DOut => dout.address(),
                Role::Lse => lse.address(),
                Role::Rows => rows.address(),
                Role::DQueries => part(dqkv, Role::Queries, heads),
                Role::DKeys => part(dqkv, Role::Keys, heads),
                Role::DValues => part(dqkv, Role::Values, heads),
                role => part(qkv, role, heads),
            };
            self.plan.execute(handle, device, address, self.room)?;
        }
        Ok(())
    }
}

/// Address of the first query, key or value in the interleaved QKV tensor.
fn part(qkv: Slice<Bf16>, role: Role, heads: Heads) -> u64 {
    let channels = heads.c as u64 * size_of::<Bf16>() as u64;
    let nth = match role {
        Role::Keys => 1,
        Role::Values => 2,
        _ => 0,
    };
    qkv.address() + nth * channels
}

impl Attention for Cudnn {
    fn name(&self) -> String {
        let State { forward, backward, is_settled, .. } = &*self.state();
        match (forward, backward) {
            _ if !is_settled => format!("{} as far as that is faster, else own kernels", self.found),
            (Some(_), Some(_)) => self.found.to_string(),
            (Some(_), None) => format!("{}, and its gradient by own kernels", self.found),
            (None, Some(_)) => format!("own kernels, and its gradient by {}", self.found),
            (None, None) => Attention::name(&BuiltinKernels),
        }
    }

    fn attention_backend(&self) -> AttentionBackend {
        AttentionBackend::Cudnn
    }

    fn settle(&mut self, device: &Device, trial: AutotuneInputs) -> Result<(), CudaError> {
        let shape = Shape::of(&trial);
        let mut notes = vec![];
        if trial.drops {
            notes.push(
                "cannot use cuDNN for attention with dropout: its random numbers differ; own kernels are used"
                    .to_owned(),
            );
        } else {
            let (mut choices, before) = self.kept(&shape, &mut notes);
            let state = &mut *self.state();
            let trying = Autotuner { device, trial: &trial, handle: &state.handle, before, times: self.kept.is_some() };
            (state.forward, state.backward) = trying.directions(&shape, &mut notes)?;
            let taken = CudnnDirections { forward: state.forward.is_some(), backward: state.backward.is_some() };
            if let Some(kept) = self.kept.as_ref().filter(|_| before != Some(taken)) {
                choices.insert(shape.to_string(), taken);
                if let Err(error) = kept.write(choices) {
                    notes.push(format!(
                        "cannot store the selection of cuDNN attention: {error}; a resumed run may select differently"
                    ));
                }
            }
        }
        self.state().is_settled = true;
        notes.push(format!("attention is computed by {}", self.name()));
        self.state().notes = notes;
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        self.state().notes.clone()
    }

    #[track_caller]
    fn forward(
        &self,
        device: &Device,
        out: Slice<Bf16>,
        lse: Slice<f32>,
        qkv: Slice<Bf16>,
        heads: Heads,
    ) -> Result<(), CudaError> {
        let State { forward, handle, .. } = &*self.state();
        match forward {
            Some(direction) if heads.dropout.is_none() => direction.forward(handle, device, out, lse, qkv, heads),
            _ => Attention::forward(&BuiltinKernels, device, out, lse, qkv, heads),
        }
    }

    #[track_caller]
    fn backward(
        &self,
        device: &Device,
        dqkv: Slice<Bf16>,
        rows: Slice<f32>,
        dout: Slice<Bf16>,
        saved: SavedAttention,
        heads: Heads,
    ) -> Result<(), CudaError> {
        let State { backward, handle, .. } = &*self.state();
        match backward {
            Some(direction) if heads.dropout.is_none() => {
                direction.backward(handle, device, (dqkv, rows, dout), saved, heads)
            }
            _ => BuiltinKernels.backward(device, dqkv, rows, dout, saved, heads),
        }
    }
}
