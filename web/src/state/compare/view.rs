//! Both runs as the page shows them: the headline, a tile for each, the tables and the chart.

use headroom_planner::{
    advice::time_text,
    plan::{Fit, Plan},
    session::Options,
    survey::Summary,
};

use super::{
    super::{answer::PlannedSession, format, gpu_table::time, no_plan::NoPlan, session::Session, verdict::Verdict},
    overlay::Overlay,
    rows::{MemoryRow, SettingRow, categories, phases, settings},
};
use crate::text::{self, Text, say, t};

/// One of the two runs.
pub struct ComparedRun<'a> {
    /// The input.
    pub session: &'a Session,
    /// Its result.
    pub answer: &'a PlannedSession,
    /// The reason for the absence of a plan, if a field is invalid.
    pub no_plan: Option<NoPlan>,
}

impl ComparedRun<'_> {
    fn plan(&self) -> Option<&Plan> {
        self.answer.plan().filter(|_| self.no_plan.is_none())
    }

    fn no_plan(&self) -> Option<NoPlan> {
        self.no_plan.clone().or_else(|| NoPlan::of(self.answer))
    }
}

/// The figures of a run that has a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanFigures {
    /// Memory in use on the GPU at the peak, in bytes.
    pub used_bytes: u64,
    /// Memory left on the GPU at the peak, in bytes; negative if it does not fit.
    pub headroom_bytes: i64,
    /// Memory of the GPU in bytes.
    pub gpu_bytes: u64,
    /// Estimated time of an iteration, if the GPU's rates are known.
    pub iteration: Option<String>,
    /// Estimated time per token.
    pub per_token: Option<String>,
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
    fn of(run: &ComparedRun<'_>) -> Self {
        let Some(plan) = run.plan() else {
            let verdict = run.no_plan().map_or_else(|| t(text::NO_PLAN).to_owned(), |no_plan| no_plan.headline);
            let gpu = super::super::gpu::field(&run.session.options);
            return Self { outcome: "none", verdict, gpu, figures: None };
        };
        let summary = Summary::of_plan(plan);
        Self {
            outcome: summary.fit.name(),
            verdict: Verdict::of_answer(run.answer).map(|verdict| verdict.headline).unwrap_or_default(),
            gpu: plan.request.machine.device.name.to_string(),
            figures: Some(PlanFigures {
                used_bytes: plan.peak.device_used_bytes,
                headroom_bytes: plan.headroom_bytes,
                gpu_bytes: plan.request.machine.device.total_bytes,
                iteration: summary.iteration_seconds.map(time),
                per_token: summary.seconds_per_token.map(time),
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
}

impl ComparisonView {
    /// Compares a pinned run with a changed one, which may be a preview of a fix.
    pub fn of(pinned: &ComparedRun<'_>, changed: &ComparedRun<'_>, preview: Option<&String>) -> Self {
        let answers = [pinned.answer, changed.answer];
        let options: [&Options; 2] = [&pinned.session.options, &changed.session.options];
        let settings = settings(answers, options);
        let plans = pinned.plan().zip(changed.plan()).map(|(pinned, changed)| [pinned, changed]);
        let (headline, detail) = match plans {
            Some(plans) => (headline(plans, settings.is_empty()), detail(plans, settings.is_empty())),
            None => match changed.no_plan() {
                Some(no_plan) => (no_plan.headline, no_plan.detail),
                None => {
                    let why = pinned.no_plan().map(|no_plan| no_plan.headline).unwrap_or_default();
                    (t(text::COMPARE_NO_PINNED).to_owned(), why)
                }
            },
        };
        let drawn = answers.map(|answer| answer.planned.as_ref().ok());
        let overlay = match (plans, drawn) {
            (Some(_), [Some(pinned), Some(changed)]) => Some(Overlay::of([pinned, changed])),
            _ => None,
        };
        Self {
            headline,
            detail,
            preview: preview.cloned(),
            tiles: [pinned, changed].map(RunTile::of),
            settings,
            categories: plans.map(categories).unwrap_or_default(),
            phases: plans.map(phases).unwrap_or_default(),
            overlay,
        }
    }
}

/// The bytes that the changed run needs more.
fn difference([pinned, changed]: [&Plan; 2]) -> i128 {
    i128::from(changed.peak.device_used_bytes) - i128::from(pinned.peak.device_used_bytes)
}

fn headline(plans: [&Plan; 2], is_same: bool) -> String {
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
fn detail(plans: [&Plan; 2], is_same: bool) -> String {
    if is_same {
        return t(text::COMPARE_SAME_RUN_DETAIL).to_owned();
    }
    let [pinned, changed] = plans.map(Summary::of_plan);
    let tokens = |plan: &Plan| {
        let train = &plan.request.train;
        [train.batch_size, train.gradient_accumulation_steps, plan.request.gpt.block_size()]
            .map(u128::from)
            .iter()
            .product::<u128>()
    };
    let (label, times) = match tokens(plans[0]) == tokens(plans[1]) {
        true => (text::COMPARE_ITERATION, [pinned.iteration_seconds, changed.iteration_seconds]),
        false => (text::COMPARE_PER_TOKEN, [pinned.seconds_per_token, changed.seconds_per_token]),
    };
    match times {
        [Some(before), Some(after)] if before > 0.0 => say(&text::labelled(t(label), time_text(after / before))),
        _ => String::new(),
    }
}
