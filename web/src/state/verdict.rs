//! The verdict in words, and the figures beside it.

use headroom_planner::{
    hardware::{Device, Provenance},
    plan::{Fit, Plan, RunOnMachine, basis::Certainty},
};
use headroom_text::{Part, decimal};

use super::{answer::PlannedSession, format, needs::Needs};
use crate::text::{self, Text, say, t, table};

/// The verdict in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The outcome.
    pub fit: Fit,
    /// The first sentence.
    pub headline: String,
    /// The second sentence.
    pub detail: String,
    /// Whether it fits.
    pub fits: bool,
    /// The free bytes; negative if bytes are missing.
    pub headroom_bytes: i64,
}

impl Verdict {
    /// The words for an answer; `None` without a plan.
    pub fn of_answer(answer: &PlannedSession) -> Option<Self> {
        let plan = answer.plan()?;
        Some(Self::of(plan, &Needs::of_plan(plan)))
    }

    /// The words for a plan that requires `needs` besides the config.
    pub fn of<R: RunOnMachine>(plan: &Plan<R>, needs: &Needs) -> Self {
        let left = format::signed_size(plan.headroom_bytes);
        let [low, high] = plan.headroom_band_bytes();
        // The first sentence names what the plan requires besides the config.
        let with = |plain: fn(String) -> Text, with: fn(Part, String) -> Text, size: String| match needs.is_empty() {
            true => plain(size),
            false => with(needs.summary(), size),
        };
        let fit = plan.fit();
        let (headline, detail) = match &plan.oom {
            Some(oom) => {
                let short = format::size(plan.headroom_bytes.unsigned_abs());
                let detail = text::fails_detail(
                    oom.phase.text_in(),
                    format!("{} {} {}", oom.tensor, format::shape(&oom.shape), oom.dtype.name()),
                    format::size(oom.requested_bytes),
                    format::size(oom.allocated_bytes),
                );
                (with(text::does_not_fit, text::does_not_fit_with, short), detail)
            }
            None if fit == Fit::Narrow => {
                let detail = text::narrow_detail(format::signed_size(low), format::signed_size(high));
                (with(text::fits_narrowly, text::fits_narrowly_with, left), detail)
            }
            None => {
                let [low, high] = [low, high].map(format::signed_size);
                let (phase, gpu) = (plan.peak.phase.text_in(), &*plan.request.machine().device.name);
                let detail = match low == high {
                    true => text::fits_detail(phase, gpu),
                    false => text::fits_detail_band(phase, gpu, low, high),
                };
                (with(text::fits, text::fits_with, left), detail)
            }
        };
        Self {
            fit,
            headline: say(&headline),
            detail: say(&detail),
            fits: plan.fits,
            headroom_bytes: plan.headroom_bytes,
        }
    }
}

/// A figure beside the verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The label.
    pub label: &'static str,
    /// The figure.
    pub value: String,
    /// Its certainty; `None` for the user's input.
    pub certainty: Option<Certainty>,
    /// The exact number of bytes, its band, and the corresponding PyTorch function.
    pub title: String,
}

/// The figures beside the verdict. The model has `parameters`.
pub fn figures<R: RunOnMachine>(plan: &Plan<R>, parameters: u64) -> [Figure; 5] {
    let [allocated, reserved, used, gpu] = memory_figures(plan);
    let parameters = Figure {
        label: t(text::FIGURE_PARAMETERS),
        value: millions(parameters),
        certainty: Some(Certainty::Exact),
        title: format::grouped(parameters),
    };
    [allocated, reserved, used, gpu, parameters]
}

/// Allocated and reserved memory, the memory in use on the GPU, and the GPU's memory.
pub fn memory_figures<R: RunOnMachine>(plan: &Plan<R>) -> [Figure; 4] {
    let device = &plan.request.machine().device;
    let bytes = |label, bytes: u64, certainty, more: &str| Figure {
        label,
        value: format::size(bytes),
        certainty: Some(certainty),
        title: if more.is_empty() {
            format::exact_bytes(bytes)
        } else {
            format!("{} · {more}", format::exact_bytes(bytes))
        },
    };
    let [low, high] = plan.basis.band_bytes.map(format::size);
    let used = if plan.fits { t(text::FIGURE_USED) } else { t(text::FIGURE_USED_NEEDED) };
    [
        bytes(
            t(text::FIGURE_ALLOCATED),
            plan.peak.max_allocated_bytes,
            plan.basis.allocated,
            t(text::FIGURE_ALLOCATED_HINT),
        ),
        bytes(
            t(text::FIGURE_RESERVED),
            plan.peak.max_reserved_bytes,
            plan.basis.reserved,
            t(text::FIGURE_RESERVED_HINT),
        ),
        bytes(used, plan.peak.device_used_bytes, Certainty::Estimated, &say(&text::band(low, high))),
        bytes(t(text::FIGURE_CARD), device.total_bytes, gpu_certainty(device), &device.name),
    ]
}

fn gpu_certainty(device: &Device) -> Certainty {
    match device.total_provenance {
        Provenance::Measured { .. } => Certainty::Measured,
        Provenance::Estimated { .. } => Certainty::Estimated,
        Provenance::Given => Certainty::Exact,
    }
}

fn millions(parameters: u64) -> String {
    match parameters {
        0..1_000_000_000 => table().number(&decimal::ratio(parameters, 1_000_000, 1)) + " M",
        _ => table().number(&decimal::ratio(parameters, 1_000_000_000, 2)) + " B",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::session::Session;
    use headroom_planner::train_config::CrossEntropy;

    fn verdict(text: &str) -> Verdict {
        Verdict::of_answer(&PlannedSession::of_text(text)).expect("a plan")
    }

    #[test]
    fn a_small_batch_fits_with_what_is_left() {
        let verdict = verdict("batch_size = 4\ncompile = False\n");
        assert_eq!(verdict.fit, Fit::Fits);
        assert!(verdict.headline.starts_with("Fits: ") && verdict.headline.ends_with("GiB left"), "{verdict:?}");
        assert!(verdict.headroom_bytes > 0);
    }

    #[test]
    fn a_large_batch_names_phase_tensor_and_what_is_short() {
        let verdict = verdict("batch_size = 64\ncompile = False\n");
        assert_eq!(verdict.fit, Fit::Fails);
        // The shortfall is that of the whole run, and the phase of the failure is beside the size requested there.
        assert!(
            verdict.headline.starts_with("Does not fit: ") && verdict.headline.ends_with("GiB short"),
            "{verdict:?}"
        );
        assert!(verdict.detail.starts_with("Fails in the first batch of evaluation on "), "{verdict:?}");
        assert!(verdict.detail.contains("(65536, 50304)"), "{verdict:?}");
        assert!(verdict.headroom_bytes < 0 && !verdict.fits);
    }

    #[test]
    fn a_plan_that_counts_on_other_code_is_no_plain_yes() {
        let mut session = Session { text: "batch_size = 20\n".into(), ..Session::default() };
        session.options.cross_entropy = CrossEntropy::Chunked;
        let verdict = Verdict::of_answer(&PlannedSession::of(&session)).expect("a plan");
        assert!(verdict.headline.starts_with("Fits with 1 change to model.py: "), "{verdict:?}");
        session.options.del_train_logits = true;
        session.set_text("batch_size = 640\n".into());
        let verdict = Verdict::of_answer(&PlannedSession::of(&session)).expect("a plan");
        let expected = "Does not fit, even with 2 changes to model.py, train.py: ";
        assert!(verdict.headline.starts_with(expected), "{verdict:?}");
    }

    #[test]
    fn parameters_read_as_people_say_them() {
        assert_eq!(millions(124_337_664), "124.3 M");
        assert_eq!(millions(1_557_686_400), "1.56 B");
    }
}
