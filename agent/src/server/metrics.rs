//! `/metrics`: what the agent knows at this moment, as a text that Prometheus reads.
//!
//! [`render`] is a pure function of a [`Snapshot`], and what it writes is one table: `agent`, `gpu` and `run` hold a
//! part of it each, and `docs/metrics.md` is written from it. Names and units are as Prometheus wants them: seconds,
//! bytes, ratios from 0 to 1, joules, hertz. A reading that is missing is absent, never 0.

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
use headroom_shared::protocol::{
    Slow, Telemetry,
    alert::Settings,
    gpu::{Gpu, Sample, SlowSample},
    run::Run,
    state::State,
};

use super::{archive::asked, faults::Fault, hub::Latest, secrets, socket::RUNS_IN_HELLO};
use crate::clock::now_ms;
use text::{Samples, Value};

/// What the text is said to be.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Telemetry older than this is not of now: a rig that stopped reading has gaps, and no line that stands still. A slow
/// reading comes once a second, and a driver may hesitate for a few.
const AGE_MS_MAX: u64 = 10_000;

/// The labels of every card's samples.
const GPU_LABELS: &[&str] = &["gpu", "uuid", "name"];

/// What the agent knows at one moment, as the protocol has it.
#[derive(Clone, Copy, Debug)]
struct Snapshot<'a> {
    /// The agent's version.
    pub version: &'a str,
    /// The agent's clock: what is much older is left out.
    pub now_ms: u64,
    /// Every card seen since the agent started.
    pub gpus: &'a [Gpu],
    /// The newest.
    pub telemetry: Option<&'a Telemetry>,
    /// The newest.
    pub slow: Option<&'a Slow>,
    /// Driver and history.
    pub state: &'a State,
    /// Runs that have not ended, and the newest that have: newest first.
    pub runs: &'a [Run],
    /// Errors that the driver reported of cards.
    pub faults: &'a [Fault],
    /// Pages that watch.
    pub n_viewers: u64,
    /// What the owner set; the price of energy is in it.
    pub settings: Option<&'a Settings>,
}

/// What a family's samples do over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Goes up and down.
    Gauge,
    /// Goes up, and to 0 with a restart of whoever counts.
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

/// A row of the table: samples that share a name.
#[derive(Clone, Copy, Debug)]
struct Family {
    name: &'static str,
    kind: Kind,
    /// One sentence.
    help: &'static str,
    labels: &'static [&'static str],
    collect: fn(&Snapshot<'_>, &mut Samples),
}

/// The whole table, in the order of the text.
fn families() -> impl Iterator<Item = &'static Family> {
    [agent::FAMILIES, gpu::FAMILIES, run::FAMILIES].into_iter().flatten()
}

/// `GET /metrics`.
pub async fn answer(Extract(state): Extract<Arc<super::State>>) -> Response {
    // Where history cannot be read there are no runs and no price to tell of, and a metric says that it is paused.
    let asked = asked(&state.archive, |archive| Ok((archive.runs(RUNS_IN_HELLO)?, archive.settings()?)));
    let (mut runs, settings) = asked.await.map_or((vec![], None), |(runs, settings)| (runs, Some(settings)));
    // Their names are labels, and what scrapes them has the scope view.
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
        settings: settings.as_ref(),
    });
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

/// The text: every family that has a sample, each once with its help and its kind.
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

    fn slow_now(&self) -> Option<&'a Slow> {
        self.slow.filter(|slow| self.is_of_now(slow.time_ms))
    }

    /// One sample a card, of what it is.
    fn each_gpu(&self, samples: &mut Samples, value: impl Fn(&Gpu) -> Option<Value>) {
        for gpu in self.gpus {
            samples.add(&labels_of(gpu), value(gpu));
        }
    }

    /// The cards that answer, each with its newest readings.
    fn sampled(&self) -> impl Iterator<Item = (&'a Gpu, &'a Sample)> {
        let telemetry = self.telemetry.filter(|telemetry| self.is_of_now(telemetry.time_ms));
        let samples = telemetry.map_or(&[][..], |telemetry| &telemetry.gpus);
        let present = self.gpus.iter().filter(|gpu| gpu.present);
        present.filter_map(|gpu| Some((gpu, samples.iter().find(|sample| sample.gpu == gpu.index)?)))
    }

    /// The cards that answer, each with its newest slow readings.
    fn slow_sampled(&self) -> impl Iterator<Item = (&'a Gpu, &'a SlowSample)> {
        let samples = self.slow_now().map_or(&[][..], |slow| &slow.gpus);
        let present = self.gpus.iter().filter(|gpu| gpu.present);
        present.filter_map(|gpu| Some((gpu, samples.iter().find(|sample| sample.gpu == gpu.index)?)))
    }

    /// One sample a card and error of it, also of a card that was lost by it.
    fn each_fault(&self, samples: &mut Samples, value: impl Fn(&Fault) -> Value) {
        for fault in self.faults {
            let Some(gpu) = self.gpus.iter().find(|gpu| gpu.uuid == fault.gpu) else { continue };
            let [index, uuid, name] = labels_of(gpu);
            samples.add(&[index, uuid, name, fault.xid.to_string()], Some(value(fault)));
        }
    }

    /// One sample a card, of what it is doing.
    fn each_sample(&self, samples: &mut Samples, value: impl Fn(&Sample) -> Option<Value>) {
        for (gpu, sample) in self.sampled() {
            samples.add(&labels_of(gpu), value(sample));
        }
    }

    /// One sample a card, of what changes slowly.
    fn each_slow(&self, samples: &mut Samples, value: impl Fn(&SlowSample) -> Option<Value>) {
        for (gpu, sample) in self.slow_sampled() {
            samples.add(&labels_of(gpu), value(sample));
        }
    }
}

fn labels_of(gpu: &Gpu) -> [String; 3] {
    [gpu.index.to_string(), gpu.uuid.clone(), gpu.name.clone()]
}
