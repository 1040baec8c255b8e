//! A button that copies a text and confirms it.

use std::time::Duration;

use leptos::{prelude::*, task::spawn_local};

use super::dynamic::{IntoPart, Part, act, flag, some_words};
use crate::{
    browser,
    text::{self, t},
};

/// Time for which the button shows its confirmation.
const SAYS_SO_FOR: Duration = Duration::from_millis(1600);

/// A button that copies a text.
#[component]
pub fn CopyButton(
    /// Id, for tests and styles.
    id: &'static str,
    /// The button's label.
    label: &'static str,
    /// Returns the text to copy; `None` copies nothing.
    #[prop(into)]
    content: Callback<(), Option<String>>,
    /// Whether the button is the primary action.
    #[prop(optional)]
    primary: bool,
    /// Whether there is a text to copy.
    #[prop(into, default = Signal::stored(true))]
    enabled: Signal<bool>,
) -> impl IntoView {
    let said = RwSignal::new(None::<bool>);
    let copy = act(move || {
        let Some(content) = content.run(()) else { return };
        spawn_local(async move {
            said.set(Some(browser::copy(content).await));
            set_timeout(move || said.set(None), SAYS_SO_FOR);
        });
    });
    let word = move || said.get().map(|copied| if copied { t(text::COPIED) } else { t(text::NOT_COPIED) }.to_owned());
    view! {
        <button type="button" id=id data-testid=id class="button" class:button--primary=primary
            prop:disabled=flag(move || !enabled.get()) on:click=copy>
            // The hidden label keeps its space, so that no button moves.
            <span class:button__hidden=flag(move || said.get().is_some())>{label}</span>
            <span class="button__said" role="status">{some_words(word)}</span>
        </button>
    }
}

/// Renders a command whose lines break only between its words.
pub fn command_words(command: &str) -> Vec<Part> {
    let word = |word: &str| view! { <span class="command__word">{word.to_owned()}</span> " " }.into_part();
    let lines = command.lines().enumerate();
    let lines = lines.flat_map(|(index, line)| {
        let end = (index > 0).then(|| view! { <br /> }.into_part());
        end.into_iter().chain(line.split(' ').map(word)).collect::<Vec<_>>()
    });
    lines.collect()
}
