//! The run that the page of GPUs lists: one of nanoGPT or of another trainer.

use headroom_planner::{
    link::{self, trainer::encode},
    session::Options,
    survey::{self, GpuRow},
    trainers::input::Input,
};

use super::{answer::Shared, batch_strip::BatchStrip, gpu_table, no_plan::NoPlan, run_answer, trainer::plan_of};

/// A run and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum ListedRun {
    /// The run of the config field.
    NanoGpt(Shared),
    /// A run of another trainer.
    Trainer(Input),
}

impl ListedRun {
    /// Number of GPUs that are planned without a pause, so that the page answers while it computes.
    pub const fn slice(&self) -> usize {
        match self {
            Self::NanoGpt(_) => 8,
            Self::Trainer(_) => 2,
        }
    }

    /// Plans the run on GPUs of the table, from the index `start`. Fewer than [`ListedRun::slice`] are the last ones. A
    /// text that is no run has no rows.
    pub fn rows(&self, options: &Options, start: usize) -> Vec<GpuRow> {
        match self {
            Self::NanoGpt(answer) => gpu_table::rows(&answer.0, options, start, self.slice()),
            Self::Trainer(input) => input.read().map_or_else(
                |_| Vec::new(),
                |run| survey::trainer_gpus(&run, options, start..(start + self.slice()).min(survey::n_gpus())),
            ),
        }
    }

    /// The micro-batch sizes of the run on its GPU. `None` without a plan.
    pub fn batches(&self, options: &Options) -> Option<BatchStrip> {
        match self {
            Self::NanoGpt(answer) => BatchStrip::of(&answer.0, options),
            Self::Trainer(input) => BatchStrip::of_plan(&plan_of(input, options).ok()?),
        }
    }

    /// Why the run has no plan on the GPU of the options.
    pub fn no_plan(&self, options: &Options) -> Option<NoPlan> {
        match self {
            Self::NanoGpt(answer) => NoPlan::of(&answer.0),
            Self::Trainer(input) => plan_of(input, options).err().as_ref().map(run_answer::no_plan),
        }
    }

    /// The page of the calculator, and its fragment with the run on the GPU of the options.
    pub fn calculator(&self, options: &Options) -> (&'static str, String) {
        match self {
            Self::NanoGpt(answer) => ("calculator.html", link::encode(&answer.0.resolved.settings, options)),
            Self::Trainer(input) => ("trainers.html", encode(input, options)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{trainer::batch_key, trainer_form::key, trainer_text::read};
    use headroom_planner::plan::Fit;

    fn listed(text: &str) -> ListedRun {
        ListedRun::Trainer(read(text).expect("a run of a trainer").input)
    }

    #[test]
    fn each_gpu_has_the_plan_of_the_calculator() {
        let options = Options::default();
        for text in ["Qwen/Qwen3-0.6B", "python -m scripts.base_train --compile=False --depth=4 --device-batch-size=1"]
        {
            let run = listed(text);
            let ListedRun::Trainer(input) = &run else { panic!("a trainer") };
            for start in [0, 40] {
                for row in run.rows(&options, start) {
                    let plan = plan_of(input, &options.with_device(row.device)).ok();
                    assert_eq!(
                        row.summary.map(|summary| (summary.fit, summary.headroom_bytes)),
                        plan.map(|plan| (plan.fit(), plan.headroom_bytes)),
                        "{text} on {}",
                        row.device.name
                    );
                }
            }
            assert_eq!(run.rows(&options, survey::n_gpus()), []);
        }
    }

    #[test]
    fn recommended_size_fits_with_certainty_and_the_next_does_not() {
        let run = listed("Qwen/Qwen3-0.6B");
        let options = Options { gpu: "RTX 3060 12GB".into(), ..Options::default() };
        let strip = run.batches(&options).expect("a plan");
        let largest = strip.recommended.expect("a size that fits");
        let ListedRun::Trainer(input) = run else { panic!("a trainer") };
        let fit = |size: u64| {
            let mut input = input.clone();
            let batch = key(input.trainer, batch_key(input.trainer)).expect("a key");
            input.set(batch, &size.to_string());
            plan_of(&input, &options).expect("a plan").fit()
        };
        assert_eq!(fit(largest), Fit::Fits);
        assert_ne!(fit(largest + 1), Fit::Fits);
        assert!(strip.cells.iter().all(|cell| cell.summary.fit == fit(cell.size)));
        assert!(strip.cells.iter().any(|cell| cell.size == strip.own));
    }

    #[test]
    fn a_run_that_cannot_be_read_has_a_reason_and_no_rows() {
        let run = listed("python -m scripts.base_train --compile=False --depth=many");
        assert_eq!(run.rows(&Options::default(), 0), []);
        let no_plan = run.no_plan(&Options::default()).expect("a reason");
        assert!(no_plan.detail.contains("--depth=many"), "{no_plan:?}");
    }
}
