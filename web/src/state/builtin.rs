//! The same run by the trainer that is built in, in words beside nanoGPT's.

use headroom_shared::{plan::builtin::builtin, text::size};

use super::{
    answer::{Answer, Reading},
    format,
};
use crate::text::{self, say, t};

/// What is said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Builtin {
    /// How it comes out, for styles and tests: `fits`, `rescues` where nanoGPT's run does not, `fails`, or `unable`.
    pub outcome: &'static str,
    /// The sentence that answers.
    pub answer: String,
    /// What it allocates beside PyTorch, and what it needs.
    pub detail: String,
    /// The exact count of what it allocates; empty where it cannot train the run.
    pub bytes: String,
}

impl Builtin {
    /// The words for an answer; `None` where there is no plan, or one of something else.
    pub fn of_answer(answer: &Answer) -> Option<Self> {
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
                answer: say(&found.text(plan.request.device.total_bytes)),
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

    fn of(text: &str) -> Option<Builtin> {
        Builtin::of_answer(&Answer::of_text(text))
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
        assert!(found.answer.starts_with("Built-in trainer: fits, 11."), "{found:?}");
        assert!(found.answer.contains("GiB of 11.69 GiB; attention computed again in "), "{found:?}");
        assert!(found.detail.contains("where PyTorch comes to 40.72 GiB"), "{found:?}");
        assert!(found.bytes.ends_with(" bytes"), "{found:?}");
    }

    #[test]
    fn nothing_is_said_of_what_is_no_run() {
        assert_eq!(of("Segmentation fault (core dumped)"), None);
        assert_eq!(of("n_head = 7"), None);
    }
}
