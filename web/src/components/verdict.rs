//! The verdict, first and in words, with the figures it rests on and what a person takes away.

use std::time::Duration;

use leptos::prelude::*;

use headroom_shared::plan::basis::Certainty;

use super::dynamic::{part, some_words, words};
use crate::{
    browser,
    components::{
        actions::CopyButton,
        builtin::BuiltinView,
        open_file::{OpenNamed, open},
        to_diagnose::ToDiagnose,
    },
    state::{
        budget::Budget,
        command, format,
        no_plan::NoPlan,
        session::Session,
        share,
        verdict::{Figure, Verdict, figures},
    },
    text::{self, Key, t},
};

/// The figures' names while there is no plan.
const FIGURES: [Key; 5] =
    [text::FIGURE_ALLOCATED, text::FIGURE_RESERVED, text::FIGURE_USED, text::FIGURE_CARD, text::FIGURE_PARAMETERS];

/// A screen reader hears the verdict when the edits have paused for so long.
const ANNOUNCE_DELAY: Duration = Duration::from_millis(700);

/// The verdict.
#[component]
pub fn VerdictView(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let verdict = budget.ask(Verdict::of_answer);
    let has_plan = Signal::derive(move || verdict.with(Option::is_some));
    let no_plan = budget.ask(NoPlan::of);
    // A command names a file that is missing here; it cannot carry a value that nothing can read.
    let has_command = Signal::derive(move || no_plan.with(|no| no.as_ref().is_none_or(|no| no.unread.is_some())));
    view! {
        <div class="verdict" data-outcome=words(move || outcome(verdict))>
            <VerdictWords budget verdict />
            <ToDiagnose budget />
            <Figures budget />
            <div class="verdict__actions" role="group" aria-label=t(text::COPY)>
                <span class="verdict__copy" aria-hidden="true">{t(text::COPY)}</span>
                <CopyButton id="copy-link" label=t(text::COPY_LINK) primary=true
                    content=move |()| Some(browser::address_with(&budget.session.with(Session::fragment))) />
                <CopyButton id="copy-card" label=t(text::COPY_CARD) enabled=has_plan content=move |()| {
                    let link = browser::address_with(&budget.session.with(Session::fragment));
                    budget.with_options(|answer, options| share::card(answer, options, &link))
                } />
                <CopyButton id="copy-command" label=t(text::COPY_COMMAND) enabled=has_command
                    content=move |()| Some(budget.with_options(command::command_line)) />
                <CopyButton id="copy-json" label=t(text::COPY_JSON) enabled=has_plan
                    content=move |()| budget.with_options(command::plan_as_json) />
            </div>
            <BuiltinView budget />
        </div>
        // Where the form is below the chart, the answer stays in sight while it changes.
        <p class="verdict-bar" data-outcome=words(move || outcome(verdict)) aria-hidden="true">
            {words(move || headline(verdict, no_plan))}
        </p>
    }
}

type Shown = Memo<Option<Verdict>>;

/// How it comes out, for styles.
pub fn outcome(verdict: Shown) -> String {
    verdict.with(|v| v.as_ref().map_or("none", |v| v.outcome.name()).to_owned())
}

fn headline(verdict: Shown, no_plan: Memo<Option<NoPlan>>) -> String {
    let without = || no_plan.get().map(|no_plan| no_plan.headline);
    verdict.get().map(|verdict| verdict.headline).or_else(without).unwrap_or_default()
}

/// The sentence that answers and the one after it.
#[component]
pub fn VerdictWords(
    /// The page.
    budget: Budget,
    /// The verdict.
    verdict: Memo<Option<Verdict>>,
) -> impl IntoView {
    let no_plan = budget.ask(NoPlan::of);
    let headline = move || headline(verdict, no_plan);
    let detail = move || {
        let without = || no_plan.get().map(|no_plan| no_plan.detail);
        verdict.get().map(|verdict| verdict.detail).or_else(without).unwrap_or_default()
    };
    let unread =
        Memo::new(move |_| no_plan.with(|no_plan| no_plan.as_ref().and_then(|no_plan| no_plan.unread.clone())));
    let opened = Callback::new(move |file| open(budget, file, true));
    let open = move || unread.get().map(|name| view! { <OpenNamed name opened /> });
    let fits = move || verdict.with(|v| v.as_ref().map(|v| v.fits.to_string()));
    // What is left rests on the context and on what else the card holds, which nobody counts.
    let has_plan = move || verdict.with(Option::is_some);
    let mark = move || has_plan().then(|| view! { <Mark certainty=Certainty::Estimated /> });
    let headroom = move || verdict.with(|v| v.as_ref().map(|v| v.headroom_bytes.to_string()));
    let announced = announced(headline);
    view! {
        <div class="verdict__words">
            <h1 id="verdict" class="verdict__headline" data-testid="verdict" data-fits=some_words(fits)
                data-headroom-bytes=some_words(headroom)>
                <span class="verdict__sign" aria-hidden="true"></span>
                <span>{words(headline)}{part(mark)}</span>
            </h1>
            <p class="verdict__detail" id="verdict-detail" title=words(detail)>{words(detail)}</p>
            <p class="visually-hidden" role="status">{words(move || announced.get())}</p>
            {part(open)}
        </div>
    }
}

/// The headline, once it has stood for a while.
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

#[component]
fn Figures(budget: Budget) -> impl IntoView {
    let all = budget.ask(|answer| answer.plan().map(figures));
    let figure = move |index: usize| all.with(|all| all.as_ref().map(|all| all[index].clone()));
    view! {
        <dl class="figures">
            {(0..5).map(|index| {
                let shown = move || figure(index);
                view! {
                    <div class="figures__figure" title=some_words(move || shown().map(|figure| figure.title))>
                        <dt>{words(move || shown().map_or(t(FIGURES[index]), |figure| figure.label).to_owned())}</dt>
                        <dd>{part(move || shown().map_or_else(|| "–".into_any(), |figure| value(figure).into_any()))}</dd>
                    </div>
                }
            }).collect_view()}
        </dl>
    }
}

fn value(figure: Figure) -> impl IntoView {
    view! {
        {figure.value}
        {figure.certainty.map(|certainty| view! { <Mark certainty /> })}
    }
}

/// The thin sign beside a figure that tells how sure it is.
#[component]
pub fn Mark(
    /// How sure.
    certainty: Certainty,
) -> impl IntoView {
    view! {
        <span class="mark">
            <span aria-hidden="true" title=text::certainty(certainty)>{format::mark(certainty)}</span>
            <span class="visually-hidden">" "{text::certainty(certainty)}</span>
        </span>
    }
}
