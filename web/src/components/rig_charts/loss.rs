//! A run's losses: the summary, the plot and the legend.

use std::time::Duration;

use leptos::{ev, html::Div, prelude::*};
use web_sys::{KeyboardEvent, PointerEvent};

use super::{
    frame::{Cursor, Levels, Ticks, grid, is_mouse, percent, share_at, whole_percent, width_of},
    per_frame::PerFrame,
};
use crate::{
    browser,
    components::dynamic::{IntoPart, Part, part, part_of, words},
    state::rig_charts::{
        loss_plot::{ComparedCurve, LossPlot, reading},
        losses::Losses,
        path::{HEIGHT, WIDTH},
        scale::number,
        small_plot::{SmallPlot, value_at},
    },
    state::{memo::memo, rig::compare::COMPARED_MAX},
    text::{self, Key, say, t},
};

/// Minimum time between two drawings in milliseconds, for losses that arrive more often.
const DRAW_MS: f64 = 1000.0;
/// Step of the cursor per arrow key, as a fraction of the width.
const STEP_SHARE: f64 = 0.01;

/// Returns a signal with the number of the drawing, which changes at most once per `DRAW_MS`. The first change after a
/// longer pause is immediate.
fn paced(losses: Signal<Losses>) -> RwSignal<u32> {
    let drawing = RwSignal::new(0_u32);
    let drawn_at_ms = StoredValue::new(f64::NEG_INFINITY);
    let is_due = StoredValue::new(false);
    let draw = move || {
        drawn_at_ms.try_set_value(browser::now_millis());
        is_due.try_set_value(false);
        let _ = drawing.try_update(|drawing| *drawing = drawing.wrapping_add(1));
    };
    Effect::new(move || {
        // The value is read, because tracking alone does not evaluate a memo.
        losses.with(|_| ());
        let wait_ms = drawn_at_ms.get_value() + DRAW_MS - browser::now_millis();
        if is_due.get_value() {
            return;
        }
        is_due.set_value(true);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds within a second")]
        let wait_ms = wait_ms.clamp(0.0, DRAW_MS) as u64;
        set_timeout(draw, Duration::from_millis(wait_ms));
    });
    drawing
}

/// The loss chart of a run.
#[component]
pub fn LossChart(
    /// The losses of the shown run.
    #[prop(into)]
    losses: Signal<Losses>,
    /// The runs drawn behind it.
    others: Signal<Vec<ComparedCurve>>,
    /// Called with the id of a run to remove from the chart.
    forget: Callback<String>,
    /// The text over an empty plot.
    none: Signal<String>,
) -> impl IntoView {
    let node = NodeRef::<Div>::new();
    let drawing = paced(losses);
    let resized =
        window_event_listener(ev::resize, move |_| drawing.update(|drawing| *drawing = drawing.wrapping_add(1)));
    on_cleanup(move || resized.remove());
    let is_smooth = RwSignal::new(browser::rig::is_kept_smooth());
    let choose = move |to_smooth: bool| {
        view! {
            <button type="button" class="rig-chart__button" aria-pressed=words(move || (is_smooth.get() == to_smooth).to_string())
                on:click=move |_| {
                    is_smooth.set(to_smooth);
                    browser::rig::keep_smooth(to_smooth);
                }>{t(if to_smooth { text::LOSSES_SMOOTH } else { text::LOSSES_RAW })}</button>
        }
    };
    let plot = memo(move || {
        drawing.track();
        let is_smooth = is_smooth.get();
        others.with_untracked(|others| {
            losses.with_untracked(|losses| LossPlot::of(losses, others, width_of(node), is_smooth))
        })
    });
    let summary = memo(move || {
        drawing.track();
        losses.with_untracked(|losses| losses.summary().iter().map(say).collect::<Vec<_>>())
    });
    let pointed = PerFrame::new(None::<f64>);
    let read = memo(move || {
        let share = pointed.get()?;
        let (at, said) = plot.with(|plot| losses.with_untracked(|losses| reading(losses, &plot.axis, share)))?;
        Some((at, said.iter().map(say).collect::<Vec<_>>()))
    });
    let smooth = move || plot.with(|plot| plot.smooth.as_ref().map(|(_, weight)| *weight));
    view! {
        <section class="rig-chart rig-chart--loss" aria-labelledby="losses-title" data-testid="losses">
            <div class="rig-chart__head">
                <h2 class="panel-title">
                    <span id="losses-title">{t(text::LOSSES_TITLE)}</span>
                    <span class="rig-chart__unit">
                        {words(move || plot.with(|plot| if plot.scale.is_log { t(text::LOSSES_LOG) } else { "" }).to_owned())}
                    </span>
                </h2>
                <div class="rig-chart__choice rig-chart__choice--ranges" role="group" aria-labelledby="losses-title">
                    {[false, true].map(choose).into_iter().collect_view()}
                </div>
            </div>
            <p class="rig-chart__said" data-testid="losses-said">
                {part_of(move || read.get().map_or_else(|| summary.get(), |(_, said)| said), |said| {
                    said.into_iter().map(|sentence| view! { <span class="rig-chart__value">{sentence}</span> }).collect_view()
                })}
            </p>
            <div class="rig-chart__frame">
                <Levels levels=Signal::derive(move || plot.with(|plot| plot.levels.clone())) />
                <Plot plot node none pointed read=Signal::derive(move || read.get()) summary />
                <Ticks ticks=Signal::derive(move || plot.with(|plot| {
                    plot.ticks.iter().map(|(x, label)| (*x, label.clone(), false)).collect()
                })) />
            </div>
            <ul class="rig-chart__legend">
                <li><span class="rig-chart__key rig-chart__key--iterations"></span>{t(text::LOSSES_ITERATIONS)}</li>
                <li><span class="rig-chart__key rig-chart__key--0"></span>{t(text::LOSSES_TRAIN)}</li>
                <li><span class="rig-chart__key rig-chart__key--1"></span>{t(text::LOSSES_VAL)}</li>
                {part_of(smooth, |smooth| smooth.map(|weight| view! {
                    <li><span class="rig-chart__key rig-chart__key--smooth"></span>{say(&text::losses_smoothed(number(weight, 2)))}</li>
                }))}
                {legend(plot, others, Signal::derive(move || read.get().map(|(share, _)| share)), forget)}
            </ul>
            {[text::RIG_LEARNING_RATE, text::RIG_GRADIENT_NORM].into_iter().enumerate().map(|(at, name)| {
                beside(at, name, plot, losses, Signal::derive(move || read.get().map(|(share, _)| share)))
            }).collect_view()}
        </section>
    }
}

/// Renders the legend of the compared runs: their line styles, and their losses under the cursor.
fn legend(
    plot: Memo<LossPlot>,
    others: Signal<Vec<ComparedCurve>>,
    cursor: Signal<Option<f64>>,
    forget: Callback<String>,
) -> Part {
    let shown = move || {
        // The order of the runs changes with the drawing.
        plot.track();
        others.with_untracked(|all| all.iter().map(|other| (other.id.clone(), other.name.clone())).collect::<Vec<_>>())
    };
    let value = move |at: usize| {
        let axis = plot.with(|plot| plot.axis.clone());
        let share = cursor.get();
        let found = |all: &Vec<ComparedCurve>| value_at(all.get(at)?.losses.iterations(), &axis, share);
        others.with_untracked(found).unwrap_or_default()
    };
    let entry = move |(at, (id, name)): (usize, (String, String))| {
        let leave = say(&text::rig_remove(name.as_str()));
        view! {
            <li data-testid="other">
                <svg class="rig-chart__sample" viewBox="0 0 28 4" aria-hidden="true">
                    <path class=format!("rig-chart__other rig-chart__other--{at}") d="M0 2H28" />
                </svg>
                {name}" "{words(move || value(at))}" "
                <button type="button" class="button button--quiet" id=format!("other-{at}") aria-label=leave
                    on:click=move |_| forget.run(id.clone())>"✕"</button>
            </li>
        }
    };
    part_of(shown, move |shown| {
        browser::rig::keep_focus("other-", "#compare");
        let lines = (!shown.is_empty()).then(|| view! { <li>{t(text::LOSSES_COMPARE_LINES)}</li> });
        (shown.into_iter().enumerate().map(entry).collect_view(), lines)
    })
    .into_part()
}

/// Renders a second metric of the run as a small plot on the same axis; empty if the run does not print it. The value
/// shown is that under the cursor, or else the newest.
fn beside(at: usize, name: Key, plot: Memo<LossPlot>, losses: Signal<Losses>, cursor: Signal<Option<f64>>) -> Part {
    let has_any = move || plot.with(|plot| plot.besides[at].is_some());
    let of = move |look: fn(&SmallPlot) -> String| {
        words(move || plot.with(|plot| plot.besides[at].as_ref().map(look)).unwrap_or_default())
    };
    let value = move || {
        let axis = plot.with(|plot| plot.axis.clone());
        let share = cursor.get();
        losses.with_untracked(|losses| value_at(&losses.besides()[at], &axis, share)).unwrap_or_default()
    };
    let drawn = move || {
        view! {
            <div class="rig-chart__beside" data-testid=format!("beside-{at}")>
                <p class="rig-chart__said">
                    <span>{t(name)}" "<strong>{words(value)}</strong></span>
                    <span class="rig-chart__ends">{of(|plot| plot.ends.join(" – "))}</span>
                </p>
                <div class="rig-chart__strip">
                    <svg class="rig-chart__drawing" viewBox=format!("0 0 {WIDTH} {HEIGHT}") preserveAspectRatio="none" aria-hidden="true">
                        <path class="rig-chart__line" d=of(|plot| plot.line.clone()) />
                    </svg>
                    <Cursor at=cursor />
                </div>
            </div>
        }
    };
    part_of(has_any, move |has_any| has_any.then(drawn)).into_part()
}

/// The cursor's position as a fraction of the width, and the values under it.
type CursorReading = Signal<Option<(f64, Vec<String>)>>;

#[component]
fn Plot(
    plot: Memo<LossPlot>,
    node: NodeRef<Div>,
    none: Signal<String>,
    pointed: PerFrame<Option<f64>>,
    read: CursorReading,
    summary: Memo<Vec<String>>,
) -> impl IntoView {
    let go = move |event: PointerEvent| pointed.set(share_at(node, &event));
    let leave = move |event: PointerEvent| {
        if is_mouse(&event) {
            pointed.set(None);
        }
    };
    let key = move |event: KeyboardEvent| {
        let share = pointed.get_untracked().unwrap_or(1.0);
        let share = match event.key().as_str() {
            "ArrowLeft" | "ArrowDown" => Some((share - STEP_SHARE).max(0.0)),
            "ArrowRight" | "ArrowUp" => Some((share + STEP_SHARE).min(1.0)),
            "Home" => Some(0.0),
            "End" => Some(1.0),
            "Escape" => None,
            _ => return,
        };
        event.prevent_default();
        pointed.set(share);
    };
    let value = move || whole_percent(pointed.get().unwrap_or(1.0));
    let said = move || read.get().map_or_else(|| summary.get(), |(_, said)| said).join(" ");
    let path = move |of: fn(&LossPlot) -> &str| words(move || plot.with(|plot| of(plot).to_owned()));
    let lines = move || {
        plot.with(|plot| {
            let ys: Vec<f64> = plot.levels.iter().map(|level| level.0).collect();
            let xs: Vec<f64> = plot.ticks.iter().map(|tick| tick.0).filter(|x| *x > 0.0).collect();
            grid(&ys, &xs)
        })
    };
    view! {
        <div class="rig-chart__area">
            <div class="rig-chart__plot" id="losses" data-testid="losses-plot" role="slider" tabindex="0" node_ref=node
                aria-label=t(text::LOSSES_TITLE) aria-description=t(text::LOSSES_HELP)
                aria-valuemin="0" aria-valuemax="100" aria-valuenow=words(value) aria-valuetext=words(said)
                on:pointerdown=go on:pointermove=go on:pointerleave=leave on:keydown=key>
                <svg class="rig-chart__drawing" viewBox=format!("0 0 {WIDTH} {HEIGHT}") preserveAspectRatio="none" aria-hidden="true">
                    <path class="rig-chart__grid" d=words(lines) />
                    {(0..COMPARED_MAX).flat_map(|at| [(at, 0), (at, 1)]).map(|(at, line)| view! {
                        <path class=format!("rig-chart__other rig-chart__other--{at} rig-chart__other-line--{line}")
                            d=words(move || plot.with(|plot| plot.others.get(at).map(|lines| lines[line].clone())).unwrap_or_default()) />
                    }).collect_view()}
                    <path class="rig-chart__iterations" d=path(|plot| &plot.iterations) />
                    <path class="rig-chart__dots rig-chart__dots--2" d=path(|plot| &plot.dots[2]) />
                    <path class="rig-chart__smooth" d=path(|plot| plot.smooth.as_ref().map_or("", |(line, _)| line)) />
                    <path class="rig-chart__line rig-chart__line--0" d=path(|plot| &plot.evaluations[0]) />
                    <path class="rig-chart__dots rig-chart__dots--0" d=path(|plot| &plot.dots[0]) />
                    <path class="rig-chart__line rig-chart__line--1" d=path(|plot| &plot.evaluations[1]) />
                    <path class="rig-chart__dots rig-chart__dots--1" d=path(|plot| &plot.dots[1]) />
                </svg>
                <div class="rig-chart__words" aria-hidden="true">
                    {part(move || plot.with(|plot| plot.marks.clone()).into_iter().map(|x| view! {
                        <span class="rig-chart__nan" style:left=percent(x)>"✕"</span>
                    }).collect_view())}
                </div>
                <Cursor at=Signal::derive(move || read.get().map(|(at, _)| at)) />
            </div>
            {part_of(move || plot.with(|plot| plot.is_empty), move |is_empty| is_empty.then(|| view! {
                <div class="rig-chart__none"><p>{words(move || none.get())}</p></div>
            }))}
        </div>
    }
}
