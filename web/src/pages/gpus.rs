//! The page that lists the GPUs on which a run fits.

use std::time::Duration;

use headroom_planner::{
    hardware::find,
    link,
    session::Options,
    survey::{GpuRow, smallest},
};
use leptos::prelude::*;

use super::address;
use crate::{
    browser,
    components::{
        batch_strip::batch_strip,
        dynamic::{IntoPart, Part, flag, part, words},
        field::{Choice, Toggle},
        gpu_picker::GpuPicker,
        header::Header,
        long_text::LongText,
        notice::Notice,
        undo::UndoRedo,
    },
    state::{
        answer::{Shared, describes_run},
        batch_strip::BatchStrip,
        budget::Budget,
        format,
        gpu::{self, heading},
        gpu_table::{
            Filter, Order, SEGMENTS, counts, energy as energy_words, rows, shown, time, words as result_words,
        },
        memo::memo,
        no_plan::NoPlan,
    },
    text::{self, Key, say, t},
};

/// Number of GPUs that are planned without a pause, so that the page answers while it computes.
const SLICE: usize = 8;
/// Delay after an edit before the GPUs are planned.
const PLAN_DELAY: Duration = Duration::from_millis(150);

/// Number of rows before the button that shows the others.
const FIRST_ROWS: usize = 24;

/// The orders, as the page lists them.
const ORDERS: [Key; Order::ALL.len()] =
    [text::GPUS_BY_POPULARITY, text::GPUS_BY_MEMORY, text::GPUS_BY_TIME, text::GPUS_BY_ENERGY];

/// The page.
#[component]
pub fn GpusPage() -> impl IntoView {
    let budget = Budget::new();
    address::open(budget);
    address::keep(budget);
    let leave = Callback::new(move |()| address::write(budget));
    let to_show = Shown::new();
    keep_planned(budget, to_show);
    let Shown { rows: planned, batches, is_planning, .. } = to_show;
    let filter = RwSignal::new(Filter::of_parts(Filter::PARTS.map(browser::query::part)));
    Effect::new(move |_| browser::query::set_parts(&Filter::PARTS, &filter.with(Filter::parts)));
    let limited = memo(move || {
        let of_rows = |rows: &Vec<GpuRow>| filter.with(|filter| filter.limits_gpus().then(|| counts(rows, filter)));
        planned.with(|rows| rows.as_ref().filter(|rows| !rows.is_empty()).and_then(of_rows))
    });
    let limited = move || limited.get().map_or_else(String::new, |(all, n)| say(&text::gpus_fit_shown(n, all)));
    let shows_all = RwSignal::new(false);
    let found = memo(move || {
        planned.with(|rows| filter.with(|filter| rows.as_ref().map(|rows| shown(rows, filter)).unwrap_or_default()))
    });
    let headline = memo(move || headline(budget, planned));
    let kinds: Vec<_> =
        [text::GPUS_ALL].into_iter().chain(SEGMENTS.map(|segment| heading(Some(segment)))).map(t).collect();
    let kind = move || {
        let segment = filter.with(|filter| filter.segment);
        Some(segment.and_then(|segment| SEGMENTS.iter().position(|of| *of == segment)).map_or(0, |index| index + 1))
    };
    let order = move || Order::ALL.iter().position(|order| *order == filter.with(|filter| filter.order));
    view! {
        <Header page=2 leave />
        <Notice notice=budget.notice />
        <main class="gpus">
            <section class="panel gpus__given" aria-labelledby="gpus-title">
                <h1 class="gpus__title" id="gpus-title">{t(text::GPUS_TITLE)}</h1>
                <p class="gpus__soft">{t(text::GPUS_LEAD)}</p>
                <div class="gpus__head">
                    <label class="field__label" for="config">{t(text::GPUS_CONFIG)}</label>
                    <UndoRedo budget />
                </div>
                <LongText id="config" class="input gpus__text" rows="6" no_wrap=true replaces=describes_run
                    value=Signal::derive(move || budget.session.with(|session| session.text.clone()))
                    on_change=move |text: String| budget.type_text(text) on_paste=move |text: String| budget.take_text(text) />
                <GpuPicker page=budget chosen=|name: String| browser::keep_gpu(&name) />
            </section>
            <section class="panel gpus__answer" id="answer" tabindex="-1" aria-labelledby="verdict">
                <div class="gpus__summary" aria-live="polite">
                    <h2 class="gpus__headline" id="verdict" tabindex="-1" data-testid="gpus-summary"
                        data-planning=words(move || is_planning.get().to_string())>
                        {words(move || headline.with(|(headline, _)| headline.clone()))}
                    </h2>
                    <p class="gpus__soft">{words(move || headline.with(|(_, detail)| detail.clone()))}</p>
                </div>
                <form class="gpus__filters" autocomplete="off" on:submit=|event| event.prevent_default()>
                    <div class="field">
                        <label class="field__label" for="gpus-search">{t(text::GPUS_SEARCH)}</label>
                        <input class="input field__input" type="search" id="gpus-search" spellcheck="false"
                            value=filter.with_untracked(|filter| filter.typed.clone())
                            on:input:target=move |event| filter.update(|filter| filter.typed = event.target().value()) />
                    </div>
                    <Choice id="gpus-kind" label=t(text::GPUS_KIND) choices=kinds chosen=Signal::derive(kind)
                        on_choose=move |index: usize| {
                            filter.update(|filter| filter.segment = index.checked_sub(1).map(|index| SEGMENTS[index]));
                        } />
                    <Choice id="gpus-order" label=t(text::GPUS_ORDER)
                        choices=ORDERS.map(t).to_vec()
                        chosen=Signal::derive(order)
                        on_choose=move |index: usize| filter.update(|filter| filter.order = Order::ALL[index]) />
                    <Toggle id="gpus-fitting" label=t(text::GPUS_ONLY_FITTING)
                        on=Signal::derive(move || filter.with(|filter| filter.only_fitting))
                        on_change=move |on: bool| filter.update(|filter| filter.only_fitting = on) />
                </form>
                <p class="gpus__counted" role="status" data-testid="gpus-counted">{words(limited)}</p>
                <div class="gpus__scroll" class:stale=flag(move || is_planning.get())>
                    {part(move || table(budget, &found.get(), planned.with(|rows| rows.as_ref().is_some_and(|rows| !rows.is_empty())), shows_all))}
                </div>
            </section>
            <section class="panel gpus__batches" class:stale=flag(move || is_planning.get())>
                {part(move || batches.with(|strip| strip.as_ref().map(|strip| batch_strip(budget, strip)).into_part()))}
            </section>
        </main>
    }
}

/// What the page shows of a run.
#[derive(Clone, Copy)]
struct Shown {
    /// The run on every GPU with a plan; `None` before the first answer.
    rows: RwSignal<Option<Vec<GpuRow>>>,
    /// The micro-batch sizes on the run's GPU.
    batches: RwSignal<Option<BatchStrip>>,
    /// Whether a change is not planned yet.
    is_planning: RwSignal<bool>,
    /// The timer of the next slice.
    pending: StoredValue<Option<TimeoutHandle>>,
}

impl Shown {
    fn new() -> Self {
        Self {
            rows: RwSignal::new(None),
            batches: RwSignal::new(None),
            is_planning: RwSignal::new(true),
            pending: StoredValue::new(None),
        }
    }

    /// Calls `work` after a delay. An earlier call that is still waiting is dropped.
    fn later(self, work: impl FnOnce() + 'static, delay: Duration) {
        if let Some(pending) = self.pending.get_value() {
            pending.clear();
        }
        self.pending.set_value(set_timeout_with_handle(work, delay).ok());
    }
}

/// Plans the run on all GPUs after each change, in slices.
fn keep_planned(budget: Budget, to: Shown) {
    let inputs = memo(move || {
        let answer = budget.answer.get();
        budget.session.with(|session| (answer.clone(), session.options.clone()))
    });
    Effect::new(move |_| {
        inputs.track();
        to.is_planning.set(true);
        to.later(move || plan_slice(inputs, Vec::new(), to), PLAN_DELAY);
    });
}

fn plan_slice(inputs: Memo<(Shared, Options)>, mut found: Vec<GpuRow>, to: Shown) {
    let slice = inputs.with_untracked(|(answer, options)| rows(&answer.0, options, found.len(), SLICE));
    let is_last = slice.len() < SLICE;
    found.extend(slice);
    if is_last {
        // Without a plan on any GPU, the headline has the reason.
        found.retain(|row| row.summary.is_some());
        to.rows.set(Some(found));
        to.later(move || plan_batches(inputs, to), Duration::ZERO);
    } else {
        to.later(move || plan_slice(inputs, found, to), Duration::ZERO);
    }
}

fn plan_batches(inputs: Memo<(Shared, Options)>, to: Shown) {
    to.batches.set(inputs.with_untracked(|(answer, options)| BatchStrip::of(&answer.0, options)));
    to.is_planning.set(false);
}

/// The summary in two sentences.
fn headline(budget: Budget, planned: RwSignal<Option<Vec<GpuRow>>>) -> (String, String) {
    planned.with(|rows| {
        let Some(rows) = rows else { return (t(text::GPUS_PLANNING).to_owned(), String::new()) };
        if rows.is_empty() {
            let no_plan = budget.answer.with(|answer| NoPlan::of(&answer.0));
            return no_plan.map_or_else(
                || (t(text::NO_PLAN).to_owned(), String::new()),
                |no_plan| (no_plan.headline, no_plan.detail),
            );
        }
        match smallest(rows) {
            (n, Some(row)) => {
                let left = row.summary.map_or_else(String::new, |summary| format::signed_size(summary.headroom_bytes));
                let (_, n_at_least_narrowly) = counts(rows, &Filter::default());
                let fit = match n_at_least_narrowly.saturating_sub(n) {
                    0 => text::gpus_fit(n, rows.len()),
                    more => text::gpus_fit_narrowly(n, rows.len(), more),
                };
                (say(&fit), say(&text::gpus_smallest(&*row.device.name, left)))
            }
            (_, None) => (t(text::GPUS_NONE).to_owned(), t(text::GPUS_NONE_DETAIL).to_owned()),
        }
    })
}

/// Renders the rows that the filters show. `has_rows` is whether there are any without filters. Unless `shows_all`, the
/// first rows and the current GPU are shown, with a button for the others.
fn table(budget: Budget, found: &[GpuRow], has_rows: bool, shows_all: RwSignal<bool>) -> Part {
    if found.is_empty() {
        let nothing = if has_rows { t(text::GPUS_NOTHING) } else { "" };
        return view! { <p class="gpus__soft" data-testid="gpus-nothing">{nothing}</p> }.into_part();
    }
    let current = budget.session.with_untracked(|session| gpu::field(&session.options));
    let current = find(&current).ok();
    let n_first = if shows_all.get() { found.len() } else { FIRST_ROWS };
    let rows = found.iter().enumerate().filter_map(|(index, row)| {
        let is_current = current == Some(row.device);
        (index < n_first || is_current).then(|| row_of(budget, index, row, is_current))
    });
    let rows: Vec<Part> = rows.collect();
    // The button disappears, so the focus moves to the first row that it shows.
    let show = move |_| {
        shows_all.set(true);
        request_animation_frame(|| browser::focus(&row_id(FIRST_ROWS)));
    };
    let show_all = (rows.len() < found.len()).then(|| {
        view! {
            <button type="button" class="button gpus__all" id="gpus-all" on:click=show>
                {say(&text::gpus_show_all(found.len()))}
            </button>
        }
    });
    view! {
        <table class="gpus__table" data-testid="gpus">
            <thead>
                <tr>
                    <th scope="col">{t(text::GPU)}</th>
                    <th scope="col" class="gpus__number">{t(text::GPUS_MEMORY)}</th>
                    <th scope="col">{t(text::GPUS_RESULT)}</th>
                    <th scope="col" class="gpus__number gpus__time" title=t(text::GPUS_TIME_HINT)>{t(text::GPUS_TIME)}</th>
                    <th scope="col" class="gpus__number gpus__energy">{t(text::GPUS_ENERGY)}</th>
                </tr>
            </thead>
            <tbody>{rows}</tbody>
        </table>
        <p class="gpus__soft gpus__energy" data-testid="gpus-energy">{t(text::GPUS_ENERGY_HINT)}</p>
        <p class="gpus__soft">{t(text::GPUS_PRICES)}</p>
        {show_all}
    }
    .into_part()
}

/// The id of a row's link.
fn row_id(index: usize) -> String {
    format!("row-{index}")
}

/// Renders one GPU. Its name links to the calculator with the run on it.
fn row_of(budget: Budget, index: usize, row: &GpuRow, is_current: bool) -> Part {
    let fragment = budget
        .with_options(|answer, options| link::encode(&answer.resolved.settings, &options.with_device(row.device)));
    let href = browser::page_with("calculator.html", &fragment);
    let keep = move |_| budget.session.with_untracked(|session| browser::keep_text(&fragment, &session.text));
    let Some(summary) = row.summary else { return ().into_part() };
    let [low, high] = summary.band_bytes.map(format::signed_size);
    let clouds = (!row.clouds.is_empty()).then(|| view! { <span class="gpus__clouds">{row.clouds.join(", ")}</span> });
    let name = &*row.device.name;
    view! {
        <tr data-gpu=name data-outcome=summary.fit.name() aria-current=is_current.then_some("true")>
            <th scope="row"><a id=row_id(index) href=href on:click=keep>{name}</a>{clouds}</th>
            <td class="gpus__number" title=format::exact_bytes(row.device.total_bytes)>{format!("{} GB", row.device.vram_bytes_nominal >> 30)}</td>
            <td class="gpus__result" title=say(&text::gpus_left_band(low, high))>{say(&result_words(&summary))}</td>
            <td class="gpus__number gpus__time">{summary.iteration_seconds.map(|seconds| format!("≈ {}", time(seconds)))}</td>
            <td class="gpus__number gpus__energy">{summary.max_iteration_watt_hours.map(|energy| format!("≤ {}", energy_words(energy)))}</td>
        </tr>
    }
    .into_part()
}
