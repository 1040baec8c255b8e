//! The message that PyTorch will print, verbatim: one line that expands to the full message.

use leptos::prelude::*;

use super::actions::CopyButton;
use super::dynamic::{part, some_words};
use crate::{
    state::memo::memo,
    text::{self, t},
};

/// The predicted message, if the run fails.
#[component]
pub fn Message(
    /// The message of a run that fails.
    message: Memo<Option<String>>,
) -> impl IntoView {
    let fails = memo(move || message.with(Option::is_some));
    part(move || {
        fails.get().then(|| {
            view! {
                <section class="message" aria-label=t(text::PYTORCH_SAYS)>
                    <details class="message__whole">
                        <summary class="message__head">
                            <strong>{t(text::PYTORCH_SAYS)}</strong>
                            " "
                            <span class="message__start" aria-hidden="true">{some_words(move || message.get())}</span>
                        </summary>
                        <p class="message__text" id="oom-message" data-testid="oom-message" tabindex="0">
                            {some_words(move || message.get())}
                        </p>
                    </details>
                    <CopyButton id="copy-message" label=t(text::COPY_MESSAGE) content=move |()| message.get() />
                </section>
            }
        })
    })
}
