//! `/metrics`: the current state in Prometheus' text format.
//!
//! [`render`] is a pure function of a [`Snapshot`]. All metrics are in one table, split between `agent`, `gpu` and
//! `run`, from which `docs/src/reference/metrics.md` is generated. Names and units follow Prometheus' conventions:
//! seconds, bytes, ratios from 0 to 1, joules, hertz. A missing reading is omitted, never 0.

mod agent;
mod gpu;
mod run;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

use axum::{
    extract::State as Extract,
    http::header,
    response::{IntoResponse, Response},
};
use headroom_protocol::{
    SlowReadings, Telemetry,
    alert::Settings,
    gpu::Gpu,
    metric::{Sample, SlowSample},
    run::Run,
    state::State,
};

use super::{
    archive::{RUNS_IN_HELLO, asked},
    faults::Fault,
    hub::{self, Latest},
    secrets,
};
use headroom_agent_core::{clock::now_ms, logging::HTTP, store};
use text::{Samples, Value};

/// The content type of the text.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The maximum age of telemetry. Older values are omitted, so that an interruption shows as a gap instead of a flat
/// line. A slow reading comes once a second, and a driver may be late by a few.
const AGE_MS_MAX: u64 = 10_000;

/// The labels of GPU metrics.
const GPU_LABELS: &[&str] = &["gpu", "uuid", "name"];

/// The state of the agent at one moment, in types of the protocol.
#[derive(Clone, Copy, Debug)]
struct Snapshot<'a> {
    /// The agent's version.
    pub version: &'a str,
    /// The current time; much older readings are omitted.
    pub now_ms: u64,
    /// All GPUs since the agent started.
    pub gpus: &'a [Gpu],
    /// The newest telemetry.
    pub telemetry: Option<&'a Telemetry>,
    /// The newest slow readings.
    pub slow: Option<&'a SlowReadings>,
    /// The state of the driver and the history.
    pub state: &'a State,
    /// Runs that have not ended and the newest that have, newest first.
    pub runs: &'a [Run],
    /// Errors of GPUs that the driver reported.
    pub faults: &'a [Fault],
    /// The number of viewers.
    pub n_viewers: u64,
    /// Live telemetry that was dropped for slow receivers.
    pub dropped_live: hub::Dropped,
    /// Data that was dropped before it was written to the history.
    pub dropped_history: store::Dropped,
    /// The owner's settings, which include the price of energy.
    pub settings: Option<&'a Settings>,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only increases, and restarts at 0 with its source.
    Counter,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

/// A row of the table: the samples that share a name.
#[derive(Clone, Copy, Debug)]
struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    labels: &'static [&'static str],
    collect: fn(&Snapshot<'_>, &mut Samples),
}

/// Returns the whole table, in the order of the text.
fn families() -> impl Iterator<Item = &'static Family> {
    [agent::FAMILIES, gpu::FAMILIES, run::FAMILIES].into_iter().flatten()
}

/// `GET /metrics`.
pub async fn answer(Extract(state): Extract<Arc<super::State>>) -> Response {
    // If the history cannot be read, runs and the price are omitted, and a metric reports that the history is paused.
    let asked = asked(&state.archive, |archive| Ok((archive.runs(RUNS_IN_HELLO)?, archive.settings()?)));
    let asked = asked.await.inspect_err(|error| tracing::debug!(target: HTTP, %error, "cannot read runs and settings"));
    let (mut runs, settings) = asked.map_or((vec![], None), |(runs, settings)| (runs, Some(settings)));
    // Names of runs are labels, and the scraper has scope `view`.
    runs.iter_mut().for_each(|run| secrets::in_place(&mut run.name));
    let Latest { telemetry, slow } = state.hub.latest();
    let text = render(&Snapshot {
        version: env!("CARGO_PKG_VERSION"),
        now_ms: now_ms(),
        gpus: &state.hub.inventory(),
        telemetry: telemetry.as_deref(),
        slow: slow.as_deref(),
        state: &state.hub.state(),
        runs: &runs,
        faults: &state.hub.faults(),
        n_viewers: state.hub.n_viewers(),
        dropped_live: state.hub.dropped(),
        dropped_history: state.archive.dropped(),
        settings: settings.as_ref(),
    });
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

/// Renders the text: every family that has a sample, with its help and type.
fn render(snapshot: &Snapshot<'_>) -> String {
    let mut text = String::new();
    for family in families() {
        let mut samples = Samples::of(family);
        (family.collect)(snapshot, &mut samples);
        samples.write(&mut text);
    }
    text
}

impl<'a> Snapshot<'a> {
    fn is_of_now(&self, time_ms: u64) -> bool {
        self.now_ms.saturating_sub(time_ms) <= AGE_MS_MAX
    }

    fn slow_now(&self) -> Option<&'a SlowReadings> {
        self.slow.filter(|slow| self.is_of_now(slow.time_ms))
    }

    /// Adds a sample per GPU from its inventory entry.
    fn each_gpu(&self, samples: &mut Samples, value: impl Fn(&Gpu) -> Option<Value>) {
        for gpu in self.gpus {
            samples.add(&labels_of(gpu), value(gpu));
        }
    }

    /// Returns the GPUs that respond, each with its newest readings.
    fn sampled(&self) -> impl Iterator<Item = (&'a Gpu, &'a Sample)> {
        let telemetry = self.telemetry.filter(|telemetry| self.is_of_now(telemetry.time_ms));
        let samples = telemetry.map_or(&[][..], |telemetry| &telemetry.gpus);
        let present = self.gpus.iter().filter(|gpu| gpu.present);
        present.filter_map(|gpu| Some((gpu, samples.iter().find(|sample| sample.gpu == gpu.index)?)))
    }

    /// Returns the GPUs that respond, each with its newest slow readings.
    fn slow_sampled(&self) -> impl Iterator<Item = (&'a Gpu, &'a SlowSample)> {
        let samples = self.slow_now().map_or(&[][..], |slow| &slow.gpus);
        let present = self.gpus.iter().filter(|gpu| gpu.present);
        present.filter_map(|gpu| Some((gpu, samples.iter().find(|sample| sample.gpu == gpu.index)?)))
    }

    /// Adds a sample per GPU and error, including GPUs that no longer respond.
    fn each_fault(&self, samples: &mut Samples, value: impl Fn(&Fault) -> Value) {
        for fault in self.faults {
            let Some(gpu) = self.gpus.iter().find(|gpu| gpu.uuid == fault.gpu) else { continue };
            let [index, uuid, name] = labels_of(gpu);
            samples.add(&[index, uuid, name, fault.xid.to_string()], Some(value(fault)));
        }
    }

    /// Adds a sample per GPU from its readings.
    fn each_sample(&self, samples: &mut Samples, value: impl Fn(&Sample) -> Option<Value>) {
        for (gpu, sample) in self.sampled() {
            samples.add(&labels_of(gpu), value(sample));
        }
    }

    /// Adds a sample per GPU from its slow readings.
    fn each_slow(&self, samples: &mut Samples, value: impl Fn(&SlowSample) -> Option<Value>) {
        for (gpu, sample) in self.slow_sampled() {
            samples.add(&labels_of(gpu), value(sample));
        }
    }
}

fn labels_of(gpu: &Gpu) -> [String; 3] {
    [gpu.index.to_string(), gpu.uuid.clone(), gpu.name.clone()]
}
