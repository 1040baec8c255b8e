//! A sentence that stays until it is dismissed.

use leptos::prelude::*;

use super::dynamic::{act, part};
use crate::text::{self, Text, say, t};

/// A sentence with a button to dismiss it.
#[component]
pub fn Notice(
    /// The sentence, if there is one.
    notice: RwSignal<Option<Text>>,
) -> impl IntoView {
    part(move || {
        notice.get().map(|sentence| {
            view! {
                <div class="notice" role="status" id="notice">
                    <p>{say(&sentence)}</p>
                    <button type="button" class="button" on:click=act(move || notice.set(None))>{t(text::DISMISS)}</button>
                </div>
            }
        })
    })
}
