//! Table of families about the agent and the machine around the cards.

use headroom_shared::protocol::state::{DriverState, HistoryState};

use super::{
    Family,
    Kind::Gauge,
    text::{Value, seconds, whole},
};

/// In the order of the text.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "headroom_build_info",
        kind: Gauge,
        help: "The agent's version; always 1.",
        labels: &["version"],
        collect: |at, samples| samples.add(&[at.version], Some(Value::Whole(1))),
    },
    Family {
        name: "headroom_viewers",
        kind: Gauge,
        help: "Pages that watch at this moment.",
        labels: &[],
        collect: |at, samples| samples.add_one(Some(Value::Whole(at.n_viewers))),
    },
    Family {
        name: "headroom_driver_up",
        kind: Gauge,
        help: "Whether the NVIDIA driver answers.",
        labels: &[],
        collect: |at, samples| {
            samples.add_one(Some(matches!(at.state.driver, DriverState::Ready { .. }).into()));
        },
    },
    Family {
        name: "headroom_driver_info",
        kind: Gauge,
        help: "The driver's version and the highest CUDA that it runs; always 1, absent where no driver answers.",
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
        help: "Whether history is not kept for now, as on a full disk.",
        labels: &[],
        collect: |at, samples| {
            samples.add_one(Some(matches!(at.state.history, HistoryState::Paused { .. }).into()));
        },
    },
    Family {
        name: "headroom_history_size_bytes",
        kind: Gauge,
        help: "Size of the file that history is kept in.",
        labels: &[],
        collect: |at, samples| {
            let HistoryState::Kept { bytes, .. } = at.state.history else { return };
            samples.add_one(Some(Value::Whole(bytes)));
        },
    },
    Family {
        name: "headroom_telemetry_timestamp_seconds",
        kind: Gauge,
        help: "When cards were last read, in seconds since 1970.",
        labels: &[],
        collect: |at, samples| samples.add_one(at.telemetry.map(|telemetry| seconds(telemetry.time_ms))),
    },
    Family {
        name: "headroom_energy_price_per_joule",
        kind: Gauge,
        help: "What a joule costs in the owner's currency (a kWh is 3.6 million); absent where no price is set.",
        labels: &["currency"],
        collect: |at, samples| {
            let Some(settings) = at.settings else { return };
            let price = settings.price_per_kwh.map(|price| Value::Real(price / 3.6e6));
            samples.add(&[&settings.currency], price);
        },
    },
    Family {
        name: "headroom_host_cpu_utilization_ratio",
        kind: Gauge,
        help: "Of all cores together, 1 where all are busy.",
        labels: &[],
        collect: |at, samples| {
            let percent = at.slow_now().and_then(|slow| slow.host.cpu_percent.get());
            samples.add_one(percent.map(|percent| Value::Real(percent / 100.0)));
        },
    },
    Family {
        name: "headroom_host_memory_used_bytes",
        kind: Gauge,
        help: "What programs use of the machine's memory.",
        labels: &[],
        collect: |at, samples| samples.add_one(at.slow_now().and_then(|slow| whole(&slow.host.memory_used_bytes))),
    },
    Family {
        name: "headroom_host_memory_total_bytes",
        kind: Gauge,
        help: "All of the machine's memory.",
        labels: &[],
        collect: |at, samples| samples.add_one(at.slow_now().and_then(|slow| whole(&slow.host.memory_total_bytes))),
    },
    Family {
        name: "headroom_host_disk_free_bytes",
        kind: Gauge,
        help: "What is left on the disk that history lies on.",
        labels: &[],
        collect: |at, samples| samples.add_one(at.slow_now().and_then(|slow| whole(&slow.host.disk_free_bytes))),
    },
    Family {
        name: "headroom_host_disk_total_bytes",
        kind: Gauge,
        help: "The whole of the disk that history lies on.",
        labels: &[],
        collect: |at, samples| samples.add_one(at.slow_now().and_then(|slow| whole(&slow.host.disk_total_bytes))),
    },
];
