//! The same run under the built-in trainer, in words beside nanoGPT's result.

use headroom_planner::plan::builtin::builtin;
use headroom_text::size;

use super::{
    answer::{PlannedSession, Reading},
    format,
};
use crate::text::{self, say, t};

/// The built-in trainer's result, in words.
#[derive(Clone, Debug, PartialEq)]
pub struct BuiltinSummary {
    /// The outcome, for styles and tests: `fits`, `rescues` if nanoGPT's run does not fit, `fails`, or `unable`.
    pub outcome: &'static str,
    /// The sentence that answers whether the run fits.
    pub answer: String,
    /// The memory that it allocates, compared with PyTorch, and its requirements.
    pub detail: String,
    /// The exact number of bytes that it allocates; empty if it cannot train the run.
    pub bytes: String,
}

impl BuiltinSummary {
    /// The words for an answer; `None` without a plan, or if the text is not a run.
    pub fn of_answer(answer: &PlannedSession) -> Option<Self> {
        let plan = answer.plan()?;
        if matches!(answer.reading, Reading::Foreign | Reading::OutOfMemory) {
            return None;
        }
        Some(match builtin(&plan.request) {
            Ok(found) => Self {
                outcome: match (found.fits, plan.fits) {
                    (true, true) => "fits",
                    (true, false) => "rescues",
                    (false, _) => "fails",
                },
                answer: say(&found.text(plan.request.machine.device.total_bytes)),
                detail: [
                    &*say(&text::builtin_detail(size(found.allocated_bytes), size(plan.peak.max_allocated_bytes))),
                    t(text::BUILTIN_NEEDS),
                ]
                .join(" "),
                bytes: format::exact_bytes(found.allocated_bytes),
            },
            Err(reason) => Self {
                outcome: "unable",
                answer: say(&text::builtin_unsupported(reason)),
                detail: String::new(),
                bytes: String::new(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<BuiltinSummary> {
        BuiltinSummary::of_answer(&PlannedSession::of_text(text))
    }

    #[test]
    fn it_is_loudest_where_nanogpt_fails() {
        for (text, outcome) in [
            ("batch_size = 4", "fits"),
            ("batch_size = 64", "rescues"),
            ("batch_size = 640", "fails"),
            ("dtype = 'float32'", "unable"),
        ] {
            assert_eq!(of(text).map(|found| found.outcome), Some(outcome), "{text}");
        }
    }

    #[test]
    fn the_headline_in_words() {
        let found = of("batch_size = 64\ngradient_accumulation_steps = 1").expect("a plan");
        assert!(found.answer.starts_with("Headroom's own trainer fits this run: 11."), "{found:?}");
        assert!(found.answer.contains("GiB of 11.69 GiB; attention recomputed in "), "{found:?}");
        assert!(found.detail.contains("PyTorch allocates up to 40.72 GiB"), "{found:?}");
        assert!(found.bytes.ends_with(" bytes"), "{found:?}");
    }

    #[test]
    fn nothing_is_said_of_what_is_no_run() {
        assert_eq!(of("Segmentation fault (core dumped)"), None);
        assert_eq!(of("n_head = 7"), None);
    }
}
