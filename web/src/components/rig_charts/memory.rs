//! The memory of a run's GPU over the run: the summary and the drawing.

use leptos::{html::Div, prelude::*};

use super::{
    drawing::drawing,
    frame::{Levels, Ticks},
};
use crate::{
    components::dynamic::{part_of, words},
    state::{
        memo::memo,
        rig::memory::RunMemory,
        rig_charts::{
            axis::{Axis as _, Chart},
            plot::Plot,
        },
    },
    text::{self, t},
};

/// The memory chart, with the same height and style as the loss chart.
#[component]
pub fn MemoryChart(
    /// The content of the drawing.
    drawn: Memo<RunMemory>,
    /// The text over an empty plot.
    none: Signal<String>,
    /// The plot's element.
    node: NodeRef<Div>,
) -> impl IntoView {
    let plot = memo(move || drawn.with(|drawn| drawn.plot.clone()));
    view! {
        <section class="rig-chart rig-chart--loss rig-chart--memory" aria-labelledby="run-memory-title" data-testid="run-memory">
            <div class="rig-chart__head">
                <h2 class="panel-title">
                    <span id="run-memory-title">{t(text::RIG_MEMORY_OF_RUN)}</span>
                    <span class="rig-chart__unit">{Chart::Memory.axis_unit()}</span>
                </h2>
            </div>
            <p class="rig-chart__said">{words(move || drawn.with(|drawn| drawn.said.clone()))}</p>
            <div class="rig-chart__frame">
                <Levels levels=Signal::derive(move || plot.with(|plot| plot.scale.levels.clone())) />
                <div class="rig-chart__area">
                    <div class="rig-chart__plot rig-chart__plot--still" role="img" aria-labelledby="run-memory-title" node_ref=node>
                        {drawing(plot)}
                    </div>
                    {part_of(move || plot.with(|plot| plot.is_empty), move |is_empty| is_empty.then(|| view! {
                        <div class="rig-chart__none"><p>{words(move || none.get())}</p></div>
                    }))}
                </div>
                <Ticks ticks=Signal::derive(move || plot.with(Plot::named_ticks)) />
            </div>
        </section>
    }
}
