//! The chart: memory over the run by category, with the card's line, what PyTorch holds, and where it fails.
//!
//! Paths stretch with the room; every word is HTML placed by shares, so that text never stretches.

use headroom_shared::{decimal, gpt::tensors::Category, memory::timeline::Span};
use leptos::{html::Div, prelude::*};
use web_sys::{KeyboardEvent, PointerEvent};

use super::dynamic::{flag, part, some_words, words};
use super::verdict::Mark;
use crate::{
    state::{
        answer::Answer,
        budget::Budget,
        chart::{Chart, HATCHES, HEIGHT, N_BANDS, Tick, hatch, share_of},
        course::phase_at,
        format,
    },
    text::{self, t},
};

/// The name of a band, from the bottom.
fn band_name(band: usize) -> &'static str {
    match band {
        0 => t(text::OTHERS_BAND),
        1 => t(text::CONTEXT_BAND),
        _ => Category::ALL.get(band - 2).map_or("", |category| t(category.text())),
    }
}

fn percent(share: f64) -> String {
    decimal::fixed(share * 100.0, 3) + "%"
}

/// The chart.
#[component]
pub fn ChartView(
    /// The page.
    budget: Budget,
) -> impl IntoView {
    let stale = budget.is_stale();
    let chart = budget.ask(|answer| answer.drawn().map(Chart::of));
    view! {
        <section class="chart" class:stale=flag(move || stale.get()) aria-labelledby="chart-title">
            <div class="chart__head">
                <h2 class="panel-title"><span id="chart-title">{t(text::CHART)}</span> <span class="chart__unit">{t(text::CHART_UNIT)}</span></h2>
                <ul class="chart__marks">
                    {text::CERTAINTIES.map(|(certainty, meaning)| view! {
                        <li title=t(meaning)><span aria-hidden="true"><Mark certainty /></span>" "{text::certainty(certainty)}</li>
                    }).collect_view()}
                </ul>
            </div>
            <div class="chart__frame">
                <Levels chart />
                <Plot budget chart />
                <Axis chart />
            </div>
            <Legend budget />
        </section>
    }
}

type Shown = Memo<Option<Chart>>;

#[component]
fn Levels(chart: Shown) -> impl IntoView {
    let levels = move || chart.with(|chart| chart.as_ref().map(|chart| chart.levels.clone()));
    view! {
        <div class="chart__levels" aria-hidden="true">
            {part(move || levels().map(|levels| levels.into_iter().map(|(y, gib)| view! {
                <span class="chart__level" style:top=percent(y)>{gib}</span>
            }).collect_view()))}
        </div>
    }
}

/// What is drawn, what is pointed at, and what a keyboard moves.
#[component]
fn Plot(budget: Budget, chart: Shown) -> impl IntoView {
    let plot = NodeRef::<Div>::new();
    let column = budget.shown_column();
    let n_columns = move || chart.with(|chart| chart.as_ref().map_or(0, |chart| chart.n_columns));
    let share_at = move |event: &PointerEvent| {
        let plot = plot.get_untracked()?.get_bounding_client_rect();
        Some(((f64::from(event.client_x()) - plot.left()) / plot.width().max(1.0)).clamp(0.0, 1.0))
    };
    let point = move |event: PointerEvent| budget.pointed.set(share_at(&event));
    let pin = move |event: PointerEvent| {
        budget.pinned.set(share_at(&event));
        budget.pointed.set(None);
    };
    let key = move |event: KeyboardEvent| {
        let (Some(now), n) = (column.get_untracked(), n_columns()) else { return };
        let spans = budget.answer.with_untracked(|answer| {
            answer.0.drawn().map(|planned| planned.timeline.spans.clone()).unwrap_or_default()
        });
        if event.key() == "Escape" {
            budget.pinned.set(None);
        } else if let Some(next) = moved(&event.key(), now, n, &spans) {
            event.prevent_default();
            budget.pointed.set(None);
            budget.pinned.set(Some(share_of(next, n)));
        }
    };
    let moment = budget_moment(budget, column);
    let stale = budget.is_stale();
    let cursor = move || column.get().map_or_else(|| "0".to_owned(), |column| percent(share_of(column, n_columns())));
    // The failure has a line and words of its own.
    let is_quiet = move || {
        let follows = budget.pointed.get().is_none() && budget.pinned.get().is_none();
        chart.with(|chart| chart.as_ref().is_none_or(|chart| follows && chart.failure.is_some()))
    };
    let is_right = move || column.get().unwrap_or(0) * 2 > n_columns();
    view! {
        <div class="chart__plot" id="chart" data-testid="chart" role="slider" tabindex="0" node_ref=plot
            aria-label=t(text::CHART) aria-description=t(text::CHART_HELP) aria-valuemin="0"
            aria-valuemax=words(move || n_columns().saturating_sub(1).to_string())
            aria-valuenow=words(move || column.get().unwrap_or(0).to_string()) aria-valuetext=words(move || moment.get())
            on:pointermove=point on:pointerdown=pin on:pointerleave=move |_| budget.pointed.set(None) on:keydown=key>
            <Drawing chart />
            <Words budget chart />
            {part(move || stale.get().then(|| {
                let sentence = if chart.with(Option::is_some) { t(text::STALE) } else { t(text::NOTHING_TO_DRAW) };
                view! { <p class="chart__none"><span>{sentence}</span></p> }
            }))}
            <div class="chart__cursor" class:chart__cursor--quiet=flag(is_quiet) style:left=words(cursor)>
                <span class="chart__moment" class:chart__moment--left=flag(is_right)>
                    {words(move || moment.get())}
                </span>
            </div>
        </div>
    }
}

/// The moment that is shown, in words.
fn budget_moment(budget: Budget, column: Memo<Option<usize>>) -> Memo<String> {
    Memo::new(move |_| {
        let column = column.get();
        budget.answer.with(|answer| moment_text(&answer.0, column).unwrap_or_default())
    })
}

fn moment_text(answer: &Answer, column: Option<usize>) -> Option<String> {
    let planned = answer.drawn()?;
    let column = column?;
    let live: u64 = planned.timeline.points.get(column)?.live_bytes.iter().sum();
    let phase = t(phase_at(&planned.timeline, column)?.text());
    Some(format!("{phase}: {} {}", format::size(live), format::mark(planned.plan.basis.allocated)))
}

/// Where a key moves to: a column, a phase, an end.
fn moved(key: &str, now: usize, n: usize, spans: &[Span]) -> Option<usize> {
    let last = n.saturating_sub(1);
    Some(match key {
        "ArrowLeft" | "ArrowDown" => now.saturating_sub(1),
        "ArrowRight" | "ArrowUp" => (now + 1).min(last),
        "Home" => 0,
        "End" => last,
        "PageDown" => spans.iter().map(|span| span.start).find(|start| *start > now).unwrap_or(last),
        "PageUp" => spans.iter().rev().map(|span| span.start).find(|start| *start < now).unwrap_or(0),
        _ => return None,
    })
}

#[component]
fn Drawing(chart: Shown) -> impl IntoView {
    let path = move |band: usize| chart.with(|chart| chart.as_ref().map(|chart| chart.bands[band].clone()));
    let view_box = move || {
        let n = chart.with(|chart| chart.as_ref().map_or(1, |chart| chart.n_columns.max(1)));
        format!("0 0 {n} {HEIGHT}")
    };
    let n_columns = move || chart.with(|chart| chart.as_ref().map_or(0.0, |chart| chart.n_columns as f64));
    let y = |share: f64| decimal::fixed(share * HEIGHT as f64, 1);
    // Above the drawing where there is no card.
    let capacity =
        move || chart.with(|chart| chart.as_ref().map_or_else(|| "-1".to_owned(), |chart| y(chart.capacity_y)));
    let levels =
        move || chart.with(|chart| chart.as_ref().map(|c| c.levels.iter().map(|l| y(l.0)).collect::<Vec<_>>()));
    let hatches = move |index: usize| chart.with(|chart| chart.as_ref().map(|chart| chart.hatches[index].clone()));
    let failure = move || chart.with(|chart| chart.as_ref().and_then(|chart| Some(chart.failure?.x)));
    view! {
        <svg class="chart__drawing" viewBox=words(view_box) preserveAspectRatio="none" aria-hidden="true">
            <g class="chart__grid">
                {part(move || levels().map(|levels| levels.into_iter().map(|y| view! {
                    <line x1="0" x2="10000" y1=y.clone() y2=y />
                }).collect_view()))}
            </g>
            <g class="chart__bands">
                // The highest first: the outline of a band that has no height somewhere would cover what is below it.
                {(0..N_BANDS).rev().map(|band| view! {
                    <path class=format!("band-{band}") d=some_words(move || path(band)) />
                }).collect_view()}
            </g>
            {(0..HATCHES.len()).map(|index| view! {
                <path class="chart__hatch" d=some_words(move || hatches(index)) />
            }).collect_view()}
            <path class="chart__reserved" d=some_words(move || chart.with(|chart| chart.as_ref().map(|chart| chart.reserved.clone()))) />
            {part(move || failure().map(|x| {
                let start = x * n_columns();
                view! {
                    <rect class="chart__beyond" x=decimal::fixed(start, 1) y="0"
                        width=decimal::fixed(n_columns() - start, 1) height=HEIGHT.to_string() />
                    <line class="chart__failure" x1=decimal::fixed(start, 1) x2=decimal::fixed(start, 1) y1="0" y2=HEIGHT.to_string() />
                }
            }))}
            <line class="chart__capacity" x1="0" x2="10000" y1=words(capacity) y2=words(capacity) />
        </svg>
    }
}

/// Names on the drawing.
#[component]
fn Words(budget: Budget, chart: Shown) -> impl IntoView {
    let card = budget.ask(|answer| answer.drawn().map(|drawn| format::size(drawn.plan.request.device.total_bytes)));
    let card = move || card.get();
    let labels = move || chart.with(|chart| chart.as_ref().map(|chart| chart.labels.clone()));
    let failure = move || chart.with(|chart| chart.as_ref().and_then(|chart| chart.failure));
    let capacity = move || chart.with(|chart| chart.as_ref().map_or_else(|| "0".to_owned(), |c| percent(c.capacity_y)));
    view! {
        <div class="chart__words" aria-hidden="true">
            {part(move || labels().map(|labels| labels.into_iter().map(|label| view! {
                <span class="chart__label"
                    style:left=percent(label.x) style:width=percent(label.width) style:top=percent(label.y)>
                    <span>{band_name(label.band)}</span>
                </span>
            }).collect_view()))}
            <span class="chart__card" style:top=capacity>{t(text::CARD_LINE)} " " {some_words(card)}</span>
            {part(move || failure().map(|failure| view! {
                <span class="chart__fails" class:chart__fails--left=failure.is_left
                    style:left=percent(failure.x) style:top=percent(failure.top)>
                    <strong>"✕ "{t(text::FAILS_HERE)}</strong>
                    {failure.is_long.then(|| view! { <span class="chart__unreached">{t(text::NOT_REACHED)}</span> })}
                </span>
            }))}
        </div>
    }
}

#[component]
fn Axis(chart: Shown) -> impl IntoView {
    let row = |ticks: fn(&Chart) -> &[Tick]| {
        part(move || chart.with(|chart| chart.as_ref().map(|chart| ticks(chart).iter().map(tick).collect::<Vec<_>>())))
    };
    view! {
        <div class="chart__axis" aria-hidden="true">
            <div class="chart__ticks">{row(|chart| &chart.phases)}</div>
            <div class="chart__ticks chart__ticks--stretches">{row(|chart| &chart.stretches)}</div>
        </div>
    }
}

fn tick(tick: &Tick) -> impl IntoView + use<> {
    view! {
        <span class="chart__tick" title=tick.title style:left=percent(tick.start) style:width=percent(tick.width)>
            <span data-short=tick.short>{tick.label}</span>
        </span>
    }
}

/// The strokes of a band's swatch.
fn legend_hatch(band: usize) -> String {
    let found = HATCHES.into_iter().find(|(hatched, _)| *hatched == band);
    found.map_or_else(String::new, |(_, apart)| hatch(10, apart, |_| [0, HEIGHT]))
}

#[component]
fn Legend(budget: Budget) -> impl IntoView {
    let others = Memo::new(move |_| budget.session.with(|session| session.options.other_processes_bytes > 0));
    view! {
        <div class="legend">
            <ul class="legend__bands">
                {(2..N_BANDS).chain(0..2).map(|band| view! {
                    <li class="legend__band" class:legend__band--off=flag(move || band == 0 && !others.get())>
                        <svg class="legend__colour" viewBox="0 0 10 1000" preserveAspectRatio="none" aria-hidden="true">
                            <rect class=format!("band-{band}") width="10" height="1000" />
                            <path class="chart__hatch" d=legend_hatch(band) />
                        </svg>
                        {band_name(band)}
                    </li>
                }).collect_view()}
                <li class="legend__band">
                    <svg class="legend__colour" viewBox="0 0 10 10" aria-hidden="true">
                        <line class="chart__reserved" x1="0" x2="10" y1="5" y2="5" />
                    </svg>
                    {t(text::RESERVED_LINE)}
                </li>
            </ul>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_shared::memory::program::Phase;

    #[test]
    fn keys_move_by_columns_phases_and_ends() {
        let spans = [(0, 4), (4, 9), (9, 12)].map(|(start, end)| Span { phase: Phase::Eval, start, end });
        for (key, from, to) in [
            ("ArrowLeft", 0, Some(0)),
            ("ArrowRight", 5, Some(6)),
            ("ArrowRight", 11, Some(11)),
            ("PageDown", 5, Some(9)),
            ("PageDown", 10, Some(11)),
            ("PageUp", 5, Some(4)),
            ("PageUp", 4, Some(0)),
            ("End", 1, Some(11)),
            ("a", 1, None),
        ] {
            assert_eq!(moved(key, from, 12, &spans), to, "{key} from {from}");
        }
    }
}
