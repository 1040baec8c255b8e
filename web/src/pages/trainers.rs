//! The calculator of trainers other than nanoGPT: nanochat and Hugging Face.

use headroom_planner::link::trainer::decode;
use leptos::prelude::*;

use super::trainer_address::{self, Entry};
use crate::{
    browser,
    components::{
        actions::CopyButton,
        chart::ChartView,
        dynamic::{act, part, words},
        gpu_picker::GpuPicker,
        header::Header,
        message::Message,
        notice::Notice,
        phases::PhaseTable,
        tensors::TensorList,
        trainer_links::TrainerLinks,
        trainers::{advice::Advice, form::TrainerForm, model::ModelInput},
        verdict::{Figures, VerdictWords, headline, outcome},
    },
    state::{
        gpu,
        run_answer::n_parameters,
        trainer::{TrainerPage, TrainerSession, without_effect},
        verdict::figures,
    },
    text::{self, say, t},
};

/// The pages that open the run, with their positions in the header.
const PAGES_OF_RUN: [(u32, &str); 2] = [(2, "gpus.html"), (3, "compare.html")];

/// The page.
#[component]
pub fn TrainersPage() -> impl IntoView {
    let page = TrainerPage::new();
    page.edit(|session| gpu::prefer(&mut session.options, browser::kept_gpu().as_deref()));
    open(page);
    trainer_address::keep(page, move || entry(page), move || open(page));
    Effect::new(move |_| {
        let fragment = page.session.with(TrainerSession::fragment);
        for (position, name) in PAGES_OF_RUN {
            // Compare keeps its pinned run.
            let pinned = if name == "compare.html" { browser::pinned::kept().0 } else { String::new() };
            browser::link_page(position, &browser::page_with(name, &[fragment.as_str(), &pinned].concat()));
        }
    });
    let leave = Callback::new(move |()| trainer_address::write(page, &untrack(|| entry(page))));
    let shown = page.answer.shown;
    let message = page.answer.ask(|answer| Some(answer.plan()?.oom.as_ref()?.message.clone()));
    let current = move || 1 + page.session.with(|session| session.trainer as usize);
    view! {
        <Header leave />
        <Notice notice=page.notice />
        <main class="budget">
            {part(move || view! { <TrainerLinks current=current() /> })}
            <Summary page />
            <section class="budget__run" id="run" tabindex="-1" aria-label=t(text::YOUR_RUN)>
                <GpuPicker page chosen=|name: String| browser::keep_gpu(&name) />
                <ModelInput page />
                <TrainerForm page />
            </section>
            <section class="budget__answer" id="answer" tabindex="-1" aria-label=t(text::RESULT)>
                <Verdict page />
                <div class="budget__course">
                    <ChartView shown />
                    <TensorList shown />
                    <Message message />
                </div>
                <div class="budget__side">
                    <Advice page />
                    <PhaseTable shown />
                    <Remarks page />
                </div>
            </section>
        </main>
    }
}

/// The run in one row that links to the form, for layouts with the form below the answer.
#[component]
fn Summary(page: TrainerPage) -> impl IntoView {
    let run = move || page.session.with(|session| format!("{} · ", session.summary(page.preset.get())));
    let gpu = move || page.session.with(|session| gpu::field(&session.options));
    view! {
        <button type="button" class="run-summary" id="run-summary" on:click=act(|| browser::scroll_to("run"))>
            <span class="run-summary__run">{words(run)}<strong>{words(gpu)}</strong></span>
            <span class="run-summary__change">{t(text::CHANGE_RUN)}</span>
        </button>
    }
}

#[component]
fn Verdict(page: TrainerPage) -> impl IntoView {
    let verdict = page.answer.verdict();
    let no_plan = page.answer.no_plan();
    let figures = page.answer.ask(|answer| answer.plan().map(|plan| figures(plan, n_parameters(plan))));
    let is_entered = Signal::derive(move || page.answer.is_entered());
    let link = move |()| Some(browser::address_with(&page.session.with_untracked(TrainerSession::fragment)));
    view! {
        <div class="verdict" data-outcome=words(move || outcome(verdict))>
            <VerdictWords verdict no_plan open=part(|| ()) />
            <Figures figures has_verdict=is_entered />
            <div class="verdict__actions" role="group" aria-label=t(text::COPY)>
                <span class="verdict__copy" aria-hidden="true">{t(text::COPY)}</span>
                <CopyButton id="copy-link" label=t(text::COPY_LINK) enabled=is_entered content=link />
            </div>
        </div>
        <p class="verdict-bar" data-outcome=words(move || outcome(verdict)) aria-hidden="true">
            {words(move || headline(verdict, no_plan))}
        </p>
    }
}

/// What the figures include, and the options without effect on memory.
#[component]
fn Remarks(page: TrainerPage) -> impl IntoView {
    let remarks = page.answer.ask(|answer| {
        let run = answer.plan()?.request.run();
        let unused = without_effect(run).map(|keys| say(&text::trainer_no_effect(keys)));
        Some(run.remarks().into_iter().map(|remark| t(remark).to_owned()).chain(unused).collect::<Vec<_>>())
    });
    let list = move || {
        let remarks = remarks.get().unwrap_or_default();
        remarks.into_iter().map(|remark| view! { <li>{remark}</li> }).collect_view()
    };
    view! {
        <section class="remarks" aria-labelledby="remarks-title">
            <h2 class="panel-title" id="remarks-title">{t(text::TRAINER_REMARKS)}</h2>
            <ul>{part(list)}</ul>
        </section>
    }
}

/// Opens the run of the address, with the texts of its history entry.
fn open(page: TrainerPage) {
    if let Some(link) = decode(&browser::fragment()) {
        page.open(link, trainer_address::kept_texts(page).as_deref());
    }
}

/// The run of the page, tracked.
fn entry(page: TrainerPage) -> Entry {
    page.session.with(|session| Entry { fragment: session.fragment(), texts: session.state() })
}
