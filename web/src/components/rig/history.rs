//! History: charts of one card over one range, looked at nearer by a drag, and back by a double click.

use headroom_shared::protocol::history::Metric;
use leptos::prelude::*;
use web_sys::PointerEvent;

use super::{Desk, Fetched};
use crate::{
    browser,
    components::dynamic::{flag, part, some_words, words},
    state::rig::{
        plot::{self, Column, Plot, Range, columns, plot},
        view::SPANS_MS,
        words as said,
    },
    text::{self, Key, say, t},
};

/// What is shown of a card.
const SHOWN: [Metric; 5] =
    [Metric::MemoryUsed, Metric::Utilization, Metric::Power, Metric::Temperature, Metric::ClockSm];
const SPANS: [(u64, Key); 3] =
    [(SPANS_MS[0], text::RIG_HOUR), (SPANS_MS[1], text::RIG_DAY), (SPANS_MS[2], text::RIG_MONTH)];
/// Longer ranges have days at their ends, shorter ones seconds.
const LONG_MS: u64 = 12 * 3_600_000;

/// A part of the width, from one share to another.
type Drag = Option<(f64, f64)>;

/// The panel.
#[component]
pub fn HistoryPanel(
    /// The page.
    desk: Desk,
) -> impl IntoView {
    let cards = Memo::new(move |_| {
        desk.about(|rig| {
            rig.cards.iter().map(|c| (c.gpu.uuid.clone(), said::card_name(rig, &c.gpu.uuid))).collect::<Vec<_>>()
        })
    });
    let range = Memo::new(move |_| {
        let now_ms = desk.agent_now_ms();
        desk.view.with(|view| view.range(now_ms))
    });
    // One for all charts: they are looked at together.
    let dragged = RwSignal::new(Drag::None);
    let pointed = RwSignal::new(None::<f64>);
    let end = move |time_ms: fn(Range) -> u64| {
        let range = range.get();
        browser::rig::moment(time_ms(range), range.span_ms() >= LONG_MS)
    };
    view! {
        <section class="panel history" aria-labelledby="history-title" data-testid="history">
            <div class="history__head">
                <h2 class="panel-title" id="history-title">{t(text::RIG_HISTORY)}</h2>
                {part(move || cards.with(|cards| (cards.len() > 1).then(|| {
                    let shown = desk.card();
                    let options: Vec<_> = cards.iter().map(|(uuid, name)| view! {
                        <option value=uuid.clone() selected=shown.as_ref() == Some(uuid)>{name.clone()}</option>
                    }).collect();
                    view! {
                        <select class="input history__card" aria-label=t(text::RIG_CARD) data-testid="choose-card"
                            on:change:target=move |event| desk.chosen_card.set(Some(event.target().value()))>{options}</select>
                    }
                })))}
                <div class="history__spans" role="group" aria-label=t(text::RIG_HISTORY)>
                    {SPANS.map(|(span_ms, name)| view! {
                        <button type="button" class="button" data-span=span_ms.to_string()
                            aria-pressed=words(move || desk.view.with(|view| view.window.end_ms.is_none() && view.window.span_ms == span_ms).to_string())
                            on:click=move |_| desk.view.update(|view| view.last(span_ms))>{t(name)}</button>
                    }).into_iter().collect_view()}
                    <button type="button" class="button" id="history-back"
                        prop:disabled=flag(move || desk.view.with(|view| !view.can_go_back()))
                        on:click=move |_| desk.view.update(|view| { view.back(); })>{t(text::RIG_BACK)}</button>
                </div>
            </div>
            <p class="rig__hint" id="history-help">{t(text::RIG_HISTORY_HELP)}</p>
            <p class="history__state" role="status" data-testid="history-state">{some_words(move || state(desk))}</p>
            <div class="history__charts" tabindex="0" role="group" aria-labelledby="history-title" aria-describedby="history-help" id="history-charts"
                on:keydown=move |event| {
                    let now_ms = desk.agent_now_ms_untracked();
                    if !event.ctrl_key() && !event.alt_key() && !event.meta_key()
                        && desk.view.try_update(|view| view.key(&event.key(), now_ms)) == Some(true) {
                        event.prevent_default();
                    }
                }>
                {SHOWN.map(|metric| chart(desk, metric, range, dragged, pointed)).into_iter().collect_view()}
            </div>
            <p class="history__ends" data-testid="history-range"><span>{words(move || end(|range| range.from_ms))}</span> <span>{words(move || end(|range| range.to_ms))}</span></p>
        </section>
    }
}

/// What is to be said of the data.
fn state(desk: Desk) -> Option<String> {
    desk.history.with(|fetched| match fetched {
        Fetched::Nothing => Some(t(text::RIG_HISTORY_LOADING).to_owned()),
        Fetched::Failed(message) => Some(say(&text::rig_history_failed(message.as_str()))),
        Fetched::History(history)
            if history.times_ms.is_empty() && desk.view.with(|view| view.window.end_ms.is_some()) =>
        {
            Some(t(text::RIG_HISTORY_EMPTY).to_owned())
        }
        Fetched::History(history) => Some(say(&text::rig_step(match history.step_ms {
            step_ms @ 0..1000 => said::with_unit(&headroom_shared::decimal::ratio(step_ms, 1000, 1), "s"),
            step_ms => said::duration(step_ms),
        }))),
    })
}

/// What is at the top of a chart at least.
fn top(desk: Desk, uuid: &str, metric: Metric) -> f64 {
    desk.look(|rig| {
        let gpu = rig.card(uuid).map(|card| &card.gpu);
        let of = |value: Option<f64>, other: f64| value.filter(|value| *value > 0.0).unwrap_or(other);
        match metric {
            Metric::MemoryUsed => of(gpu.and_then(|gpu| gpu.memory_total_bytes.get()).map(|total| *total as f64), 1.0),
            Metric::Power => of(gpu.and_then(|gpu| gpu.power_limit_watts.get()).copied(), 1.0),
            Metric::ClockSm => of(gpu.and_then(|gpu| gpu.clock_sm_max_mhz.get()).map(|mhz| *mhz as f64), 1.0),
            _ => 100.0,
        }
    })
}

fn chart(
    desk: Desk,
    metric: Metric,
    range: Memo<Range>,
    dragged: RwSignal<Drag>,
    pointed: RwSignal<Option<f64>>,
) -> AnyView {
    let place = Metric::ALL.iter().position(|other| *other == metric).unwrap_or(0);
    let all = Memo::new(move |_| -> Vec<Column> {
        let (Some(uuid), range) = (desk.card(), range.get()) else { return Vec::new() };
        desk.history.with(|fetched| {
            desk.look(|rig| {
                let of_card = |uuid: &str| fetched.history().filter(|history| history.gpu == uuid);
                columns(of_card(&uuid), rig.card(&uuid).map(|card| &card.hour), place, range)
            })
        })
    });
    let drawn = Memo::new(move |_| -> Plot {
        let Some(uuid) = desk.card() else { return Plot::default() };
        all.with(|all| plot(all, top(desk, &uuid, metric)))
    });
    let at = move |event: &PointerEvent| browser::place_within(event).map_or(0.0, |(x, _)| x.clamp(0.0, 1.0));
    let finish = move |event: PointerEvent| {
        if let Some((from, _)) = dragged.get_untracked() {
            let to = at(&event);
            dragged.set(None);
            let now_ms = desk.agent_now_ms_untracked();
            desk.view.update(|view| {
                view.zoom(from, to, now_ms);
            });
        }
    };
    let selected = move || {
        let (from, to) = dragged.get()?;
        let (from, to) = (from.min(to), from.max(to));
        Some((
            headroom_shared::decimal::fixed(from * plot::COLUMNS as f64, 1),
            headroom_shared::decimal::fixed((to - from) * plot::COLUMNS as f64, 1),
        ))
    };
    let said_at = move || {
        let share = pointed.get();
        all.with(|all| match share {
            None => all.iter().rev().flatten().next().map(|column| said::metric(metric, column[1])),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the columns")]
            Some(share) => {
                let index = ((share * plot::COLUMNS as f64) as usize).min(plot::COLUMNS - 1);
                let [least, mean, most] = all.get(index).copied().flatten()?;
                let range = range.get_untracked();
                let time = browser::rig::moment(range.at(share), range.span_ms() >= LONG_MS);
                let number = |value: f64| said::metric(metric, value);
                Some(say(&text::rig_point(time, number(mean), number(least), number(most))))
            }
        })
    };
    view! {
        <figure class="history__chart" data-metric=place.to_string()>
            <figcaption class="history__caption"><h3>{t(said::metric_name(metric))}</h3> <span data-testid="at">{some_words(said_at)}</span></figcaption>
            <div class="history__drawing">
                <svg viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-label=t(said::metric_name(metric))
                    on:pointerdown=move |event: PointerEvent| {
                        if event.button() == 0 && event.is_primary() {
                            browser::rig::hold_pointer(&event);
                            dragged.set(Some((at(&event), at(&event))));
                        }
                    }
                    on:pointermove=move |event: PointerEvent| {
                        pointed.set(Some(at(&event)));
                        if dragged.get_untracked().is_some() {
                            dragged.update(|drag| if let Some((_, to)) = drag { *to = at(&event); });
                        }
                    }
                    on:pointerup=finish
                    on:pointercancel=move |_| dragged.set(None)
                    on:pointerleave=move |_| pointed.set(None)
                    on:dblclick=move |_| desk.view.update(|view| { view.back(); })>
                    <path class="plot__band" d=words(move || drawn.with(|drawn| drawn.band.clone())) />
                    <path class="plot__line" d=words(move || drawn.with(|drawn| drawn.line.clone())) />
                    {part(move || selected().map(|(x, width)| view! { <rect class="plot__selected" x=x width=width y="0" height="100" /> }))}
                </svg>
                <span class="run__end run__end--top">{words(move || said::metric(metric, drawn.with(|drawn| drawn.top)))}</span>
            </div>
        </figure>
    }
    .into_any()
}
