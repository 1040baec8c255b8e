//! Metrics of the agent and the machine, except its GPUs.

use headroom_protocol::state::{DriverState, HistoryState};

use super::{
    Family,
    Kind::{Counter, Gauge},
    Value,
    text::seconds,
};

/// The families in the order of the text.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "headroom_build_info",
        kind: Gauge,
        help: "Version of the agent; always 1.",
        labels: &["version"],
        collect: |at, samples| samples.add(&[at.version], Some(Value::Whole(1))),
    },
    Family {
        name: "headroom_viewers",
        kind: Gauge,
        help: "Connected pages.",
        labels: &[],
        collect: |at, samples| samples.add_one(Some(Value::Whole(at.n_viewers))),
    },
    Family {
        name: "headroom_dropped_total",
        kind: Counter,
        help: "Items dropped by full queues since the agent started. Events of alerts are never dropped.",
        labels: &["queue", "item"],
        collect: |at, samples| {
            for (queue, item, n) in [
                ("viewers", "telemetry", at.dropped_live.viewers),
                ("alerts", "telemetry", at.dropped_live.alerts),
                ("history", "telemetry", at.dropped_history.readings),
                ("history", "event", at.dropped_history.events),
            ] {
                samples.add(&[queue, item], Some(Value::Whole(n)));
            }
        },
    },
    Family {
        name: "headroom_driver_up",
        kind: Gauge,
        help: "1 if the NVIDIA driver responds.",
        labels: &[],
        collect: |at, samples| {
            samples.add_one(Some(matches!(at.state.driver, DriverState::Ready { .. }).into()));
        },
    },
    Family {
        name: "headroom_driver_info",
        kind: Gauge,
        help: "Version of the driver and its highest CUDA version; always 1. Absent if no driver responds.",
        labels: &["driver_version", "cuda_version"],
        collect: |at, samples| {
            let DriverState::Ready { driver_version, cuda_version, .. } = &at.state.driver else { return };
            let cuda = cuda_version.map_or_else(String::new, |(major, minor)| format!("{major}.{minor}"));
            samples.add(&[driver_version.as_str(), &cuda], Some(Value::Whole(1)));
        },
    },
    Family {
        name: "headroom_history_paused",
        kind: Gauge,
        help: "1 if history is paused, for example because the disk is full.",
        labels: &[],
        collect: |at, samples| {
            samples.add_one(Some(matches!(at.state.history, HistoryState::Paused { .. }).into()));
        },
    },
    Family {
        name: "headroom_history_size_bytes",
        kind: Gauge,
        help: "Size of the history file.",
        labels: &[],
        collect: |at, samples| {
            let HistoryState::Kept { bytes, .. } = at.state.history else { return };
            samples.add_one(Some(Value::Whole(bytes)));
        },
    },
    Family {
        name: "headroom_telemetry_timestamp_seconds",
        kind: Gauge,
        help: "Time of the last telemetry reading, in seconds since 1970.",
        labels: &[],
        collect: |at, samples| samples.add_one(at.telemetry.map(|telemetry| seconds(telemetry.time_ms))),
    },
    Family {
        name: "headroom_energy_price_per_joule",
        kind: Gauge,
        help: "Price of a joule in the configured currency (a kWh is 3.6 million). Absent if no price is set.",
        labels: &["currency"],
        collect: |at, samples| {
            let Some(settings) = at.settings else { return };
            let price = settings.price_per_kwh.map(|price| Value::Real(price / 3.6e6));
            samples.add(&[&settings.currency], price);
        },
    },
];
