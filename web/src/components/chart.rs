//! The memory chart: memory over the run by category, the GPU's capacity, reserved memory and the point of failure.
//!
//! Paths stretch with the available space. Texts are HTML positioned by fractions, so that they never stretch.

use std::ops::Range;

use headroom_planner::{gpt::tensors::Category, memory::timeline::Span};
use headroom_text::{Separator, decimal};
use leptos::{html::Div, prelude::*};
use web_sys::{KeyboardEvent, PointerEvent};

use super::dynamic::{IntoPart, Part, act, flag, part, part_between, part_of, some_words, words};
use super::verdict::Mark;
use crate::{
    browser,
    state::{
        chart::{Chart, HATCHES, HEIGHT, N_BANDS, Tick, View, band_name, hatch, share_of},
        course::{Drawable, PlanWithTimeline},
        format,
        memo::memo,
        shown::ShownPlan,
        tensors::ShownMoment,
    },
    text::{self, say, t},
};

/// Formats a share as a percentage for CSS.
pub fn percent(share: f64) -> String {
    decimal::fixed(share * 100.0, 3) + "%"
}

/// The memory chart with its legend.
#[component]
pub fn ChartView<R: Drawable>(
    /// The drawn plan.
    shown: ShownPlan<R>,
) -> impl IntoView {
    let stale = shown.is_stale;
    let chart = memo(move || {
        let view = shown.view.get();
        shown.with(|planned| Chart::of(planned, view))
    });
    let reset = move || {
        (shown.view.get() != View::default()).then(|| {
            view! {
                <button type="button" class="button button--quiet" id="chart-reset" data-testid="chart-reset"
                    on:click=act(move || {
                        shown.view.set(View::default());
                        browser::focus("chart");
                    })>{t(text::CHART_RESET)}</button>
            }
        })
    };
    let range = move || {
        let [low, high] = chart.with(|chart| chart.as_ref()?.range_bytes)?;
        Some(say(&text::chart_range(format::size(low), format::size(high))))
    };
    view! {
        <section class="chart" class:stale=flag(move || stale.get()) aria-labelledby="chart-title">
            <div class="chart__head">
                <h2 class="panel-title"><span id="chart-title">{t(text::CHART)}</span> <span class="chart__unit">{t(text::CHART_UNIT)}</span> {part(reset)}</h2>
                <p class="chart__unit" data-testid="chart-range">{some_words(range)}</p>
                <ul class="chart__marks">
                    {text::CERTAINTIES.map(|(certainty, meaning)| view! {
                        <li title=t(meaning)><span aria-hidden="true"><Mark certainty /></span>" "{text::certainty(certainty)}</li>
                    }).collect_view()}
                </ul>
            </div>
            <div class="chart__frame">
                <Levels chart />
                <Plot shown chart />
                <Axis chart />
            </div>
            <Legend shown />
        </section>
    }
}

type ChartMemo = Memo<Option<Chart>>;

#[component]
fn Levels(chart: ChartMemo) -> impl IntoView {
    let levels = move || chart.with(|chart| chart.as_ref().map(|chart| chart.levels.clone()));
    view! {
        <div class="chart__levels" aria-hidden="true">
            {part_of(levels, |levels| levels.map(|levels| levels.into_iter().map(|(y, gib)| view! {
                <span class="chart__level" style:top=percent(y)>{gib}</span>
            }).collect_view()))}
        </div>
    }
}

/// A drag shorter than this fraction of the width counts as a click.
const DRAG_MIN: f64 = 0.02;

/// The drawing, with its pointer and keyboard input.
#[component]
fn Plot<R: Drawable>(shown: ShownPlan<R>, chart: ChartMemo) -> impl IntoView {
    let plot = NodeRef::<Div>::new();
    let column = shown.column;
    // Both ends of the current drag, as fractions of the width.
    let drag = RwSignal::new(None::<[f64; 2]>);
    let share_at = move |event: &PointerEvent| {
        let plot = plot.get_untracked()?.get_bounding_client_rect();
        Some(((f64::from(event.client_x()) - plot.left()) / plot.width().max(1.0)).clamp(0.0, 1.0))
    };
    let of_run = move |x: f64| chart.with_untracked(|chart| chart.as_ref().map_or(x, |chart| chart.share_of_run(x)));
    let press = move |event: PointerEvent| {
        if event.button() == 0 {
            drag.set(share_at(&event).map(|x| [x, x]));
            browser::capture_pointer(&event);
        }
    };
    let point = move |event: PointerEvent| {
        let Some(x) = share_at(&event) else { return };
        shown.pointed.set(Some(of_run(x)));
        drag.update(|drag| {
            if let Some([_, end]) = drag {
                *end = x;
            }
        });
    };
    let release = move |_| {
        let Some([start, end]) = drag.get_untracked() else { return };
        drag.set(None);
        if (end - start).abs() < DRAG_MIN {
            shown.pointed.set(None);
            shown.pinned.set(Some(of_run(end)));
        } else {
            let range = Some([of_run(start.min(end)), of_run(start.max(end))]);
            shown.view.update(|view| view.range = range);
            // Another moment is under the pointer now.
            shown.pointed.set(Some(of_run(end)));
        }
    };
    let leave = move |_| {
        drag.set(None);
        shown.pointed.set(None);
    };
    let key = move |event: KeyboardEvent| {
        let (columns, n_all) = chart
            .with_untracked(|chart| chart.as_ref().map_or((0..0, 0), |chart| (chart.columns.clone(), chart.n_all)));
        let Some(now) = column.get_untracked().filter(|_| n_all > 0) else { return };
        let spans = untrack(|| shown.with(|planned| planned.timeline.spans.clone())).unwrap_or_default();
        let key = event.key();
        match key.as_str() {
            "Escape" => {
                shown.view.set(View::default());
                shown.pinned.set(None);
            }
            "+" | "=" | "-" => shown.view.update(|view| *view = view.zoomed(key != "-", now, n_all)),
            _ => {
                if let Some(next) = moved(&key, now, columns, &spans) {
                    event.prevent_default();
                    shown.pointed.set(None);
                    shown.pinned.set(Some(share_of(next, n_all)));
                }
            }
        }
    };
    // `shortcuts.js` computes the part to show from these.
    let range = move || {
        let [start, end] = shown.view.get().range.unwrap_or([0.0, 1.0]).map(|share| decimal::fixed(share, 6));
        [start, " ".to_owned(), end].concat()
    };
    browser::on_chart_range(move |start, end| {
        let range = (end - start < 1.0).then_some([start, end]);
        shown.view.update(|view| view.range = range);
    });
    let stale = shown.is_stale;
    // While a slider moves, the chart has no value text, which takes the list of live tensors.
    let value_text = move || {
        if shown.is_sliding.get() { None } else { shown.moment.with(|moment| moment.as_ref().map(spoken)) }
    };
    let x = move || chart.with(|chart| chart.as_ref().and_then(|chart| chart.x_of(column.get()?)));
    let cursor = move || percent(x().unwrap_or(0.0));
    // A failure has its own line and text. While a slider moves, the words are those of the moment before.
    let is_quiet = move || {
        let fails = chart.with(|chart| chart.as_ref().is_none_or(|chart| chart.failure.is_some()));
        x().is_none() || shown.is_sliding.get() || shown.follows() && fails
    };
    let is_right = move || x().is_some_and(|x| x > 0.5);
    let brush = move || {
        drag.get().filter(|[start, end]| (end - start).abs() >= DRAG_MIN).map(|[start, end]| {
            view! { <div class="chart__brush" style:left=percent(start.min(end)) style:width=percent((end - start).abs())></div> }
        })
    };
    // The details may cover the label of the line.
    let total = move || {
        let bytes = shown.with(|planned| planned.plan.request.machine().device.total_bytes)?;
        Some([t(text::CARD_LINE), " ", &format::size(bytes)].concat())
    };
    view! {
        <div class="chart__plot" id="chart" data-testid="chart" role="slider" tabindex="0" node_ref=plot data-range=words(range)
            aria-label=t(text::CHART) aria-description=t(text::CHART_HELP) aria-valuemin="0"
            aria-valuemax=words(move || chart.with(|chart| chart.as_ref().map_or(0, |chart| chart.n_all.saturating_sub(1))).to_string())
            aria-valuenow=words(move || column.get().unwrap_or(0).to_string())
            aria-valuetext=some_words(value_text)
            on:pointermove=point on:pointerdown=press on:pointerup=release on:pointercancel=leave on:pointerleave=leave on:keydown=key>
            <Drawing chart />
            <Words shown chart />
            {part(brush)}
            {part(move || stale.get().then(|| {
                let sentence = match (chart.with(Option::is_some), shown.draft.with(Option::is_some)) {
                    (false, _) => text::NOTHING_TO_DRAW,
                    (true, false) => text::STALE,
                    (true, true) => text::STALE_GPU,
                };
                let sentence = t(sentence);
                view! { <p class="chart__none"><span>{sentence}</span></p> }
            }))}
            <div class="chart__cursor" class:chart__cursor--quiet=flag(is_quiet)
                style=("--x", words(cursor))>
                <span class="chart__moment">
                    {part_between(shown.is_sliding, move || shown.moment.with(|moment| moment.as_ref().map(moment_text)))}
                </span>
            </div>
            <div class="chart__details" class:chart__details--left=flag(is_right)>
                {part_between(shown.is_sliding, move || shown.moment.with(|moment| moment.as_ref().map(details)))}
                <p class="chart__total">{some_words(total)}</p>
            </div>
        </div>
    }
}

/// Number of tensors listed for the selected moment.
const TENSORS_MAX: usize = 3;

/// Shows the selected moment: its phase and total, then each category's memory, then the largest tensors.
fn details(moment: &ShownMoment) -> impl IntoView + use<> {
    let live = &moment.live;
    let categories = Category::ALL.into_iter().enumerate().zip(live.by_category).rev().filter(|(_, bytes)| *bytes > 0);
    let categories = categories.map(|((index, category), bytes)| {
        view! {
            <li>{swatch(index + 2)} <span>{t(category.text())}</span> <span>{format::size(bytes)}</span></li>
        }
    });
    let tensors = live.lines.iter().take(TENSORS_MAX).map(|line| {
        view! { <li><code>{line.name.clone()}</code> <span>{format::size(line.bytes)}</span> <small>{line.shape_text()}</small></li> }
    });
    view! {
        <p>{moment_text(moment)}</p>
        <ul>{categories.collect_view()}</ul>
        <p>{t(text::LARGEST_TENSORS)}</p>
        <ul>{tensors.collect_view()}</ul>
    }
}

fn moment_text(moment: &ShownMoment) -> String {
    let total = format::size(moment.live.total_bytes);
    say(&text::labelled(t(moment.phase.text()), format!("{total} {}", format::mark(moment.certainty))))
}

/// Describes the selected moment in one line: total, largest tensor and every category.
fn spoken(moment: &ShownMoment) -> String {
    let live = &moment.live;
    let largest = live.lines.first();
    let largest = largest.map(|line| format!("{} {} {}", line.name, line.shape_text(), format::size(line.bytes)));
    let categories = Category::ALL.into_iter().zip(live.by_category).filter(|(_, bytes)| *bytes > 0);
    let categories = categories.map(|(category, bytes)| format!("{} {}", t(category.text()), format::size(bytes)));
    let parts = std::iter::once(moment_text(moment)).chain(largest).chain(categories);
    say(&text::verbatim(text::list(Separator::Semicolon, parts)))
}

/// Returns the column to which a key moves: the next column, a phase, or an end of the visible columns.
pub fn moved(key: &str, now: usize, columns: Range<usize>, spans: &[Span]) -> Option<usize> {
    let last = columns.end.saturating_sub(1);
    let next = match key {
        "ArrowLeft" | "ArrowDown" => now.saturating_sub(1),
        "ArrowRight" | "ArrowUp" => now + 1,
        "Home" => columns.start,
        "End" => last,
        "PageDown" => spans.iter().map(|span| span.start).find(|start| *start > now).unwrap_or(last),
        "PageUp" => spans.iter().rev().map(|span| span.start).find(|start| *start < now).unwrap_or(0),
        _ => return None,
    };
    Some(next.min(last).max(columns.start))
}

#[component]
fn Drawing(chart: ChartMemo) -> impl IntoView {
    let path = move |band: usize| chart.with(|chart| chart.as_ref().map(|chart| chart.bands[band].clone()));
    let view_box = move || {
        let n = chart.with(|chart| chart.as_ref().map_or(1, |chart| chart.n_columns().max(1)));
        format!("0 0 {n} {HEIGHT}")
    };
    let n_columns = move || chart.with(|chart| chart.as_ref().map_or(0.0, |chart| chart.n_columns() as f64));
    let y = |share: f64| decimal::fixed(share * HEIGHT as f64, 1);
    // Placed above the drawing if there is no line to draw.
    let capacity = move || {
        chart.with(|chart| chart.as_ref().and_then(|chart| chart.capacity_y).map_or_else(|| "-9".to_owned(), y))
    };
    let levels =
        move || chart.with(|chart| chart.as_ref().map(|c| c.levels.iter().map(|l| y(l.0)).collect::<Vec<_>>()));
    let hatches = move |index: usize| chart.with(|chart| chart.as_ref().map(|chart| chart.hatches[index].clone()));
    let unreached =
        move || chart.with(|chart| chart.as_ref().and_then(|chart| Some((chart.unreached?, chart.failure.is_some()))));
    view! {
        <svg class="chart__drawing" viewBox=words(view_box) preserveAspectRatio="none" aria-hidden="true">
            <g class="chart__grid">
                {part_of(levels, |levels| levels.map(|levels| levels.into_iter().map(|y| view! {
                    <line x1="0" x2="10000" y1=y.clone() y2=y />
                }).collect_view()))}
            </g>
            <g class="chart__bands">
                // The topmost band is drawn first. The outline of a band without height would otherwise cover the band
                // below.
                {(0..N_BANDS).rev().map(|band| view! {
                    <path class=format!("band-{band}") d=some_words(move || path(band)) />
                }).collect_view()}
            </g>
            {(0..HATCHES.len()).map(|index| view! {
                <path class="chart__hatch" d=some_words(move || hatches(index)) />
            }).collect_view()}
            <path class="chart__reserved" d=some_words(move || chart.with(|chart| chart.as_ref().map(|chart| chart.reserved.clone()))) />
            {part(move || unreached().map(|(x, fails)| {
                let start = x * n_columns();
                view! {
                    <rect class="chart__beyond" x=decimal::fixed(start, 1) y="0"
                        width=decimal::fixed(n_columns() - start, 1) height=HEIGHT.to_string() />
                    {fails.then(|| view! {
                        <line class="chart__failure" x1=decimal::fixed(start, 1) x2=decimal::fixed(start, 1) y1="0" y2=HEIGHT.to_string() />
                    })}
                }
            }))}
            <line class="chart__capacity" x1="0" x2="10000" y1=words(capacity) y2=words(capacity) />
        </svg>
    }
}

/// The labels on the drawing.
#[component]
fn Words<R: Drawable>(shown: ShownPlan<R>, chart: ChartMemo) -> impl IntoView {
    let gpu_size = move || shown.with(|planned| format::size(planned.plan.request.machine().device.total_bytes));
    let labels = move || chart.with(|chart| chart.as_ref().map(|chart| chart.labels.clone()));
    let failure = move || chart.with(|chart| chart.as_ref().and_then(|chart| chart.failure));
    let capacity = move || chart.with(|chart| chart.as_ref().and_then(|c| Some((c.capacity_y?, c.capacity_is_right))));
    view! {
        <div class="chart__words" aria-hidden="true">
            {part(move || labels().map(|labels| labels.into_iter().map(|label| view! {
                <span class="chart__label"
                    style:left=percent(label.x) style:width=percent(label.width) style:top=percent(label.y)
                    style:height=percent(label.height)>
                    <span><em>{band_name(label.band)}</em></span>
                </span>
            }).collect_view()))}
            {part(move || capacity().map(|(y, is_right)| view! {
                <span class="chart__card" class:chart__card--right=is_right style:top=percent(y)>
                    {t(text::CARD_LINE)} " " {some_words(gpu_size)}
                </span>
            }))}
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
fn Axis(chart: ChartMemo) -> impl IntoView {
    let row = |ticks: fn(&Chart) -> &Vec<Tick>| {
        part_of(
            move || chart.with(|chart| chart.as_ref().map(|chart| ticks(chart).clone())),
            |ticks| ticks.map(|ticks| ticks.iter().map(tick).collect::<Vec<_>>()),
        )
    };
    view! {
        <div class="chart__axis" aria-hidden="true">
            <div class="chart__ticks chart__ticks--phases">{row(|chart| &chart.phases)}</div>
            <div class="chart__ticks chart__ticks--stretches">{row(|chart| &chart.stretches)}</div>
        </div>
    }
}

/// Renders a tick of an axis.
pub fn tick(tick: &Tick) -> Part {
    view! {
        <span class="chart__tick" title=tick.title style:left=percent(tick.start) style:width=percent(tick.width)>
            <span data-short=tick.short>{tick.label}</span>
        </span>
    }
    .into_part()
}

/// Returns the path of the hatching in a band's legend swatch.
fn legend_hatch(band: usize) -> String {
    let found = HATCHES.into_iter().find(|(hatched, _)| *hatched == band);
    found.map_or_else(String::new, |(_, apart)| hatch(10, apart, |_| [0, HEIGHT]))
}

/// Shows a band's colour with its hatching.
fn swatch(band: usize) -> impl IntoView + use<> {
    view! {
        <svg class="legend__colour" viewBox="0 0 10 1000" preserveAspectRatio="none" aria-hidden="true">
            <rect class=format!("band-{band}") width="10" height="1000" />
            <path class="chart__hatch" d=legend_hatch(band) />
        </svg>
    }
}

#[component]
fn Legend<R: Drawable>(shown: ShownPlan<R>) -> impl IntoView {
    let has_others = |planned: &PlanWithTimeline<R>| planned.plan.request.machine().other_processes_bytes > 0;
    let others = memo(move || shown.with(has_others) == Some(true));
    view! {
        <div class="legend">
            <ul class="legend__bands" aria-label=t(text::LEGEND)>
                {(2..N_BANDS).chain(0..2).map(|band| {
                    let is_shown = move || !shown.view.get().hides(band);
                    let toggle = act(move || shown.view.update(|view| view.hidden ^= 1 << band));
                    view! {
                        <li class:legend__band--off=flag(move || band == 0 && !others.get())>
                            <button type="button" class="legend__band" data-band=band.to_string()
                                aria-pressed=words(move || is_shown().to_string()) on:click=toggle>
                                {swatch(band)} {band_name(band)}
                            </button>
                        </li>
                    }
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
    use headroom_planner::memory::program::Phase;

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
            assert_eq!(moved(key, from, 0..12, &spans), to, "{key} from {from}");
        }
        for (key, from, to) in [("Home", 7, 5), ("End", 7, 8), ("ArrowRight", 1, 5), ("PageDown", 7, 8)] {
            assert_eq!(moved(key, from, 5..9, &spans), Some(to), "{key} from {from} where a part is shown");
        }
    }
}
