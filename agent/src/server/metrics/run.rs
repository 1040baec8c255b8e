//! Table of families about training runs.
//!
//! A run is a set of series for as long as Prometheus keeps them, so only those are told that run now, or ended a short
//! while ago: long enough for a scrape to see how.

use headroom_shared::protocol::run::{Cause, Iteration, Run, RunStatus};

use super::{
    Family,
    Kind::{Counter, Gauge},
    Snapshot,
    text::{Samples, Value, seconds},
};

/// Runs at most, newest first.
pub(super) const RUNS_MAX: usize = 32;
/// For how long a run that has ended is still told: several scrapes, at any usual interval.
pub(super) const ENDED_MS_MAX: u64 = 10 * 60 * 1000;

/// The labels of every run's samples.
const RUN_LABELS: &[&str] = &["run", "name"];

/// In the order of the text.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "headroom_run_status",
        kind: Gauge,
        help: "How a run stands: 1 for the one status that is true.",
        labels: &["run", "name", "status"],
        collect: |at, samples| {
            for run in told(at) {
                let now = status_name(run.status);
                for status in STATUSES {
                    samples.add(&[&*run.id, &*run.name, status], Some((status == now).into()));
                }
            }
        },
    },
    Family {
        name: "headroom_run_start_time_seconds",
        kind: Gauge,
        help: "When a run began, in seconds since 1970.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| Some(seconds(run.started_ms))),
    },
    Family {
        name: "headroom_run_end_time_seconds",
        kind: Gauge,
        help: "When a run ended, in seconds since 1970; absent as long as it runs.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.ended_ms.map(seconds)),
    },
    Family {
        name: "headroom_run_iteration",
        kind: Gauge,
        help: "Number of the newest iteration that a run printed.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.last.map(|last| Value::Whole(last.iter))),
    },
    Family {
        name: "headroom_run_iterations_planned",
        kind: Gauge,
        help: "max_iters of a run's config.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.max_iters.map(Value::Whole)),
    },
    Family {
        name: "headroom_run_loss",
        kind: Gauge,
        help: "Loss of the newest iteration that a run printed; absent where it printed none, as one that diverges.",
        labels: RUN_LABELS,
        collect: |at, samples| each_last(at, samples, |last| last.loss),
    },
    Family {
        name: "headroom_run_train_loss",
        kind: Gauge,
        help: "Loss of the training data at the newest evaluation.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.last_evaluation?.train_loss.map(Value::Real)),
    },
    Family {
        name: "headroom_run_val_loss",
        kind: Gauge,
        help: "Loss of the data held back at the newest evaluation.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.last_evaluation?.val_loss.map(Value::Real)),
    },
    Family {
        name: "headroom_run_iteration_duration_seconds",
        kind: Gauge,
        help: "What the newest iteration that a run printed took.",
        labels: RUN_LABELS,
        collect: |at, samples| each_last(at, samples, |last| Some(last.time_ms / 1000.0)),
    },
    Family {
        name: "headroom_run_tokens_per_second",
        kind: Gauge,
        help: "Tokens a second of the newest iteration; absent where the config is not known.",
        labels: RUN_LABELS,
        collect: |at, samples| each_last(at, samples, |last| last.tokens_per_second),
    },
    Family {
        name: "headroom_run_mfu_ratio",
        kind: Gauge,
        help: "Model FLOPs utilisation of the card that a run is on, of the newest iteration; not the A100's that \
               nanoGPT prints.",
        labels: RUN_LABELS,
        collect: |at, samples| each_last(at, samples, |last| last.mfu_percent.map(|percent| percent / 100.0)),
    },
    Family {
        name: "headroom_run_gpu_memory_peak_bytes",
        kind: Gauge,
        help: "Most that a run's processes were seen to have on one card.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.gpu_memory_peak_bytes.map(Value::Whole)),
    },
    Family {
        name: "headroom_run_planned_memory_peak_bytes",
        kind: Gauge,
        help: "What the plan of this very config says of the same, the context included.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| Some(Value::Whole(run.plan.as_ref()?.peak_bytes))),
    },
    Family {
        name: "headroom_run_energy_joules_total",
        kind: Counter,
        help: "What a run's cards took while it ran, shares of other programs included.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.energy_joules.map(Value::Real)),
    },
    Family {
        name: "headroom_run_out_of_memory",
        kind: Gauge,
        help: "Whether a run printed an out-of-memory message.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| Some(run.oom.is_some().into())),
    },
];

/// The runs that are told.
fn told<'a>(at: &Snapshot<'a>) -> impl Iterator<Item = &'a Run> {
    let now_ms = at.now_ms;
    let is_told = move |run: &&Run| match run.ended_ms {
        Some(ended_ms) => now_ms.saturating_sub(ended_ms) <= ENDED_MS_MAX,
        None => !run.status.has_ended(),
    };
    at.runs.iter().filter(is_told).take(RUNS_MAX)
}

fn each(at: &Snapshot<'_>, samples: &mut Samples, value: impl Fn(&Run) -> Option<Value>) {
    for run in told(at) {
        samples.add(&[&run.id, &run.name], value(run));
    }
}

fn each_last(at: &Snapshot<'_>, samples: &mut Samples, value: impl Fn(&Iteration) -> Option<f64>) {
    each(at, samples, |run| value(run.last.as_ref()?).map(Value::Real));
}

/// Every status as a label says it. What a run died of outweighs its exit code and signal.
const STATUSES: [&str; 13] = [
    "running",
    "queued",
    "stalled",
    "succeeded",
    "failed",
    "killed",
    "lost",
    "out_of_gpu_memory",
    "out_of_host_memory",
    "card_error",
    "diverged",
    "stopped",
    "unqueued",
];

const fn status_name(status: RunStatus) -> &'static str {
    match status.cause() {
        Some(Cause::OutOfGpuMemory) => return "out_of_gpu_memory",
        Some(Cause::OutOfHostMemory) => return "out_of_host_memory",
        Some(Cause::CardError) => return "card_error",
        Some(Cause::Diverged) => return "diverged",
        Some(Cause::Stopped) => return "stopped",
        Some(Cause::Unqueued) => return "unqueued",
        Some(Cause::Other) | None => {}
    }
    match status {
        RunStatus::Running => "running",
        RunStatus::Queued => "queued",
        RunStatus::Stalled { .. } => "stalled",
        RunStatus::Exited { code: 0, .. } => "succeeded",
        RunStatus::Exited { .. } => "failed",
        RunStatus::Killed { .. } => "killed",
        RunStatus::Lost => "lost",
    }
}
