//! A button that copies something and says so.

use std::time::Duration;

use leptos::{prelude::*, task::spawn_local};

use super::dynamic::{flag, some_words};
use crate::{
    browser,
    text::{self, t},
};

/// How long the button says that it copied.
const SAYS_SO_FOR: Duration = Duration::from_millis(1600);

/// The button.
#[component]
pub fn CopyButton(
    /// For tests and styles.
    id: &'static str,
    /// What stands on it.
    label: &'static str,
    /// What it copies; `None` disables it.
    #[prop(into)]
    content: Callback<(), Option<String>>,
    /// Whether it is the one most people want.
    #[prop(optional)]
    primary: bool,
    /// Whether there is anything to copy.
    #[prop(into, default = Signal::stored(true))]
    enabled: Signal<bool>,
) -> impl IntoView {
    let said = RwSignal::new(None::<bool>);
    let copy = move |_| {
        let Some(content) = content.run(()) else { return };
        spawn_local(async move {
            said.set(Some(browser::copy(content).await));
            set_timeout(move || said.set(None), SAYS_SO_FOR);
        });
    };
    let word = move || said.get().map(|copied| if copied { t(text::COPIED) } else { t(text::NOT_COPIED) }.to_owned());
    view! {
        <button type="button" id=id data-testid=id class="button" class:button--primary=primary
            prop:disabled=flag(move || !enabled.get()) on:click=copy>
            // The label keeps its room, so that no button moves.
            <span class:button__hidden=flag(move || said.get().is_some())>{label}</span>
            <span class="button__said" role="status">{some_words(word)}</span>
        </button>
    }
}
