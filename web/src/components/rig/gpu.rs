//! A GPU: its memory as a bar with the predicted peak, and its activity, each with the last minute.

use headroom_protocol::{
    metric::{Metric, Sample},
    reading::Reading,
};
use leptos::prelude::*;

use super::RigContext;
use crate::{
    browser,
    components::{
        coded::coded,
        dynamic::{IntoPart, Part, flag, part_of, some_words, words},
    },
    state::{
        format,
        rig::{
            Rig,
            gpu::{self, MonitoredGpu, SPARKS},
            link::plan_for,
            names,
            processes::predicted_bytes,
            spark, values,
        },
    },
    text::{self, Key, say, t},
};

/// Width of a bar in drawing units.
const BAR_WIDTH: f64 = 1000.0;
/// Top of the power sparkline in watts, if the GPU's limit is not known.
const WATTS: f64 = 300.0;
/// Top of the temperature sparkline in degrees Celsius.
const CELSIUS: f64 = 100.0;

/// The list of all GPUs.
#[component]
pub fn Gpus(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    // Rows are rebuilt if a GPU is added, removed, lost or partitioned, and not for a reading.
    let gpus = move || {
        let of =
            |rig: &Rig, gpu: &MonitoredGpu| (gpu.info.uuid.clone(), gpu.info.present, plan_for(rig, gpu).is_some());
        desk.about(|rig| rig.gpus.iter().map(|gpu| of(rig, gpu)).collect::<Vec<_>>())
    };
    part_of(gpus, move |gpus| {
        let rows: Vec<_> =
            gpus.into_iter().map(|(uuid, present, can_plan)| row(desk, uuid, present, can_plan)).collect();
        (!rows.is_empty()).then(|| view! { <section class="gpus" aria-label=t(text::RIG_CARDS)>{rows}</section> })
    })
}

/// Reads from a GPU's state, subscribing up to ten times per second.
fn of<T>(desk: RigContext, uuid: &str, look: impl FnOnce(&Rig, &MonitoredGpu) -> T) -> Option<T> {
    desk.fast(|rig| rig.gpu(uuid).map(|gpu| look(rig, gpu)))
}

fn row(desk: RigContext, uuid: String, present: bool, can_plan: bool) -> Part {
    let name = desk.look(|rig| names::gpu_name(rig, &uuid));
    let label = name.clone();
    let id = StoredValue::new(uuid.clone());
    let note = move || {
        id.with_value(|uuid| {
            of(desk, uuid, |_, gpu| {
                // The last reading of a lost GPU says nothing about its present state.
                let sample = gpu.sample.as_ref().filter(|_| present);
                sample.and_then(|s| s.throttle.get()).map(|bits| values::throttled(*bits))
            })
        })
        .flatten()
        .filter(|words| !words.is_empty())
    };
    // An ordinary link, which can be opened in a second window. Its state of the GPU is updated once per second.
    let plan = move || {
        let fragment = id.with_value(|uuid| desk.slow(|rig| rig.gpu(uuid).and_then(|gpu| plan_for(rig, gpu))));
        format!("./calculator.html{}#{}", browser::query(), fragment.unwrap_or_default())
    };
    let body = if present {
        view! {
            {memory(desk, id)}
            {cell(desk, id, 1, |sample| values::reading(Some(&sample.utilization_percent), |p| values::value(*p as f64, 0, "%")))}
            {cell(desk, id, 2, |sample| values::reading(Some(&sample.power_watts), |watts| values::value(*watts, 0, "W")))}
            {cell(desk, id, 3, |sample| values::reading(Some(&sample.temperature_celsius), |c| values::value(*c as f64, 0, "°C")))}
        }
        .into_part()
    } else {
        view! { <p class="gpu__lost" role="alert">{coded(t(text::RIG_LOST_LEAD))}</p> }.into_part()
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

/// Returns the other readings in one line, updated once per second, with the reason if a reading is missing.
fn facts(desk: RigContext, id: StoredValue<String>) -> String {
    let of = |rig: &Rig, uuid: &str| rig.gpu(uuid).filter(|gpu| gpu.info.present).map(gpu::facts);
    id.with_value(|uuid| desk.slow(|rig| of(rig, uuid))).unwrap_or_default().join(" · ")
}

fn memory(desk: RigContext, id: StoredValue<String>) -> Part {
    let ask = move |look: fn(&Rig, &MonitoredGpu) -> Option<f64>| id.with_value(|uuid| of(desk, uuid, look)).flatten();
    let used = move || ask(|_, gpu| share(gpu, gpu.sample.as_ref()?.memory_used_bytes.get().copied()?)).unwrap_or(0.0);
    let mark = move || ask(|rig, gpu| share(gpu, predicted_bytes(rig, gpu)?));
    let is_over = move || mark().is_some_and(|mark| mark > 1.0);
    let width = move || number(used().min(1.0) * BAR_WIDTH);
    // A peak beyond the GPU's capacity is marked at the end of the bar.
    let at = move || mark().map_or_else(|| "-9".to_owned(), |mark| number(mark.min(0.996) * BAR_WIDTH));
    let predicted = move || {
        let bytes = id.with_value(|uuid| of(desk, uuid, predicted_bytes)).flatten()?;
        let size = format::size(bytes);
        Some(say(&if is_over() { text::rig_over(size) } else { text::rig_predicted(size) }))
    };
    let said_used = move || {
        let words = id.with_value(|uuid| {
            of(desk, uuid, |_, gpu| {
                let used = gpu.sample.as_ref().map(|sample| &sample.memory_used_bytes);
                let used = values::reading(used, |bytes| format::size(*bytes));
                let total = values::reading(Some(&gpu.info.memory_total_bytes), |bytes| format::size(*bytes));
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

fn share(gpu: &MonitoredGpu, bytes: u64) -> Option<f64> {
    Some(bytes as f64 / gpu.total_bytes()? as f64)
}

fn number(value: f64) -> String {
    headroom_text::decimal::fixed(value, 1)
}

const NAMES: [Key; 4] = [text::RIG_MEMORY, text::RIG_UTILIZATION, text::RIG_POWER, text::RIG_TEMPERATURE];

fn cell(desk: RigContext, id: StoredValue<String>, which: usize, look: fn(&Sample) -> String) -> Part {
    let value = move || {
        let value = id.with_value(|uuid| of(desk, uuid, |_, gpu| gpu.sample.as_ref().map(look)));
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

/// Returns the value at the top of a GPU's sparkline.
fn top(gpu: &MonitoredGpu, metric: Metric) -> f64 {
    match metric {
        Metric::MemoryUsed => gpu.total_bytes().unwrap_or(1) as f64,
        Metric::Power => match gpu.info.power_limit_watts {
            Reading::Is(watts) if watts > 0.0 => watts,
            _ => WATTS,
        },
        Metric::Temperature => CELSIUS,
        _ => 100.0,
    }
}

fn sparkline(desk: RigContext, id: StoredValue<String>, which: usize) -> Part {
    let path = move || {
        let path =
            id.with_value(|uuid| of(desk, uuid, |_, gpu| spark::path(&gpu.recent, which, top(gpu, SPARKS[which]))));
        path.unwrap_or_default()
    };
    view! {
        <svg class="gpu__spark" viewBox="0 0 119 40" preserveAspectRatio="none" aria-hidden="true">
            <path d=words(path) />
        </svg>
    }
    .into_part()
}
