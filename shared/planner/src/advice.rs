//! Fixes for a run that does not fit. Every candidate is simulated, alone and, if one is not enough, in combination;
//! fixes are ranked by their cost.
//!
//! Fixes that keep the training unchanged rank first, then faster fixes, then fixes that leave more memory. The search
//! uses no rules of thumb: it applies each change to the user's settings, then resolves and plans them like any other
//! request.

mod batch;
mod change;
mod code;
mod fix;
mod knob;
mod patch;
mod search;
#[cfg(test)]
mod tests;

pub(crate) use batch::MAX_BATCH_SIZE;
pub use batch::{BatchSizes, Gap};
pub use change::{Change, RunSwitch};
pub use code::{CodeChange, changed_files, changes_text, needs_text, patch_of};
pub use fix::{Effect, Fix, Kind, time_text};
pub use knob::{Knob, largest_of};
pub use patch::ByHand;

use crate::{
    compute::step_time_ratio,
    hardware::{Device, devices},
    nanogpt::Settings,
    plan::{Plan, fits, plan},
    request::Request,
    session::{Options, resolve_settings},
};

/// Maximum number of GPUs tried for a run that does not fit on its own; the smallest are tried first, so few are
/// needed.
const MAX_GPUS_TRIED: usize = 8;

/// An insufficient change is listed if it saves more than 1/`NOTEWORTHY` of the memory in use.
const NOTEWORTHY: u64 = 100;

/// Advice beyond a plan.
#[derive(Clone, Debug, Default)]
pub struct Advice {
    /// Fixes, best first. Insufficient ones come last; empty if the run fits.
    pub fixes: Vec<Fix>,
    /// Micro-batch sizes that fit with everything else unchanged, independent of the run's own size.
    pub batch_sizes: BatchSizes,
    /// The smallest GPU on which the run fits unchanged, if no fix that keeps the model suffices.
    pub smallest_gpu: Option<&'static Device>,
}

impl Advice {
    /// Whether a sufficient fix keeps the model unchanged.
    #[must_use]
    pub fn keeps_model(&self) -> bool {
        self.fixes.iter().any(|fix| fix.fits && fix.effect() != Effect::ChangesModel)
    }
}

/// Micro-batch sizes that fit with everything else of a planned run unchanged.
#[must_use]
pub fn batch_sizes(settings: &Settings, options: &Options, before: &Plan) -> BatchSizes {
    Adviser::new(settings, options, before).batch_sizes()
}

/// Advice on a run that was planned from these settings and options.
#[must_use]
pub fn advise(settings: &Settings, options: &Options, before: &Plan) -> Advice {
    let adviser = Adviser::new(settings, options, before);
    let mut advice = Advice { batch_sizes: adviser.batch_sizes(), ..Advice::default() };
    if before.fits {
        return advice;
    }
    advice.fixes = adviser.fixes();
    if !advice.keeps_model() {
        advice.smallest_gpu = adviser.smallest_gpu();
    }
    advice
}

struct Adviser<'a> {
    settings: &'a Settings,
    options: &'a Options,
    before: &'a Plan,
    /// Number of sequences per iteration of one process; `None` on overflow of `u64`.
    sequences: Option<u64>,
}

impl<'a> Adviser<'a> {
    fn new(settings: &'a Settings, options: &'a Options, before: &'a Plan) -> Self {
        let train = &before.request.train;
        let sequences = train.batch_size.checked_mul(train.gradient_accumulation_steps);
        Self { settings, options, before, sequences }
    }
}

impl Adviser<'_> {
    /// The request after these changes; `None` if the result is not a valid run.
    fn request(&self, changes: &[Change]) -> Option<Request> {
        let (mut settings, mut options) = (self.settings.clone(), self.options.clone());
        for change in changes {
            change.apply(&mut settings, &mut options);
        }
        resolve_settings(settings, &options).request
    }

    fn fits(&self, changes: &[Change]) -> bool {
        self.request(changes).is_some_and(|request| fits(&request))
    }

    /// The changes as a fix; `None` if they bring no improvement.
    fn fix(&self, kinds: &[Kind], changes: Vec<Change>) -> Option<Fix> {
        let request = self.request(&changes)?;
        let step_time_ratio = step_time_ratio(&self.before.request, &request);
        let after = plan(request).ok()?;
        let saves_bytes = self.before.peak.device_used_bytes.saturating_sub(after.peak.device_used_bytes);
        if saves_bytes < self.before.peak.device_used_bytes / NOTEWORTHY && !after.fits {
            return None;
        }
        Some(Fix {
            kinds: kinds.to_vec(),
            changes,
            saves_bytes,
            fits: after.fits,
            headroom_bytes: after.headroom_bytes,
            step_time_ratio,
        })
    }

    /// The smallest GPU on which the unchanged run fits.
    fn smallest_gpu(&self) -> Option<&'static Device> {
        let mut gpus: Vec<&'static Device> = Vec::new();
        for gpu in devices() {
            let at = gpus.partition_point(|smaller| smaller.total_bytes <= gpu.total_bytes);
            gpus.insert(at, gpu);
        }
        // The run needs the same memory there, except for a few kernels of other generations.
        let need_bytes = self.before.peak.max_reserved_bytes;
        gpus.into_iter().filter(|gpu| gpu.total_bytes > need_bytes).take(MAX_GPUS_TRIED).find(|gpu| {
            resolve_settings(self.settings.clone(), &self.options.with_device(gpu))
                .request
                .is_some_and(|request| fits(&request))
        })
    }
}

/// The largest fitting number in `fitting..beyond`, by bisection; `beyond` does not fit.
pub(crate) fn largest(mut fitting: u64, mut beyond: u64, fits: impl Fn(u64) -> bool) -> u64 {
    while fitting + 1 < beyond {
        let middle = fitting.midpoint(beyond);
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    fitting
}
