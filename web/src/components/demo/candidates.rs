//! The candidates for a token's position.

use headroom_protocol::demo::Token;
use headroom_text::decimal;
use leptos::prelude::*;

use super::DemoContext;
use crate::{
    components::dynamic::part,
    state::demo::{percent, visible},
    text::{self, say, t},
};

/// Number of candidates listed besides the chosen one.
const LISTED: usize = 8;

/// The candidates for the selected token.
#[component]
pub fn Candidates(
    /// The demo's state.
    desk: DemoContext,
) -> impl IntoView {
    view! {
        <section class="panel demo__candidates" aria-label=t(text::DEMO_CANDIDATES)>
            <h2 class="panel-title">{t(text::DEMO_CANDIDATES)}</h2>
            {part(move || {
                let at = desk.looked_at();
                desk.demo.with(|demo| match at.map(|at| &demo.pieces[at].token) {
                    Some(Some(token)) => list(token).into_any(),
                    Some(None) => view! { <p class="demo__hint">{t(text::DEMO_CANDIDATES_GIVEN)}</p> }.into_any(),
                    None => view! { <p class="demo__hint">{t(text::DEMO_CANDIDATES_NONE)}</p> }.into_any(),
                })
            })}
        </section>
    }
}

fn list(token: &Token) -> impl IntoView + use<> {
    let chosen = token.candidates.iter().position(|(id, ..)| *id == token.id);
    let rows: Vec<_> = token
        .candidates
        .iter()
        .enumerate()
        .filter(|(index, _)| *index < LISTED || Some(*index) == chosen)
        .map(|(index, (_, name, probability))| {
            let is_chosen = Some(index) == chosen;
            let width = decimal::ratio(u64::from(*probability), 10_000, 1);
            view! {
                <li class="candidate" class=("candidate--chosen", is_chosen) aria-current=is_chosen.then_some("true")>
                    <code class="candidate__name">{visible(name)}</code>
                    <svg class="candidate__bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
                        <rect width=width height="4" />
                    </svg>
                    <span class="candidate__share">{percent(*probability)}</span>
                </li>
            }
        })
        .collect();
    let missing = chosen.is_none().then(|| {
        let said = say(&text::demo_not_listed(token.candidates.len()));
        view! { <p class="demo__hint">{said}</p> }
    });
    view! { <ol class="demo__list" data-testid="candidates">{rows}</ol> {missing} }
}
