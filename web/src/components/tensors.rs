//! The list of live tensors at the shown moment.

use headroom_planner::gpt::tensors::Category;
use headroom_text::decimal;
use leptos::prelude::*;

use super::dynamic::{act, flag, part, part_between, part_of, some_words, words};
use super::verdict::Mark;
use crate::{
    browser,
    state::{
        budget::Budget,
        format,
        memo::memo,
        tensors::{LINES_SHOWN, Line},
    },
    text::{self, say, t},
};

/// The list of tensors: the largest, all, or those whose name matches the search.
#[component]
pub fn TensorList(
    /// The calculator's state.
    budget: Budget,
) -> impl IntoView {
    let stale = budget.is_stale();
    let moment = budget.moment;
    let shows_all = RwSignal::new(false);
    let wanted = RwSignal::new(String::new());
    let title = move || {
        let title = moment.with(|moment| match moment {
            Some(moment) if !budget.follows() => say(&text::live_in(moment.phase.text_in())),
            Some(moment) if moment.fits => t(text::LIVE_AT_PEAK).to_owned(),
            Some(_) => t(text::LIVE_AT_FAILURE).to_owned(),
            None => t(text::LIVE).to_owned(),
        });
        format::marked_previous(title, stale.get() && moment.with(Option::is_some))
    };
    let total = move || moment.with(|moment| moment.as_ref().map(|moment| moment.live.total_bytes));
    let certainty = move || moment.with(|moment| moment.as_ref().map(|moment| moment.certainty));
    let mark = part_of(certainty, |certainty| certainty.map(|certainty| view! { <Mark certainty /> }));
    let back = move || {
        let fits = moment.with(|moment| moment.as_ref().is_none_or(|moment| moment.fits));
        budget.pinned.get().map(|_| {
            view! {
                <button type="button" class="button button--quiet" on:click=act(move || budget.pinned.set(None))>
                    {if fits { t(text::BACK_TO_PEAK) } else { t(text::BACK_TO_FAILURE) }}
                </button>
            }
        })
    };
    let list = move || {
        moment.with(|moment| {
            let live = &moment.as_ref()?.live;
            let most = live.lines.first().map_or(1, |line| line.bytes);
            let found = wanted.with(|wanted| live.named(wanted));
            let n = if shows_all.get() { found.len() } else { LINES_SHOWN };
            let rows: Vec<_> = found.iter().take(n).map(|line| row((*line).clone(), most)).collect();
            let none = found.is_empty().then(|| view! { <li class="tensors__none">{t(text::NO_TENSOR)}</li> });
            Some(view! { {rows} {none} })
        })
    };
    // Number of lines that are not listed at first, and their bytes.
    let more = memo(move || {
        moment.with(|moment| {
            let found =
                wanted.with(|wanted| moment.as_ref().map(|moment| moment.live.named(wanted)).unwrap_or_default());
            let rest = found.get(LINES_SHOWN..).unwrap_or_default();
            (found.len(), rest.iter().map(|line| line.bytes).sum::<u64>())
        })
    });
    let all_label = move || match (shows_all.get(), more.get()) {
        (true, _) => t(text::SHOW_LARGEST).to_owned(),
        (false, (n, bytes)) => say(&text::show_all(n, format::size(bytes))),
    };
    let has_more = move || more.get().0 > LINES_SHOWN;
    view! {
        <section class="tensors" class:stale=flag(move || stale.get()) aria-labelledby="tensors-title">
            <h2 class="panel-title">
                <span id="tensors-title">{words(title)}</span>
                <span class="tensors__total" title=some_words(move || total().map(format::exact_bytes))>
                    {some_words(move || total().map(format::size))}{mark}
                </span>
                {part(back)}
            </h2>
            <div class="tensors__ways">
                <input class="input" type="search" id="tensors-search" data-testid="tensors-search" autocomplete="off" spellcheck="false"
                    aria-label=t(text::SEARCH_TENSORS) placeholder=t(text::SEARCH_TENSORS)
                    on:input:target=move |event| wanted.set(event.target().value()) />
                <a class="button" id="tensors-csv" data-testid="tensors-csv" href="data:," download="tensors.csv"
                    on:click:target=move |event| {
                        let csv = moment.with(|moment| moment.as_ref().map(|moment| moment.live.to_csv()));
                        event.target().set_href(&browser::text_address(&csv.unwrap_or_default()));
                    }>"CSV"</a>
            </div>
            <ol class="tensors__list" id="tensors" data-testid="tensors" aria-labelledby="tensors-title">
                {part_between(budget.is_sliding, list)}
            </ol>
            <button type="button" class="button button--quiet tensors__more" class:tensors__more--none=flag(move || !has_more())
                data-testid="tensors-all" aria-expanded=words(move || shows_all.get().to_string()) aria-controls="tensors"
                on:click=act(move || shows_all.update(|all| *all = !*all))>
                {words(all_label)}
            </button>
        </section>
    }
}

fn row(line: Line, most: u64) -> impl IntoView {
    let width = decimal::fixed(line.bytes as f64 / most.max(1) as f64 * 100.0, 1);
    let band = Category::ALL.iter().position(|category| *category == line.category).unwrap_or(0) + 2;
    let shape = line.shape_text();
    view! {
        <li class="tensors__row" data-bytes=line.bytes.to_string()>
            <svg class="tensors__bar" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">
                <rect class=format!("band-{band}") width=width height="1" />
            </svg>
            <code class="tensors__name">{line.name}</code>
            <span class="tensors__bytes" title=format::exact_bytes(line.bytes)>{format::size(line.bytes)}</span>
            <span class="tensors__shape">{shape}</span>
            <span class="tensors__why">{say(&text::labelled(t(line.category.text()), text::why_alive(line.lifetime)))}</span>
        </li>
    }
}
