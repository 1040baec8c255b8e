//! The buttons that undo and redo, and the one for recent runs.

use leptos::prelude::*;

use super::dynamic::{act, words};
use crate::{
    browser,
    state::steps::Steps,
    text::{self, t},
};

/// Buttons that undo and redo the steps of the page.
#[component]
pub fn UndoRedo(
    /// The steps that can be undone and redone.
    steps: RwSignal<Steps>,
) -> impl IntoView {
    let has = move |is_redo: bool| steps.get().has(is_redo);
    // A button that becomes disabled would lose the focus.
    let button = move |is_redo: bool| {
        let (id, label, sign) = if is_redo { ("redo", text::REDO, "↷") } else { ("undo", text::UNDO, "↶") };
        view! {
            <button type="button" class="button button--quiet" id=id title=t(label) aria-label=t(label)
                aria-disabled=words(move || (!has(is_redo)).to_string())
                on:click=act(move || {
                    if has(is_redo) {
                        browser::step(is_redo);
                    }
                })>{sign}</button>
        }
    };
    // `recent.js` shows it.
    view! {
        <span class="undo">
            {button(false)}{button(true)}
            <button type="button" class="button button--quiet" id="recent" hidden title=t(text::RECENT)
                aria-label=t(text::RECENT) data-clear=t(text::CLEAR_RECENT)>"◷"</button>
        </span>
    }
}
