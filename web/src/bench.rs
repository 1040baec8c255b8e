//! What a browser benchmark measures: the time of one plan, in the page as it is shipped.
//!
//! The calculator's program alone exports it: an export is never left out, and would take the whole simulation into the
//! programs of pages that have no use for it.

use headroom_shared::plan::plan;

use crate::{
    browser,
    state::{answer::Answer, builtin::Builtin, session::Session},
};

/// The most plans one call makes, so that a mistyped count cannot hang the page.
const PLANS_MAX: u32 = 10_000;

fn mean_millis(n: u32, mut work: impl FnMut() -> bool) -> f64 {
    let n = n.clamp(1, PLANS_MAX);
    let start = browser::now_millis();
    let done = (0..n).filter(|_| work()).count();
    let millis = browser::now_millis() - start;
    if done == 0 { f64::NAN } else { millis / done as f64 }
}

/// Mean milliseconds of one plan of what the page's link says.
pub fn plan_millis(n: u32) -> f64 {
    let answer = Answer::of(&session());
    let request = answer.plan().map(|plan| plan.request.clone());
    mean_millis(n, || request.clone().is_some_and(|request| std::hint::black_box(plan(request)).is_ok()))
}

/// Mean milliseconds from the text to a plan with its timeline, and the built-in trainer's: what one keystroke costs before anything is drawn.
pub fn keystroke_millis(n: u32) -> f64 {
    let session = session();
    mean_millis(n, || {
        let answer = Answer::of(&session);
        std::hint::black_box(Builtin::of_answer(&answer));
        std::hint::black_box(answer).plan().is_some()
    })
}

fn session() -> Session {
    Session::open(&browser::fragment(), None).map(|opened| opened.session).unwrap_or_default()
}
