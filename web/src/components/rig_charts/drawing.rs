//! The drawing of a history without pointer: grid, bands, lines and limits.

use leptos::prelude::*;

use super::frame::{grid, percent};
use crate::{
    components::dynamic::{IntoPart, Part, part_of, some_words, words},
    state::rig_charts::{
        path::{HEIGHT, WIDTH},
        plot::{Limit, Line, Plot, limits},
    },
    text::t,
};

/// Maximum number of readings per chart.
const N_LINES: usize = 2;

/// Renders the drawing and the labels in it.
pub fn drawing(plot: Memo<Plot>) -> Part {
    let path = move |index: usize, of: fn(&Line) -> &String| {
        some_words(move || plot.with(|plot| plot.lines.get(index).map(|line| of(line).clone())))
    };
    let lines = move || {
        plot.with(|plot| {
            let ys: Vec<f64> = plot.scale.levels.iter().map(|level| level.0).collect();
            let xs: Vec<f64> = plot.ticks.iter().map(|tick| tick.x).collect();
            grid(&ys, &xs)
        })
    };
    let limits = move |is_planned: bool| words(move || plot.with(|plot| limits(plot, is_planned)));
    view! {
        <svg class="rig-chart__drawing" viewBox=format!("0 0 {WIDTH} {HEIGHT}") preserveAspectRatio="none" aria-hidden="true">
            <path class="rig-chart__grid" d=words(lines) />
            {(0..N_LINES).rev().map(|index| view! {
                <path class=format!("rig-chart__band rig-chart__band--{index}") d=path(index, |line| &line.band) />
            }).collect_view()}
            <path class="rig-chart__limit" d=limits(false) />
            <path class="rig-chart__limit rig-chart__limit--planned" d=limits(true) />
            {(0..N_LINES).rev().map(|index| view! {
                <path class=format!("rig-chart__line rig-chart__line--{index}") d=path(index, |line| &line.line) />
            }).collect_view()}
        </svg>
        <div class="rig-chart__words" aria-hidden="true">
            {part_of(move || plot.with(|plot| plot.limits.clone()), |limits| limits.into_iter().map(name).collect_view())}
        </div>
    }
    .into_part()
}

/// Renders the label of a limit. The plan's label is above its line and on the other side, where it covers neither the
/// GPU's label nor the data. At the top there is only room below the line.
fn name(limit: Limit) -> impl IntoView {
    let is_high = limit.is_high();
    view! {
        <span class="rig-chart__bound" class:rig-chart__bound--planned=limit.is_planned class:rig-chart__bound--below=is_high
            style:top=percent(limit.y)>{t(limit.name)} " " {limit.words}</span>
    }
}
