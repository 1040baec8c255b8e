//! A run as Compare shows it, whatever its trainer.

use std::{fmt::Debug, ops::Deref, sync::Arc};

use headroom_planner::{
    gpt::tensors::Category,
    memory::{program::Phase, simulate::EventIndex, timeline::Timeline},
    plan::{Fit, Machine, Peak},
    session::Options,
};

use super::super::{
    course::{Drawable, Drawn, PlanWithTimeline, failure_column},
    format, gpu,
    no_plan::NoPlan,
    tensors::{Live, live},
};
use crate::text::{self, Key, t};

/// A setting of a run with its value in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name: a key of the trainer, or a phrase in the page's language.
    pub name: String,
    /// The value; empty if it is not set.
    pub value: String,
}

impl Setting {
    /// A setting of the GPU or the environment.
    pub fn of(name: Key, value: String) -> Self {
        Self { name: t(name).to_owned(), value }
    }

    /// A switch.
    pub fn flag(name: Key, is_on: bool) -> Self {
        Self::of(name, t(if is_on { text::COMPARE_ON } else { text::COMPARE_OFF }).to_owned())
    }
}

/// The settings that runs of every trainer have.
pub fn environment(options: &Options) -> Vec<Setting> {
    vec![
        Setting::of(text::OTHERS_BAND, format::size(options.other_processes_bytes)),
        Setting::flag(text::EXPANDABLE, options.expandable_segments),
        Setting::of(text::TORCH, options.torch.clone()),
        Setting::of(text::CONTEXT_BAND, options.context_bytes.map(format::size).unwrap_or_default()),
    ]
}

/// The drawn plan of a run of any trainer.
trait DrawnRun: Debug + Send + Sync {
    fn timeline(&self) -> &Timeline;
    fn failure_column(&self) -> Option<usize>;
    fn live(&self, moment: EventIndex) -> Live;
    fn peak(&self) -> &Peak;
    fn phase_bytes(&self, phase: Phase) -> Option<u64>;
    fn machine(&self) -> &Machine;
    fn headroom_bytes(&self) -> i64;
    fn fit(&self) -> Fit;
}

impl<R: Drawable> DrawnRun for PlanWithTimeline<R> {
    fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    fn failure_column(&self) -> Option<usize> {
        Some(failure_column(&self.timeline, self.plan.failure?))
    }

    fn live(&self, moment: EventIndex) -> Live {
        live(&self.plan, moment)
    }

    fn peak(&self) -> &Peak {
        &self.plan.peak
    }

    fn phase_bytes(&self, phase: Phase) -> Option<u64> {
        Some(self.plan.phases.iter().find(|peak| peak.phase == phase)?.live_bytes)
    }

    fn machine(&self) -> &Machine {
        self.plan.request.machine()
    }

    fn headroom_bytes(&self) -> i64 {
        self.plan.headroom_bytes
    }

    fn fit(&self) -> Fit {
        self.plan.fit()
    }
}

/// The estimated time of an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The time of an iteration in seconds.
    pub iteration: Option<f64>,
    /// The time per token in seconds.
    pub per_token: Option<f64>,
    /// The number of tokens of an iteration.
    pub n_tokens: u128,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct ComparedPlan {
    drawn: Arc<dyn DrawnRun>,
    /// The verdict of the run's calculator.
    pub verdict: String,
    /// The times, for the trainers that have an estimate.
    pub times: Option<Times>,
    /// The number of micro-steps of an iteration.
    pub n_micro_steps: u64,
}

impl ComparedPlan {
    /// A plan with its verdict, without times.
    pub fn new<R: Drawable>(drawn: Drawn<R>, verdict: String, n_micro_steps: u64) -> Self {
        Self { drawn: drawn.shared(), verdict, times: None, n_micro_steps }
    }

    /// Memory over the run.
    pub fn timeline(&self) -> &Timeline {
        self.drawn.timeline()
    }

    /// The column of the timeline in which the run fails.
    pub fn failure_column(&self) -> Option<usize> {
        self.drawn.failure_column()
    }

    /// The live tensors at a moment.
    pub fn live(&self, moment: EventIndex) -> Live {
        self.drawn.live(moment)
    }

    /// The peak.
    pub fn peak(&self) -> &Peak {
        self.drawn.peak()
    }

    /// The largest size of the live tensors in a phase, in bytes; `None` if the run lacks it.
    pub fn phase_bytes(&self, phase: Phase) -> Option<u64> {
        self.drawn.phase_bytes(phase)
    }

    /// The GPU and the environment.
    pub fn machine(&self) -> &Machine {
        self.drawn.machine()
    }

    /// The memory left on the GPU at the peak, in bytes; negative if the run does not fit.
    pub fn headroom_bytes(&self) -> i64 {
        self.drawn.headroom_bytes()
    }

    /// The outcome.
    pub fn fit(&self) -> Fit {
        self.drawn.fit()
    }

    /// Memory outside of PyTorch's allocator, in bytes.
    pub fn outside_bytes(&self) -> u64 {
        self.machine().outside_bytes()
    }

    /// GPU memory at the peak in bytes, which adds up to [`Peak::device_used_bytes`].
    pub fn parts(&self) -> Vec<(Key, u64)> {
        let (peak, machine) = (self.peak(), self.machine());
        let tensors = Category::ALL.into_iter().enumerate();
        let tensors = tensors.map(|(index, category)| (category.text(), peak.by_category[index]));
        let outside = [
            (text::COMPARE_UNUSED, peak.max_reserved_bytes.saturating_sub(peak.live_bytes)),
            (text::CONTEXT_BAND, machine.context.bytes),
            (text::OTHERS_BAND, machine.other_processes_bytes),
        ];
        tensors.chain(outside).collect()
    }
}

/// A run with its plan.
#[derive(Debug)]
pub struct ComparedRun {
    /// The GPU as its field shows it.
    pub gpu: String,
    /// The keys of the trainer.
    pub keys: Vec<Setting>,
    /// The other settings. Runs of one page have the same ones.
    pub options: Vec<Setting>,
    /// The plan, or the reason for its absence.
    pub plan: Result<ComparedPlan, NoPlan>,
}

impl ComparedRun {
    /// A run on the GPU of its options.
    pub fn new(keys: Vec<Setting>, options: &Options, plan: Result<ComparedPlan, NoPlan>) -> Self {
        Self { gpu: gpu::field(options), keys, options: environment(options), plan }
    }
}

/// A shared run. Two are equal if they are the same allocation.
#[derive(Clone, Debug)]
pub struct SharedRun(Arc<ComparedRun>);

impl From<ComparedRun> for SharedRun {
    fn from(run: ComparedRun) -> Self {
        Self(Arc::new(run))
    }
}

impl Deref for SharedRun {
    type Target = ComparedRun;

    fn deref(&self) -> &ComparedRun {
        &self.0
    }
}

impl PartialEq for SharedRun {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
