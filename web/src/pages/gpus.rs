//! The page that lists the GPUs on which a run fits.

use std::time::Duration;

use headroom_planner::{
    hardware::find,
    link::trainer::{TrainerLink, encode},
    nanogpt::Value,
    session::Options,
    survey::{GpuRow, has_times, n_gpus, smallest},
    trainers::input::Input,
};
use leptos::prelude::*;

use super::address::{self, Companion};
use crate::{
    browser,
    components::{
        batch_strip::batch_strip,
        dynamic::{IntoPart, Part, act, flag, part, part_of, some_words, words},
        field::{Choice, Toggle},
        gpu_list::{Listed, gpu_list},
        gpu_picker::GpuPicker,
        header::Header,
        long_text::LongText,
        notice::Notice,
        undo::UndoRedo,
    },
    state::{
        answer::describes_run,
        batch_strip::BatchStrip,
        budget::Budget,
        format,
        gpu::{self, heading},
        gpu_table::{Filter, Order, SEGMENTS, counts, shown},
        listed_run::ListedRun,
        memo::memo,
        no_plan::NoPlan,
        session::Session,
        trainer::{batch_key, preset_of, summary},
        trainer_form::key,
        trainer_text,
    },
    text::{self, Key, say, t},
};

/// Delay after an edit before the GPUs are planned.
const PLAN_DELAY: Duration = Duration::from_millis(150);

/// The orders, as the page lists them. Those by a time follow the others.
const ORDERS: [Key; Order::ALL.len()] =
    [text::GPUS_BY_POPULARITY, text::GPUS_BY_MEMORY, text::GPUS_BY_TIME, text::GPUS_BY_ENERGY];

/// Number of orders without a time.
const ORDERS_WITHOUT_TIME: usize = 2;

/// Position of the calculator among the pages of the header.
const CALCULATOR: u32 = 0;

/// What the page lists: the run of the config field, unless there is one of another trainer.
#[derive(Clone, Copy)]
struct GpusState {
    /// The GPU, and the run of the config field.
    budget: Budget,
    /// The run of another trainer.
    trainer: RwSignal<Option<Input>>,
}

/// A run of another trainer is the address, in place of nanoGPT's.
impl Companion for GpusState {
    fn address(self, run: String) -> String {
        let options = self.budget.session.with(|session| session.options.clone());
        self.trainer.with(|input| input.as_ref().map_or(run, |input| encode(input, &options)))
    }

    fn state(self) -> String {
        String::new()
    }

    fn split(self, state: &str) -> (Option<&str>, &str) {
        (None, state)
    }

    fn open(self, _: &Session, _: Option<&str>, _: Option<&str>) {
        let link = trainer_text::open(&browser::fragment());
        if let Some(TrainerLink { unknown, .. }) = &link {
            self.budget.notice.set((!unknown.is_empty()).then(|| text::left_out(unknown, None)));
        }
        self.trainer.set(link.map(|link| link.input));
    }
}

impl GpusState {
    /// The listed run on its GPU.
    fn listed(self) -> Listed {
        let options = self.budget.session.with(|session| session.options.clone());
        let run = match self.trainer.get() {
            Some(input) => ListedRun::Trainer(input),
            None => ListedRun::NanoGpt(self.budget.answer.get()),
        };
        Listed { run, options }
    }

    /// Takes a pasted text: a run of any trainer.
    fn take_text(self, text: String) {
        match trainer_text::read(&text) {
            Some(link) => self.take_trainer(link),
            None => self.budget.take_text(text),
        }
    }

    /// Lists the run of another trainer, on its GPU if a link names one.
    fn take_trainer(self, link: TrainerLink) {
        self.budget.commit(|session| session.options = link.options_after(&session.options));
        self.trainer.set(Some(link.input));
    }

    /// Returns to the config field.
    fn leave_trainer(self) {
        self.budget.commit(|_| {});
        self.trainer.set(None);
        request_animation_frame(|| browser::focus("config"));
    }

    /// Sets the micro-batch size of the run.
    fn set_batch(self, size: u64) {
        if self.trainer.with_untracked(Option::is_none) {
            let value = Value::Int(i64::try_from(size).unwrap_or(i64::MAX));
            return self.budget.commit(|session| session.set_keys(&[("batch_size", value)]));
        }
        self.budget.commit(|_| {});
        self.trainer.update(|input| {
            let Some(input) = input else { return };
            if let Some(key) = key(input.trainer, batch_key(input.trainer)) {
                input.set(key, &size.to_string());
            }
        });
    }
}

/// The page.
#[component]
pub fn GpusPage() -> impl IntoView {
    let state = GpusState { budget: Budget::new(), trainer: RwSignal::new(None) };
    let budget = state.budget;
    address::open_with(budget, state);
    address::keep_with(budget, state);
    let leave = Callback::new(move |()| address::write_with(budget, state));
    let listed = memo(move || state.listed());
    // It runs after the header's links carry the run of the config field.
    Effect::new(move |_| {
        let (page, fragment) = listed.with(|listed| listed.run.calculator(&listed.options));
        browser::link_page(CALCULATOR, &browser::page_with(page, &fragment));
    });
    let to_show = Shown::new();
    keep_planned(listed, to_show);
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
    let headline = memo(move || headline(listed, planned));
    let keep = Callback::new(move |fragment: String| {
        if state.trainer.with_untracked(Option::is_none) {
            budget.session.with_untracked(|session| browser::keep_text(&fragment, &session.text));
        }
    });
    // The rows of another trainer's run stay on another GPU, which moves the mark of the current one.
    let current = memo(move || listed.with(|listed| find(&gpu::field(&listed.options)).ok()));
    let list = move || {
        let has_rows = planned.with(|rows| rows.as_ref().is_some_and(|rows| !rows.is_empty()));
        gpu_list(&listed.get_untracked(), current.get(), &found.get(), has_rows, shows_all, keep)
    };
    let set_batch = Callback::new(move |size| state.set_batch(size));
    view! {
        <Header page=2 leave />
        <Notice notice=budget.notice />
        <main class="gpus">
            <section class="panel gpus__given" aria-labelledby="gpus-title">
                <h1 class="gpus__title" id="gpus-title">{t(text::GPUS_TITLE)}</h1>
                <p class="gpus__soft">{t(text::GPUS_LEAD)}</p>
                {part_of(move || state.trainer.get(), move |input| match input {
                    Some(input) => trainer_run(state, &input).into_part(),
                    None => config_field(state),
                })}
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
                <Filters filter planned />
                <p class="gpus__counted" role="status" data-testid="gpus-counted">{words(limited)}</p>
                <div class="gpus__scroll" class:stale=flag(move || is_planning.get())>{part(list)}</div>
            </section>
            <section class="panel gpus__batches" class:stale=flag(move || is_planning.get())>
                {part(move || batches.with(|strip| strip.as_ref().map(|strip| batch_strip(strip, set_batch)).into_part()))}
            </section>
        </main>
    }
}

/// The field for a config, a command or a log. A typed run of another trainer is offered below it.
fn config_field(state: GpusState) -> Part {
    let budget = state.budget;
    let typed = memo(move || budget.session.with(|session| trainer_text::read(&session.text)));
    let offer = move |link: Option<TrainerLink>| {
        link.map(|link| {
            let name = summary(&link.input, preset_of(&link.input.config));
            view! {
                <p class="gpus__offer">
                    {say(&text::start_is_run_of(&*name))} " "
                    <button type="button" class="button button--primary" id="gpus-take"
                        on:click=act(move || state.take_trainer(link.clone()))>{t(text::GPUS_LIST)}</button>
                </p>
            }
        })
    };
    view! {
        <div class="gpus__head">
            <label class="field__label" for="config">{t(text::GPUS_CONFIG)}</label>
            <UndoRedo steps=budget.steps />
        </div>
        <LongText id="config" class="input gpus__text" rows="6" no_wrap=true placeholder=t(text::GPUS_PLACEHOLDER)
            replaces=|text| describes_run(text) || trainer_text::read(text).is_some()
            value=Signal::derive(move || budget.session.with(|session| session.text.clone()))
            on_change=move |text: String| budget.type_text(text) on_paste=move |text: String| state.take_text(text) />
        {part_of(move || typed.get(), offer)}
    }
    .into_part()
}

/// The run of another trainer in place of the config field, with the ways to change it.
fn trainer_run(state: GpusState, input: &Input) -> impl IntoView + use<> {
    let name = summary(input, preset_of(&input.config));
    let options = input.options_text();
    let (budget, input) = (state.budget, input.clone());
    let change = move || {
        let fragment = budget.session.with(|session| encode(&input, &session.options));
        Some(browser::page_with("trainers.html", &fragment))
    };
    view! {
        <div class="gpus__head">
            <h2 class="gpus__headline" data-testid="gpus-run">{name}</h2>
            <UndoRedo steps=budget.steps />
        </div>
        <p class="gpus__options"><code>{options}</code></p>
        <p class="gpus__change">
            <a class="button" id="gpus-change" href=some_words(change)>{t(text::CHANGE_RUN)}</a>
            <button type="button" class="button button--quiet" id="gpus-other"
                on:click=act(move || state.leave_trainer())>{t(text::GPUS_OTHER_RUN)}</button>
        </p>
    }
}

/// The fields that limit and order the list.
#[component]
fn Filters(filter: RwSignal<Filter>, planned: RwSignal<Option<Vec<GpuRow>>>) -> impl IntoView {
    let kinds: Vec<_> =
        [text::GPUS_ALL].into_iter().chain(SEGMENTS.map(|segment| heading(Some(segment)))).map(t).collect();
    let kind = move || {
        let segment = filter.with(|filter| filter.segment);
        Some(segment.and_then(|segment| SEGMENTS.iter().position(|of| *of == segment)).map_or(0, |index| index + 1))
    };
    let order = move || Order::ALL.iter().position(|order| *order == filter.with(|filter| filter.order));
    let n_orders = memo(move || {
        let is_timed = planned.with(|rows| rows.as_ref().is_none_or(|rows| has_times(rows)));
        if is_timed { ORDERS.len() } else { ORDERS_WITHOUT_TIME }
    });
    view! {
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
            {part_of(move || n_orders.get(), move |n| view! {
                <Choice id="gpus-order" label=t(text::GPUS_ORDER)
                    choices=ORDERS[..n].iter().copied().map(t).collect()
                    chosen=Signal::derive(order)
                    on_choose=move |index: usize| filter.update(|filter| filter.order = Order::ALL[index]) />
            })}
            <Toggle id="gpus-fitting" label=t(text::GPUS_ONLY_FITTING)
                on=Signal::derive(move || filter.with(|filter| filter.only_fitting))
                on_change=move |on: bool| filter.update(|filter| filter.only_fitting = on) />
        </form>
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

/// Plans the run on all GPUs after each change, in slices. On another GPU, only the micro-batch sizes change.
fn keep_planned(listed: Memo<Listed>, to: Shown) {
    let of_all_gpus = move |listed: &Listed| {
        let Listed { run, options } = listed.clone();
        Listed { run, options: Options { gpu: String::new(), vram_bytes: None, ..options } }
    };
    let is_listed = StoredValue::new(None::<Listed>);
    Effect::new(move |_| {
        let of = listed.with(of_all_gpus);
        to.is_planning.set(true);
        if is_listed.with_value(|done| done.as_ref() == Some(&of)) && to.rows.with_untracked(Option::is_some) {
            to.later(move || plan_batches(listed, to), PLAN_DELAY);
        } else {
            is_listed.set_value(None);
            let done = move || is_listed.set_value(Some(listed.with_untracked(of_all_gpus)));
            to.later(move || plan_slice(listed, Vec::new(), to, done), PLAN_DELAY);
        }
    });
}

/// Plans the next GPUs, and calls `done` after the last ones.
fn plan_slice(listed: Memo<Listed>, mut found: Vec<GpuRow>, to: Shown, done: impl FnOnce() + 'static) {
    let (slice, is_last) = listed.with_untracked(|Listed { run, options }| {
        let slice = run.rows(options, found.len());
        let is_last = slice.len() < run.slice();
        (slice, is_last)
    });
    found.extend(slice);
    if is_last {
        // Without a plan on any GPU, the headline has the reason.
        found.retain(|row| row.summary.is_some());
        to.rows.set(Some(found));
        done();
        to.later(move || plan_batches(listed, to), Duration::ZERO);
    } else {
        to.later(move || plan_slice(listed, found, to, done), Duration::ZERO);
    }
}

fn plan_batches(listed: Memo<Listed>, to: Shown) {
    to.batches.set(listed.with_untracked(|Listed { run, options }| run.batches(options)));
    to.is_planning.set(false);
}

/// The summary in a headline and further sentences.
fn headline(listed: Memo<Listed>, planned: RwSignal<Option<Vec<GpuRow>>>) -> (String, String) {
    planned.with(|rows| {
        let Some(rows) = rows else { return (t(text::GPUS_PLANNING).to_owned(), String::new()) };
        if rows.is_empty() {
            let no_plan = listed.with(|Listed { run, options }| run.no_plan(options));
            return no_plan.map_or_else(
                || (t(text::NO_PLAN).to_owned(), String::new()),
                |NoPlan { headline, detail, .. }| (headline, detail),
            );
        }
        let without_plan = n_gpus().saturating_sub(rows.len());
        let without_plan = (without_plan > 0).then(|| say(&text::gpus_without_plan(without_plan)));
        let with_others =
            |detail: String| [Some(detail), without_plan].into_iter().flatten().collect::<Vec<_>>().join(" ");
        match smallest(rows) {
            (n, Some(row)) => {
                let left = row.summary.map_or_else(String::new, |summary| format::signed_size(summary.headroom_bytes));
                let (_, n_at_least_narrowly) = counts(rows, &Filter::default());
                let fit = match n_at_least_narrowly.saturating_sub(n) {
                    0 => text::gpus_fit(n, rows.len()),
                    more => text::gpus_fit_narrowly(n, rows.len(), more),
                };
                (say(&fit), with_others(say(&text::gpus_smallest(&*row.device.name, left))))
            }
            (_, None) => (t(text::GPUS_NONE).to_owned(), with_others(t(text::GPUS_NONE_DETAIL).to_owned())),
        }
    })
}
