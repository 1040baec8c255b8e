//! Simulation with settings of the allocator.

use super::{
    allocator::{AllocConf, SegmentKind},
    program::Program,
    simulate::{Outcome, simulate_with},
};
use headroom_text::units::pytorch_size;

/// Settings of the allocator besides the kind of segments, with the functions that simulate them.
///
/// The functions are reached through pointers. A program that makes no value of this type, such as the pages, does
/// therefore not contain them.
#[derive(Clone, Copy, Debug)]
pub struct TunedAllocator {
    conf: AllocConf,
    simulate: fn(&AllocConf, &Program, SegmentKind, u64, Option<u64>) -> Outcome,
    allowed_bytes: fn(&AllocConf, u64) -> Option<u64>,
    message: fn(&AllocConf, u64, String) -> String,
}

impl PartialEq for TunedAllocator {
    fn eq(&self, other: &Self) -> bool {
        self.conf == other.conf
    }
}

impl TunedAllocator {
    /// The settings; `None` if none but the kind of segments differs from PyTorch's defaults.
    #[must_use]
    pub fn of(conf: AllocConf) -> Option<Self> {
        let tuned = Self { conf, simulate, allowed_bytes: AllocConf::allowed_bytes, message };
        (!conf.is_default_but_for_segments()).then_some(tuned)
    }

    /// The settings.
    #[must_use]
    pub const fn conf(&self) -> &AllocConf {
        &self.conf
    }

    /// Replays a program on a GPU of `total_bytes`, of which `capacity_bytes` are available to PyTorch; without a size,
    /// as if memory were unlimited.
    pub(crate) fn simulate(
        &self,
        program: &Program,
        kind: SegmentKind,
        capacity_bytes: u64,
        total_bytes: Option<u64>,
    ) -> Outcome {
        (self.simulate)(&self.conf, program, kind, capacity_bytes, total_bytes)
    }

    /// Reserved bytes that the process may have on a GPU of `total_bytes`, if the settings limit them.
    pub(crate) fn allowed_bytes(&self, total_bytes: u64) -> Option<u64> {
        (self.allowed_bytes)(&self.conf, total_bytes)
    }

    /// Adds the limit of the process to PyTorch's out-of-memory message.
    pub(crate) fn message(&self, total_bytes: u64, message: String) -> String {
        (self.message)(&self.conf, total_bytes, message)
    }
}

fn simulate(
    conf: &AllocConf,
    program: &Program,
    kind: SegmentKind,
    capacity_bytes: u64,
    total_bytes: Option<u64>,
) -> Outcome {
    simulate_with(program, kind, capacity_bytes, conf.on_gpu(total_bytes))
}

/// The place of the limit is that of PyTorch 2.11, behind the memory of processes.
fn message(conf: &AllocConf, total_bytes: u64, message: String) -> String {
    const NEXT: &str = "Of the allocated memory ";
    match conf.allowed_bytes(total_bytes) {
        Some(allowed) => message.replacen(NEXT, &format!("{} allowed; {NEXT}", pytorch_size(allowed)), 1),
        None => message,
    }
}
