//! The chart with both runs over each other.

use headroom_text::decimal;
use leptos::prelude::*;

use super::super::{
    chart::{percent, tick},
    dynamic::{IntoPart, Part, part},
};
use crate::{
    state::{
        chart::HEIGHT,
        compare::{overlay::Overlay, view::ComparisonView},
        format,
    },
    text::{self, say, t},
};

/// The chart with its legend. The table of phases has the same figures as text.
#[component]
pub fn OverlayChart(
    /// Both runs as they are shown.
    view: Memo<ComparisonView>,
) -> impl IntoView {
    view! {
        <section class="panel compare__chart" aria-labelledby="compare-chart">
            <h2 class="panel-title" id="compare-chart">{t(text::CHART)} " " <span class="chart__unit">{t(text::CHART_UNIT)}</span></h2>
            {part(move || view.with(drawing))}
            <ul class="compare__legend">
                <li><span class="compare__sign compare__sign--changed" aria-hidden="true"></span>{t(text::COMPARE_CHANGED)}</li>
                <li><span class="compare__sign compare__sign--pinned" aria-hidden="true"></span>{t(text::COMPARE_PINNED)}</li>
                <li><span class="compare__sign compare__sign--reserved" aria-hidden="true"></span>{t(text::RESERVED_LINE)}</li>
            </ul>
        </section>
    }
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
    let Overlay { n_columns, pinned, changed, reserved, limits, levels, phases, stretches } = overlay.clone();
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
            view! {
                <span class="compare__limit" class:compare__limit--right=run == 1 style:top=percent(limit.y.unwrap_or(0.0))>
                    {t(name)} " " {limit.size} {arrow}
                </span>
            }
        })
        .collect();
    let row = |ticks: &[_]| ticks.iter().map(tick).collect::<Vec<_>>();
    view! {
        <div class="chart__frame compare__frame" role="img" aria-label=spoken(view) data-testid="compare-chart">
            <div class="chart__levels" aria-hidden="true">{scale}</div>
            <div class="compare__plot" aria-hidden="true">
                <svg class="chart__drawing" viewBox=format!("0 0 {n_columns} {HEIGHT}") preserveAspectRatio="none" aria-hidden="true">
                    <g class="chart__grid">{grid}</g>
                    <path class="compare__area" d=changed />
                    <path class="compare__reserved compare__reserved--changed" d=changed_reserved />
                    <path class="compare__reserved" d=pinned_reserved />
                    <path class="compare__line" d=pinned />
                    {lines}
                </svg>
                {words}
            </div>
            <div class="chart__axis" aria-hidden="true">
                <div class="chart__ticks chart__ticks--phases">{row(&phases)}</div>
                <div class="chart__ticks chart__ticks--stretches">{row(&stretches)}</div>
            </div>
        </div>
    }
    .into_part()
}
