//! The way from an out-of-memory message in the calculator to the page that explains it.

use leptos::prelude::*;

use super::dynamic::part;
use crate::{
    browser,
    state::{answer::Reading, budget::Budget, excerpt::around},
    text::{self, t},
};

/// The longest text that goes along; of a longer log, what is around the message.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// The link; nothing while the text is not such a message. The message stays in this browser.
#[component]
pub fn ToDiagnose(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let is_message = budget.ask(|answer| answer.reading == Reading::OutOfMemory);
    let keep = move |_| {
        budget.session.with_untracked(|session| {
            browser::keep_message(around(&session.text, "out of memory", MESSAGE_BYTES_MAX), "");
        });
    };
    part(move || {
        is_message.get().then(|| {
            let href = format!("./diagnose.html{}", browser::query());
            view! {
                <a class="button button--primary verdict__diagnose" data-testid="to-diagnose" href=href on:click=keep>
                    {t(text::EXPLAIN_MESSAGE)}
                </a>
            }
        })
    })
}
