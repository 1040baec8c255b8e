//! Micro-batch sizes of a run on its GPU.

use headroom_planner::{
    advice,
    plan::{Plan, RunOnMachine as _},
    session::Options,
    survey::{self, Summary, TrainerBatches},
    trainers::TrainerRequest,
};

use super::answer::PlannedSession;

/// A micro-batch size and its plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchCell {
    /// The number of sequences.
    pub size: u64,
    /// The figures of the plan.
    pub summary: Summary,
}

/// Micro-batch sizes around the limit of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchStrip {
    /// The GPU's name.
    pub gpu: String,
    /// The sizes, ascending.
    pub cells: Vec<BatchCell>,
    /// The run's own size.
    pub own: u64,
    /// The largest size whose whole band of estimates fits.
    pub recommended: Option<u64>,
}

impl BatchStrip {
    /// The sizes of a run, with everything else unchanged. `None` without a plan.
    pub fn of(answer: &PlannedSession, options: &Options) -> Option<Self> {
        let plan = answer.plan()?;
        let settings = &answer.resolved.settings;
        let found = advice::batch_sizes(settings, options, plan);
        let own = plan.request.train.batch_size;
        let cell = |size| Some(BatchCell { size, summary: survey::with_batch_size(settings, options, size)? });
        let cells = survey::batch_sizes(&found, own).into_iter().filter_map(cell).collect();
        Some(Self { gpu: plan.request.machine.device.name.to_string(), cells, own, recommended: found.largest })
    }

    /// The sizes of a planned run of another trainer. `None` if the trainer has no micro-batch size.
    pub fn of_plan(plan: &Plan<TrainerRequest>) -> Option<Self> {
        let TrainerBatches { sizes, own, largest } = survey::trainer_batches(plan)?;
        let cells = sizes.into_iter().map(|(size, summary)| BatchCell { size, summary }).collect();
        Some(Self { gpu: plan.request.machine().device.name.to_string(), cells, own, recommended: largest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::session::Session;
    use headroom_planner::plan::Fit;

    fn strip(text: &str) -> Option<BatchStrip> {
        let session = Session { text: text.into(), ..Session::default() };
        BatchStrip::of(&PlannedSession::of(&session), &session.options)
    }

    #[test]
    fn recommended_size_is_the_last_that_fits_with_certainty() {
        for text in ["batch_size = 12\n", "batch_size = 64\ncompile = False\n"] {
            let strip = strip(text).expect("a plan");
            let fitting = strip.cells.iter().filter(|cell| cell.summary.fit == Fit::Fits);
            assert_eq!(fitting.map(|cell| cell.size).max(), strip.recommended, "{text}");
            assert!(strip.cells.is_sorted_by_key(|cell| cell.size));
            assert!(strip.cells.iter().any(|cell| cell.size == strip.own));
        }
    }

    #[test]
    fn text_without_a_plan_has_no_batch_sizes() {
        assert_eq!(strip("hello there"), None);
    }
}
