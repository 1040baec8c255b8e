//! The list of what is live at the moment that is shown.

use headroom_shared::{decimal, gpt::tensors::Category};
use leptos::prelude::*;

use super::dynamic::{flag, part, some_words, words};
use super::verdict::Mark;
use crate::{
    state::{
        budget::Budget,
        course::phase_at,
        format,
        tensors::{Line, live},
    },
    text::{self, say, t},
};

/// The list.
#[component]
pub fn TensorList(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let stale = budget.is_stale();
    let column = budget.shown_column();
    let follows = Memo::new(move |_| budget.pointed.get().is_none() && budget.pinned.get().is_none());
    let shown = Memo::new(move |_| {
        let column = column.get()?;
        budget.answer.with(|answer| {
            let planned = answer.0.drawn()?;
            // Untouched, the list is of the very moment of the failure, not of its column's largest.
            let failure = planned.plan.failure.filter(|_| follows.get());
            let moment = failure.map_or(planned.timeline.points.get(column)?.moment, |failure| failure.moment);
            let phase = phase_at(&planned.timeline, column)?;
            Some((phase, planned.plan.basis.allocated, planned.plan.fits, live(&planned.plan, moment)))
        })
    });
    let title = move || {
        shown.with(|shown| match shown {
            Some((_, _, true, _)) if follows.get() => t(text::LIVE_AT_PEAK).to_owned(),
            Some((_, _, false, _)) if follows.get() => t(text::LIVE_AT_FAILURE).to_owned(),
            Some((phase, ..)) => say(&text::live_in(phase.text_in())),
            None => t(text::LIVE).to_owned(),
        })
    };
    let total = move || shown.with(|shown| shown.as_ref().map(|(.., live)| live.total_bytes));
    let mark =
        move || shown.with(|shown| shown.as_ref().map(|(_, certainty, ..)| view! { <Mark certainty=*certainty /> }));
    let back = move || {
        let fits = shown.with(|shown| shown.as_ref().is_none_or(|(_, _, fits, _)| *fits));
        budget.pinned.get().map(|_| {
            view! {
                <button type="button" class="button button--quiet" on:click=move |_| budget.pinned.set(None)>
                    {if fits { t(text::BACK_TO_PEAK) } else { t(text::BACK_TO_FAILURE) }}
                </button>
            }
        })
    };
    let list = move || {
        shown.get().map(|(.., live)| {
            let most = live.lines.first().map_or(1, |line| line.bytes);
            let more = (live.n_more > 0).then(|| {
                view! {
                    <li class="tensors__more">{say(&text::and_more(live.n_more, format::size(live.more_bytes)))}</li>
                }
            });
            view! { {live.lines.into_iter().map(|line| row(line, most)).collect_view()} {more} }
        })
    };
    view! {
        <section class="tensors" class:stale=flag(move || stale.get()) aria-labelledby="tensors-title">
            <h2 class="panel-title">
                <span id="tensors-title">{words(title)}</span>
                <span class="tensors__total" title=some_words(move || total().map(format::exact_bytes))>
                    {some_words(move || total().map(format::size))}{part(mark)}
                </span>
                {part(back)}
            </h2>
            <ol class="tensors__list" id="tensors" data-testid="tensors" tabindex="0" aria-labelledby="tensors-title">
                {part(list)}
            </ol>
        </section>
    }
}

fn row(line: Line, most: u64) -> impl IntoView {
    let width = decimal::fixed(line.bytes as f64 / most.max(1) as f64 * 100.0, 1);
    let band = Category::ALL.iter().position(|category| *category == line.category).unwrap_or(0) + 2;
    let count = (line.n_tensors > 1).then(|| format!("{} × ", line.n_tensors));
    view! {
        <li class="tensors__row" data-bytes=line.bytes.to_string()>
            <svg class="tensors__bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">
                <rect class=format!("band-{band}") width=width height="1" />
            </svg>
            <code class="tensors__name">{line.name}</code>
            <span class="tensors__bytes" title=format::exact_bytes(line.bytes)>{format::size(line.bytes)}</span>
            <span class="tensors__shape">{count}{format::shape(&line.shape)} " " {line.dtype}</span>
            <span class="tensors__why">{t(line.category.text())} ": " {text::why_alive(line.lifetime)}</span>
        </li>
    }
}
