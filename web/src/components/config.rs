//! The config text: pasted, typed, dropped or opened.

use leptos::prelude::*;
use web_sys::{DragEvent, File};

use super::actions::CopyButton;
use super::dynamic::{flag, words};
use super::long_text::LongText;
use super::open_file::open;
use super::undo::UndoRedo;
use crate::{
    browser,
    state::{answer::describes_run, budget::Budget, memo::memo, needs, presets::RUNS},
    text::{self, t},
};

/// The text area with its buttons to download, open and copy.
#[component]
pub fn ConfigInput(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let dragging = RwSignal::new(false);
    let open = move |file: Option<File>| open(budget, file, false);
    // A file dropped anywhere on the page is accepted; otherwise the browser would navigate to the file. Dragged text
    // is left to the browser.
    browser::on_drag("dragover", move |event: DragEvent| {
        let files = event.data_transfer().map(|data| data.types().includes(&"Files".into(), 0));
        if files == Some(true) {
            event.prevent_default();
            dragging.set(true);
        }
    });
    browser::on_drag("dragleave", move |event: DragEvent| {
        // Without a related element, the pointer left the window.
        if event.related_target().is_none() {
            dragging.set(false);
        }
    });
    browser::on_drag("drop", move |event: DragEvent| {
        dragging.set(false);
        let file = event.data_transfer().and_then(|data| data.files()).and_then(|files| files.get(0));
        if file.is_some() {
            event.prevent_default();
            open(file);
        }
    });
    view! {
        <div class="config" class:config--dragging=flag(move || dragging.get())>
            <div class="config__head">
                <label class="config__label" for="config">{t(text::CONFIG)}</label>
                <UndoRedo steps=budget.steps />
                <StartFrom budget />
            </div>
            <div class="config__body">
                <LongText id="config" class="input config__text" rows="7" no_wrap=true replaces=describes_run placeholder=t(text::CONFIG_PLACEHOLDER)
                    value=Signal::derive(move || budget.session.with(|session| session.text.clone()))
                    on_change=move |text: String| budget.type_text(text) on_paste=move |text: String| budget.take_text(text) />
                <div class="config__ways">
                    // The address is created on demand and not on every keystroke.
                    <a class="button" id="download-config" data-testid="download-config" href="data:," download="config.py"
                        on:click:target=move |event| {
                            budget.session.with(|session| {
                                let (name, text) = session.to_file();
                                event.target().set_download(name);
                                event.target().set_href(&browser::text_address(&text));
                            });
                        }>{t(text::DOWNLOAD_CONFIG)}</a>
                    <label class="button config__file">
                        <input type="file" id="config-file" class="visually-hidden" accept=".py,.txt,.log,.sh,.json"
                            on:change:target=move |event| {
                                open(event.target().files().and_then(|files| files.get(0)));
                                event.target().set_value("");
                            } />
                        <span>{t(text::OPEN_FILE)}</span>
                    </label>
                    <CopyButton id="copy-config" label=t(text::COPY_CONFIG)
                        content=move |()| Some(budget.session.with(needs::noted)) />
                </div>
                <p class="config__drop" aria-hidden="true">{t(text::DROP_HERE)}</p>
            </div>
        </div>
    }
}

/// A list of presets. Choosing one replaces the text with its config.
#[component]
fn StartFrom(budget: Budget) -> impl IntoView {
    let chosen = memo(move || budget.session.with(|session| RUNS.iter().position(|run| run.text == session.text)));
    view! {
        <select class="input config__start" id="start-from" data-testid="start-from" aria-label=t(text::START_FROM)
            prop:value=words(move || chosen.get().map_or_else(String::new, |index| index.to_string()))
            on:change:target=move |event| {
                if let Ok(index) = event.target().value().parse::<usize>() {
                    budget.take_text(RUNS[index].text.to_owned());
                }
            }>
            <option value="" disabled=true selected=flag(move || chosen.get().is_none())>
                {t(text::START_FROM)}" "{t(text::START_FROM_CHOOSE)}
            </option>
            {RUNS.iter().enumerate().map(|(index, run)| view! {
                <option value=index.to_string() selected=flag(move || chosen.get() == Some(index))>{t(run.label)}</option>
            }).collect_view()}
        </select>
    }
}
