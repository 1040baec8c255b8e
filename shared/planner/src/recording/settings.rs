//! Settings of the allocator with which a recorded run fits.

use super::ReplayRequest;
use crate::{
    memory::{
        allocator::{AllocConf, SegmentKind},
        tuned::TunedAllocator,
    },
    plan::Plan,
    request::{Machine, RunOnMachine},
};

/// Values of `max_split_size_mb` that are simulated, least intrusive first.
const MAX_SPLIT_SIZES_MIB: [u64; 6] = [512, 256, 128, 64, 32, 20];

impl Plan<ReplayRequest> {
    /// Settings of PyTorch's allocator with which this run fits, as in `PYTORCH_ALLOC_CONF`: expandable segments, and the
    /// largest of the usual values of `max_split_size_mb`. Each one is simulated alone. Empty if the run fits, if its
    /// tensors alone exceed the memory, or if the machine has other settings already.
    #[must_use]
    pub fn settings_that_fit(&self) -> Vec<String> {
        let machine = self.request.machine();
        if self.fits || machine.tuned.is_some() || self.peak.live_bytes > machine.capacity_bytes() {
            return Vec::new();
        }
        let expandable = (machine.segments == SegmentKind::Native).then(|| "expandable_segments:True".to_owned());
        let expandable = expandable.filter(|settings| self.fits_with(settings));
        let split = MAX_SPLIT_SIZES_MIB.map(|mib| format!("max_split_size_mb:{mib}"));
        let split = split.into_iter().find(|settings| self.fits_with(settings));
        expandable.into_iter().chain(split).collect()
    }

    fn fits_with(&self, settings: &str) -> bool {
        let Ok(conf) = settings.parse::<AllocConf>() else { return false };
        let segments = if conf.expandable_segments { SegmentKind::Expandable } else { SegmentKind::Native };
        let machine = Machine { segments, tuned: TunedAllocator::of(conf), ..self.request.machine().clone() };
        self.fits_on(&machine)
    }
}
