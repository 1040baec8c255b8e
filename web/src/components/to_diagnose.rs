//! The link from an out-of-memory message in the calculator to the page that explains it.

use headroom_planner::link;
use leptos::prelude::*;

use super::dynamic::{part, words};
use crate::{
    browser,
    state::{answer::Reading, budget::Budget, session::Session},
    text::{self, t},
};

/// The link, if the text contains an out-of-memory message. The text and the run stay in this browser.
#[component]
pub fn ToDiagnose(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let has_message = budget.ask(|answer| answer.has_message);
    let address = |run: &str| format!("./diagnose.html{}{run}", browser::query());
    // Diagnose compares the message with the run of the same text, if it has one.
    let href = move || {
        budget.answer.with(|answer| match answer.0.reading {
            Reading::Run => {
                let run = |session: &Session| link::encode(&answer.0.resolved.settings, &session.options);
                address(&["#", &budget.session.with(run)].concat())
            }
            _ => address(""),
        })
    };
    let keep = move |_| {
        let config = budget.answer.with_untracked(|answer| match answer.0.reading {
            Reading::Run => answer.0.resolved.settings.to_config(),
            _ => String::new(),
        });
        budget.session.with_untracked(|session| {
            // The message is at the end of a log.
            let start = session.text.len().saturating_sub(browser::KEPT_BYTES_MAX);
            browser::keep_message(&session.text[session.text.ceil_char_boundary(start)..], &config);
        });
    };
    part(move || {
        has_message.get().then(|| {
            view! {
                <a class="button button--primary verdict__diagnose" data-testid="to-diagnose" href=words(href) on:click=keep>
                    {t(text::EXPLAIN_MESSAGE)}
                </a>
            }
        })
    })
}
