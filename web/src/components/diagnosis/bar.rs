//! The GPU's memory as a bar: who holds how much, the capacity, and the excess of the request.

use headroom_text::decimal;
use leptos::prelude::*;

use crate::{
    state::{
        diagnosis::{Part, ShownDiagnosis, part_words},
        format,
    },
    text::{self, say, t},
};

/// Renders the bar, or nothing if the message does not contain the GPU's size.
pub fn bar(shown: &ShownDiagnosis) -> Option<AnyView> {
    if shown.parts.is_empty() {
        return None;
    }
    let scale = shown.gpu_bytes.saturating_add(shown.missing_bytes).max(1);
    let share = |bytes: u64| decimal::ratio(bytes.saturating_mul(100), scale, 2);
    let missing = Part { band: "diagnose__missing", label: t(text::MISSING), bytes: shown.missing_bytes };
    let missing = (shown.missing_bytes > 0).then_some(missing);
    let (mut rects, mut legend) = (Vec::new(), Vec::new());
    let mut at = 0_u64;
    for part in shown.parts.iter().chain(&missing) {
        let said = part_words(part);
        rects.push(view! {
            <rect class=part.band x=share(at) width=share(part.bytes) y="0" height="10"><title>{said.clone()}</title></rect>
        });
        legend.push(view! {
            <li>
                <svg class="diagnose__key" viewBox="0 0 10 10" aria-hidden="true"><rect class=part.band width="10" height="10" /></svg>
                {said}
            </li>
        });
        at = at.saturating_add(part.bytes);
    }
    let gpu = format::size(shown.gpu_bytes);
    let title = match shown.missing_bytes {
        0 => say(&text::on_the_card(gpu.clone())),
        missing => say(&text::on_the_card_missing(gpu.clone(), format::size(missing))),
    };
    let run = shown.run_missing_bytes.map(|bytes| {
        view! { <p class="diagnose__run-missing" data-testid="run-missing">{say(&text::run_missing(format::size(bytes)))}</p> }
    });
    // The part right of the mark exceeds the GPU.
    let end = (shown.missing_bytes > 0).then(|| {
        let place = format!("{}%", share(shown.gpu_bytes));
        view! { <span class="diagnose__end" style:left=place data-testid="gpu-end"><span>{say(&text::gpu_ends(gpu))}</span></span> }
    });
    Some(
        view! {
            <div class="panel">
                <h2 class="panel-title">{title.clone()}</h2>
                <div class="diagnose__scale">
                    <svg class="diagnose__bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=title
                        data-testid="bar">{rects}</svg>
                    {end}
                </div>
                <ul class="diagnose__legend">{legend}</ul>
                {run}
            </div>
        }
        .into_any(),
    )
}
