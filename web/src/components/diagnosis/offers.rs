//! The runs that would print the message, each with a button that selects it.

use leptos::prelude::*;

use crate::{
    browser,
    components::dynamic::part_of,
    state::solving::{Offer, SearchProgress},
    text::{self, Key, t},
};

/// Renders the note while the search runs.
pub fn searching(solved: RwSignal<SearchProgress>) -> impl IntoView {
    part_of(
        move || solved.with(|solved| solved.searching),
        |searching| {
            searching.then(|| {
                view! { <p class="diagnose__hint" role="status" data-testid="searching">{t(text::SEARCHING)}</p> }
            })
        },
    )
}

/// Renders a link to the calculator of another trainer with a run.
pub fn trainer_link(class: &'static str, fragment: &str, word: Key, label: String) -> AnyView {
    let href = browser::page_with("trainers.html", fragment);
    let label = (!label.is_empty()).then_some(label);
    view! { <a class=class href=href aria-label=label data-testid="open-trainer">{t(word)}</a> }.into_any()
}

/// Renders the offers, or why there are none. `is_headed` is whether the page's headline already is that of the offers.
pub fn offers(solved: &SearchProgress, is_headed: bool, take: Callback<Offer>) -> AnyView {
    if solved.offers.is_empty() {
        let headline = (!solved.headline.is_empty())
            .then(|| view! { <p class="diagnose__hint" data-testid="unsolved">{solved.headline.clone()}</p> });
        return headline.into_any();
    }
    let is_alone = solved.exact && solved.offers.len() == 1;
    let row = |(index, offer): (usize, &Offer)| {
        let (label, press) = (offer.label.clone(), offer.clone());
        // The heading already names a single run.
        let words = (!is_alone).then(|| view! { <span>{label.clone()}</span> });
        let class = if index == 0 { "button button--primary" } else { "button" };
        let press = match press.trainer.clone() {
            Some(fragment) => trainer_link(class, &fragment, text::OPEN_BUDGET, format!("{} {label}", t(text::OPEN_BUDGET))),
            None => view! {
                <button type="button" class=class aria-label=format!("{} {label}", t(text::USE_RUN)) data-testid="use-run"
                    on:click=move |_| take.run(press.clone())>{t(text::USE_RUN)}</button>
            }
            .into_any(),
        };
        view! {
            <li class="diagnose__offer">
                {words}
                {press}
            </li>
        }
    };
    let rows: Vec<_> = solved.offers.iter().enumerate().map(row).collect();
    let headline = (!is_headed).then(|| view! { <p data-testid="offers-title">{solved.headline.clone()}</p> });
    let not_shown = (!solved.not_shown.is_empty())
        .then(|| view! { <p class="diagnose__hint" data-testid="not-shown">{solved.not_shown.clone()}</p> });
    view! {
        {headline}
        <ol class="diagnose__offers" data-testid="offers" data-exact=solved.exact.to_string()>{rows}</ol>
        {not_shown}
        <p class="diagnose__hint">{t(text::NOT_YOUR_RUN)}</p>
    }
    .into_any()
}
