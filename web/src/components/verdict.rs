//! The verdict in words, with its figures and the buttons to copy results.

use std::time::Duration;

use leptos::prelude::*;

use headroom_planner::plan::basis::Certainty;

use super::dynamic::{Part, act, flag, part, part_of, some_words, words};
use crate::{
    browser,
    components::{
        actions::CopyButton,
        open_file::{OpenNamed, open},
        to_diagnose::ToDiagnose,
    },
    state::{
        budget::Budget,
        command, format,
        memo::memo,
        no_plan::NoPlan,
        share,
        verdict::{Figure, Verdict, figures},
    },
    text::{self, Key, t},
};

/// The labels of the figures while there is no plan.
const FIGURES: [Key; 5] =
    [text::FIGURE_ALLOCATED, text::FIGURE_RESERVED, text::FIGURE_USED, text::FIGURE_CARD, text::FIGURE_PARAMETERS];

/// Delay before a screen reader announces the verdict, so that edits have paused.
const ANNOUNCE_DELAY: Duration = Duration::from_millis(700);

/// The panel with the verdict.
#[component]
pub fn VerdictView(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let verdict = budget.verdict();
    let no_plan = budget.no_plan();
    // While a field is invalid, every copy would be of the values before.
    let is_chosen = Signal::derive(move || budget.is_entered());
    let has_plan = Signal::derive(move || verdict.with(Option::is_some));
    let figures = budget.ask(|answer| {
        let plan = answer.plan()?;
        Some(figures(plan, plan.request.gpt.n_parameters().unwrap_or(u64::MAX)))
    });
    let is_command = budget.ask(command::is_command);
    let has_command = Signal::derive(move || is_command.get() && is_chosen.get());
    view! {
        <div class="verdict" data-outcome=words(move || outcome(verdict))>
            <VerdictWords verdict no_plan open=open_unread(budget, no_plan) />
            <ToDiagnose budget />
            // In layouts with the fixes below the form.
            <button type="button" class="button verdict__fixes" disabled=flag(move || !has_plan.get()) on:click=act(|| browser::scroll_to("fixes-title"))>
                {t(text::TO_FIXES)}
            </button>
            <Figures figures has_verdict=is_chosen />
            <div class="verdict__actions" role="group" aria-label=t(text::COPY)>
                <span class="verdict__copy" aria-hidden="true">{t(text::COPY)}</span>
                <CopyButton id="copy-link" label=t(text::COPY_LINK) enabled=is_chosen
                    content=move |()| Some(browser::address_with(&budget.fragment())) />
                <CopyButton id="copy-card" label=t(text::COPY_CARD) enabled=has_plan content=move |()| forum_text(budget) />
                <CopyButton id="export" label=t(text::EXPORT) enabled=has_plan content=move |()| {
                    browser::show_export(&export_message(&forum_text(budget)?));
                    None
                } />
                <CopyButton id="copy-command" label=t(text::COPY_COMMAND) enabled=has_command
                    content=move |()| Some(budget.with_options(command::command_line)) />
            </div>
        </div>
        // In layouts with the form below the chart, the bar keeps the verdict visible while the form is edited.
        <p class="verdict-bar" data-outcome=words(move || outcome(verdict)) aria-hidden="true">
            {words(move || headline(verdict, no_plan))}
        </p>
    }
}

fn forum_text(budget: Budget) -> Option<String> {
    let link = browser::address_with(&budget.fragment());
    budget.with_options(|answer, options| share::forum_card(answer, options, &link))
}

/// Returns a forum text after the labels of the dialog and its buttons, in the order of web/export.js.
fn export_message(forum_text: &str) -> String {
    let image = [text::EXPORT, text::DOWNLOAD_CONFIG, text::COPY, text::COPIED, text::NOT_COPIED, text::CLOSE].map(t);
    let files = [text::CHART_SVG, text::CHART_PNG, text::PRINT].map(t);
    [&image.join("\n"), &files.join("\n"), forum_text].join("\n")
}

type VerdictMemo = Memo<Option<Verdict>>;

/// Returns the outcome's name, for CSS.
pub fn outcome(verdict: VerdictMemo) -> String {
    verdict.with(|v| v.as_ref().map_or("none", |v| v.fit.name()).to_owned())
}

/// The first sentence: the verdict, or the reason for its absence.
pub fn headline(verdict: VerdictMemo, no_plan: Memo<Option<NoPlan>>) -> String {
    let without = || no_plan.get().map(|no_plan| no_plan.headline);
    verdict.get().map(|verdict| verdict.headline).or_else(without).unwrap_or_default()
}

/// The field that opens the config that a text names, if it has to be opened.
pub fn open_unread(budget: Budget, no_plan: Memo<Option<NoPlan>>) -> Box<dyn FnMut() -> Part + Send> {
    let unread = memo(move || no_plan.with(|no_plan| no_plan.as_ref().and_then(|no_plan| no_plan.unread.clone())));
    let opened = Callback::new(move |file| open(budget, file, true));
    part(move || unread.get().map(|name| view! { <OpenNamed name opened /> }))
}

/// The verdict's headline and its detail.
#[component]
pub fn VerdictWords(
    /// The verdict, if there is a plan.
    verdict: Memo<Option<Verdict>>,
    /// The reason for the absence of a verdict.
    no_plan: Memo<Option<NoPlan>>,
    /// The field that opens a missing file.
    open: Box<dyn FnMut() -> Part + Send>,
) -> impl IntoView {
    let headline = move || headline(verdict, no_plan);
    let detail = move || {
        let without = || no_plan.get().map(|no_plan| no_plan.detail);
        verdict.get().map(|verdict| verdict.detail).or_else(without).unwrap_or_default()
    };
    let fits = move || verdict.with(|v| v.as_ref().map(|v| v.fits.to_string()));
    // The headroom depends on the CUDA context and other processes, which are estimated.
    let has_plan = move || verdict.with(Option::is_some);
    let mark = move || has_plan().then(|| view! { <Mark certainty=Certainty::Estimated /> });
    let headroom = move || verdict.with(|v| v.as_ref().map(|v| v.headroom_bytes.to_string()));
    let announced = announced(headline);
    view! {
        <div class="verdict__words">
            <h1 id="verdict" tabindex="-1" class="verdict__headline" data-testid="verdict" data-fits=some_words(fits)
                data-headroom-bytes=some_words(headroom)>
                <span class="verdict__sign" aria-hidden="true"></span>
                <span>{words(headline)}{part(mark)}</span>
            </h1>
            <p class="verdict__detail" id="verdict-detail" title=words(detail)>{words(detail)}</p>
            <p class="visually-hidden" role="status">{words(move || announced.get())}</p>
            {open}
        </div>
    }
}

/// Returns the headline after it has been stable for `ANNOUNCE_DELAY`.
fn announced(headline: impl Fn() -> String + Copy + 'static) -> RwSignal<String> {
    let announced = RwSignal::new(String::new());
    let pending = StoredValue::new(None::<TimeoutHandle>);
    Effect::new(move |_| {
        let headline = headline();
        if let Some(pending) = pending.get_value() {
            pending.clear();
        }
        pending.set_value(set_timeout_with_handle(move || announced.set(headline), ANNOUNCE_DELAY).ok());
    });
    announced
}

/// The figures beside the verdict.
#[component]
pub fn Figures(
    /// The figures, if there is a plan.
    figures: Memo<Option<[Figure; 5]>>,
    /// Whether every field is valid.
    #[prop(into)]
    has_verdict: Signal<bool>,
) -> impl IntoView {
    let figure = move |index: usize| {
        figures.with(|all| all.as_ref().filter(|_| has_verdict.get()).map(|all| all[index].clone()))
    };
    view! {
        <dl class="figures">
            {(0..5).map(|index| {
                let shown = move || figure(index);
                view! {
                    <div class="figures__figure" title=some_words(move || shown().map(|figure| figure.title))>
                        <dt>{words(move || shown().map_or(t(FIGURES[index]), |figure| figure.label).to_owned())}</dt>
                        <dd>
                            {words(move || shown().map_or_else(|| "–".to_owned(), |figure| figure.value))}
                            {part_of(move || shown()?.certainty, |certainty| certainty.map(|certainty| view! { <Mark certainty /> }))}
                        </dd>
                    </div>
                }
            }).collect_view()}
        </dl>
    }
}

/// The sign beside a figure that marks its certainty.
#[component]
pub fn Mark(
    /// The certainty of the figure.
    certainty: Certainty,
) -> impl IntoView {
    view! {
        <span class="mark">
            <span aria-hidden="true" title=text::certainty(certainty)>{format::mark(certainty)}</span>
            <span class="visually-hidden">" "{text::certainty(certainty)}</span>
        </span>
    }
}
