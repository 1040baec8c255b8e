//! `/metrics`: the current state in Prometheus' text format.
//!
//! [`render`] is a pure function of a [`Snapshot`]. Readings that are one number have the families of the protocol's
//! registry. All other families are in one table, split between `agent`, `gpu` and `run`. From both,
//! `docs/src/reference/metrics.md` is generated. Names and units follow Prometheus' conventions:
//! seconds, bytes, ratios from 0 to 1, joules, hertz. A missing reading is omitted, never 0.

mod agent;
mod gpu;
mod run;
#[cfg(test)]
mod tests;
mod text;

use std::sync::{Arc, LazyLock};

use axum::{
    extract::State as Extract,
    http::header,
    response::{IntoResponse, Response},
};
use headroom_protocol::{
    SlowReadings, Telemetry,
    alert::Settings,
    gpu::Gpu,
    metric::{FamilyKind as Kind, Group, Metric, Number as Value, Sample, SlowSample},
    reading::Reading,
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
use text::Samples;

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

/// A row of the table: the samples that share a name.
#[derive(Clone, Copy, Debug)]
struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    labels: &'static [&'static str],
    collect: fn(&Snapshot<'_>, &mut Samples),
}

/// Families of the registry's readings, in its order.
static READINGS: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let mut families: Vec<Family> = Vec::new();
    for metric in Metric::ALL {
        let Some(family) = metric.prometheus() else { continue };
        // Several metrics may share a family.
        if families.iter().all(|known| known.name != family.name) {
            let labels: &[&str] = match (metric.group(), family.label) {
                (Group::Host, _) => &[],
                (_, None) => GPU_LABELS,
                (_, Some(_)) => &["gpu", "uuid", "name", "kind"],
            };
            let (name, kind, help) = (family.name, family.kind, family.help);
            families.push(Family { name, kind, help, labels, collect: |at, samples| at.each_reading(samples) });
        }
    }
    families
});

/// Returns the whole table, in the order of the text.
fn families() -> impl Iterator<Item = &'static Family> {
    [agent::FAMILIES, gpu::FAMILIES, &READINGS, run::FAMILIES].into_iter().flatten()
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

    /// Adds the samples of a family of the registry.
    fn each_reading(&self, samples: &mut Samples) {
        let of_family = Metric::ALL.into_iter().filter_map(|metric| Some((metric, metric.prometheus()?)));
        let metrics = of_family.filter(|(_, family)| family.name == samples.family().name);
        let metrics: Vec<_> = metrics.map(|(metric, family)| (metric, family.label)).collect();
        let mut add = |gpu: &[String], reading: &dyn Fn(Metric) -> Option<Reading<Value>>| {
            for (metric, kind) in &metrics {
                let labels: Vec<&str> = gpu.iter().map(String::as_str).chain(*kind).collect();
                let value = reading(*metric).and_then(|reading| reading.get().copied());
                samples.add(&labels, value.map(|value| metric.unit().to_base(value)));
            }
        };
        match metrics.first().map(|(metric, _)| metric.group()) {
            Some(Group::Fast) => {
                self.sampled().for_each(|(gpu, of)| add(&labels_of(gpu), &|metric| of.reading(metric)));
            }
            Some(Group::Slow) => {
                self.slow_sampled().for_each(|(gpu, of)| add(&labels_of(gpu), &|metric| of.reading(metric)));
            }
            Some(Group::Host) => {
                self.slow_now().iter().for_each(|slow| add(&[], &|metric| slow.host.reading(metric)));
            }
            None => {}
        }
    }

    /// Adds a sample per GPU and error, including GPUs that no longer respond.
    fn each_fault(&self, samples: &mut Samples, value: impl Fn(&Fault) -> Value) {
        for fault in self.faults {
            let Some(gpu) = self.gpus.iter().find(|gpu| gpu.uuid == fault.gpu) else { continue };
            let [index, uuid, name] = labels_of(gpu);
            samples.add(&[index, uuid, name, fault.xid.to_string()], Some(value(fault)));
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
