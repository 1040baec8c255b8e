//! The drop-down list of languages.

use leptos::prelude::*;

use crate::{
    browser,
    text::{self, LANGUAGES, t},
};

/// The drop-down list of languages. A page is built in one language, so another choice reloads the page. The input is
/// in the address, or kept by `leave`.
#[component]
pub fn LanguagePicker(
    /// Called before the page is reloaded.
    leave: Callback<()>,
) -> impl IntoView {
    let now = browser::language();
    view! {
        <select class="input header__language" id="language" data-testid="language" aria-label=t(text::LANGUAGE)
            on:change:target=move |event| {
                let chosen = event.target().value();
                if LANGUAGES.iter().any(|language| language.code == chosen) {
                    leave.run(());
                    browser::open_in_language(&chosen);
                }
            }>
            {LANGUAGES.iter().map(|language| view! {
                <option value=language.code lang=language.code selected=language.code == now>
                    // The code comes first, because only the code is visible in a narrow list.
                    {format!("{}\u{2002}{}", language.code.to_ascii_uppercase(), language.name)}
                </option>
            }).collect_view()}
        </select>
    }
}
