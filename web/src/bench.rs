//! Browser benchmarks: the time of one plan in the production build of the page.
//!
//! Only one program exports them, because the linker keeps every export and all that it calls. It is that of the page
//! Which GPU, which plans too and has the most room below the limit of a first load.

use headroom_planner::plan::plan;

use crate::{
    browser,
    state::{answer::PlannedSession, builtin::BuiltinSummary, session::Session},
};

/// Maximum number of plans per call, so that a mistyped count cannot hang the page.
const PLANS_MAX: u32 = 10_000;

fn mean_millis(n: u32, mut work: impl FnMut() -> bool) -> f64 {
    let n = n.clamp(1, PLANS_MAX);
    let start = browser::now_millis();
    let done = (0..n).filter(|_| work()).count();
    let millis = browser::now_millis() - start;
    if done == 0 { f64::NAN } else { millis / done as f64 }
}

/// Returns the mean time in milliseconds to plan the run in the page's link.
pub fn plan_millis(n: u32) -> f64 {
    let answer = PlannedSession::of(&session());
    let request = answer.plan().map(|plan| plan.request.clone());
    mean_millis(n, || request.clone().is_some_and(|request| std::hint::black_box(plan(request)).is_ok()))
}

/// Returns the mean time in milliseconds from the text to a plan with its timeline and the built-in trainer's plan.
/// This is the cost of one keystroke without drawing.
pub fn keystroke_millis(n: u32) -> f64 {
    let session = session();
    mean_millis(n, || {
        let answer = PlannedSession::of(&session);
        std::hint::black_box(BuiltinSummary::of_answer(&answer));
        std::hint::black_box(answer).plan().is_some()
    })
}

fn session() -> Session {
    Session::open(&browser::fragment(), None).map(|opened| opened.session).unwrap_or_default()
}
