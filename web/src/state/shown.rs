//! The plan that a page draws: the signals of the chart, the list of tensors and the table of phases.

use headroom_planner::plan::Request;
use leptos::prelude::*;

use super::{
    chart,
    course::{Drawable, Drawn, PlanWithTimeline},
    gpu::GpuDraft,
    memo::memo,
    tensors::ShownMoment,
};

/// Returns the drawn plan, tracked. It is leaked for the lifetime of the page, which has one.
type DrawnPlan<R> = &'static (dyn Fn() -> Option<Drawn<R>> + Send + Sync);

/// The signals of the drawn plan.
pub struct ShownPlan<R: Drawable = Request> {
    /// Returns the drawn plan: the run's, else the most recent one. A memo of its type would add half a kilobyte of code.
    drawn: DrawnPlan<R>,
    /// Whether the drawn plan belongs to an earlier run, because this one has no plan or no valid GPU.
    pub is_stale: Memo<bool>,
    /// The text in the GPU field while it is not a valid choice.
    pub draft: RwSignal<Option<GpuDraft>>,
    /// Whether a slider moves. Everything besides the verdict and the chart keeps its content meanwhile, so that each
    /// frame has time for these two.
    pub is_sliding: RwSignal<bool>,
    /// The pinned moment, as a share of the run; `None` follows the failure or the peak.
    pub pinned: RwSignal<Option<f64>>,
    /// The moment under the pointer, as a share of the run.
    pub pointed: RwSignal<Option<f64>>,
    /// The column of the run whose moment is shown.
    pub column: Memo<Option<usize>>,
    /// The part of the run and the bands that the chart shows.
    pub view: RwSignal<chart::View>,
    /// The live tensors at the shown moment.
    pub moment: Memo<Option<ShownMoment>>,
}

impl<R: Drawable> Clone for ShownPlan<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Drawable> Copy for ShownPlan<R> {}

impl<R: Drawable> ShownPlan<R> {
    /// Creates the signals of a drawn plan.
    pub fn new(
        drawn: impl Fn() -> Option<Drawn<R>> + Send + Sync + 'static,
        is_stale: impl Fn() -> bool + Send + Sync + 'static,
        draft: RwSignal<Option<GpuDraft>>,
    ) -> Self {
        let drawn: DrawnPlan<R> = Box::leak(Box::new(drawn));
        let (pinned, pointed) = (RwSignal::new(None), RwSignal::new(None));
        let column = memo(move || {
            let share = pointed.get().or_else(|| pinned.get());
            let planned = drawn()?;
            Some(match share {
                Some(share) => chart::column_at_share(planned.timeline.points.len(), share),
                None => planned.first_shown(),
            })
        });
        let moment = memo(move || {
            let at_failure = pinned.get().is_none() && pointed.get().is_none();
            let column = column.get()?;
            ShownMoment::of(&*drawn()?, column, at_failure)
        });
        Self {
            drawn,
            is_stale: memo(is_stale),
            draft,
            is_sliding: RwSignal::new(false),
            pinned,
            pointed,
            column,
            view: RwSignal::new(chart::View::default()),
            moment,
        }
    }

    /// Computes a value from the drawn plan, tracked; `None` without one.
    pub fn with<T>(self, question: impl FnOnce(&PlanWithTimeline<R>) -> T) -> Option<T> {
        (self.drawn)().map(|planned| question(&planned))
    }

    /// Returns whether the shown moment is the failure or the peak: neither pinned nor under the pointer.
    pub fn follows(self) -> bool {
        self.pinned.get().is_none() && self.pointed.get().is_none()
    }

    /// Shows the whole run and its failure or peak.
    pub fn reset(self) {
        self.pinned.set(None);
        self.view.set(chart::View::default());
    }
}
