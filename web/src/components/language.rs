//! The list of languages.

use leptos::prelude::*;

use crate::{
    browser,
    text::{self, LANGUAGES, t},
};

/// The list. A page is made of one language, so choosing another opens the page anew: what was given is in the address,
/// or kept by `leave`.
#[component]
pub fn LanguagePicker(
    /// What has to be done before.
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
                    // The code first: where there is little room it is all that shows.
                    {format!("{}\u{2002}{}", language.code.to_ascii_uppercase(), language.name)}
                </option>
            }).collect_view()}
        </select>
    }
}
