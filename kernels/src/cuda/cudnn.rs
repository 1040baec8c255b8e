//! Attention by cuDNN, where the host has it and a person asks for it: forward, backward or both, as far as it is faster.
//!
//! Nothing of it is trusted. Before a run begins both directions are computed on random numbers of the run's own sizes, by
//! the library and by our kernels. What differs by more than roundings, does not repeat itself bit by bit, or is refused,
//! is not taken, and [`Cudnn::notes`](Attention::notes) says so; the rest is timed against our kernels, and the faster of
//! the two is taken, in this run and in each later one in its folder.
//!
//! Backward is asked for with sums of one order ("deterministic"), which on most cards takes a gradient for every score,
//! in 16 bits: sequences are done in groups for which there is room. Attention that drops is our kernels': cuDNN's random
//! numbers are others.

mod calls;
mod compare;
mod find;
mod graph;
mod plan;
mod tried;

pub use find::{Found, NEEDED, VARIABLE, Version};

use std::{
    fmt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use headroom_shared::gpt::buffers::cuda::Attender;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Bf16, CudaError, Device, Own, Slice,
    attention::{Attention, Trial},
    driver::{self, Driver},
    libraries::{
        Absent, Refused,
        kept::{Choices, Kept, Key},
    },
    ops::attention_backward::Saved,
};
use crate::cpu::attention_forward::Heads;
use calls::{For, Handle};
use graph::{Graph, Role, Sizes};
use plan::Plan;
use tried::Trying;

/// What is taken of the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Taken {
    forward: bool,
    backward: bool,
}

/// A direction that the library computes.
#[derive(Debug)]
struct Direction {
    plan: Plan,
    room: Slice<u8>,
    /// Sequences that it does at once.
    sequences: u64,
}

/// What the library was given and gave.
#[derive(Debug)]
struct State {
    // Before the handle, which they are made with.
    forward: Option<Direction>,
    backward: Option<Direction>,
    handle: Handle,
    is_settled: bool,
    notes: Vec<String>,
}

/// cuDNN on a card.
#[derive(Debug)]
pub struct Cudnn {
    found: Found,
    kept: Option<Kept>,
    /// Executions come one after the other: those of a direction share its room.
    state: Mutex<State>,
}

/// Sizes of a run's attention, as a choice is kept by.
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
    fn of(trial: &Trial) -> Self {
        let token = 3 * trial.heads.c as u64 * trial.heads.t as u64;
        Self { b: trial.saved.qkv.len() / token.max(1), heads: trial.heads }
    }

    /// Of so many sequences; none where they are more than the library counts.
    fn sizes(&self, sequences: u64) -> Option<Sizes> {
        let [b, nh, t, hs] = [sequences, self.heads.nh as u64, self.heads.t as u64, self.heads.hs() as u64]
            .map(|n| i64::try_from(n).ok());
        #[expect(clippy::cast_possible_truncation, reason = "a factor is f32 on the card")]
        let scale = self.heads.scale() as f32;
        Some(Sizes { b: b?, nh: nh?, t: t?, hs: hs?, scale })
    }
}

/// Room that the library asks for on a card that is not here, in bytes, forward and backward; `None` where no engine of it
/// can. It compiles its kernels for that, so that some libcuda has to be there to be loaded, which need not find a card.
///
/// `properties` is the card as the library writes one, a JSON object; B, NH, T and HS the sizes of what it does at once.
///
/// # Errors
/// It is no library that is taken, or it refuses the card or the graph.
pub fn room_elsewhere(
    library: &Path,
    properties: &str,
    [b, nh, t, hs]: [u64; 4],
) -> Result<[Option<u64>; 2], ElsewhereError> {
    let (_, loaded) = find::open(library)?;
    let card = loaded.described(properties)?;
    let channels = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let heads = Heads { t: channels(t), c: channels(nh.saturating_mul(hs)), nh: channels(nh), dropout: None };
    let sizes = Shape { b, heads }.sizes(b).ok_or(ElsewhereError::TooLarge)?;
    let of = |graph: Graph| -> Result<Option<u64>, ElsewhereError> {
        Ok(Plan::new(For::Elsewhere(&card), &graph, u64::MAX)?.map(|plan| plan.workspace_bytes))
    };
    Ok([of(Graph::forward(sizes))?, of(Graph::backward(sizes))?])
}

/// Why nothing is known of a card that is not here.
#[derive(Debug, Error)]
pub enum ElsewhereError {
    /// The library is not taken.
    #[error("{0}")]
    Library(Refused),
    /// It refuses.
    #[error(transparent)]
    Cudnn(#[from] CudaError),
    /// Sizes are beyond what it counts.
    #[error("the sizes are larger than cuDNN counts")]
    TooLarge,
}

impl From<Refused> for ElsewhereError {
    fn from(refused: Refused) -> Self {
        Self::Library(refused)
    }
}

impl Cudnn {
    /// The library that [`VARIABLE`] names, else the first one in the usual places that can be used on this card. The choice
    /// is kept in the folder, where one is given.
    ///
    /// # Errors
    /// [`Absent`].
    pub fn find(device: &Device, keep_in: Option<&Path>) -> Result<Self, Absent> {
        find::find(device).map(|found| Self::new(device, found, keep_in))
    }

    /// The library at a path; for tests, which cannot set a variable of their own process.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn at(device: &Device, library: &Path, keep_in: Option<&Path>) -> Result<Self, Absent> {
        find::named(device, library).map(|found| Self::new(device, found, keep_in))
    }

    fn new(device: &Device, (found, handle): (Found, Handle), keep_in: Option<&Path>) -> Self {
        let driver = Driver::get().map_or(driver::NEEDED, Driver::version);
        let key = Key::new(device.card(), driver, ("cudnn", found.version.0), 0);
        let kept = keep_in.map(|folder| Kept::new(folder, key));
        let state = State { forward: None, backward: None, handle, is_settled: false, notes: vec![] };
        Self { found, kept, state: Mutex::new(state) }
    }

    /// Which library it is.
    #[must_use]
    pub fn found(&self) -> &Found {
        &self.found
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was taken in the run's folder before; none where nothing was.
    fn kept(&self, shape: &Shape, notes: &mut Vec<String>) -> (Choices<Taken>, Option<Taken>) {
        match self.kept.as_ref().map(Kept::read::<Taken>) {
            Some(Ok(choices)) => {
                let taken = choices.get(&shape.to_string()).copied();
                (choices, taken)
            }
            Some(Err(error)) => {
                notes.push(format!("cuDNN's attention is timed anew: {error}"));
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
        saved: Saved,
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

/// Where queries, keys or values begin among all three.
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
            (None, None) => Attention::name(&Own),
        }
    }

    fn attender(&self) -> Attender {
        Attender::Cudnn
    }

    fn settle(&mut self, device: &Device, trial: Trial) -> Result<(), CudaError> {
        let shape = Shape::of(&trial);
        let mut notes = vec![];
        if trial.drops {
            notes.push("attention drops, which is by own kernels: cuDNN's random numbers are others".to_owned());
        } else {
            let (mut choices, before) = self.kept(&shape, &mut notes);
            let state = &mut *self.state();
            let trying = Trying { device, trial: &trial, handle: &state.handle, before, times: self.kept.is_some() };
            (state.forward, state.backward) = trying.directions(&shape, &mut notes)?;
            let taken = Taken { forward: state.forward.is_some(), backward: state.backward.is_some() };
            if let Some(kept) = self.kept.as_ref().filter(|_| before != Some(taken)) {
                choices.insert(shape.to_string(), taken);
                if let Err(error) = kept.write(choices) {
                    notes.push(format!("what cuDNN does is not kept, and a resumed run may do it otherwise: {error}"));
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
            _ => Attention::forward(&Own, device, out, lse, qkv, heads),
        }
    }

    #[track_caller]
    fn backward(
        &self,
        device: &Device,
        dqkv: Slice<Bf16>,
        rows: Slice<f32>,
        dout: Slice<Bf16>,
        saved: Saved,
        heads: Heads,
    ) -> Result<(), CudaError> {
        let State { backward, handle, .. } = &*self.state();
        match backward {
            Some(direction) if heads.dropout.is_none() => {
                direction.backward(handle, device, (dqkv, rows, dout), saved, heads)
            }
            _ => Own.backward(device, dqkv, rows, dout, saved, heads),
        }
    }
}
