//! One run on every GPU of the table, and with several micro-batch sizes on one GPU.

use crate::{
    advice::{BatchSizes, largest_of},
    compute::step_seconds,
    hardware::{CLOUD_GPUS, Device, Segment, by_popularity},
    nanogpt::{Settings, Value},
    plan::{Fit, Machine, Plan, Request, RunOnMachine, plan},
    session::{Options, resolve_settings},
    trainers::{self, TrainerRequest},
};
use std::ops::Range;

#[cfg(test)]
mod tests;

/// Number of powers of two in a list of micro-batch sizes, below the largest that fits.
const POWERS_LISTED: usize = 6;

const SECONDS_PER_HOUR: f64 = 3600.0;

/// The figures of a plan that a list shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Whether the run fits.
    pub fit: Fit,
    /// Memory left on the GPU at the peak, in bytes; negative if bytes are missing.
    pub headroom_bytes: i64,
    /// Bounds of that memory, in bytes.
    pub band_bytes: [i64; 2],
    /// Estimated seconds of an iteration; `None` if the GPU's rates are unknown.
    pub iteration_seconds: Option<f64>,
    /// Energy of an iteration in watt hours, at most: its estimated time at the power limit of the board. `None` if one
    /// of the two is unknown.
    pub max_iteration_watt_hours: Option<f64>,
    /// Estimated seconds per token of one process; `None` if the GPU's rates are unknown.
    pub seconds_per_token: Option<f64>,
}

impl Summary {
    /// Plans a run. `None` if it has no plan.
    fn of(settings: Settings, options: &Options) -> Option<Self> {
        let request = resolve_settings(settings, options).request?;
        Some(Self::of_plan(&plan(request).ok()?))
    }

    /// The figures of a plan.
    #[must_use]
    pub fn of_plan(plan: &Plan) -> Self {
        let Request { train, gpt, .. } = &plan.request;
        let tokens = train.batch_size as f64 * train.gradient_accumulation_steps as f64 * gpt.block_size() as f64;
        let iteration_seconds = step_seconds(&plan.request);
        let power = plan.request.machine.device.board_power();
        Self {
            iteration_seconds,
            max_iteration_watt_hours: iteration_seconds
                .zip(power)
                .map(|(seconds, power)| seconds * f64::from(power.watts) / SECONDS_PER_HOUR),
            seconds_per_token: iteration_seconds.map(|seconds| seconds / tokens),
            ..Self::of_memory(plan)
        }
    }

    /// The figures of a plan without an estimate of its time.
    fn of_memory<R: RunOnMachine>(plan: &Plan<R>) -> Self {
        Self {
            fit: plan.fit(),
            headroom_bytes: plan.headroom_bytes,
            band_bytes: plan.headroom_band_bytes(),
            iteration_seconds: None,
            max_iteration_watt_hours: None,
            seconds_per_token: None,
        }
    }

    /// Plans a run of another trainer. `None` if it has no plan.
    fn of_trainer(run: trainers::Run, machine: Machine) -> Option<Self> {
        let request = TrainerRequest::new(run, machine).ok()?;
        Some(Self::of_memory(&trainers::plan(request).ok()?))
    }
}

/// A run on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuRow {
    /// The GPU.
    pub device: &'static Device,
    /// The kind of machine that it is sold for.
    pub segment: Segment,
    /// Labels of the cloud machines with this GPU.
    pub clouds: Vec<&'static str>,
    /// The figures; `None` if the run has no plan on this GPU.
    pub summary: Option<Summary>,
}

/// Number of GPUs in the table.
#[must_use]
pub fn n_gpus() -> usize {
    by_popularity().count()
}

/// Plans a run on the GPUs of the table with these indices, the most common first.
#[must_use]
pub fn gpus(settings: &Settings, options: &Options, indices: Range<usize>) -> Vec<GpuRow> {
    rows(options, indices, |options| Summary::of(settings.clone(), options))
}

/// Plans a run of another trainer than nanoGPT on the GPUs with these indices. Times are unknown.
#[must_use]
pub fn trainer_gpus(run: &trainers::Run, options: &Options, indices: Range<usize>) -> Vec<GpuRow> {
    rows(options, indices, |options| Summary::of_trainer(run.clone(), options.machine().ok()?))
}

fn rows(options: &Options, indices: Range<usize>, summary: impl Fn(&Options) -> Option<Summary>) -> Vec<GpuRow> {
    let row = |(segment, device): (Segment, &'static Device)| {
        let clouds =
            CLOUD_GPUS.iter().filter(|rented| rented.device == device.name).map(|rented| rented.label).collect();
        GpuRow { device, segment, clouds, summary: summary(&options.with_device(device)) }
    };
    by_popularity().skip(indices.start).take(indices.len()).map(row).collect()
}

/// Whether the time of an iteration is known on any of the GPUs.
#[must_use]
pub fn has_times(rows: &[GpuRow]) -> bool {
    rows.iter().any(|row| row.summary.is_some_and(|summary| summary.iteration_seconds.is_some()))
}

/// The number of GPUs that the run fits with certainty, and the one with the least memory among them.
#[must_use]
pub fn smallest(rows: &[GpuRow]) -> (usize, Option<&GpuRow>) {
    let certain = || rows.iter().filter(|row| row.summary.is_some_and(|summary| summary.fit == Fit::Fits));
    (certain().count(), certain().min_by_key(|row| row.device.total_bytes))
}

/// Micro-batch sizes that a list shows, ascending: powers of two around the limit, the largest size that fits, the one
/// after the last that may fit, and the run's own.
#[must_use]
pub fn batch_sizes(found: &BatchSizes, own: u64) -> Vec<u64> {
    let last = found.may_fit.last().copied().or(found.largest).unwrap_or(0);
    let powers: Vec<u64> = (0..u64::BITS).map(|bits| 1 << bits).take_while(|size| *size <= last).collect();
    let mut sizes = powers[powers.len().saturating_sub(POWERS_LISTED)..].to_vec();
    sizes.extend(found.largest);
    sizes.extend([last + 1, powers.last().map_or(2, |power| power * 2), own]);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Micro-batch sizes of a run of another trainer around the limit of its GPU, with everything else unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerBatches {
    /// The sizes that the trainer accepts, ascending, with the figures of their plans.
    pub sizes: Vec<(u64, Summary)>,
    /// The run's own size.
    pub own: u64,
    /// The largest size whose whole band of estimates fits.
    pub largest: Option<u64>,
}

/// Plans a run of another trainer with micro-batch sizes around the limit of its GPU. `None` if the trainer has no such
/// option.
#[must_use]
pub fn trainer_batches(plan: &Plan<TrainerRequest>) -> Option<TrainerBatches> {
    let (run, machine) = (plan.request.run(), plan.request.machine());
    let knob = run.knobs().into_iter().next()?;
    let summary = |size| Summary::of_trainer(run.with(knob.key, size)?, machine.clone());
    let candidates = run.candidates(knob);
    let fits = |size| summary(size).is_some_and(|summary| summary.fit == Fit::Fits);
    let may_fit = |size| summary(size).is_some_and(|summary| summary.fit != Fit::Fails);
    let largest = largest_of(&candidates, fits);
    let last = largest_of(&candidates, may_fit).filter(|last| Some(*last) > largest);
    let found = BatchSizes { largest, may_fit: last.into_iter().collect(), gap: None };
    let sizes = batch_sizes(&found, knob.value).into_iter();
    let sizes = sizes.filter_map(|size| Some((size, summary(size)?))).collect();
    Some(TrainerBatches { sizes, own: knob.value, largest })
}

/// Plans a run with another micro-batch size. `None` if it has no plan.
#[must_use]
pub fn with_batch_size(settings: &Settings, options: &Options, size: u64) -> Option<Summary> {
    let mut settings = settings.clone();
    settings.assign("batch_size", Value::Int(i64::try_from(size).ok()?));
    Summary::of(settings, options)
}
