//! The drawing of a GPU's history with its pointer, wheel and keyboard input.

use leptos::prelude::*;
use web_sys::{KeyboardEvent, PointerEvent, WheelEvent};

use super::{
    context::{ChartContext, Pointed, TryAgain, ZONE},
    drawing::drawing,
    frame::{Cursor, is_mouse, percent, share_at, whole_percent},
};
use crate::{
    browser,
    components::dynamic::{part, words},
    state::{memo::memo, rig_charts::history::ChartStatus},
    text::{self, say, t},
};

/// Step of the cursor per arrow key, as a fraction of the width.
const STEP_SHARE: f64 = 0.01;

/// The plot of a GPU's history.
#[component]
pub fn HistoryPlot(shown: ChartContext) -> impl IntoView {
    let ChartContext { charted, node, pointed, newest_ms, .. } = shown;
    let pressed = StoredValue::new(None::<f64>);
    let press = move |event: PointerEvent| {
        let Some(share) = share_at(node, &event).filter(|_| event.button() == 0) else { return };
        // With pointer capture, a drag beyond the edge still ends at the edge.
        drop(node.get_untracked().map(|plot| plot.set_pointer_capture(event.pointer_id())));
        pressed.set_value(Some(share));
        pointed.set(Some(Pointed { share, from: Some(share) }));
    };
    let go = move |event: PointerEvent| {
        let from = pressed.get_value();
        pointed.set(share_at(node, &event).map(|share| Pointed { share, from }));
    };
    let lift = move |event: PointerEvent| {
        let from = pressed.try_update_value(Option::take).flatten();
        let Some((from, share)) = from.zip(share_at(node, &event)) else { return };
        let newest = newest_ms.get_untracked();
        let is_nearer = charted
            .try_maybe_update(|charted| {
                let is_nearer = charted.look(newest, |view, drawn| view.zoom(drawn, from, share, newest));
                (is_nearer, is_nearer)
            })
            .unwrap_or(false);
        pointed.set((!is_nearer).then_some(Pointed { share, from: None }));
        if is_nearer {
            shown.ask();
        }
    };
    let leave = move |event: PointerEvent| {
        // After a touch the cursor stays, so that its values can be read.
        if is_mouse(&event) && pressed.get_value().is_none() {
            pointed.set(None);
        }
    };
    let cancel = move |_| {
        pressed.set_value(None);
        pointed.set(None);
    };
    let turn = move |event: WheelEvent| {
        // Without a modifier key the wheel scrolls the page.
        if !(event.ctrl_key() || event.meta_key() || event.alt_key()) || event.delta_y() == 0.0 {
            return;
        }
        event.prevent_default();
        let Some(share) = share_at(node, &event) else { return };
        let (is_nearer, clock_ms) = (event.delta_y() < 0.0, browser::now_millis());
        shown.change(|charted, newest| {
            charted.look(newest, |view, drawn| view.turn(drawn, share, is_nearer, newest, clock_ms));
        });
    };
    let back = move |_| {
        pointed.set(None);
        shown.change(|charted, newest| {
            charted.look(newest, |view, _| view.back());
        });
    };
    let key = move |event: KeyboardEvent| {
        if event.ctrl_key() || event.meta_key() || event.alt_key() {
            return;
        }
        let share = pointed.get_untracked().map_or(1.0, |pointed| pointed.share);
        if let Some(share) = moved(&event.key(), share) {
            event.prevent_default();
            pointed.set(Some(Pointed { share, from: None }));
            return;
        }
        let newest = newest_ms.get_untracked();
        let is_done = charted
            .try_maybe_update(|charted| {
                let is_done = charted.look(newest, |view, drawn| view.key(&event.key(), drawn, share, newest));
                (is_done, is_done)
            })
            .unwrap_or(false);
        if is_done {
            event.prevent_default();
            shown.ask();
        }
    };
    // The cursor's position and values; without a pointer, those at the end.
    let read = memo(move || {
        let share = pointed.get().map(|pointed| pointed.share);
        let (at, said) = shown.with(|charted, gpus, newest| charted.reading(gpus, newest, share.unwrap_or(1.0), ZONE));
        (share.map(|_| at), said.sentence())
    });
    let value = move || whole_percent(pointed.get().map_or(1.0, |pointed| pointed.share));
    let drag = move || pointed.get().and_then(|pointed| Some((pointed.from?, pointed.share)));
    view! {
        <div class="rig-chart__area">
            <div class="rig-chart__plot" id="history" data-testid="history-plot" role="slider" tabindex="0" node_ref=node
                aria-label=t(text::HISTORY_TITLE) aria-description=t(text::HISTORY_HELP)
                aria-valuemin="0" aria-valuemax="100" aria-valuenow=words(value)
                aria-valuetext=words(move || read.with(|(_, words)| words.clone()))
                on:pointerdown=press on:pointermove=go on:pointerup=lift on:pointerleave=leave on:pointercancel=cancel
                on:dblclick=back on:wheel=turn on:keydown=key>
                {drawing(shown.plot)}
                <Cursor at=Signal::derive(move || read.with(|(at, _)| *at)) />
                {part(move || drag().map(|(from, to)| view! {
                    <div class="rig-chart__drag" style:left=percent(from.min(to)) style:width=percent((to - from).abs())></div>
                }))}
            </div>
            <Over shown />
        </div>
    }
}

/// Returns the position to which a key moves the cursor.
fn moved(key: &str, share: f64) -> Option<f64> {
    Some(match key {
        "ArrowLeft" | "ArrowDown" => (share - STEP_SHARE).max(0.0),
        "ArrowRight" | "ArrowUp" => (share + STEP_SHARE).min(1.0),
        "Home" => 0.0,
        "End" => 1.0,
        _ => return None,
    })
}

/// The message over the plot if there is nothing to draw.
#[component]
fn Over(shown: ChartContext) -> impl IntoView {
    part(move || {
        let standing = shown.standing.get();
        let sentence = say(&standing.words()?);
        Some(view! {
            <div class="rig-chart__none" class:rig-chart__none--soon={standing == ChartStatus::Loading}>
                <p>{sentence}</p>
                {matches!(standing, ChartStatus::Failed(_)).then(|| view! { <TryAgain shown /> })}
            </div>
        })
    })
}
