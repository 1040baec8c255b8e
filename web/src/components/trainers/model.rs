//! The model of a Hugging Face run: one of a list, or its `config.json`.

use headroom_planner::trainers::{input::Trainer, presets::PRESETS};
use leptos::prelude::*;
use web_sys::{DragEvent, File};

use super::super::{
    dynamic::{flag, part, words},
    long_text::LongText,
    open_file::read_file,
};
use crate::{
    browser,
    state::{
        memo::memo,
        trainer::{TrainerPage, config_text},
    },
    text::{self, t},
};

/// The list of models and the config, for runs of Hugging Face.
#[component]
pub fn ModelInput(
    /// The page's state.
    page: TrainerPage,
) -> impl IntoView {
    let is_shown = memo(move || page.session.with(|session| session.trainer == Trainer::Hf));
    let take = move |file: Option<File>| {
        read_file(file, move |_, read| match read {
            Ok(text) => page.commit(|session| {
                session.trainer = Trainer::Hf;
                session.input_mut().config = text;
            }),
            Err(reason) => page.notice.set(Some(reason)),
        });
    };
    // Otherwise the browser would navigate to the file.
    browser::on_drag("dragover", move |event: DragEvent| {
        if browser::has_files(&event) {
            event.prevent_default();
        }
    });
    browser::on_drag("drop", move |event: DragEvent| {
        let file = event.data_transfer().and_then(|data| data.files()).and_then(|files| files.get(0));
        if file.is_some() {
            event.prevent_default();
            take(file);
        }
    });
    part(move || is_shown.get().then(|| view! { <Model page take /> }))
}

#[component]
fn Model(page: TrainerPage, #[prop(into)] take: Callback<Option<File>>) -> impl IntoView {
    let chosen = page.preset;
    let config = move || page.session.with(|session| session.input().config.clone());
    view! {
        <div class="config">
            <div class="config__head">
                <label class="config__label" for="model">{t(text::MODEL)}</label>
                <select class="input config__start" id="model" data-testid="model"
                    prop:value=words(move || chosen.get().map_or_else(String::new, |index| index.to_string()))
                    on:change:target=move |event| {
                        if let Some(preset) = event.target().value().parse().ok().and_then(|index: usize| PRESETS.get(index)) {
                            page.commit(|session| session.input_mut().config = config_text(preset));
                        }
                    }>
                    <option value="" disabled=true selected=flag(move || chosen.get().is_none())>"config.json"</option>
                    {PRESETS.iter().enumerate().map(|(index, preset)| view! {
                        <option value=index.to_string() selected=flag(move || chosen.get() == Some(index))>{preset.name}</option>
                    }).collect_view()}
                </select>
            </div>
            <div class="config__body">
                <label class="visually-hidden" for="config">"config.json"</label>
                <LongText id="config" class="input config__text" rows="6" no_wrap=true replaces=|text| text.trim_start().starts_with('{')
                    value=Signal::derive(config)
                    on_change=move |text: String| page.edit(|session| session.input_mut().config = text) />
                <div class="config__ways">
                    <label class="button config__file">
                        <input type="file" id="config-file" class="visually-hidden" accept=".json"
                            on:change:target=move |event| {
                                take.run(event.target().files().and_then(|files| files.get(0)));
                                event.target().set_value("");
                            } />
                        <span>{t(text::OPEN_FILE)}</span>
                    </label>
                </div>
            </div>
        </div>
    }
}
