//! Links to other rigs, each of which opens its own page.

use leptos::prelude::*;

use crate::{
    browser::rig::{keep_neighbours, kept_neighbours},
    components::dynamic::{part, some_words, words},
    state::rig::neighbours::{add, link, name, read},
    text::{self, say, t},
};

/// The list of other rigs, with a field to add one.
#[component]
pub fn Neighbours() -> impl IntoView {
    let links = RwSignal::new(read(&kept_neighbours()));
    let typed = RwSignal::new(String::new());
    let fault = RwSignal::new(false);
    let keep = move || keep_neighbours(&links.with_untracked(|links| links.join("\n")));
    let submit = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        let link = link(&typed.get_untracked());
        fault.set(link.is_none());
        if let Some(link) = link {
            links.update(|links| {
                add(links, link);
            });
            typed.set(String::new());
            keep();
        }
    };
    let remove = move |gone: String| {
        links.update(|links| links.retain(|link| *link != gone));
        keep();
    };
    view! {
        <details class="panel neighbours" data-testid="neighbours" open=!links.with_untracked(Vec::is_empty)>
            <summary><h2 class="panel-title">{t(text::RIG_OTHERS)}</h2></summary>
            <p class="rig__hint">{t(text::RIG_OTHERS_LEAD)}</p>
            <ul class="neighbours__list">
                {part(move || links.get().into_iter().map(|link| {
                    let gone = link.clone();
                    let called = name(&link).to_owned();
                    view! {
                        <li>
                            <a href=link.clone() rel="noreferrer">{called.clone()}</a>
                            <button type="button" class="button" aria-label=say(&text::rig_remove(called)) on:click=move |_| remove(gone.clone())>"×"</button>
                        </li>
                    }
                }).collect_view())}
            </ul>
            <form class="neighbours__form" on:submit=submit>
                <label for="address">{t(text::RIG_ADDRESS)}</label>
                <input class="input" id="address" inputmode="url" autocomplete="off" spellcheck="false" autocapitalize="off" maxlength="200"
                    prop:value=words(move || typed.get()) aria-describedby="address-fault"
                    on:input:target=move |event| typed.set(event.target().value()) />
                <button type="submit" class="button">{t(text::RIG_ADD)}</button>
                <p class="rig__fault" id="address-fault">{some_words(move || fault.get().then(|| t(text::RIG_ADDRESS_WRONG).to_owned()))}</p>
            </form>
        </details>
    }
}
