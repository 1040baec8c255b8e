//! The text: pasted, typed, dropped or opened.

use headroom_shared::nanogpt::MAX_SOURCE_BYTES;
use leptos::{prelude::*, task::spawn_local};
use web_sys::{DragEvent, File};

use super::actions::CopyButton;
use super::dynamic::{flag, words};
use crate::{
    browser,
    state::{budget::Budget, presets::RUNS},
    text,
};

/// The text area with its ways in and out.
#[component]
pub fn ConfigInput(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let dragging = RwSignal::new(false);
    let open = move |file: Option<File>| {
        let Some(file) = file else { return };
        spawn_local(async move {
            match browser::file_text(file, MAX_SOURCE_BYTES as f64).await {
                Some(text) => budget.session.update(|session| session.set_text(text)),
                None => budget.notice.set(Some(text::FILE_TOO_LARGE.to_owned())),
            }
        });
    };
    let over = move |event: DragEvent| {
        event.prevent_default();
        dragging.set(true);
    };
    let dropped = move |event: DragEvent| {
        event.prevent_default();
        dragging.set(false);
        open(event.data_transfer().and_then(|data| data.files()).and_then(|files| files.get(0)));
    };
    view! {
        <div class="config" class:config--dragging=flag(move || dragging.get())
            on:dragover=over on:dragleave=move |_| dragging.set(false) on:drop=dropped>
            <div class="config__head">
                <label class="config__label" for="config">{text::CONFIG}</label>
                <StartFrom budget />
            </div>
            <div class="config__body">
                <textarea class="input config__text" id="config" data-testid="config" rows="7" spellcheck="false"
                    autocomplete="off" autocapitalize="off" wrap="off" placeholder=text::CONFIG_PLACEHOLDER
                    prop:value=words(move || budget.session.with(|session| session.text.clone()))
                    on:input:target=move |event| {
                        let text = event.target().value();
                        budget.session.update(|session| session.set_text(text));
                    }></textarea>
                <div class="config__ways">
                    <label class="button config__file">
                        <input type="file" id="config-file" class="visually-hidden" accept=".py,.txt,.log,.sh"
                            on:change:target=move |event| {
                                open(event.target().files().and_then(|files| files.get(0)));
                                event.target().set_value("");
                            } />
                        <span>{text::OPEN_FILE}</span>
                    </label>
                    <CopyButton id="copy-config" label=text::COPY_CONFIG
                        content=move |()| Some(budget.session.with(|session| session.text.clone())) />
                </div>
                <p class="config__drop" aria-hidden="true">{text::DROP_HERE}</p>
            </div>
        </div>
    }
}

/// The list of runs; choosing one puts its config in the place of the text.
#[component]
fn StartFrom(budget: Budget) -> impl IntoView {
    let chosen =
        Memo::new(move |_| budget.session.with(|session| RUNS.iter().position(|run| run.text == session.text)));
    view! {
        <select class="input config__start" id="start-from" data-testid="start-from" aria-label=text::START_FROM
            prop:value=words(move || chosen.get().map_or_else(String::new, |index| index.to_string()))
            on:change:target=move |event| {
                if let Ok(index) = event.target().value().parse::<usize>() {
                    budget.session.update(|session| session.set_text(RUNS[index].text.to_owned()));
                }
            }>
            <option value="" disabled=true selected=flag(move || chosen.get().is_none())>
                {text::START_FROM}" "{text::START_FROM_CHOOSE}
            </option>
            {RUNS.iter().enumerate().map(|(index, run)| view! {
                <option value=index.to_string() selected=flag(move || chosen.get() == Some(index))>{run.label}</option>
            }).collect_view()}
        </select>
    }
}
