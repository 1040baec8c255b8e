//! The page that replays a recording of any PyTorch program on a GPU.

use headroom_text::Text;
use leptos::{prelude::*, task::spawn_local};
use web_sys::{DragEvent, File};

use crate::{
    browser,
    components::{
        actions::CopyButton,
        chart::ChartView,
        coded::coded,
        dynamic::{act, part, words},
        field::Toggle,
        gpu_picker::GpuPicker,
        header::Header,
        message::Message,
        notice::Notice,
        phases::PhaseTable,
        replay::{empty, fixes::ReplayFixes, gpus::OtherGpus, size::SizeField},
        tensors::TensorList,
        trainer_links::{RECORDINGS, TrainerLinks},
        verdict::{Figures, VerdictWords, headline, outcome},
    },
    state::{
        gpu::{self, OnGpu as _},
        memo::memo,
        replay::{MAX_FILE_BYTES, ReplayPage as Page, summary},
        run_answer::n_parameters,
        verdict::figures,
    },
    text::{self, say, t},
};

/// The recording of the repository that the page opens as an example.
const EXAMPLE: &str = "nanogpt_124m.headroom";

/// The page.
#[component]
pub fn ReplayPage() -> impl IntoView {
    let page = Page::new();
    open_address(page);
    if let Some((name, bytes)) = browser::files::kept_file() {
        page.open(&name, &bytes);
    }
    Effect::new(move |_| page.session.with(|session| browser::replace_entry(&session.fragment(), "")));
    browser::on_history_step(move || open_address(page));
    let take = Callback::new(move |file| take_file(page, file));
    browser::on_drag("dragover", |event: DragEvent| {
        if browser::has_files(&event) {
            event.prevent_default();
        }
    });
    browser::on_drag("drop", move |event: DragEvent| {
        let file = event.data_transfer().and_then(|data| data.files()).and_then(|files| files.get(0));
        if file.is_some() {
            event.prevent_default();
            take_file(page, file);
        }
    });
    let example = Callback::new(move |()| {
        spawn_local(async move {
            match browser::files::fetched_file(EXAMPLE).await {
                Ok(bytes) => show(page, EXAMPLE, &bytes),
                Err(reason) => page.notice.set(Some(text::replay_not_read(EXAMPLE, reason))),
            }
        });
    });
    let is_open = memo(move || page.session.with(|session| session.file.is_some()));
    view! {
        <Header leave=Callback::new(|()| {}) />
        <Notice notice=page.notice />
        <main class="budget">
            <TrainerLinks current=RECORDINGS />
            {part(move || match is_open.get() {
                true => opened(page, take).into_any(),
                false => empty::empty(take, example).into_any(),
            })}
        </main>
    }
}

/// Opens the GPU and the settings of the address. Without a GPU, it is the one that was chosen before.
fn open_address(page: Page) {
    page.session.update(|session| {
        if !session.open(&browser::fragment()) {
            gpu::prefer(&mut session.options, browser::kept_gpu().as_deref());
        }
    });
}

/// Reads a file and shows it.
fn take_file(page: Page, file: Option<File>) {
    let Some(file) = file else { return };
    let name = file.name();
    if file.size() > MAX_FILE_BYTES as f64 {
        return page.notice.set(Some(text::FILE_TOO_LARGE.into()));
    }
    spawn_local(async move {
        match browser::files::file_bytes(file).await {
            Some(bytes) => show(page, &name, &bytes),
            None => page.notice.set(Some(unreadable(&name))),
        }
    });
}

fn unreadable(name: &str) -> Text {
    text::replay_not_read(name, t(text::REPLAY_UNREADABLE))
}

/// Shows a recording, and keeps it for a reload of the page.
fn show(page: Page, name: &str, bytes: &[u8]) {
    if page.open(name, bytes) {
        browser::files::keep_file(name, bytes);
    }
}

/// The replay of an opened recording.
fn opened(page: Page, take: Callback<Option<File>>) -> impl IntoView {
    let answer = page.answer;
    let shown = answer.shown;
    let message = answer.ask(|answer| Some(answer.plan()?.oom.as_ref()?.message.clone()));
    let name = move || page.session.with(|session| session.file.as_ref().map(|file| file.name().to_owned()));
    let run = move || page.session.with(|session| session.file.as_ref().map(summary).unwrap_or_default());
    let expandable = memo(move || page.options().expandable_segments);
    let summary_line = move || name().map(|name| format!("{name} · ")).unwrap_or_default();
    let gpu = move || page.session.with(|session| gpu::field(&session.options));
    view! {
        <button type="button" class="run-summary" id="run-summary" on:click=act(|| browser::scroll_to("run"))>
            <span class="run-summary__run">{words(summary_line)}<strong>{words(gpu)}</strong></span>
            <span class="run-summary__change">{t(text::CHANGE_RUN)}</span>
        </button>
        <section class="budget__run" id="run" tabindex="-1" aria-label=t(text::YOUR_RUN)>
            <div class="replay__file">
                <p class="replay__name" data-testid="recording-name">{words(move || name().unwrap_or_default())}</p>
                <p class="replay__soft">{words(run)}</p>
                {empty::open_button(take, false)}
            </div>
            <SizeField page />
            <GpuPicker page chosen=|name: String| browser::keep_gpu(&name) />
            <Toggle id="expandable_segments" label=t(text::EXPANDABLE) hint=t(text::EXPANDABLE_HINT) on=expandable
                on_change=move |on| page.edit_options(|options| options.expandable_segments = on) />
        </section>
        <section class="budget__answer" id="answer" tabindex="-1" aria-label=t(text::RESULT)>
            <Verdict page />
            <div class="budget__course">
                <ChartView shown />
                <TensorList shown />
                <Message message />
            </div>
            <div class="budget__side">
                <ReplayFixes page />
                <OtherGpus page />
                <PhaseTable shown />
                <Remarks page />
            </div>
        </section>
    }
}

#[component]
fn Verdict(page: Page) -> impl IntoView {
    let answer = page.answer;
    let (verdict, no_plan) = (answer.verdict(), answer.no_plan());
    let figures = answer.ask(|answer| answer.plan().map(|plan| figures(plan, n_parameters(plan))));
    let is_entered = Signal::derive(move || answer.is_entered());
    let source = answer.ask(|answer| answer.plan()?.failing_source());
    let place = move || {
        source.get().map(|source| view! { <p class="replay__source" data-testid="failing-source">{say(&text::replay_source(source))}</p> })
    };
    let command = move |()| {
        let name = page.session.with_untracked(|session| Some(session.file.as_ref()?.name().to_owned()))?;
        let gpu = page.session.with_untracked(|session| gpu::field(&session.options));
        let size = untrack(move || page.size());
        let size = size.map(|(variable, _, size)| format!(" --{} {size}", variable.key().replace('_', "-")));
        Some(format!("headroom replay \"{name}\" --gpu \"{gpu}\"{}", size.unwrap_or_default()))
    };
    view! {
        <div class="verdict" data-outcome=words(move || outcome(verdict))>
            <VerdictWords verdict no_plan open=part(|| ()) />
            {part(place)}
            <Figures figures has_verdict=is_entered />
            <div class="verdict__actions" role="group" aria-label=t(text::COPY)>
                <span class="verdict__copy" aria-hidden="true">{t(text::COPY)}</span>
                <CopyButton id="copy-command" label=t(text::COPY_COMMAND) enabled=is_entered content=command />
            </div>
        </div>
        <p class="verdict-bar" data-outcome=words(move || outcome(verdict)) aria-hidden="true">
            {words(move || headline(verdict, no_plan))}
        </p>
    }
}

/// What the figures include, and what the recorder assumed.
#[component]
fn Remarks(page: Page) -> impl IntoView {
    let remarks = page.answer.ask(|answer| {
        answer.plan().map(|plan| plan.request.remarks().iter().map(say).collect::<Vec<_>>()).unwrap_or_default()
    });
    let list = move || remarks.get().into_iter().map(|remark| view! { <li>{coded(&remark)}</li> }).collect_view();
    view! {
        <section class="remarks" aria-labelledby="remarks-title">
            <h2 class="panel-title" id="remarks-title">{t(text::TRAINER_REMARKS)}</h2>
            <ul>{part(list)}</ul>
        </section>
    }
}
