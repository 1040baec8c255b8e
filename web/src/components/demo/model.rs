//! The open model, the memory of each way to run it, and the controls to open another.

use headroom_protocol::demo::{DemoBackend, Failure, FailureKind, ModelPlans, files::Role};
use headroom_text::Separator;
use leptos::{html::Input, prelude::*};
use wasm_bindgen_futures::spawn_local;

use super::DemoContext;
use crate::{
    browser::{dropped::DropContent, worker},
    components::{
        dynamic::{flag, part, words},
        field::TextField,
    },
    state::{
        demo::{WayOn, verdict},
        entry, format,
        memo::memo,
    },
    text::{self, say, t},
};

/// Loss of the built-in model on validation stories; `web/demo/README.md` has the measurement.
const SHIPPED_LOSS: &str = "0.170";

/// The panel of the open model.
#[component]
pub fn ModelPanel(
    /// The demo's state.
    desk: DemoContext,
) -> impl IntoView {
    let opened = memo(move || desk.demo.with(|demo| demo.opened.clone()));
    let input = NodeRef::<Input>::new();
    let choose = move |_| {
        if let Some(input) = input.get_untracked() {
            if let Some(files) = input.files().filter(|files| files.length() > 0) {
                take(desk, (0..files.length()).filter_map(|index| files.get(index)).collect());
            }
            // After the reset the same file can be selected again.
            input.set_value("");
        }
    };
    view! {
        <section class="panel demo__model" aria-label=t(text::DEMO_MODEL)>
            <h2 class="panel-title">{t(text::DEMO_MODEL)}</h2>
            {part(move || opened.get().map(|opened| facts(&opened)))}
            <fieldset class="demo__ways">
                <legend class="field__label">{t(text::DEMO_WAYS)}</legend>
                // The options stay while a model is reopened, so that the keyboard focus stays on them.
                {radio(desk, None, opened)}
                {DemoBackend::ALL.map(|way| radio(desk, Some(way), opened))}
            </fieldset>
            <TextField id="gpu-memory" faults=entry::Faults::default() label=t(text::DEMO_GPU_MEMORY) hint=""
                value=Signal::derive(move || desk.gpu_bytes.get().map(format::size).unwrap_or_default())
                take=Callback::new(move |typed: String| take_gpu_memory(desk, &typed)) />
            <p class="demo__hint">{t(text::DEMO_GPU_MEMORY_HINT)}</p>
            <p class="demo__buttons">
                <label class="button demo__open">{t(text::DEMO_OPEN)}
                    <input type="file" class="visually-hidden" id="model-file" multiple node_ref=input on:change=choose />
                </label>
                {part(move || desk.has_files.get().then(|| view! {
                    <button type="button" class="button" id="shipped"
                        on:click=move |_| desk.go_on(WayOn::Shipped)>{t(text::DEMO_BACK)}</button>
                }))}
            </p>
            <p class="demo__hint">{t(text::DEMO_OPEN_HINT)}</p>
        </section>
    }
}

/// Opens files that the user selected or dropped. Files that do not belong to a model leave the selection unchanged.
pub fn take(desk: DemoContext, mut files: Vec<web_sys::File>) {
    files.retain(|file| Role::of(&file.name()) != Role::Beside);
    if files.is_empty() {
        let text = text::DEMO_NO_WEIGHTS.into();
        return desk.reject(Failure { kind: FailureKind::Files, text, hint: None });
    }
    worker::choose(files);
    desk.open_chosen();
}

/// Opens dropped files, after the dropped directories are read.
pub fn take_dropped(desk: DemoContext, dropped: DropContent) {
    if dropped.is_empty() {
        return;
    }
    spawn_local(async move {
        take(desk, dropped.all().await);
    });
}

fn take_gpu_memory(desk: DemoContext, typed: &str) -> Option<text::Key> {
    let bytes = if typed.trim().is_empty() { None } else { entry::size(typed, "GiB") };
    if bytes.is_none() && !typed.trim().is_empty() {
        return Some(text::EXPECTS_GPU_MEMORY);
    }
    // The running model continues. The next model is planned with this value.
    desk.gpu_bytes.set(bytes);
    None
}

fn facts(opened: &ModelPlans) -> impl IntoView + use<> {
    let name = if opened.name.is_empty() { t(text::DEMO_SHIPPED).to_owned() } else { opened.name.clone() };
    let shape = text::demo_shape(
        opened.n_layer,
        opened.n_head,
        text::count(opened.n_embd),
        text::count(opened.block_size),
        text::count(opened.vocab_size),
    );
    let parameters = text::demo_parameters(format::grouped(opened.n_parameters));
    let loss = opened.name.is_empty().then(|| text::demo_shipped_loss(text::table().number(SHIPPED_LOSS)));
    let figures = [parameters, shape].into_iter().chain(loss);
    let figures = say(&text::verbatim(text::list(Separator::Semicolon, figures)));
    let notes: Vec<_> =
        opened.notes.iter().map(|note| view! { <li>{say(&text::demo_note(note.clone()))}</li> }).collect();
    view! {
        <p class="demo__name" data-testid="model">{name}</p>
        <p class="demo__hint">{figures}</p>
        <ul class="demo__hint demo__notes">{notes}</ul>
    }
}

fn radio(desk: DemoContext, way: Option<DemoBackend>, opened: Memo<Option<ModelPlans>>) -> impl IntoView {
    let plan = move || {
        opened.with(|opened| {
            let opened = opened.as_ref()?;
            Some((opened.plans.iter().find(|plan| Some(plan.way) == way)?.clone(), opened.way))
        })
    };
    let said = move || {
        let Some((plan, taken)) = plan() else { return String::new() };
        let size = plan.bytes.map(|bytes| format!("{} · ", format::size(bytes))).unwrap_or_default();
        format!("{size}{}", verdict(&plan, taken, desk.gpu_bytes.get()))
    };
    let label = way.map_or(text::DEMO_BEST, DemoBackend::text);
    let id = match way {
        None => "way-best",
        Some(DemoBackend::WebGpu) => "way-webgpu",
        Some(DemoBackend::WebGpuHalf) => "way-webgpu-half",
        Some(DemoBackend::Cpu) => "way-cpu",
        Some(DemoBackend::CpuInt16) => "way-cpu-int16",
    };
    view! {
        <label class="way">
            <input type="radio" name="way" id=id prop:checked=flag(move || desk.way.get() == way)
                prop:disabled=flag(move || plan().is_some_and(|(plan, _)| plan.refusal.is_some()) && desk.way.get() != way)
                on:change=move |_| { desk.way.set(way); desk.open_again(); } />
            <span class="way__name">{t(label)}</span>
            <span class="way__said">{words(said)}</span>
        </label>
    }
}
