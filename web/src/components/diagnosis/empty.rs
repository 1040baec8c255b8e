//! The answer's placeholder before a message is pasted.

use headroom_planner::session::Options;
use leptos::prelude::*;

use super::bar::bar;
use crate::{
    state::diagnosis::shown,
    text::{self, t},
};

/// Renders the heading, what a message reveals, and an example with a button that inserts it.
pub fn empty(example: Callback<()>) -> AnyView {
    let points = [text::EMPTY_TENSOR, text::EMPTY_MEMORY, text::EMPTY_FIXES];
    let points: Vec<_> = points.into_iter().map(|point| view! { <li>{t(point)}</li> }).collect();
    // Without the config, so that the page opens without a simulation.
    let answer = shown(text::EXAMPLE_MESSAGE, "", &Options::default());
    let (sentence, bar) = answer.map(|answer| (answer.sentence.clone(), bar(&answer))).unwrap_or_default();
    view! {
        <div class="panel diagnose__empty" data-testid="empty">
            <h1 class="diagnose__sentence">{t(text::EMPTY_TITLE)}</h1>
            <p>{t(text::NOTHING_PASTED)}</p>
            <ul class="diagnose__points">{points}</ul>
        </div>
        <div class="panel diagnose__empty" data-testid="example-answer">
            <h2 class="panel-title">{t(text::EXAMPLE_TITLE)}</h2>
            <p class="diagnose__quote" translate="no">{text::EXAMPLE_MESSAGE}</p>
            <p>{sentence}</p>
            <button type="button" class="button button--primary" id="example" data-testid="example"
                on:click=move |_| example.run(())>{t(text::SHOW_EXAMPLE)}</button>
        </div>
        {bar}
    }
    .into_any()
}
