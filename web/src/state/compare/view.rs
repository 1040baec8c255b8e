//! Both runs as the page shows them: the headline, a tile for each, the tables and the chart.

use headroom_planner::{advice::time_text, plan::Fit};

use super::{
    super::{format, gpu_table::time},
    moment::ComparedMoment,
    overlay::Overlay,
    rows::{MemoryRow, SettingRow, categories, phases, settings},
    run::{ComparedPlan, ComparedRun, SharedRun},
};
use crate::text::{self, Text, say, t};

/// The figures of a run that has a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanFigures {
    /// Memory in use on the GPU at the peak, in bytes.
    pub used_bytes: u64,
    /// Memory left on the GPU at the peak, in bytes; negative if it does not fit.
    pub headroom_bytes: i64,
    /// Memory of the GPU in bytes.
    pub gpu_bytes: u64,
    /// Estimated times of an iteration and of a token, each known if the GPU's rates are. `None` for trainers without an
    /// estimate.
    pub times: Option<[Option<String>; 2]>,
}

/// The tile of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunTile {
    /// The name of the outcome, for styles and tests.
    pub outcome: &'static str,
    /// The verdict, as the calculator words it, or the reason for the absence of a plan.
    pub verdict: String,
    /// The name of the GPU.
    pub gpu: String,
    /// The figures; `None` without a plan.
    pub figures: Option<PlanFigures>,
}

impl RunTile {
    fn of(run: &ComparedRun) -> Self {
        let plan = match &run.plan {
            Ok(plan) => plan,
            Err(no_plan) => {
                let (verdict, gpu) = (no_plan.headline.clone(), run.gpu.clone());
                return Self { outcome: "none", verdict, gpu, figures: None };
            }
        };
        let device = &plan.machine().device;
        Self {
            outcome: plan.fit().name(),
            verdict: plan.verdict.clone(),
            gpu: device.name.to_string(),
            figures: Some(PlanFigures {
                used_bytes: plan.peak().device_used_bytes,
                headroom_bytes: plan.headroom_bytes(),
                gpu_bytes: device.total_bytes,
                times: plan.times.map(|times| [times.iteration, times.per_token].map(|seconds| seconds.map(time))),
            }),
        }
    }
}

/// Everything that the page shows of two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonView {
    /// The difference that matters, in a sentence.
    pub headline: String,
    /// The second sentence, on time or on the missing plan.
    pub detail: String,
    /// The settings of the previewed fix; `None` without a preview.
    pub preview: Option<String>,
    /// The tiles of the pinned and of the changed run.
    pub tiles: [RunTile; 2],
    /// The settings that differ.
    pub settings: Vec<SettingRow>,
    /// The memory at the peak by category, then the total; empty unless both runs have a plan.
    pub categories: Vec<MemoryRow>,
    /// The most live bytes of each phase; empty unless both runs have a plan.
    pub phases: Vec<MemoryRow>,
    /// The chart; `None` unless both runs have a plan.
    pub overlay: Option<Overlay>,
    runs: [SharedRun; 2],
}

impl ComparisonView {
    /// Compares a pinned run with a changed one, which may be a preview of a fix.
    pub fn of(pinned: &SharedRun, changed: &SharedRun, preview: Option<String>) -> Self {
        let settings = settings([pinned, changed]);
        let (headline, detail, plans) = match (&pinned.plan, &changed.plan) {
            (Ok(pinned), Ok(changed)) => {
                let plans = [pinned, changed];
                (headline(plans, settings.is_empty()), detail(plans, settings.is_empty()), Some(plans))
            }
            (_, Err(no_plan)) => (no_plan.headline.clone(), no_plan.detail.clone(), None),
            (Err(no_plan), Ok(_)) => (t(text::COMPARE_NO_PINNED).to_owned(), no_plan.headline.clone(), None),
        };
        Self {
            headline,
            detail,
            preview,
            tiles: [pinned, changed].map(|run| RunTile::of(run)),
            settings,
            categories: plans.map(categories).unwrap_or_default(),
            phases: plans.map(phases).unwrap_or_default(),
            overlay: plans.map(Overlay::of),
            runs: [pinned, changed].map(SharedRun::clone),
        }
    }

    /// Both runs at a column of the chart; `None` without one.
    pub fn moment(&self, column: usize) -> Option<ComparedMoment> {
        let [pinned, changed] = &self.runs;
        let (phase, moments) = self.overlay.as_ref()?.moment(column)?;
        let plans = [pinned.plan.as_ref().ok()?, changed.plan.as_ref().ok()?];
        Some(ComparedMoment::of(phase, plans, moments))
    }
}

/// The bytes that the changed run needs more.
fn difference([pinned, changed]: [&ComparedPlan; 2]) -> i128 {
    i128::from(changed.peak().device_used_bytes) - i128::from(pinned.peak().device_used_bytes)
}

fn headline(plans: [&ComparedPlan; 2], is_same: bool) -> String {
    if is_same {
        return t(text::COMPARE_SAME_RUN).to_owned();
    }
    let difference = difference(plans);
    let size = format::size(u64::try_from(difference.unsigned_abs()).unwrap_or(u64::MAX));
    let sentence: Text = match (difference.signum(), plans[1].fit()) {
        (-1, Fit::Fits) => text::compare_less_fits(size),
        (-1, Fit::Narrow) => text::compare_less_narrow(size),
        (-1, Fit::Fails) => text::compare_less_fails(size),
        (1, Fit::Fits) => text::compare_more_fits(size),
        (1, Fit::Narrow) => text::compare_more_narrow(size),
        (1, Fit::Fails) => text::compare_more_fails(size),
        (_, Fit::Fits) => text::COMPARE_SAME_FITS.into(),
        (_, Fit::Narrow) => text::COMPARE_SAME_NARROW.into(),
        (_, Fit::Fails) => text::COMPARE_SAME_FAILS.into(),
    };
    say(&sentence)
}

/// The change in time: per iteration, or per token if the iterations have other numbers of tokens.
fn detail(plans: [&ComparedPlan; 2], is_same: bool) -> String {
    if is_same {
        return t(text::COMPARE_SAME_RUN_DETAIL).to_owned();
    }
    let [Some(pinned), Some(changed)] = plans.map(|plan| plan.times) else { return String::new() };
    let (label, times) = match pinned.n_tokens == changed.n_tokens {
        true => (text::COMPARE_ITERATION, [pinned.iteration, changed.iteration]),
        false => (text::COMPARE_PER_TOKEN, [pinned.per_token, changed.per_token]),
    };
    match times {
        [Some(before), Some(after)] if before > 0.0 => say(&text::labelled(t(label), time_text(after / before))),
        _ => String::new(),
    }
}
