//! The chart with both runs over each other.

use headroom_text::{Separator, decimal};
use leptos::{html::Div, prelude::*};
use web_sys::{KeyboardEvent, PointerEvent};

use super::{
    super::{
        chart::{moved, percent, tick},
        dynamic::{IntoPart, Part, flag, part, words},
    },
    tables::{head, memory_row},
};
use crate::{
    state::{
        chart::{HEIGHT, column_at_share, share_of},
        compare::{
            moment::ComparedMoment,
            overlay::{LABEL_SHARE, Limit, Overlay},
            rows::MemoryRow,
            view::ComparisonView,
        },
        format,
        memo::memo,
    },
    text::{self, say, t},
};

/// The chart with its legend. The table of phases has the same figures as text.
#[component]
pub fn OverlayChart(
    /// Both runs as they are shown.
    view: Memo<ComparisonView>,
) -> impl IntoView {
    let has_absent = move || view.with(|view| view.overlay.as_ref().is_some_and(|overlay| !overlay.absent.is_empty()));
    let absent = move || {
        has_absent().then(|| {
            view! { <li><span class="compare__sign compare__sign--absent" aria-hidden="true"></span>{t(text::COMPARE_ABSENT)}</li> }
        })
    };
    view! {
        <section class="panel compare__chart" aria-labelledby="compare-chart">
            <h2 class="panel-title" id="compare-chart">{t(text::CHART)} " " <span class="chart__unit">{t(text::CHART_UNIT)}</span></h2>
            <div class="compare__course">
                {part(move || view.with(drawing))}
                <Pointer view />
            </div>
            <ul class="compare__legend">
                <li><span class="compare__sign compare__sign--changed" aria-hidden="true"></span>{t(text::COMPARE_CHANGED)}</li>
                <li><span class="compare__sign compare__sign--pinned" aria-hidden="true"></span>{t(text::COMPARE_PINNED)}</li>
                <li><span class="compare__sign compare__sign--reserved" aria-hidden="true"></span>{t(text::RESERVED_LINE)}</li>
                {part(absent)}
            </ul>
        </section>
    }
}

/// Selects a moment by pointer or keyboard, and shows its details.
#[component]
fn Pointer(view: Memo<ComparisonView>) -> impl IntoView {
    let plot = NodeRef::<Div>::new();
    // The moments under the pointer and of the keyboard or a press, as shares of the width.
    let (pointed, pinned) = (RwSignal::new(None::<f64>), RwSignal::new(None::<f64>));
    let n_columns = move || view.with(|view| view.overlay.as_ref().map_or(0, |overlay| overlay.n_columns));
    let column = memo(move || {
        let share = pointed.get().or_else(|| pinned.get())?;
        Some(n_columns()).filter(|n| *n > 0).map(|n| column_at_share(n, share))
    });
    let moment = memo(move || view.with(|view| view.moment(column.get()?)));
    let share_at = move |event: &PointerEvent| {
        let plot = plot.get_untracked()?.get_bounding_client_rect();
        Some(((f64::from(event.client_x()) - plot.left()) / plot.width().max(1.0)).clamp(0.0, 1.0))
    };
    let key = move |event: KeyboardEvent| {
        let n = view.with_untracked(|view| view.overlay.as_ref().map_or(0, |overlay| overlay.n_columns));
        let spans = view.with_untracked(|view| view.overlay.as_ref().map(|overlay| overlay.spans.clone()));
        let now = column.get_untracked().unwrap_or(0);
        if event.key() == "Escape" {
            pinned.set(None);
        } else if let Some(next) = moved(&event.key(), now, 0..n, &spans.unwrap_or_default()).filter(|_| n > 0) {
            event.prevent_default();
            pointed.set(None);
            pinned.set(Some(share_of(next, n)));
        }
    };
    let x = move || column.get().map(|column| share_of(column, n_columns()));
    let is_right = move || x().is_some_and(|x| x > 0.5);
    let line = move || x().map(|x| view! { <div class="compare__cursor" style:left=percent(x)></div> });
    view! {
        <div class="compare__pointer" id="chart" role="slider" tabindex="0" node_ref=plot
            aria-label=t(text::CHART) aria-description=t(text::COMPARE_CHART_HELP) aria-valuemin="0"
            aria-valuemax=words(move || n_columns().saturating_sub(1).to_string())
            aria-valuenow=words(move || column.get().unwrap_or(0).to_string())
            aria-valuetext=words(move || moment.with(|moment| moment.as_ref().map(spoken_moment).unwrap_or_default()))
            on:pointermove=move |event| pointed.set(share_at(&event))
            on:pointerdown=move |event| pinned.set(share_at(&event))
            on:pointerleave=move |_| pointed.set(None)
            on:blur=move |_| pinned.set(None)
            on:keydown=key>
            {part(line)}
        </div>
        <div class="compare__details" class:compare__details--left=flag(is_right) data-testid="compare-details">
            {part(move || moment.with(|moment| moment.as_ref().map(details)))}
        </div>
    }
}

/// The box of a moment: the phase, the memory by category, and the largest tensors.
fn details(moment: &ComparedMoment) -> Part {
    let rows = |rows: &[MemoryRow]| rows.iter().map(memory_row).collect::<Vec<Part>>();
    view! {
        <table class="compare__table">
            <caption>{t(moment.phase.text())}</caption>
            {head(text::COMPARE_CATEGORY, true)}
            <tbody>{rows(&moment.categories)} {memory_row(&moment.total)}</tbody>
            <tbody class="compare__tensors">
                <tr><th scope="rowgroup" colspan="4">{t(text::LARGEST_TENSORS)}</th></tr>
                {rows(&moment.tensors)}
            </tbody>
        </table>
    }
    .into_part()
}

/// The moment in one line: the phase, then the totals, the categories and the largest tensors of both runs.
fn spoken_moment(moment: &ComparedMoment) -> String {
    let both = |row: &MemoryRow| {
        let [pinned, changed] = row.bytes.map(|bytes| bytes.map_or_else(|| "–".to_owned(), format::size));
        let difference = row.difference().map(format::difference).unwrap_or_default();
        format!("{} {pinned} → {changed} {difference}", row.label)
    };
    let rows = std::iter::once(&moment.total).chain(&moment.categories).chain(&moment.tensors).map(both);
    let parts = std::iter::once(t(moment.phase.text()).to_owned()).chain(rows);
    say(&text::verbatim(text::list(Separator::Semicolon, parts)))
}

/// The chart in a sentence: the peak of both runs.
fn spoken(view: &ComparisonView) -> String {
    let peak = |run: usize| view.tiles[run].figures.as_ref().map_or_else(String::new, |f| format::size(f.used_bytes));
    say(&text::compare_chart(peak(0), peak(1)))
}

fn drawing(view: &ComparisonView) -> Part {
    let Some(overlay) = &view.overlay else {
        return view! { <div class="compare__frame compare__frame--empty"><p>{t(text::NOTHING_TO_DRAW)}</p></div> }
            .into_part();
    };
    let Overlay { n_columns, pinned, changed, absent, reserved, limits, levels, phases, stretches, failures, .. } =
        overlay.clone();
    let are_right = overlay.limits_are_right;
    let y = |share: f64| decimal::fixed(share * HEIGHT as f64, 1);
    let grid: Vec<_> = levels
        .iter()
        .map(|(share, _)| y(*share))
        .map(|y| view! { <line x1="0" x2="10000" y1=y.clone() y2=y /> })
        .collect();
    let scale: Vec<_> = levels
        .into_iter()
        .map(|(share, gib)| view! { <span class="chart__level" style:top=percent(share)>{gib}</span> })
        .collect();
    let absent: Vec<_> = absent
        .into_iter()
        .map(|columns| {
            let [start, end] = [columns.start, columns.end].map(|column| column as f64 / n_columns.max(1) as f64);
            view! { <div class="compare__absent" style:left=percent(start) style:width=percent(end - start)></div> }
        })
        .collect();
    let [pinned_reserved, changed_reserved] = reserved;
    let n_limits = limits.len();
    let lines: Vec<_> = limits
        .iter()
        .enumerate()
        .filter_map(|(run, limit)| Some((run, y(limit.y?))))
        .map(|(run, y)| {
            let is_pinned = n_limits > 1 && run == 0;
            view! { <line class="chart__capacity" class:compare__limit--pinned=is_pinned x1="0" x2="10000" y1=y.clone() y2=y /> }
        })
        .collect();
    // Labels that would overlap are below each other, at the lower limit.
    let low = limits.iter().map(Limit::label_y).fold(0.0, f64::max);
    let are_close = limits.iter().all(|limit| low - limit.label_y() < LABEL_SHARE);
    let words: Vec<_> = limits
        .into_iter()
        .enumerate()
        .map(|(run, limit)| {
            let name = match (n_limits, run) {
                (1, _) => text::CARD_LINE,
                (_, 0) => text::COMPARE_PINNED,
                _ => text::COMPARE_CHANGED,
            };
            let arrow = if limit.y.is_none() { " ↑" } else { "" };
            let y = if are_close { low } else { limit.label_y() };
            let (is_right, is_second) = (are_right || run == 1 && !are_close, run == 1 && are_close);
            view! {
                <span class="compare__limit" class:compare__limit--right=is_right class:compare__limit--second=is_second
                    style:top=percent(y)>
                    {t(name)} " " {limit.size} {arrow}
                </span>
            }
        })
        .collect();
    let (failure_lines, failure_words): (Vec<_>, Vec<_>) = [text::COMPARE_PINNED, text::COMPARE_CHANGED]
        .into_iter()
        .zip(failures)
        .filter_map(|(name, x)| Some((name, x?)))
        .map(|(name, x)| {
            let line = view! { <div class="compare__failure" style:left=percent(x)></div> };
            let words = view! {
                <p class="compare__fails" data-testid="compare-failure">
                    <span style:flex-basis=percent(x)></span>
                    <strong>"✕ " {t(name)} " " {t(text::FAILS_HERE)}</strong>
                </p>
            };
            (line, words)
        })
        .unzip();
    let row = |ticks: &[_]| ticks.iter().map(tick).collect::<Vec<_>>();
    view! {
        <div class="chart__frame compare__frame" role="img" aria-label=spoken(view) data-testid="compare-chart">
            <div class="chart__levels" aria-hidden="true">{scale}</div>
            <div class="compare__plot" aria-hidden="true">
                {absent}
                <svg class="chart__drawing" viewBox=format!("0 0 {n_columns} {HEIGHT}") preserveAspectRatio="none" aria-hidden="true">
                    <g class="chart__grid">{grid}</g>
                    <path class="compare__area" d=changed />
                    <path class="compare__reserved compare__reserved--changed" d=changed_reserved />
                    <path class="compare__reserved" d=pinned_reserved />
                    <path class="compare__line" d=pinned />
                    {lines}
                </svg>
                {words}
                {failure_lines}
            </div>
            <div class="compare__failures">{failure_words}</div>
            <div class="chart__axis" aria-hidden="true">
                <div class="chart__ticks chart__ticks--phases">{row(&phases)}</div>
                <div class="chart__ticks chart__ticks--stretches">{row(&stretches)}</div>
            </div>
        </div>
    }
    .into_part()
}
