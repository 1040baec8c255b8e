//! Metrics of training runs.
//!
//! Prometheus keeps a set of series for each run. The metrics therefore include only runs that have not ended or ended
//! recently, long enough for a scrape to record the outcome.

use headroom_protocol::run::{Cause, Iteration, Run, RunStatus};

use super::{
    Family,
    Kind::{Counter, Gauge},
    Snapshot, Value,
    text::{Samples, seconds},
};

/// The maximum number of runs, newest first.
pub(super) const RUNS_MAX: usize = 32;
/// The time for which an ended run is included: several scrapes at any usual interval.
pub(super) const ENDED_MS_MAX: u64 = 10 * 60 * 1000;

/// The labels of run metrics.
const RUN_LABELS: &[&str] = &["run", "name"];

/// The families in the order of the text.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "headroom_run_status",
        kind: Gauge,
        help: "Status of a run: 1 for the current status.",
        labels: &["run", "name", "status"],
        collect: |at, samples| {
            for run in exported_runs(at) {
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
        help: "Start time of a run, in seconds since 1970.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| Some(seconds(run.started_ms))),
    },
    Family {
        name: "headroom_run_end_time_seconds",
        kind: Gauge,
        help: "End time of a run, in seconds since 1970. Absent while it runs.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.ended_ms.map(seconds)),
    },
    Family {
        name: "headroom_run_iteration",
        kind: Gauge,
        help: "Last printed iteration of a run.",
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
        help: "Loss of the last printed iteration. Absent if the run printed none, or one that is not finite.",
        labels: RUN_LABELS,
        collect: |at, samples| each_last(at, samples, |last| last.loss),
    },
    Family {
        name: "headroom_run_train_loss",
        kind: Gauge,
        help: "Training loss of the last evaluation.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.last_evaluation?.train_loss.map(Value::Real)),
    },
    Family {
        name: "headroom_run_val_loss",
        kind: Gauge,
        help: "Validation loss of the last evaluation.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.last_evaluation?.val_loss.map(Value::Real)),
    },
    Family {
        name: "headroom_run_iteration_duration_seconds",
        kind: Gauge,
        help: "Duration of the last printed iteration.",
        labels: RUN_LABELS,
        collect: |at, samples| each_last(at, samples, |last| Some(last.time_ms / 1000.0)),
    },
    Family {
        name: "headroom_run_tokens_per_second",
        kind: Gauge,
        help: "Tokens per second of the last printed iteration. Absent if the config is unknown.",
        labels: RUN_LABELS,
        collect: |at, samples| each_last(at, samples, |last| last.tokens_per_second),
    },
    Family {
        name: "headroom_run_mfu_ratio",
        kind: Gauge,
        help: "Model FLOPs utilisation of the last printed iteration on the run's own GPU. nanoGPT prints it for an \
               A100.",
        labels: RUN_LABELS,
        collect: |at, samples| each_last(at, samples, |last| last.mfu_percent.map(|percent| percent / 100.0)),
    },
    Family {
        name: "headroom_run_gpu_memory_peak_bytes",
        kind: Gauge,
        help: "Highest measured memory of a run's processes on one GPU.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.gpu_memory_peak_bytes.map(Value::Whole)),
    },
    Family {
        name: "headroom_run_planned_memory_peak_bytes",
        kind: Gauge,
        help: "Planned peak memory of this config, with the CUDA context.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| Some(Value::Whole(run.plan.as_ref()?.peak_bytes))),
    },
    Family {
        name: "headroom_run_energy_joules_total",
        kind: Counter,
        help: "Energy that a run's GPUs used during the run, including other programs.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| run.energy_joules.map(Value::Real)),
    },
    Family {
        name: "headroom_run_out_of_memory",
        kind: Gauge,
        help: "1 if a run printed an out-of-memory message.",
        labels: RUN_LABELS,
        collect: |at, samples| each(at, samples, |run| Some(run.oom.is_some().into())),
    },
];

/// Returns the runs that are included.
fn exported_runs<'a>(at: &Snapshot<'a>) -> impl Iterator<Item = &'a Run> {
    let now_ms = at.now_ms;
    let is_reported = move |run: &&Run| match run.ended_ms {
        Some(ended_ms) => now_ms.saturating_sub(ended_ms) <= ENDED_MS_MAX,
        None => !run.status.has_ended(),
    };
    at.runs.iter().filter(is_reported).take(RUNS_MAX)
}

fn each(at: &Snapshot<'_>, samples: &mut Samples, value: impl Fn(&Run) -> Option<Value>) {
    for run in exported_runs(at) {
        samples.add(&[&run.id, &run.name], value(run));
    }
}

fn each_last(at: &Snapshot<'_>, samples: &mut Samples, value: impl Fn(&Iteration) -> Option<f64>) {
    each(at, samples, |run| value(run.last.as_ref()?).map(Value::Real));
}

/// The labels of all statuses. A run's cause of death takes precedence over its exit code and signal.
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
        Some(Cause::GpuError) => return "card_error",
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
