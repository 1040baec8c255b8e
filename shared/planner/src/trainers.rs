//! Plans of trainers other than nanoGPT, whose events the engine derives from their models.

pub mod arguments;
pub mod fixes;
pub mod hf;
pub mod input;
pub mod launch;
pub mod nanochat;
pub mod presets;

use headroom_text::Key;
use serde_json::{Map, Value};

use arguments::ArgumentError;

use crate::{
    advice::{Knob, largest_of},
    gpt::tensors::TensorTooLarge,
    memory::{allocator::SegmentKind, context::GpuProperties, program::Program},
    plan::{
        Machine, Plan, PlanError, RunOnMachine,
        basis::{Basis, RunKind},
    },
};

/// A run of a trainer.
#[derive(Clone, Debug, PartialEq)]
pub enum Run {
    /// nanochat's `scripts.base_train`.
    Nanochat(nanochat::Run),
    /// Hugging Face's `Trainer`.
    Hf(hf::Run),
}

impl Run {
    /// Name of the trainer in JSON.
    #[must_use]
    pub const fn trainer(&self) -> &'static str {
        match self {
            Self::Nanochat(_) => "nanochat",
            Self::Hf(_) => "hf",
        }
    }

    /// The keys that determine memory, with their values.
    #[must_use]
    pub fn config(&self) -> Map<String, Value> {
        match self {
            Self::Nanochat(run) => run.config(),
            Self::Hf(run) => run.config(),
        }
    }

    /// Keys that were given and do not change the memory of the run.
    #[must_use]
    pub fn without_effect(&self) -> Vec<&'static str> {
        match self {
            Self::Nanochat(run) => run.values(),
            Self::Hf(run) => run.values(),
        }
        .without_effect()
        .collect()
    }

    /// Remarks on the figures: what they include and what they do not.
    #[must_use]
    pub fn remarks(&self) -> Vec<Key> {
        match self {
            Self::Nanochat(_) => nanochat::REMARKS.to_vec(),
            Self::Hf(run) => run.remarks(),
        }
    }

    fn program(&self, gpu: GpuProperties) -> Result<Program, TensorTooLarge> {
        match self {
            Self::Nanochat(run) => run.program(gpu),
            Self::Hf(run) => run.program(gpu),
        }
    }

    /// The same run with at most `steps` steps.
    #[must_use]
    pub(crate) fn with_steps(&self, steps: u64) -> Self {
        match self {
            Self::Nanochat(run) => Self::Nanochat(run.with_steps(steps)),
            Self::Hf(run) => Self::Hf(run.with_steps(steps)),
        }
    }

    /// Why the run cannot be planned on a GPU, if so.
    fn obstacle(&self, gpu: GpuProperties) -> Option<Key> {
        match self {
            Self::Nanochat(_) => nanochat::obstacle(gpu),
            Self::Hf(run) => run.obstacle(gpu),
        }
    }

    fn kind(&self, gpu: GpuProperties) -> RunKind {
        match self {
            Self::Nanochat(run) => run.kind(gpu),
            Self::Hf(_) => RunKind::FollowsCode,
        }
    }

    /// The kind of segments: that of the machine, unless the trainer itself sets expandable segments.
    pub(crate) const fn segments(&self, machine: &Machine) -> SegmentKind {
        match self {
            Self::Nanochat(_) if nanochat::sets_expandable_segments(machine.torch) => SegmentKind::Expandable,
            Self::Nanochat(_) | Self::Hf(_) => machine.segments,
        }
    }

    /// Number of batches of an evaluation.
    #[must_use]
    pub const fn eval_batches(&self) -> u64 {
        match self {
            Self::Nanochat(run) => run.eval_batches(),
            Self::Hf(run) => run.eval_batches(),
        }
    }

    /// Number of micro-steps of a step: forward and backward passes whose gradients are accumulated.
    #[must_use]
    pub const fn n_micro_steps(&self) -> u64 {
        match self {
            Self::Nanochat(run) => run.n_micro_steps(),
            Self::Hf(run) => run.n_micro_steps(),
        }
    }

    /// The numbers that people reduce to make a run fit, the most usual first.
    #[must_use]
    pub fn knobs(&self) -> Vec<Knob> {
        match self {
            Self::Nanochat(run) => run.knobs(),
            Self::Hf(run) => run.knobs(),
        }
    }

    /// The same run with another value of a knob. `None` if the trainer rejects it.
    #[must_use]
    pub fn with(&self, key: &'static str, value: u64) -> Option<Self> {
        match self {
            Self::Nanochat(run) => run.with(key, value).map(Self::Nanochat),
            Self::Hf(run) => Some(Self::Hf(run.with(key, value))),
        }
    }

    /// The same run with other options. `None` if the trainer rejects them, or Headroom does not plan the run.
    fn with_options(&self, options: &[(&'static str, String)]) -> Option<Self> {
        match self {
            Self::Nanochat(run) => run.with_options(options).map(Self::Nanochat),
            Self::Hf(run) => run.with_options(options).map(Self::Hf),
        }
    }

    /// Changes that reduce the memory of the run on a GPU, least harmful first.
    fn moves(&self, gpu: GpuProperties) -> Vec<fixes::Move> {
        match self {
            Self::Nanochat(run) => run.moves(|knob| fixes::smaller(self, knob)),
            Self::Hf(run) => run.moves(gpu, |knob| fixes::smaller(self, knob)),
        }
    }

    /// Why the optimizer takes much memory.
    const fn optimizer_remark(&self) -> Option<Key> {
        match self {
            Self::Nanochat(_) => Some(nanochat::OPTIMIZER_REMARK),
            Self::Hf(_) => None,
        }
    }

    /// The values of a knob that the trainer accepts, ascending.
    #[must_use]
    pub fn candidates(&self, knob: Knob) -> Vec<u64> {
        knob.values().into_iter().filter(|value| self.with(knob.key, *value).is_some()).collect()
    }
}

/// A run and the machine to plan it for.
#[derive(Clone, Debug)]
pub struct TrainerRequest {
    run: Run,
    machine: Machine,
}

impl TrainerRequest {
    /// A run on a machine. A trainer that sets the allocator's environment overrides the machine's.
    ///
    /// # Errors
    /// [`ArgumentError::Gpu`] if Headroom does not plan the run on this GPU.
    pub fn new(run: Run, machine: Machine) -> Result<Self, ArgumentError> {
        if let Some(cause) = run.obstacle(machine.gpu()) {
            return Err(ArgumentError::Gpu { trainer: run.trainer(), gpu: machine.device.name.to_string(), cause });
        }
        let segments = run.segments(&machine);
        Ok(Self { run, machine: Machine { segments, ..machine } })
    }

    /// The run.
    #[must_use]
    pub const fn run(&self) -> &Run {
        &self.run
    }

    /// The run as a program of allocations.
    pub(crate) fn program(&self) -> Result<Program, TensorTooLarge> {
        self.run.program(self.machine.gpu())
    }
}

impl RunOnMachine for TrainerRequest {
    fn machine(&self) -> &Machine {
        &self.machine
    }
}

/// Plans a run.
///
/// # Errors
/// [`PlanError::TensorTooLarge`] if a tensor exceeds the memory of every GPU.
pub fn plan(request: TrainerRequest) -> Result<Plan<TrainerRequest>, PlanError> {
    let gpu = request.machine.gpu();
    let program = request.program()?;
    Ok(Plan::simulate(request, program, |request, outcome| {
        let Machine { context, other_processes_bytes, .. } = &request.machine;
        Basis::new(request.run.kind(gpu), outcome, context, [*other_processes_bytes; 2])
    }))
}

/// The largest value of a knob with which the run fits, if nothing else changes. `None` if not even the smallest does.
#[must_use]
pub fn largest_that_fits(request: &TrainerRequest, knob: Knob) -> Option<u64> {
    let TrainerRequest { run, machine } = request;
    largest_of(&run.candidates(knob), |value| {
        let program = run.with(knob.key, value).map(|run| run.program(machine.gpu()));
        program.and_then(Result::ok).is_some_and(|program| machine.simulate(&program).failure.is_none())
    })
}
