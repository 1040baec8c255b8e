//! The memory plan of one run on one GPU: the calculator's entry point for the command line and the page.
//!
//! [`plan`] turns a [`Request`] into a [`Plan`]: whether the run fits, by how much, where it would fail, and how
//! certain each figure is. [`Plan::timeline`] and [`Plan::live_at`] give details.

pub mod basis;
pub mod builtin;

use serde::Serialize;
use thiserror::Error;

pub use crate::request::{Machine, Request, RunOnMachine};
use crate::{
    dtype::Dtype,
    gpt::tensors::TensorTooLarge,
    memory::{
        allocator::SegmentKind,
        message::{GpuState, out_of_memory},
        program::{Phase, Program},
        simulate::{ByCategory, EventIndex, Failure, Outcome, PhasePeak},
        timeline::{self, AllocationRecord, LiveTensor, Timeline},
    },
};
use basis::Basis;
use headroom_text::Text;

/// Error of a plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// A tensor exceeds the memory of every GPU.
    #[error(transparent)]
    TensorTooLarge(#[from] TensorTooLarge),
}

impl PlanError {
    /// Error message.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::TensorTooLarge(error) => error.text(),
        }
    }
}

/// The moment with the most live bytes, and the memory in use at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Phase of the peak.
    pub phase: Phase,
    /// Moment of the peak.
    pub moment: EventIndex,
    /// Live tensors in bytes, each rounded up to 512 bytes.
    pub live_bytes: u64,
    /// `torch.cuda.max_memory_allocated()` of the run.
    pub max_allocated_bytes: u64,
    /// `torch.cuda.max_memory_reserved()` of the run.
    pub max_reserved_bytes: u64,
    /// Memory in use on the whole GPU, in bytes: other processes, the CUDA context and PyTorch's maximum reserved
    /// memory.
    pub device_used_bytes: u64,
    /// Live bytes per category at that moment.
    pub by_category: ByCategory,
}

/// The allocation at which the run fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Oom {
    /// Phase of the failure.
    pub phase: Phase,
    /// Name of the tensor.
    pub tensor: String,
    /// Shape of the tensor, slowest axis first.
    pub shape: Vec<u64>,
    /// Element type of the tensor.
    pub dtype: Dtype,
    /// Bytes requested from the driver.
    pub requested_bytes: u64,
    /// Allocated memory at that moment, in bytes.
    pub allocated_bytes: u64,
    /// The out-of-memory message that PyTorch prints.
    pub message: String,
}

/// The predicted memory of a run, which the request `R` describes.
#[derive(Clone, Debug)]
pub struct Plan<R = Request> {
    /// The request.
    pub request: R,
    /// Whether the run fits.
    pub fits: bool,
    /// Memory left on the GPU at the peak, in bytes; negative if the run does not fit.
    pub headroom_bytes: i64,
    /// Peak of each phase, in the order of the JSON schema. If the run does not fit, these are the peaks with unlimited
    /// memory.
    pub phases: Vec<PhasePeak>,
    /// Peak of the run; if the run does not fit, its peak with unlimited memory.
    pub peak: Peak,
    /// The allocation at which the run fails, if it does not fit.
    pub oom: Option<Oom>,
    /// Moment of that failure in [`Plan::timeline`].
    pub failure: Option<Failure>,
    /// Certainty of the figures.
    pub basis: Basis,
    pub(crate) program: Program,
    /// Outcome of the run with unlimited memory.
    outcome: Outcome,
}

/// Plans a run of nanoGPT.
///
/// # Errors
/// [`PlanError::TensorTooLarge`] if a tensor exceeds the memory of every GPU.
pub fn plan(request: Request) -> Result<Plan, PlanError> {
    let program = request.program()?;
    Ok(Plan::simulate(request, program, Basis::of))
}

impl<R: RunOnMachine> Plan<R> {
    /// Simulates a run's program on its machine. `basis` computes the certainty of the outcome.
    pub fn simulate(request: R, program: Program, basis: impl FnOnce(&R, &Outcome) -> Basis) -> Self {
        let machine = request.machine();
        let limited = machine.simulate(&program);
        let failure = limited.failure;
        let outcome = match failure {
            Some(_) => machine.simulate_unlimited(&program),
            None => limited,
        };
        let device_used_bytes = machine.outside_bytes().saturating_add(outcome.max_reserved_bytes);
        let peak = Peak {
            phase: outcome.peak_phase,
            moment: outcome.peak_moment,
            live_bytes: outcome.live_bytes_peak,
            max_allocated_bytes: outcome.max_allocated_bytes,
            max_reserved_bytes: outcome.max_reserved_bytes,
            device_used_bytes,
            by_category: outcome.peak_by_category,
        };
        Self {
            fits: failure.is_none(),
            headroom_bytes: signed_difference(machine.budget_bytes(), device_used_bytes),
            phases: outcome.phases.clone(),
            peak,
            oom: failure.and_then(|failure| Oom::of(&failure, &program, machine)),
            failure,
            basis: basis(&request, &outcome),
            request,
            program,
            outcome,
        }
    }
}

impl Oom {
    fn of(failure: &Failure, program: &Program, machine: &Machine) -> Option<Self> {
        let info = program.tensors.get(failure.code, failure.batch)?;
        let state = GpuState {
            total_bytes: machine.device.total_bytes,
            other_processes_bytes: machine.other_processes_bytes,
            context_bytes: machine.context.bytes,
        };
        let message = out_of_memory(failure, state, machine.torch);
        Some(Self {
            phase: failure.phase,
            tensor: info.stored.name(failure.layer),
            shape: info.shape,
            dtype: info.dtype,
            requested_bytes: failure.request.segment_bytes,
            allocated_bytes: failure.allocated_bytes,
            message: match machine.tuned {
                Some(tuned) => tuned.message(machine.device.total_bytes, message),
                None => message,
            },
        })
    }
}

/// Whether a run fits, at half the cost of [`plan`]. A run that [`plan`] rejects does not fit.
#[must_use]
pub fn fits(request: &Request) -> bool {
    request.program().is_ok_and(|program| request.machine.simulate(&program).failure.is_none())
}

/// Whether a run fits, with regard to the estimate's uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It fits.
    Fits,
    /// It fits, but the free memory is smaller than the estimate's uncertainty.
    Narrow,
    /// It does not fit.
    Fails,
}

impl Fit {
    /// Name for JSON, styles and tests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Narrow => "narrow",
            Self::Fails => "fails",
        }
    }
}

/// Short result of a run on its GPU, for comparing many requests at half the cost of [`plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOutcome {
    /// Whether the run fits.
    pub fits: bool,
    /// Whether the run also fits at the upper end of the estimates.
    pub is_certain: bool,
    /// Whether the tensors alone exceed the memory, regardless of fragmentation.
    pub is_beyond: bool,
    /// Memory left on the GPU at the peak, in bytes; 0 if the run does not fit.
    pub headroom_bytes: i64,
}

impl PlanOutcome {
    /// Result of a run that exceeds the memory of every GPU.
    pub const BEYOND: Self = Self { fits: false, is_certain: false, is_beyond: true, headroom_bytes: 0 };
}

/// Simulates a run and returns its short result.
#[must_use]
pub fn outlook(request: &Request) -> PlanOutcome {
    let Ok(program) = request.program() else { return PlanOutcome::BEYOND };
    let capacity = request.machine.capacity_bytes();
    let outcome = request.machine.simulate(&program);
    if let Some(failure) = &outcome.failure {
        let needed = failure.allocated_bytes.saturating_add(failure.request.requested_bytes);
        return PlanOutcome { is_beyond: needed > capacity, ..PlanOutcome::BEYOND };
    }
    let total = request.machine.budget_bytes();
    let used = request.machine.outside_bytes().saturating_add(outcome.max_reserved_bytes);
    let [_, high] = Basis::of(request, &outcome).band_bytes;
    let headroom_bytes = signed_difference(total, used);
    PlanOutcome { fits: true, is_certain: high <= total, is_beyond: false, headroom_bytes }
}

/// Whether a run fits, and the memory that it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Whether the run fits.
    pub fit: Fit,
    /// Memory left on the GPU at the peak, in bytes; negative if bytes are missing.
    pub headroom_bytes: i64,
    /// Bounds of that memory, in bytes.
    pub band_bytes: [i64; 2],
}

fn signed_difference(have: u64, need: u64) -> i64 {
    i64::try_from(i128::from(have) - i128::from(need)).unwrap_or(i64::MIN)
}

impl<R: RunOnMachine> Plan<R> {
    /// The run as allocations and frees.
    pub(crate) const fn program(&self) -> &Program {
        &self.program
    }

    /// Whether the run fits with expandable segments.
    #[must_use]
    pub fn fits_expandable(&self) -> bool {
        self.request.machine().simulate_segments(&self.program, SegmentKind::Expandable).failure.is_none()
    }

    /// Whether the same program fits on another machine.
    pub(crate) fn fits_on(&self, machine: &Machine) -> bool {
        machine.simulate(&self.program).failure.is_none()
    }

    /// Whether the run fits.
    #[must_use]
    pub fn fit(&self) -> Fit {
        match self.oom {
            Some(_) => Fit::Fails,
            None if self.headroom_band_bytes()[0] < 0 => Fit::Narrow,
            None => Fit::Fits,
        }
    }

    /// Whether the run fits, and the memory that it leaves.
    #[must_use]
    pub fn room(&self) -> Room {
        Room { fit: self.fit(), headroom_bytes: self.headroom_bytes, band_bytes: self.headroom_band_bytes() }
    }

    /// Bounds of the memory left on the GPU at the peak, in bytes, from the estimate's uncertainty.
    #[must_use]
    pub fn headroom_band_bytes(&self) -> [i64; 2] {
        let [low, high] = self.basis.band_bytes;
        [high, low].map(|used| signed_difference(self.request.machine().budget_bytes(), used))
    }

    /// Memory over the whole run in about `columns` columns, as if memory were unlimited.
    #[must_use]
    pub fn timeline(&self, columns: usize) -> Timeline {
        timeline::timeline(&self.program, &self.outcome, columns)
    }

    /// The allocations of the run whose size satisfies `asks`, sorted by how near the live bytes come to `near`.
    #[must_use]
    pub fn allocations(&self, asks: impl Fn(u64) -> bool, near: u64) -> Vec<AllocationRecord> {
        timeline::allocations(&self.program, &self.outcome, asks, near)
    }

    /// Tensors that are live at a moment, in no particular order.
    #[must_use]
    pub fn live_at(&self, moment: EventIndex) -> Vec<LiveTensor> {
        timeline::live_at(&self.program, &self.outcome, moment)
    }
}
