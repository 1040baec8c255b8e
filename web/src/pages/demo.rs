//! The demo page: a GPT generates text and shows its internals.

use headroom_protocol::demo::{DemoBackend, Failure, FailureKind};
use leptos::prelude::*;
use web_sys::DragEvent;

use crate::{
    browser::{self, dropped::DropContent},
    components::{
        demo::{
            DemoContext,
            attention::Attention,
            candidates::Candidates,
            memory::Memory,
            model::{ModelPanel, take_dropped},
            settings::{PromptForm, leave},
            written::Written,
        },
        dynamic::{part, words},
        header::Header,
    },
    state::{
        demo::{Demo, Stage, WayOn, ways_on},
        memo::memo,
    },
    text::{self, say, t},
};

/// The demo page.
#[component]
pub fn DemoPage() -> impl IntoView {
    let desk = DemoContext::new();
    desk.open();
    // Listens on the whole page, because a browser navigates to a file that is dropped elsewhere.
    browser::on_drag("dragover", |event: DragEvent| {
        if browser::has_files(&event) {
            event.prevent_default();
        }
    });
    browser::on_drag("drop", move |event: DragEvent| {
        if browser::has_files(&event) {
            event.prevent_default();
            if let Some(data) = event.data_transfer() {
                take_dropped(desk, DropContent::of(&data));
            }
        }
    });
    view! {
        <Header page=4 leave=leave(desk) />
        <main class="demo">
            <div class="demo__head" id="answer" tabindex="-1">
                <h1 class="demo__heading">{t(text::DEMO_HEADING)}</h1>
                <p class="demo__lead">{t(text::DEMO_LEAD)}</p>
                <State desk />
                {part(move || desk.left_behind.with(|name| (!name.is_empty()).then(|| view! {
                    <p class="demo__hint" role="status" data-testid="left-behind">{say(&text::demo_left_behind(name.as_str()))}</p>
                })))}
            </div>
            <div class="demo__column">
                <PromptForm desk />
                <ModelPanel desk />
            </div>
            <div class="demo__column">
                <Written desk />
                <Memory desk />
            </div>
            <div class="demo__column">
                <Candidates desk />
                <Attention desk />
            </div>
        </main>
    }
}

/// The status: the model with its backend and the reason for it, or the loading progress, or the error.
#[component]
fn State(desk: DemoContext) -> impl IntoView {
    let failure = memo(move || {
        desk.demo.with(|demo| match &demo.stage {
            Stage::Failed(failure) => Some(failure.clone()),
            _ => None,
        })
    });
    let is_cancellable = memo(move || can_cancel(desk));
    view! {
        {part(move || desk.rejected.get().map(|failure| rejected(desk, &failure)))}
        {part(move || match failure.get() {
            Some(failure) => failed(desk, &failure).into_any(),
            None => view! {
                <p class="demo__state" role="status" data-testid="backend">
                    <strong>{words(move || desk.demo.with(backend))}</strong> " "
                    <span>{words(move || desk.demo.with(why))}</span>
                    {part(move || is_cancellable.get().then(|| view! {
                        <button type="button" class="button" id="cancel" on:click=move |_| desk.go_on(WayOn::Shipped)>{t(text::DEMO_CANCEL)}</button>
                    }))}
                </p>
            }.into_any(),
        })}
    }
}

/// Reports whether loading can be cancelled: a model from the user's files can take a while.
fn can_cancel(desk: DemoContext) -> bool {
    desk.has_files.get() && desk.demo.with(|demo| matches!(demo.stage, Stage::Starting | Stage::Loading(..)))
}

fn backend(demo: &Demo) -> String {
    match demo.stage {
        Stage::Starting | Stage::Loading(0, _) => t(text::DEMO_STARTING).to_owned(),
        // If a server compresses the file, its total size is unknown.
        Stage::Loading(read, all) => say(&text::demo_fetched(text::size(read), text::size(all.max(read)))),
        _ => demo.backend().map(|words| say(&words)).unwrap_or_default(),
    }
}

fn why(demo: &Demo) -> String {
    match demo.stage {
        Stage::Starting | Stage::Loading(..) => String::new(),
        _ => demo.why().unwrap_or_default(),
    }
}

/// Shows the problem with selected files while another model stays open.
fn rejected(desk: DemoContext, failure: &Failure) -> impl IntoView + use<> {
    let heading = if failure.kind == FailureKind::DoesNotFit { text::DEMO_FAILED_FIT } else { text::DEMO_FAILED_FILES };
    let hint = failure.hint.as_ref().map(|hint| view! { <p>{say(&text::demo_hint(hint.clone()))}</p> });
    view! {
        <div class="demo__failure" role="alert" data-testid="failure">
            <h2>{t(heading)}</h2>
            <p>{say(&failure.text)}</p>
            {hint}
            <p>{t(text::DEMO_KEPT)}</p>
            <p class="demo__buttons">
                <button type="button" class="button" on:click=move |_| desk.rejected.set(None)>{t(text::CLOSE)}</button>
            </p>
        </div>
    }
}

fn failed(desk: DemoContext, failure: &Failure) -> impl IntoView + use<> {
    let heading = match failure.kind {
        FailureKind::Files => text::DEMO_FAILED_FILES,
        FailureKind::DoesNotFit => text::DEMO_FAILED_FIT,
        _ => text::DEMO_FAILED_DEVICE,
    };
    let hint = failure.hint.as_ref().map(|hint| view! { <p>{say(&text::demo_hint(hint.clone()))}</p> });
    let on_webgpu = desk.demo.with_untracked(|demo| {
        demo.opened.as_ref().is_some_and(|opened| opened.way.is_none_or(DemoBackend::is_webgpu))
    });
    let buttons: Vec<_> = ways_on(failure, desk.has_files.get_untracked(), desk.way.get_untracked(), on_webgpu)
        .into_iter()
        .enumerate()
        .map(|(index, (way, label))| {
            let class = if index == 0 { "button button--primary" } else { "button" };
            view! { <button type="button" class=class on:click=move |_| desk.go_on(way)>{t(label)}</button> }
        })
        .collect();
    view! {
        <div class="demo__failure" role="alert" data-testid="failure">
            <h2>{t(heading)}</h2>
            <p>{say(&failure.text)}</p>
            {hint}
            <p class="demo__buttons">{buttons}</p>
        </div>
    }
}
