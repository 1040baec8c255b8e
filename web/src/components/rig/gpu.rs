//! A card: its memory as a bar with the predicted peak marked on it, and what it is doing, each with its last minute.

use headroom_shared::protocol::{gpu::Sample, history::Metric, reading::Reading};
use leptos::prelude::*;

use super::Desk;
use crate::{
    browser,
    components::dynamic::{IntoPart, Part, flag, part_of, some_words, words},
    state::{
        format,
        rig::{
            Rig,
            card::{self, Card, SPARKS},
            link::plan_for,
            processes::predicted_bytes,
            spark, words as said,
        },
    },
    text::{self, Key, say, t},
};

/// Units across a bar.
const BAR_WIDTH: f64 = 1000.0;
/// Watts at the top of a card's sparkline where its limit is not known.
const WATTS: f64 = 300.0;
/// Degrees at the top.
const CELSIUS: f64 = 100.0;

/// All cards.
#[component]
pub fn Gpus(
    /// The page.
    desk: Desk,
) -> impl IntoView {
    // Rows are made anew where a card comes, goes, is lost or split, and never for a reading.
    let cards = move || {
        let of = |rig: &Rig, card: &Card| (card.gpu.uuid.clone(), card.gpu.present, plan_for(rig, card).is_some());
        desk.about(|rig| rig.cards.iter().map(|card| of(rig, card)).collect::<Vec<_>>())
    };
    part_of(cards, move |cards| {
        let rows: Vec<_> =
            cards.into_iter().map(|(uuid, present, can_plan)| row(desk, uuid, present, can_plan)).collect();
        (!rows.is_empty()).then(|| view! { <section class="gpus" aria-label=t(text::RIG_CARDS)>{rows}</section> })
    })
}

/// A question to one card; followed ten times a second.
fn of<T>(desk: Desk, uuid: &str, look: impl FnOnce(&Rig, &Card) -> T) -> Option<T> {
    desk.fast(|rig| rig.card(uuid).map(|card| look(rig, card)))
}

fn row(desk: Desk, uuid: String, present: bool, can_plan: bool) -> Part {
    let name = desk.look(|rig| said::card_name(rig, &uuid));
    let label = name.clone();
    let id = StoredValue::new(uuid.clone());
    let note = move || {
        id.with_value(|uuid| {
            of(desk, uuid, |_, card| {
                // What a lost card did last says nothing of now.
                let sample = card.sample.as_ref().filter(|_| present);
                sample.and_then(|s| s.throttle.get()).map(|bits| said::throttled(*bits))
            })
        })
        .flatten()
        .filter(|words| !words.is_empty())
    };
    // A link as any other, which a second window takes too: once a second it says how the card is now.
    let plan = move || {
        let fragment = id.with_value(|uuid| desk.slow(|rig| rig.card(uuid).and_then(|card| plan_for(rig, card))));
        format!("./{}#{}", browser::query(), fragment.unwrap_or_default())
    };
    let body = if present {
        view! {
            {memory(desk, id)}
            {cell(desk, id, 1, |sample| said::reading(Some(&sample.utilization_percent), |p| said::value(*p as f64, 0, "%")))}
            {cell(desk, id, 2, |sample| said::reading(Some(&sample.power_watts), |watts| said::value(*watts, 0, "W")))}
            {cell(desk, id, 3, |sample| said::reading(Some(&sample.temperature_celsius), |c| said::value(*c as f64, 0, "°C")))}
        }
        .into_part()
    } else {
        view! { <p class="gpu__lost" role="alert">{t(text::RIG_LOST_LEAD)}</p> }.into_part()
    };
    view! {
        <article class="gpu panel" class:gpu--lost=!present data-testid="gpu" data-uuid=uuid aria-label=label>
            <div class="gpu__head">
                <h2 class="gpu__name">{name}</h2>
                <p class="gpu__facts">{words(move || facts(desk, id))}</p>
                <p class="gpu__note" data-testid="throttle">{some_words(note)}</p>
            </div>
            {body}
            {can_plan.then(|| view! { <a class="button gpu__plan" href=words(plan)>{t(text::RIG_PLAN_CARD)}</a> })}
        </article>
    }
    .into_part()
}

/// What is read besides, in one line, once a second; of what is not given, why.
fn facts(desk: Desk, id: StoredValue<String>) -> String {
    let of = |rig: &Rig, uuid: &str| rig.card(uuid).filter(|card| card.gpu.present).map(card::facts);
    id.with_value(|uuid| desk.slow(|rig| of(rig, uuid))).unwrap_or_default().join(" · ")
}

fn memory(desk: Desk, id: StoredValue<String>) -> Part {
    let ask = move |look: fn(&Rig, &Card) -> Option<f64>| id.with_value(|uuid| of(desk, uuid, look)).flatten();
    let used =
        move || ask(|_, card| share(card, card.sample.as_ref()?.memory_used_bytes.get().copied()?)).unwrap_or(0.0);
    let mark = move || ask(|rig, card| share(card, predicted_bytes(rig, card)?));
    let is_over = move || mark().is_some_and(|mark| mark > 1.0);
    let width = move || number(used().min(1.0) * BAR_WIDTH);
    // Beyond the card's end the mark stays at it.
    let at = move || mark().map_or_else(|| "-9".to_owned(), |mark| number(mark.min(0.996) * BAR_WIDTH));
    let predicted = move || {
        let bytes = id.with_value(|uuid| of(desk, uuid, predicted_bytes)).flatten()?;
        let size = format::size(bytes);
        Some(say(&if is_over() { text::rig_over(size) } else { text::rig_predicted(size) }))
    };
    let said_used = move || {
        let words = id.with_value(|uuid| {
            of(desk, uuid, |_, card| {
                let used = card.sample.as_ref().map(|sample| &sample.memory_used_bytes);
                let used = said::reading(used, |bytes| format::size(*bytes));
                let total = said::reading(Some(&card.gpu.memory_total_bytes), |bytes| format::size(*bytes));
                say(&text::rig_memory_of(used, total))
            })
        });
        words.unwrap_or_default()
    };
    view! {
        <div class="gpu__memory">
            <p class="gpu__label">{t(text::RIG_MEMORY)} <strong data-testid="memory">{words(said_used)}</strong></p>
            <svg class="gpu__bar" viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">
                <rect class="gpu__ground" width="1000" height="12" />
                <rect class="gpu__used" width=words(width) height="12" />
                <rect class="gpu__mark" class:gpu__mark--over=flag(is_over) x=words(at) width="4" height="12" />
            </svg>
            <p class="gpu__predicted" class:gpu__predicted--over=flag(is_over) data-testid="predicted">{some_words(predicted)}</p>
            {sparkline(desk, id, 0)}
        </div>
    }
    .into_part()
}

fn share(card: &Card, bytes: u64) -> Option<f64> {
    Some(bytes as f64 / card.total_bytes()? as f64)
}

fn number(value: f64) -> String {
    headroom_shared::decimal::fixed(value, 1)
}

const NAMES: [Key; 4] = [text::RIG_MEMORY, text::RIG_UTILIZATION, text::RIG_POWER, text::RIG_TEMPERATURE];

fn cell(desk: Desk, id: StoredValue<String>, which: usize, look: fn(&Sample) -> String) -> Part {
    let value = move || {
        let value = id.with_value(|uuid| of(desk, uuid, |_, card| card.sample.as_ref().map(look)));
        value.flatten().unwrap_or_else(|| t(text::RIG_NOT_YET).to_owned())
    };
    view! {
        <div class="gpu__cell">
            <p class="gpu__label">{t(NAMES[which])} <strong data-metric=which.to_string()>{words(value)}</strong></p>
            {sparkline(desk, id, which)}
        </div>
    }
    .into_part()
}

/// What is at the top of a card's sparkline.
fn top(card: &Card, metric: Metric) -> f64 {
    match metric {
        Metric::MemoryUsed => card.total_bytes().unwrap_or(1) as f64,
        Metric::Power => match card.gpu.power_limit_watts {
            Reading::Is(watts) if watts > 0.0 => watts,
            _ => WATTS,
        },
        Metric::Temperature => CELSIUS,
        _ => 100.0,
    }
}

fn sparkline(desk: Desk, id: StoredValue<String>, which: usize) -> Part {
    let path = move || {
        let path =
            id.with_value(|uuid| of(desk, uuid, |_, card| spark::path(&card.recent, which, top(card, SPARKS[which]))));
        path.unwrap_or_default()
    };
    view! {
        <svg class="gpu__spark" viewBox="0 0 119 40" preserveAspectRatio="none" aria-hidden="true">
            <path d=words(path) />
        </svg>
    }
    .into_part()
}
