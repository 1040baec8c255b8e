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
    },
    state::trainer::{advice_on, apply, facts, settings},
    text::{self, say, t},
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
            let advice = advice.as_ref().filter(|advice| !advice.fixes.is_empty() || !advice.obstacle.is_empty())?;
            let rows: Vec<Part> = advice.fixes.iter().map(|fix| item(&input, &options, fix)).collect();
            let obstacle: Vec<_> =
                advice.obstacle.iter().map(|sentence| view! { <p class="fixes__lead">{say(sentence)}</p> }).collect();
            Some(view! {
                <div class="panel">
                    <h2 class="panel-title">{t(text::FIXES)}</h2>
                    <ol class="fixes__list" data-testid="trainer-fixes">{rows}</ol>
                    {obstacle}
                </div>
            })
        })
    })
}

/// A fix with a link to the calculator with that fix applied.
fn item(input: &Input, options: &Options, fix: &TrainerFix) -> Part {
    let (mut after, mut on) = (input.clone(), options.clone());
    apply(&mut after, &mut on, fix);
    let settings = settings(fix);
    let class = if fix.fits() { "button button--primary" } else { "button" };
    let link = trainer_link(class, &encode(&after, &on), text::APPLY, format!("{} {settings}", t(text::APPLY)));
    let reasons: Vec<&str> = fix.notes.iter().map(|note| t(*note)).collect();
    view! {
        <li class="fixes__fix" data-fix=fix.ids.join("+") data-fits=fix.fits().to_string()>
            <code class="fixes__settings">{settings}</code>
            {link}
            <p class="fixes__facts">{facts(fix)}</p>
            <p class="fixes__reason">{reasons.join(" ")}</p>
        </li>
    }
    .into_part()
}
