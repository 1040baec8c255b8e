//! One run on one card: the one way in to the calculator, for the command line and the page alike.
//!
//! [`Request`] is what is asked; [`plan`] answers with a [`Plan`]: whether it fits, by how much, where it would fail, and
//! what each figure rests on. [`Plan::timeline`] and [`Plan::live_at`] look inside.

pub mod basis;
pub mod builtin;
pub mod json;

use serde::Serialize;
use thiserror::Error;

use crate::{
    dtype::Dtype,
    gpt::{GptConfig, tensors::TensorTooLarge},
    hardware::{Device, context::Estimate},
    memory::{
        allocator::SegmentKind,
        message::{CardState, TorchVersion, out_of_memory},
        program::{Phase, Program},
        run::{Card, program},
        simulate::{Failure, Moment, Outcome, PhasePeak, simulate},
        timeline::{self, Asked, ByCategory, LiveTensor, Timeline},
    },
    text::Text,
    train_config::TrainConfig,
};
use basis::Basis;

/// What is asked: a run and the card it is to run on.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model.
    pub gpt: GptConfig,
    /// The training.
    pub train: TrainConfig,
    /// The card.
    pub device: Device,
    /// How PyTorch's allocator takes memory.
    pub segments: SegmentKind,
    /// What other processes hold on the card.
    pub other_processes_bytes: u64,
    /// The CUDA context of this process.
    pub context: Estimate,
    /// The PyTorch the messages are worded for.
    pub torch: TorchVersion,
}

/// Why no plan could be made.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// A tensor is beyond any card.
    #[error(transparent)]
    TensorTooLarge(#[from] TensorTooLarge),
}

impl PlanError {
    /// What is wrong.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::TensorTooLarge(error) => error.text(),
        }
    }
}

/// The moment with the most live tensors, and what the card holds then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The phase it is in.
    pub phase: Phase,
    /// The moment.
    pub moment: Moment,
    /// Live tensors, each rounded up to 512 bytes.
    pub live_bytes: u64,
    /// `torch.cuda.max_memory_allocated()` of the run.
    pub max_allocated_bytes: u64,
    /// `torch.cuda.max_memory_reserved()` of the run.
    pub max_reserved_bytes: u64,
    /// The whole card: other processes, context, and what PyTorch reserved at most.
    pub device_used_bytes: u64,
    /// Live bytes a category at that moment.
    pub by_category: ByCategory,
}

/// The allocation the run fails at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Oom {
    /// The phase.
    pub phase: Phase,
    /// The tensor's name.
    pub tensor: String,
    /// Its axes, slowest first.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
    /// What was asked of the driver.
    pub requested_bytes: u64,
    /// What was allocated at that moment.
    pub allocated_bytes: u64,
    /// The message PyTorch prints.
    pub message: String,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What was asked.
    pub request: Request,
    /// Whether the run gets through.
    pub fits: bool,
    /// What the card has left at the peak; negative by what is missing.
    pub headroom_bytes: i64,
    /// Peaks of each phase, in the order of the JSON contract. Where the run does not fit, these are what it would need.
    pub phases: Vec<PhasePeak>,
    /// The peak of the run; where it does not fit, what it would need.
    pub peak: Peak,
    /// The allocation the run fails at.
    pub oom: Option<Oom>,
    /// The moment of that failure in [`Plan::timeline`].
    pub failure: Option<Failure>,
    /// What the figures rest on.
    pub basis: Basis,
    program: Program,
    /// The run with all the room it wants.
    outcome: Outcome,
}

/// Plans a run.
///
/// # Errors
/// A tensor is larger than any card.
pub fn plan(request: Request) -> Result<Plan, PlanError> {
    let program = request.program()?;
    let outside = request.outside_bytes();
    let total = request.device.total_bytes;
    let limited = simulate(&program, request.segments, request.capacity_bytes());
    let failure = limited.failure;
    let outcome = match failure {
        Some(_) => simulate(&program, request.segments, u64::MAX),
        None => limited,
    };
    let device_used_bytes = outside.saturating_add(outcome.max_reserved_bytes);
    let peak = Peak {
        phase: outcome.peak_phase,
        moment: outcome.peak_moment,
        live_bytes: outcome.live_bytes_peak,
        max_allocated_bytes: outcome.max_allocated_bytes,
        max_reserved_bytes: outcome.max_reserved_bytes,
        device_used_bytes,
        by_category: outcome.peak_by_category,
    };
    let oom = failure.map(|failure| {
        let (dims, _) = program.sizes(if failure.in_eval {
            crate::memory::program::Batch::Eval
        } else {
            crate::memory::program::Batch::Train
        });
        let state = CardState {
            total_bytes: total,
            other_processes_bytes: request.other_processes_bytes,
            context_bytes: request.context.bytes,
        };
        Oom {
            phase: failure.phase,
            tensor: failure.tensor.name(failure.layer),
            shape: failure.tensor.shape(dims).as_slice().to_vec(),
            dtype: failure.tensor.dtype(dims.compute),
            requested_bytes: failure.request.segment_bytes,
            allocated_bytes: failure.allocated_bytes,
            message: out_of_memory(&failure, state, request.torch),
        }
    });
    let basis = Basis::of(&request, &outcome);
    Ok(Plan {
        fits: failure.is_none(),
        headroom_bytes: signed_difference(total, device_used_bytes),
        phases: outcome.phases.clone(),
        peak,
        oom,
        failure,
        basis,
        request,
        program,
        outcome,
    })
}

/// Whether a run gets through: [`plan`]'s answer for half its work. A run that no card could hold does not.
#[must_use]
pub fn fits(request: &Request) -> bool {
    request
        .program()
        .is_ok_and(|program| simulate(&program, request.segments, request.capacity_bytes()).failure.is_none())
}

/// How a run comes out on its card, for comparing many: [`plan`]'s answer for half its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Whether it gets through.
    pub fits: bool,
    /// Whether it gets through at the upper end of the estimates too.
    pub is_certain: bool,
    /// Whether tensors alone are more than the card has, however they lie.
    pub is_beyond: bool,
    /// What the card has left at the peak; 0 where the run does not fit.
    pub headroom_bytes: i64,
}

impl Outlook {
    /// A run that no card could hold.
    pub const BEYOND: Self = Self { fits: false, is_certain: false, is_beyond: true, headroom_bytes: 0 };
}

/// How a run comes out.
#[must_use]
pub fn outlook(request: &Request) -> Outlook {
    let Ok(program) = request.program() else { return Outlook::BEYOND };
    let capacity = request.capacity_bytes();
    let outcome = simulate(&program, request.segments, capacity);
    if let Some(failure) = &outcome.failure {
        let needed = failure.allocated_bytes.saturating_add(failure.request.requested_bytes);
        return Outlook { is_beyond: needed > capacity, ..Outlook::BEYOND };
    }
    let total = request.device.total_bytes;
    let used = request.outside_bytes().saturating_add(outcome.max_reserved_bytes);
    let [_, high] = Basis::of(request, &outcome).band_bytes;
    let headroom_bytes = signed_difference(total, used);
    Outlook { fits: true, is_certain: high <= total, is_beyond: false, headroom_bytes }
}

impl Request {
    fn program(&self) -> Result<Program, PlanError> {
        let card = Card {
            compute_capability: self.device.compute_capability,
            sm_count: self.device.sm_count.unwrap_or(basis::ASSUMED_SM_COUNT),
        };
        Ok(program(&self.gpt, &self.train, card)?)
    }

    /// What the card holds besides PyTorch's memory.
    fn outside_bytes(&self) -> u64 {
        self.other_processes_bytes.saturating_add(self.context.bytes)
    }

    /// What PyTorch can have.
    fn capacity_bytes(&self) -> u64 {
        self.device.total_bytes.saturating_sub(self.outside_bytes())
    }
}

fn signed_difference(have: u64, need: u64) -> i64 {
    i64::try_from(i128::from(have) - i128::from(need)).unwrap_or(i64::MIN)
}

impl Plan {
    /// Memory over the whole run, as if there were room, in about `columns` columns.
    #[must_use]
    pub fn timeline(&self, columns: usize) -> Timeline {
        timeline::timeline(&self.program, &self.outcome, columns)
    }

    /// The allocations of the whole run of as many bytes as `asks` takes, by how near what is live comes to `near`.
    #[must_use]
    pub fn allocations(&self, asks: impl Fn(u64) -> bool, near: u64) -> Vec<Asked> {
        timeline::allocations(&self.program, &self.outcome, asks, near)
    }

    /// What is live at a moment, largest first.
    #[must_use]
    pub fn live_at(&self, moment: Moment) -> Vec<LiveTensor> {
        timeline::live_at(&self.program, &self.outcome, moment)
    }
}
