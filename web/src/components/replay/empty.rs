//! The page without a recording: how to make one, and how to open it.

use leptos::prelude::*;
use web_sys::File;

use crate::{
    components::{
        actions::{CopyButton, command_words},
        dynamic::act,
    },
    state::replay::ENDING,
    text::{self, t},
};

/// Records a program. The file has the name of its script.
const RECORD: &str = "headroom record -- python train.py";

/// Renders the two steps, with a button for a file and one for an example.
pub fn empty(take: Callback<Option<File>>, example: Callback<()>) -> AnyView {
    view! {
        <section class="replay__empty panel" id="answer" tabindex="-1" aria-labelledby="replay-title" data-testid="empty">
            <h1 class="replay__title" id="replay-title">{t(text::REPLAY_TITLE)}</h1>
            <p>{t(text::REPLAY_LEAD)}</p>
            <ol class="replay__steps">
                <li>
                    <p>{t(text::REPLAY_RECORD)}</p>
                    <pre class="fixes__code" tabindex="0">{command_words(RECORD)}</pre>
                    <CopyButton id="copy-record" label=t(text::COPY) content=|()| Some(RECORD.to_owned()) />
                </li>
                <li>
                    <p>{t(text::REPLAY_OPEN_HINT)}</p>
                    {open_button(take, true)}
                    <button type="button" class="button" id="example" data-testid="example" on:click=act(move || example.run(()))>
                        {t(text::SHOW_EXAMPLE)}
                    </button>
                </li>
            </ol>
            <p class="replay__soft">{t(text::REPLAY_PRIVATE)}</p>
        </section>
    }
    .into_any()
}

/// Renders the button that opens a file.
pub fn open_button(take: Callback<Option<File>>, primary: bool) -> AnyView {
    view! {
        <label class="button replay__open" class:button--primary=primary>
            <input type="file" id="recording" class="visually-hidden" accept=ENDING
                on:change:target=move |event| {
                    take.run(event.target().files().and_then(|files| files.get(0)));
                    event.target().set_value("");
                } />
            <span>{t(text::REPLAY_OPEN)}</span>
        </label>
    }
    .into_any()
}
