//! The figures of one run, and the limits that they miss.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{Size, viewer::ViewerCounts};

/// Limit of the server's cores.
const CORES_MAX: f64 = 1.0;
/// Limit with one viewer: a two-hundredth of a core, including the library that plays eight GPUs.
const CORES_OF_ONE_MAX: f64 = 0.005;
/// Limit of the 99th percentile of the latency, from a reading to a viewer's socket.
const LATENCY_MS_MAX: f64 = 50.0;
/// Readings that may be cut off at the ends of the window; there are ten per second.
const CUT_OFF: u64 = 2;

/// The figures of a run of the benchmark.
#[derive(Debug)]
pub struct Report {
    pub size: Size,
    pub wall_s: f64,
    pub join_s: f64,
    pub server_cores: f64,
    pub server_cores_alone: f64,
    /// Cores of each thread, by name.
    pub server_threads: BTreeMap<String, f64>,
    pub server_resident_bytes: u64,
    pub client_cores: f64,
    pub seen: Vec<ViewerCounts>,
}

impl Report {
    fn sum(&self, of: impl Fn(&ViewerCounts) -> u64) -> u64 {
        self.seen.iter().map(of).sum()
    }

    /// Returns all latencies, sorted.
    fn latencies_us(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.seen.iter().flat_map(|seen| seen.latencies_us.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    /// Returns the figures as one line of JSON.
    pub fn json(&self) -> Value {
        let latencies = self.latencies_us();
        let latency_ms = |in_a_thousand| at(&latencies, in_a_thousand).map(|us| us as f64 / 1000.0);
        let mut counts: Vec<u64> = self.seen.iter().map(|seen| seen.n_telemetry).collect();
        counts.sort_unstable();
        let ended: Vec<_> = self.seen.iter().filter_map(|seen| seen.ended.as_ref()).take(3).collect();
        let threads: BTreeMap<_, _> =
            self.server_threads.iter().map(|(name, cores)| (name, rounded(100.0 * cores))).collect();
        json!({
            "bench": "load", "viewers": self.size.n_viewers, "cards": self.size.n_gpus, "wall_s": rounded(self.wall_s),
            "join_s": rounded(self.join_s), "server_cores": rounded(self.server_cores),
            "server_cores_without_viewers": rounded(self.server_cores_alone),
            "server_core_percent": rounded(100.0 * self.server_cores), "server_threads_core_percent": threads,
            "server_resident_bytes": self.server_resident_bytes, "client_cores": rounded(self.client_cores),
            "telemetry_a_viewer": {"least": at(&counts, 0), "median": at(&counts, 500), "most": at(&counts, 1000)},
            "messages_per_second": rounded(self.sum(|seen| seen.n_messages) as f64 / self.wall_s),
            "bytes_per_second": rounded(self.sum(|seen| seen.n_bytes) as f64 / self.wall_s),
            "lost": self.sum(|seen| seen.n_lost), "gaps": self.sum(|seen| seen.n_gaps),
            "ended": self.n_ended(), "why_ended": ended,
            "latency_ms": {"median": latency_ms(500), "p99": latency_ms(990), "most": latency_ms(1000)},
        })
    }

    /// Returns the number of readings: ten per second of the measurement.
    fn n_readings(&self) -> u64 {
        self.size.seconds * 10
    }

    fn n_ended(&self) -> usize {
        self.seen.iter().filter(|seen| seen.ended.is_some()).count()
    }

    /// Returns the limits that are missed.
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        let cores_max = if self.size.n_viewers == 1 { CORES_OF_ONE_MAX } else { CORES_MAX };
        if self.server_cores.is_nan() || self.server_cores >= cores_max {
            missed.push(format!("the server takes {:.4} cores, and may take {cores_max}", self.server_cores));
        }
        let (n_lost, n_gaps, n_ended) = (self.sum(|seen| seen.n_lost), self.sum(|seen| seen.n_gaps), self.n_ended());
        if n_lost + n_gaps > 0 || n_ended > 0 {
            missed.push(format!("{n_lost} messages are lost, {n_gaps} missing, {n_ended} viewers sent away"));
        }
        let (least, most) = (self.seen.iter().map(|seen| seen.n_telemetry).min(), self.n_readings());
        if least.is_none_or(|least| least + CUT_OFF < most * 19 / 20) {
            missed.push(format!("a viewer has {least:?} readings of {most}"));
        }
        // Without any reading, the count above reports the failure.
        let p99 = at(&self.latencies_us(), 990).map_or(0.0, |us| us as f64 / 1000.0);
        if p99 >= LATENCY_MS_MAX {
            missed
                .push(format!("99 in 100 arrive within {p99} ms; a machine that does something else makes it longer"));
        }
        missed
    }
}

/// Returns a quantile of sorted values, in thousandths.
fn at(sorted: &[u64], in_a_thousand: usize) -> Option<u64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(last * in_a_thousand / 1000).copied()
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
