//! The page's header: its name, the links to the pages, and the theme switch.

use leptos::prelude::*;

use super::{
    dynamic::{act, flag},
    language::LanguagePicker,
};
use crate::{
    browser,
    text::{self, t},
};

/// The themes of the switch, in the order of its buttons.
const THEMES: [Option<&str>; 3] = [None, Some("light"), Some("dark")];

/// Indices of the pages that show a run: the calculator, Diagnose, the GPUs, Compare and Embed.
const SHOWS_RUN: [usize; 5] = [0, 1, 2, 3, 6];

/// Index of the start page, which the name of the header links to.
pub const START: usize = usize::MAX;

/// The page's header.
#[component]
pub fn Header(
    /// Index of the current page.
    #[prop(optional)]
    page: usize,
    /// Called before another page, or this page in another language, opens.
    leave: Callback<()>,
) -> impl IntoView {
    let kept = browser::kept_theme();
    let chosen = RwSignal::new(THEMES.iter().position(|theme| *theme == kept.as_deref()).unwrap_or(0));
    let choose = move |index: usize| {
        chosen.set(index);
        browser::set_theme(THEMES[index]);
    };
    // The links carry the previous page's run until this page sets its own.
    let (run, figures) = (browser::kept_run(), browser::kept_figures());
    let address = move |index: usize, href: &str| {
        let href = href.to_owned() + &browser::query();
        if SHOWS_RUN.contains(&index) { browser::link_to(&href, &run, &figures) } else { href }
    };
    view! {
        <header class="header">
            <a class="header__skip" href="#answer" on:click=move |event| skip(&event)>{t(text::SKIP_TO_ANSWER)}</a>
            <a class="header__name" href=address(START, "./") aria-current=(page == START).then_some("page") on:click=act(move || leave.run(()))>
                <svg class="header__sign" viewBox="0 0 20 20" aria-hidden="true">
                    <path d="M2 4h16" />
                    <path d="M2 18V13h4V9h4v2h4v-2h4v9z" />
                </svg>
                <strong>{t(text::NAME)}</strong>
                <span class="header__tagline">{t(text::TAGLINE)}</span>
            </a>
            <nav class="header__pages" aria-label=t(text::PAGES)>
                {text::PAGE_LINKS.into_iter().enumerate().map(|(index, (name, href))| view! {
                    <a href=address(index, href) data-run=SHOWS_RUN.contains(&index).then_some("") aria-current=(index == page).then_some("page")
                        on:click=act(move || leave.run(()))>{t(name)}</a>
                }).collect_view()}
            </nav>
            <p class="header__promise">{t(text::NOTHING_LEAVES)}</p>
            <LanguagePicker leave />
            <fieldset class="switch header__theme">
                <legend class="visually-hidden">{t(text::THEME)}</legend>
                {(0..THEMES.len()).map(|index| view! {
                    <label class="switch__choice">
                        <input
                            type="radio"
                            name="theme"
                            class="visually-hidden"
                            prop:checked=flag(move || chosen.get() == index)
                            on:change=move |_| choose(index)
                        />
                        <span>{t(text::THEMES[index])}</span>
                    </label>
                }).collect_view()}
            </fieldset>
        </header>
    }
}

/// Moves the focus without changing the fragment, which contains the session.
fn skip(event: &leptos::ev::MouseEvent) {
    event.prevent_default();
    browser::show_answer();
}
