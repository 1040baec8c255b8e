//! The message that PyTorch will print, word for word.

use leptos::prelude::*;

use super::actions::CopyButton;
use super::dynamic::{part, some_words};
use crate::{state::budget::Budget, text};

/// The message, where the run fails.
#[component]
pub fn Message(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let message = budget.ask(|answer| Some(answer.plan()?.oom.as_ref()?.message.clone()));
    let fails = Memo::new(move |_| message.with(Option::is_some));
    part(move || {
        fails.get().then(|| {
            view! {
                <figure class="message">
                    <figcaption class="message__head">
                        <span>{text::PYTORCH_SAYS}</span>
                        <CopyButton id="copy-message" label=text::COPY_MESSAGE content=move |()| message.get() />
                    </figcaption>
                    <p class="message__text" id="oom-message" data-testid="oom-message" tabindex="0">
                        {some_words(move || message.get())}
                    </p>
                </figure>
            }
        })
    })
}
