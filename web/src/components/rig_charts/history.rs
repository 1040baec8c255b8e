//! A GPU's history: the choices, the summary, the plot and the table.

use headroom_protocol::gpu::Gpu;
use leptos::prelude::*;

use super::{
    context::{ChartContext, Fetch, TryAgain, ZONE},
    frame::{Levels, Ticks},
    history_plot::HistoryPlot,
    history_table::HistoryTable,
    per_frame::PerFrame,
};
use crate::{
    components::dynamic::{IntoPart, flag, part_of, words},
    state::{
        memo::memo,
        rig_charts::{
            axis::{Axis as _, Chart},
            history::{ChartState, ChartStatus},
            plot::{PlannedPeak, Plot},
            reading::ReadingText,
            view::SPANS_MS,
        },
    },
    text::{self, Key, say, t},
};

/// The history of the rig's GPUs.
#[component]
pub fn HistoryChart(
    /// The GPUs, in the agent's order.
    #[prop(into)]
    gpus: Signal<Vec<Gpu>>,
    /// Fetches `/api/history?…` from the agent.
    fetch: Fetch,
    /// The newest time in milliseconds by the agent's clock; 0 if unknown. The chart requests nothing while this time
    /// does not advance.
    #[prop(into)]
    newest_ms: Signal<u64>,
    /// The predicted peaks of the current runs, with the UUID of each GPU.
    #[prop(into, default = Signal::stored(vec![]))]
    planned: Signal<Vec<(String, PlannedPeak)>>,
    /// The reason why history is paused, if it is.
    #[prop(into, default = Signal::stored(None))]
    paused: Signal<Option<String>>,
) -> impl IntoView {
    let gpus = memo(move || gpus.get());
    let planned = memo(move || planned.get());
    let charted = RwSignal::new(ChartState::default());
    let plot = memo(move || {
        let newest_ms = newest_ms.get_untracked();
        charted.with(|charted| gpus.with(|gpus| planned.with(|p| charted.plot(gpus, p, newest_ms, ZONE))))
    });
    let standing = memo(move || {
        let newest_ms = newest_ms.get_untracked();
        charted.with(|charted| gpus.with(|gpus| plot.with(|plot| charted.standing(gpus, newest_ms, plot))))
    });
    let pointed = PerFrame::new(None);
    let fetch = StoredValue::new_local(fetch);
    let shown = ChartContext { charted, gpus, newest_ms, plot, standing, pointed, node: NodeRef::new(), fetch };
    // Requests data once per second, and when the list of GPUs changes.
    let second = memo(move || newest_ms.get() / 1000);
    Effect::new(move || {
        // The values are read, because tracking alone does not evaluate a memo.
        second.get();
        gpus.with(|_| ());
        shown.ask();
    });
    let chart = memo(move || charted.with(|charted| charted.chart));
    view! {
        <section class="rig-chart" aria-labelledby="history-title" data-testid="history">
            <div class="rig-chart__head">
                <h2 class="panel-title">
                    <span id="history-title">{t(text::HISTORY_TITLE)}</span>
                    <span class="rig-chart__unit">{words(move || chart.get().axis_unit().to_owned())}</span>
                </h2>
                <Choices shown chart />
            </div>
            <Words shown />
            <div class="rig-chart__frame">
                <Levels levels=Signal::derive(move || plot.with(|plot| plot.scale.levels.clone())) />
                <HistoryPlot shown />
                <Ticks ticks=Signal::derive(move || plot.with(Plot::named_ticks)) />
            </div>
            <Notes shown paused />
            <HistoryTable shown />
        </section>
    }
}

/// The choices of GPU, metric and time range, and the button that returns to the previous range.
#[component]
fn Choices(shown: ChartContext, chart: Memo<Chart>) -> impl IntoView {
    let choose = move |chosen: Chart| {
        shown.pointed.set(None);
        shown.change(|charted, _| charted.chart = chosen);
    };
    let window = move || shown.charted.with(|charted| charted.view.window);
    let can_go_back = move || shown.charted.with(|charted| charted.view.can_go_back());
    const SPANS: [(Key, Key); 3] = [
        (text::HISTORY_HOUR, text::HISTORY_HOUR_LONG),
        (text::HISTORY_DAY, text::HISTORY_DAY_LONG),
        (text::HISTORY_MONTH, text::HISTORY_MONTH_LONG),
    ];
    view! {
        <Gpus shown />
        <div class="rig-chart__choice" role="group" aria-label=t(text::HISTORY_READING)>
            {Chart::ALL.map(|of| view! {
                <button type="button" class="rig-chart__button"
                    aria-pressed=words(move || (chart.get() == of).to_string())
                    on:click=move |_| choose(of)>{t(of.name())}</button>
            }).collect_view()}
        </div>
        <div class="rig-chart__choice rig-chart__choice--ranges" role="group" aria-label=t(text::HISTORY_RANGE)>
            {SPANS_MS.into_iter().zip(SPANS).map(|(span_ms, (short, long))| view! {
                <button type="button" class="rig-chart__button" title=t(long)
                    aria-pressed=words(move || {
                        let window = window();
                        (window.span_ms == span_ms && window.end_ms.is_none()).to_string()
                    })
                    on:click=move |_| shown.change(|charted, newest_ms| {
                        charted.look(newest_ms, |view, _| view.choose(span_ms));
                    })>{t(short)}</button>
            }).collect_view()}
            <button type="button" class="rig-chart__button" title=t(text::HISTORY_BACK_HINT)
                prop:disabled=flag(move || !can_go_back())
                on:click=move |_| shown.change(|charted, newest_ms| {
                    charted.look(newest_ms, |view, _| view.back());
                })><span aria-hidden="true">"‹ "</span>{t(text::HISTORY_BACK)}</button>
        </div>
    }
}

/// The drop-down list of GPUs, if there are several.
#[component]
fn Gpus(shown: ChartContext) -> impl IntoView {
    let named = move || {
        let of = |gpu: &Gpu| (gpu.uuid.clone(), format!("{}: {}", gpu.index, gpu.name.trim_start_matches("NVIDIA ")));
        shown.gpus.with(|gpus| gpus.iter().map(of).collect::<Vec<_>>())
    };
    let chosen = move || shown.with(|charted, gpus, _| charted.gpu(gpus).map(|gpu| gpu.uuid.clone()));
    part_of(named, move |named| {
        (named.len() > 1).then(|| {
            view! {
                <select class="input rig-chart__cards" id="history-card" aria-label=t(text::HISTORY_CARD)
                    prop:value=words(move || chosen().unwrap_or_default())
                    on:change:target=move |event| {
                        let uuid = event.target().value();
                        shown.change(|charted, _| charted.gpu = Some(uuid));
                    }>
                    {named.into_iter().map(|(uuid, name)| {
                        let is_chosen = untrack(chosen).as_ref() == Some(&uuid);
                        view! { <option value=uuid selected=is_chosen>{name}</option> }
                    }).collect_view()}
                </select>
            }
        })
    })
}

/// The values under the cursor as text, or else a summary of the range.
#[component]
fn Words(shown: ChartContext) -> impl IntoView {
    let said = move || {
        let share = shown.pointed.get().map(|pointed| pointed.share);
        shown.with(|charted, gpus, newest_ms| match share {
            Some(share) => charted.reading(gpus, newest_ms, share, ZONE).1,
            None => charted.summary(gpus, newest_ms, ZONE),
        })
    };
    let is_double = move || shown.charted.with(|charted| charted.chart.metrics().count() > 1);
    view! {
        <p class="rig-chart__said" class:rig-chart__said--two=flag(is_double) data-testid="history-said">
            {part_of(said, |ReadingText { when, values }| {
                let values = values.into_iter().enumerate().map(|(index, value)| view! {
                    <span class="rig-chart__value">
                        <span class=format!("rig-chart__key rig-chart__key--{index}") aria-hidden="true"></span>
                        {value.unwrap_or_else(|| "–".to_owned())}
                    </span>
                });
                view! { <span class="rig-chart__when">{when}</span> {values.collect_view()} }
            })}
        </p>
    }
}

/// Notes about the drawing: why it is out of date, or else how to use it.
#[component]
fn Notes(shown: ChartContext, paused: Signal<Option<String>>) -> impl IntoView {
    let stale = move || {
        let is_drawn = shown.standing.with(|standing| *standing == ChartStatus::Drawn);
        shown.with(|charted, gpus, _| charted.stale(gpus)).filter(|_| is_drawn).map(|why| say(&why))
    };
    view! {
        <div class="rig-chart__foot">
            <ul class="rig-chart__legend" aria-hidden="true">
                <li><span class="rig-chart__key rig-chart__key--0"></span>{t(text::HISTORY_MEAN)}</li>
                <li><span class="rig-chart__key rig-chart__key--band"></span>{t(text::HISTORY_EXTREMES)}</li>
            </ul>
            <p class="rig-chart__note" role="status">
                {part_of(move || (stale(), paused.get()), move |of| match of {
                    (Some(why), _) => view! {
                        <span class="rig-chart__warning">{why}</span>" "<TryAgain shown />
                    }.into_part(),
                    (None, Some(reason)) => view! {
                        <span class="rig-chart__warning">{reason}</span>
                    }.into_part(),
                    (None, None) => view! {
                        <span class="rig-chart__hint">{t(text::HISTORY_HINT)}</span>" "
                        <span class="rig-chart__hint rig-chart__hint--wheel">{t(text::HISTORY_HINT_WHEEL)}</span>
                    }.into_part(),
                })}
            </p>
        </div>
    }
}
