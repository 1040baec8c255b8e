//! The fixes of a run of another trainer, each with a link to its page.

use std::time::Duration;

use headroom_planner::{
    link::trainer::encode,
    session::Options,
    trainers::{
        fixes::{TrainerAdvice, TrainerFix},
        input::Input,
    },
};
use leptos::prelude::*;

use crate::{
    components::{
        diagnosis::offers::trainer_link,
        dynamic::{IntoPart, Part, part},
        fixes::{apply_label, item},
        trainers::advice::{has_fixes, obstacle},
    },
    state::trainer::{advice_on, apply, fix_row},
    text::{self, t},
};

/// Delay before the fixes are simulated, so that the explanation is shown first.
const DELAY: Duration = Duration::from_millis(50);

/// The panel with the fixes of a run.
#[component]
pub fn TrainerFixes(
    /// The run.
    input: Input,
    /// The message's GPU.
    options: Options,
) -> impl IntoView {
    let advice = RwSignal::new(None::<TrainerAdvice>);
    let (of, on) = (input.clone(), options.clone());
    // The panel may be gone by then.
    set_timeout(move || drop(advice.try_set(advice_on(&of, &on))), DELAY);
    part(move || {
        advice.with(|advice| {
            let advice = advice.as_ref().filter(|advice| has_fixes(advice))?;
            let rows: Vec<Part> = advice.fixes.iter().map(|fix| linked(&input, &options, fix)).collect();
            Some(view! {
                <div class="panel">
                    <h2 class="panel-title">{t(text::FIXES)}</h2>
                    <ol class="fixes__list" data-testid="trainer-fixes">{rows}</ol>
                    {obstacle(advice)}
                </div>
            })
        })
    })
}

/// A fix with a link to the calculator with that fix applied.
fn linked(input: &Input, options: &Options, fix: &TrainerFix) -> Part {
    let (mut after, mut on) = (input.clone(), options.clone());
    apply(&mut after, &mut on, fix);
    let class = if fix.fits() { "button button--primary" } else { "button" };
    let row = fix_row(fix);
    let link = trainer_link(class, &encode(&after, &on), text::APPLY, apply_label(&row));
    item(row, link.into_part())
}
