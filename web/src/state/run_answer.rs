//! The plan of a run that is not nanoGPT's, with the signals of a page that shows it.

use std::sync::Arc;

use headroom_planner::{
    gpt::tensors::Category,
    plan::{Plan, RunOnMachine},
    session::MachineError,
};
use headroom_text::Text;
use leptos::prelude::*;

use super::{
    course::{Drawable, Drawn},
    entry::Faults,
    gpu::GpuDraft,
    memo::memo,
    needs::Needs,
    no_plan::NoPlan,
    shown::ShownPlan,
    verdict::Verdict,
};
use crate::text::{self, say, t};

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Obstacle {
    /// The GPU or another option of the machine.
    Machine(MachineError),
    /// The run, in the words of the planner. A hint follows on the next line.
    Run(String),
}

/// The plan of the user's input.
#[derive(Debug)]
pub struct PlannedRun<R> {
    /// The plan with its timeline, or the reason for its absence.
    pub planned: Result<Drawn<R>, Obstacle>,
    /// The most recent plan, which stays drawn while the input has none.
    pub last: Option<Drawn<R>>,
}

impl<R: Drawable> PlannedRun<R> {
    /// Takes the plan of an input. Without a plan, that of `before` stays drawn.
    pub fn after(planned: Result<Drawn<R>, Obstacle>, before: Option<&Self>) -> Self {
        let last = planned.as_ref().ok().cloned().or_else(|| before?.last.clone());
        Self { planned, last }
    }

    /// The plan, if there is one.
    pub fn plan(&self) -> Option<&Plan<R>> {
        self.planned.as_ref().ok().map(|planned| &planned.plan)
    }
}

/// A shared answer. Two are equal if they are the same allocation.
#[derive(Debug)]
struct SharedRun<R>(Arc<PlannedRun<R>>);

impl<R> Clone for SharedRun<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> PartialEq for SharedRun<R> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The signals of the answer.
pub struct RunAnswer<R: Drawable> {
    /// The text in the GPU field while it is not a valid choice.
    pub draft: RwSignal<Option<GpuDraft>>,
    /// The fields with invalid text.
    pub faults: Faults,
    answer: Memo<SharedRun<R>>,
    /// The drawn plan.
    pub shown: ShownPlan<R>,
}

impl<R: Drawable> Clone for RunAnswer<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Drawable> Copy for RunAnswer<R> {}

impl<R: Drawable> RunAnswer<R> {
    /// Creates the signals. `plan` plans the user's input and tracks it.
    pub fn new(plan: impl Fn() -> Result<Drawn<R>, Obstacle> + Send + Sync + 'static) -> Self {
        let answer = Memo::new(move |before: Option<&SharedRun<R>>| {
            SharedRun(Arc::new(PlannedRun::after(plan(), before.map(|before| &*before.0))))
        });
        let draft = RwSignal::new(None);
        let faults = Faults::default();
        let is_entered = move || draft.with(Option::is_none) && faults.first().is_none();
        let shown = ShownPlan::new(
            move || answer.with(|answer| answer.0.last.clone()),
            move || answer.with(|answer| answer.0.planned.is_err()) || !is_entered(),
            draft,
        );
        Self { draft, faults, answer, shown }
    }

    /// Derives a value from the answer.
    pub fn ask<T: PartialEq + Send + Sync + 'static>(
        self,
        question: impl Fn(&PlannedRun<R>) -> T + Send + Sync + 'static,
    ) -> Memo<T> {
        memo(move || self.answer.with(|answer| question(&answer.0)))
    }

    /// Returns whether every field has a valid value.
    pub fn is_entered(self) -> bool {
        self.draft.with(Option::is_none) && self.faults.first().is_none()
    }

    /// The verdict; `None` without a plan, or while a field is invalid.
    pub fn verdict(self) -> Memo<Option<Verdict>> {
        let verdict = move || self.answer.with(|answer| Some(Verdict::of(answer.0.plan()?, &Needs::default())));
        memo(move || if self.is_entered() { verdict() } else { None })
    }

    /// The reason for the absence of a verdict.
    pub fn no_plan(self) -> Memo<Option<NoPlan>> {
        memo(move || match (self.draft.get(), self.faults.first()) {
            (Some(draft), _) => Some(NoPlan::of_draft(&draft)),
            (None, Some((field, expected))) => Some(NoPlan::of_fault(field, expected)),
            (None, None) => self.answer.with(|answer| answer.0.planned.as_ref().err().map(no_plan)),
        })
    }

    /// The plan, or the reason for its absence, tracked.
    pub fn planned(self) -> Result<Drawn<R>, Obstacle> {
        self.answer.with(|answer| answer.0.planned.clone())
    }

    /// Tracks the answer.
    pub fn track(self) {
        self.answer.track();
    }

    /// Computes a value from the plan, untracked; `None` without one.
    pub fn plan_untracked<T>(self, question: impl FnOnce(&Plan<R>) -> T) -> Option<T> {
        self.answer.with_untracked(|answer| answer.0.plan().map(question))
    }

    /// The memory of the plan's GPU in bytes.
    pub fn gpu_bytes(self) -> Option<u64> {
        self.answer.with(|answer| Some(answer.0.plan()?.request.machine().device.total_bytes))
    }

    /// Why the GPU is no GPU.
    pub fn gpu_fault(self) -> Option<Text> {
        self.answer.with(|answer| match &answer.0.planned {
            Err(Obstacle::Machine(error)) if ["gpu", "vram"].contains(&error.option) => Some(error.message.clone()),
            _ => None,
        })
    }

    /// Shows the whole run, and the values of an opened run in all fields.
    pub fn reset(self) {
        self.shown.reset();
        self.draft.set(None);
        self.faults.clear();
    }
}

/// The words for a run without a plan. The planner's hint follows its error.
pub fn no_plan(obstacle: &Obstacle) -> NoPlan {
    let (error, hint) = match obstacle {
        Obstacle::Machine(error) => (say(&error.message), String::new()),
        Obstacle::Run(error) => {
            let (error, hint) = error.split_once('\n').unwrap_or((error, ""));
            (error.to_owned(), hint.to_owned())
        }
    };
    NoPlan { headline: t(text::NO_PLAN).to_owned(), detail: [error, hint].join("\n").trim().to_owned(), unread: None }
}

/// Number of parameters of a plan's model, those of adapters included.
pub fn n_parameters<R: RunOnMachine>(plan: &Plan<R>) -> u64 {
    let live = plan.live_at(plan.peak.moment).into_iter();
    let parameters = live.filter(|tensor| tensor.category() == Category::Parameters);
    parameters.map(|tensor| tensor.shape.iter().product::<u64>()).sum()
}
