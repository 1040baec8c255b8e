//! The tensors that may have caused the message.

use leptos::prelude::*;

use crate::{
    components::dynamic::flag,
    state::{diagnosis::Candidate, solving::Offer},
    text::{self, say, t},
};

/// Renders the list. It is collapsed behind its title unless `is_open`, because usually one row matters. A batch size in
/// the list selects that run.
pub fn candidates(
    found: &[Candidate],
    is_open: impl Fn() -> bool + Send + 'static,
    take: Callback<Offer>,
) -> Option<AnyView> {
    if found.is_empty() {
        return None;
    }
    let row = |candidate: &Candidate| {
        let exact = candidate.exact.then(|| view! { <span class="phases__badge">{t(text::TO_THE_DIGIT)}</span> });
        let tensor = candidate.tensor.clone();
        let runs = candidate.runs.iter().cloned().map(|(label, config)| {
            let named = format!("{} {label}, {tensor}", t(text::USE_RUN));
            let press = move |_| take.run(Offer { config: config.clone(), ..Offer::default() });
            view! { <button type="button" class="button diagnose__run" aria-label=named on:click=press>{label}</button> }
        });
        let runs: Vec<_> = runs.collect();
        view! {
            <li class="diagnose__tensor"><code>{candidate.tensor.clone()}</code> " " {candidate.phase} " " {exact} {runs}</li>
        }
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    let has_runs = found.iter().any(|candidate| !candidate.runs.is_empty());
    let hint = has_runs.then(|| view! { <p class="diagnose__hint">{t(text::CANDIDATES_HINT)}</p> });
    Some(
        view! {
            <details class="panel diagnose__candidates" prop:open=flag(is_open)>
                <summary class="panel-title">{say(&text::candidates_counted(found.len()))}</summary>
                {hint}
                <ol class="diagnose__tensors" data-testid="candidates">{rows}</ol>
            </details>
        }
        .into_any(),
    )
}
