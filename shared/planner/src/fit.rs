//! What fits: the largest numbers of a run that fit a GPU, and the run with several batch sizes on several GPUs.

mod document;
mod runs;
#[cfg(test)]
mod tests;

use std::{cell::RefCell, collections::BTreeMap};

pub use runs::{NanogptRun, TrainerRun};

use crate::{
    advice::{Knob, largest_of},
    hardware::{Device, devices, find},
    plan::{Fit, Room},
};

/// GPUs of the table if none are given: common ones with 8 to 32 GB that compute in bfloat16.
const COMMON: [&str; 10] = [
    "GeForce RTX 5060",
    "GeForce RTX 4060",
    "GeForce RTX 3080 10GB",
    "GeForce RTX 3060 12GB",
    "GeForce RTX 4070",
    "GeForce RTX 4060 Ti 16GB",
    "GeForce RTX 5070 Ti",
    "GeForce RTX 3090",
    "GeForce RTX 4090",
    "GeForce RTX 5090",
];

/// Maximum number of batch sizes in the table, without the given one.
const MAX_SIZES: usize = 6;

/// Maximum number of GPUs tried for a run that fits no GPU of the table.
const MAX_GPUS_TRIED: usize = 16;

/// The largest value of a knob that fits, if nothing else changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The knob.
    pub knob: Knob,
    /// The largest value whose whole band of estimates fits. `None` if the smallest value does not.
    pub largest: Option<u64>,
    /// A larger value that fits by the estimate but not over its whole band.
    pub may_fit: Option<u64>,
}

impl Limit {
    /// Whether larger values than the largest may also fit, because none was tried.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.largest.is_some_and(|largest| largest >= self.knob.max)
    }
}

/// A run that can be planned with other numbers and on other GPUs.
pub trait ScalableRun: Sized {
    /// The numbers that people change, the batch size first.
    fn knobs(&self) -> Vec<Knob>;

    /// The values of a knob that the trainer accepts, ascending.
    fn candidates(&self, knob: Knob) -> Vec<u64> {
        knob.values()
    }

    /// Plans the run with another value of a knob. `None` if it has no plan.
    fn with(&self, key: &'static str, value: u64) -> Option<Room>;

    /// The GPU of the run.
    fn device(&self) -> Option<Device>;

    /// The run on another GPU.
    ///
    /// # Errors
    /// Why the run cannot be planned there.
    fn on(&self, device: &Device) -> Result<Self, String>;

    /// The limit of a knob, if the trainer has a search of its own for it.
    fn own_limit(&self, _knob: Knob) -> Option<Limit> {
        None
    }
}

/// A run with the plans that were computed; each value is planned once.
struct Planned<R> {
    run: R,
    known: RefCell<BTreeMap<(&'static str, u64), Option<Room>>>,
}

impl<R: ScalableRun> Planned<R> {
    fn new(run: R) -> Self {
        Self { run, known: RefCell::default() }
    }

    fn at(&self, key: &'static str, value: u64) -> Option<Room> {
        let known = self.known.borrow().get(&(key, value)).copied();
        known.unwrap_or_else(|| {
            let room = self.run.with(key, value);
            self.known.borrow_mut().insert((key, value), room);
            room
        })
    }

    /// Plans the run with these ascending values up to the first that does not fit, and with the given one.
    fn rooms(&self, key: &'static str, values: &[u64], given: u64) -> Vec<Option<Room>> {
        let mut fails = false;
        let room = |value: &u64| {
            let room = (!fails || *value == given).then(|| self.at(key, *value)).flatten();
            fails |= room.is_none_or(|room| room.fit == Fit::Fails);
            room
        };
        values.iter().map(room).collect()
    }

    fn limit(&self, knob: Knob) -> Limit {
        if let Some(limit) = self.run.own_limit(knob) {
            return limit;
        }
        let values = self.run.candidates(knob);
        let largest = |passes: fn(Fit) -> bool| {
            largest_of(&values, |value| self.at(knob.key, value).is_some_and(|room| passes(room.fit)))
        };
        let fitting = largest(|fit| fit != Fit::Fails);
        let certain = fitting.and_then(|_| largest(|fit| fit == Fit::Fits));
        Limit { knob, largest: certain, may_fit: fitting.filter(|_| fitting > certain) }
    }
}

/// The run on one GPU of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuRow {
    /// The GPU.
    pub device: Device,
    /// Whether it is the GPU of the run.
    pub is_given: bool,
    /// The figures on this GPU, or why there are none.
    pub figures: Result<GpuFigures, String>,
}

/// The figures of a run on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuFigures {
    /// The largest batch size.
    pub limit: Limit,
    /// The memory left with each batch size of the table. `None` if the size does not fit and was not planned, because
    /// a smaller one does not fit either.
    pub rooms: Vec<Option<Room>>,
}

/// A GPU on which the run fits unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct SmallestGpu {
    /// The GPU.
    pub device: Device,
    /// The memory that the run leaves there.
    pub room: Room,
    /// Whether it is in the table.
    pub is_listed: bool,
}

/// What fits.
#[derive(Clone, Debug, PartialEq)]
pub struct FitAnswer {
    /// The largest value of each knob on the GPU of the run, the batch size first.
    pub limits: Vec<Limit>,
    /// Batch sizes of the table, ascending.
    pub batch_sizes: Vec<u64>,
    /// The table, in the order of memory.
    pub gpus: Vec<GpuRow>,
    /// The GPU with the least memory on which the run fits unchanged with certainty: of the table, else of all known
    /// GPUs.
    pub smallest: Option<SmallestGpu>,
}

/// GPUs of the table if none are given.
#[must_use]
pub fn common_gpus() -> Vec<&'static Device> {
    COMMON.iter().filter_map(|name| find(name).ok()).collect()
}

/// Computes what fits, for the GPU of the run and for the others of the table. `None` if the run has no knob or no GPU.
#[must_use]
pub fn fit<R: ScalableRun>(run: R, others: &[&Device]) -> Option<FitAnswer> {
    let (given, batch) = (run.device()?, *run.knobs().first()?);
    let run = Planned::new(run);
    let limits: Vec<Limit> = run.run.knobs().into_iter().map(|knob| run.limit(knob)).collect();
    let others = others.iter().filter(|device| !is_same(device, &given));
    let others: Vec<Moved<R>> = others.map(|device| Moved::new(&run.run, device, batch)).collect();
    let found = others.iter().filter_map(|other| other.found.as_ref().ok().map(|(_, limit)| *limit));
    let found = found.chain(limits.first().copied());
    let reached = found.filter_map(|limit| limit.may_fit.or(limit.largest)).max().unwrap_or(0);
    let batch_sizes = batch_sizes(&run.run.candidates(batch), reached, batch.value);
    let figures =
        |run: &Planned<R>, limit| GpuFigures { limit, rooms: run.rooms(batch.key, &batch_sizes, batch.value) };
    let own = limits.first().map(|limit| figures(&run, *limit));
    let own = own.map(|figures| GpuRow { device: given, is_given: true, figures: Ok(figures) });
    let others = others.into_iter().map(|Moved { device, found }| GpuRow {
        device,
        is_given: false,
        figures: found.map(|(run, limit)| figures(&run, limit)),
    });
    let mut gpus: Vec<GpuRow> = own.into_iter().chain(others).collect();
    gpus.sort_by_key(|row| row.device.total_bytes);
    let column = batch_sizes.iter().position(|size| *size == batch.value);
    let smallest = smallest_of(&gpus, column).or_else(|| smallest_known(&run.run, batch, &gpus, column));
    Some(FitAnswer { limits, batch_sizes, gpus, smallest })
}

/// The run on another GPU, with its largest batch size, or why it is not planned there.
struct Moved<R> {
    device: Device,
    found: Result<(Planned<R>, Limit), String>,
}

impl<R: ScalableRun> Moved<R> {
    fn new(run: &R, device: &Device, batch: Knob) -> Self {
        let found = run.on(device).map(|run| {
            let run = Planned::new(run);
            let limit = run.limit(batch);
            (run, limit)
        });
        Self { device: device.clone(), found }
    }
}

/// A GPU with another amount of memory than the table's is another GPU.
fn is_same(a: &Device, b: &Device) -> bool {
    a.name == b.name && a.total_bytes == b.total_bytes
}

/// The batch sizes of the table: powers of two up to the first beyond the largest that fits any GPU, and the given one.
fn batch_sizes(candidates: &[u64], reached: u64, given: u64) -> Vec<u64> {
    let mut powers: Vec<u64> = candidates.iter().copied().filter(|size| size.is_power_of_two()).collect();
    let end = powers.iter().position(|size| *size > reached).map_or(powers.len(), |at| at + 1);
    powers.truncate(end);
    let mut sizes = powers.split_off(powers.len().saturating_sub(MAX_SIZES));
    if let Err(at) = sizes.binary_search(&given) {
        sizes.insert(at, given);
    }
    sizes
}

/// The GPU of the table with the least memory on which the run fits with certainty.
fn smallest_of(gpus: &[GpuRow], column: Option<usize>) -> Option<SmallestGpu> {
    gpus.iter().find_map(|row| {
        let room = given_room(row, column).filter(|room| room.fit == Fit::Fits)?;
        Some(SmallestGpu { device: row.device.clone(), room, is_listed: true })
    })
}

/// The memory that the unchanged run leaves on a GPU of the table.
fn given_room(row: &GpuRow, column: Option<usize>) -> Option<Room> {
    *row.figures.as_ref().ok()?.rooms.get(column?)?
}

/// The smallest of all known GPUs on which the run fits with certainty. It has about the same peak on every GPU, so
/// those with less memory are not tried.
fn smallest_known<R: ScalableRun>(run: &R, batch: Knob, gpus: &[GpuRow], column: Option<usize>) -> Option<SmallestGpu> {
    let used = gpus.iter().rev().find_map(|row| {
        let room = given_room(row, column)?;
        u64::try_from(i128::from(row.device.total_bytes) - i128::from(room.headroom_bytes)).ok()
    })?;
    let mut known: Vec<&Device> = devices().iter().filter(|device| device.total_bytes > used).collect();
    known.sort_by_key(|device| device.total_bytes);
    known.into_iter().take(MAX_GPUS_TRIED).find_map(|device| {
        let room = run.on(device).ok()?.with(batch.key, batch.value).filter(|room| room.fit == Fit::Fits)?;
        Some(SmallestGpu { device: device.clone(), room, is_listed: false })
    })
}
