//! The run in one row that links to the form, for layouts with the form below the answer.

use leptos::prelude::*;

use super::dynamic::{act, words};
use crate::{
    browser,
    state::{answer::PlannedSession, budget::Budget, gpu, presets::Model},
    text::{self, t},
};

/// The summary row. CSS hides it on wide pages, which show the form itself.
#[component]
pub fn RunSummary(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let run = budget.ask(run);
    let gpu = move || budget.session.with(|session| gpu::field(&session.options));
    view! {
        <button type="button" class="run-summary" id="run-summary" data-testid="run-summary"
            on:click=act(|| browser::scroll_to("run"))>
            <span class="run-summary__run">{words(move || run.get())} " " <strong>{words(gpu)}</strong></span>
            <span class="run-summary__change">{t(text::CHANGE_RUN)}</span>
        </button>
    }
}

/// Describes the model and the micro-batch. Without a plan, they are unknown.
fn run(answer: &PlannedSession) -> String {
    if answer.plan().is_none() {
        return format!("{} ·", t(text::NO_PLAN));
    }
    let [n_layer, n_head, n_embd] = ["n_layer", "n_head", "n_embd"].map(|key| answer.count(key).unwrap_or(0));
    let model = match Model::of(n_layer, n_head, n_embd) {
        Some(index) => crate::state::presets::MODELS[index].label.to_owned(),
        None => format!("{n_layer} × {n_embd}"),
    };
    format!("{model} · batch_size\u{a0}{} ·", answer.number_text("batch_size"))
}
