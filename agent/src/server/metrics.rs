//! `/metrics`: everything at this moment as Prometheus reads it.
//!
//! Names follow its conventions: base units, ratios in place of percent, `_total` for what only grows. A reading that a
//! card does not give is not there, and neither is one that is old.

mod table;
#[cfg(test)]
mod tests;
mod text;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State as Extract,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use headroom_shared::protocol::{
    gpu::{Gpu, Sample, SlowSample, Throttle},
    run::Run,
    state::{DriverState, HistoryState, State as Sources},
};

use super::{State, archive::asked, hub::Latest, socket::RUNS_IN_HELLO};
use crate::clock::now_ms;
use table::{AGENT, GPU, HISTORY_BYTES, HISTORY_KEPT, HOST, PRESENT, PROCESSES, READY, RUN, THROTTLED, VIEWERS};
use text::Text;

/// Readings older than this are none any more: a card that is gone draws no power.
const STALE_MS: u64 = 10_000;
/// As the text format names itself.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is told of one card.
struct Card<'a> {
    gpu: &'a Gpu,
    sample: Option<&'a Sample>,
    slow: Option<&'a SlowSample>,
}

/// `GET /metrics`.
pub async fn answer(Extract(state): Extract<Arc<State>>) -> Response {
    // Where history cannot be read there are no runs to tell of, and a metric says so.
    let runs = asked(&state.archive, |archive| archive.runs(RUNS_IN_HELLO)).await.unwrap_or_default();
    let (sources, gpus) = (state.hub.state(), state.hub.inventory());
    let body = written(&sources, &gpus, &fresh(state.hub.latest(), now_ms()), &runs, state.hub.n_viewers());
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    response
}

/// What is not too old to be told.
fn fresh(mut latest: Latest, now_ms: u64) -> Latest {
    let is_fresh = |time_ms: u64| now_ms.saturating_sub(time_ms) <= STALE_MS;
    latest.telemetry = latest.telemetry.filter(|telemetry| is_fresh(telemetry.time_ms));
    latest.slow = latest.slow.filter(|slow| is_fresh(slow.time_ms));
    latest
}

fn written(sources: &Sources, gpus: &[Gpu], latest: &Latest, runs: &[Run], n_viewers: u64) -> String {
    let mut text = Text::default();
    let flag = |is: bool| if is { 1.0 } else { 0.0 };
    text.one(&AGENT, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    text.one(&VIEWERS, &[], n_viewers as f64);
    text.one(&READY, &[], flag(matches!(sources.driver, DriverState::Ready { .. })));
    text.one(&HISTORY_KEPT, &[], flag(matches!(sources.history, HistoryState::Kept { .. })));
    if let HistoryState::Kept { bytes, .. } = sources.history {
        text.one(&HISTORY_BYTES, &[], bytes as f64);
    }
    write_cards(&mut text, gpus, latest);
    if let Some(slow) = &latest.slow {
        for (family, value) in HOST {
            value(&slow.host).inspect(|value| text.one(family, &[], *value));
        }
    }
    write_runs(&mut text, runs);
    text.finish()
}

fn write_cards(text: &mut Text, gpus: &[Gpu], latest: &Latest) {
    let samples: BTreeMap<u32, &Sample> =
        latest.telemetry.iter().flat_map(|telemetry| &telemetry.gpus).map(|sample| (sample.gpu, sample)).collect();
    let slow: BTreeMap<u32, &SlowSample> =
        latest.slow.iter().flat_map(|slow| &slow.gpus).map(|sample| (sample.gpu, sample)).collect();
    let cards: Vec<Card> = gpus
        .iter()
        .map(|gpu| Card {
            gpu,
            sample: samples.get(&gpu.index).copied().filter(|_| gpu.present),
            slow: slow.get(&gpu.index).copied().filter(|_| gpu.present),
        })
        .collect();
    let indices: Vec<String> = gpus.iter().map(|gpu| gpu.index.to_string()).collect();
    let labels = |i: usize| [("gpu", indices[i].as_str()), ("uuid", &gpus[i].uuid), ("name", &gpus[i].name)];
    for (i, card) in cards.iter().enumerate() {
        text.one(&PRESENT, &labels(i), if card.gpu.present { 1.0 } else { 0.0 });
    }
    for (family, value) in GPU {
        for (i, card) in cards.iter().enumerate() {
            value(card).inspect(|value| text.one(family, &labels(i), *value));
        }
    }
    for (i, card) in cards.iter().enumerate() {
        let processes = card.slow.and_then(|slow| slow.processes.get());
        processes.inspect(|processes| text.one(&PROCESSES, &labels(i), processes.len() as f64));
    }
    for (i, card) in cards.iter().enumerate() {
        let Some(bits) = card.sample.and_then(|sample| sample.throttle.get()) else { continue };
        for reason in Throttle::ALL.into_iter().filter(|reason| reason.slows()) {
            let [gpu, uuid, name] = labels(i);
            let labels = [gpu, uuid, name, ("reason", table::reason(reason))];
            text.one(&THROTTLED, &labels, if bits & reason.bit() != 0 { 1.0 } else { 0.0 });
        }
    }
}

/// Runs that go on: one that has ended has no value at this moment.
fn write_runs(text: &mut Text, runs: &[Run]) {
    let runs: Vec<&Run> = runs.iter().filter(|run| !run.status.has_ended()).collect();
    for (family, value) in RUN {
        for run in &runs {
            value(run).inspect(|value| text.one(family, &[("run", &run.id), ("name", &run.name)], *value));
        }
    }
}

/// Every name there is.
#[cfg(test)]
fn families() -> Vec<&'static table::Family> {
    let single = [&AGENT, &VIEWERS, &READY, &HISTORY_KEPT, &HISTORY_BYTES, &PRESENT, &PROCESSES, &THROTTLED];
    let tables = GPU.iter().map(|(family, _)| family).chain(HOST.iter().map(|(family, _)| family));
    single.into_iter().chain(tables).chain(RUN.iter().map(|(family, _)| family)).collect()
}
