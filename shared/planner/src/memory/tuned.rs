//! Simulation with settings of the allocator.

use super::{
    allocator::{AllocConf, SegmentKind},
    program::Program,
    simulate::{Outcome, simulate_with},
};
use headroom_text::units::pytorch_size;

/// The settings, or a type without a value in WebAssembly: the pages have no settings, so the compiler removes their code.
#[cfg(not(target_family = "wasm"))]
type Conf = AllocConf;
#[cfg(target_family = "wasm")]
#[derive(Clone, Copy, Debug, PartialEq)]
enum Conf {}

/// Settings of the allocator besides the kind of segments. There are none in WebAssembly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunedAllocator(Conf);

impl TunedAllocator {
    /// The settings; `None` if none but the kind of segments differs from PyTorch's defaults, and in WebAssembly.
    #[must_use]
    pub fn of(conf: AllocConf) -> Option<Self> {
        #[cfg(not(target_family = "wasm"))]
        {
            (!conf.is_default_but_for_segments()).then_some(Self(conf))
        }
        #[cfg(target_family = "wasm")]
        {
            let _ = conf;
            None
        }
    }

    /// The settings.
    #[must_use]
    pub const fn conf(&self) -> &AllocConf {
        #[cfg(not(target_family = "wasm"))]
        {
            &self.0
        }
        #[cfg(target_family = "wasm")]
        match self.0 {}
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
        simulate_with(program, kind, capacity_bytes, self.conf().on_gpu(total_bytes))
    }

    /// Adds the limit of the process to PyTorch's out-of-memory message, where PyTorch 2.11 prints it: behind the memory
    /// of processes.
    pub(crate) fn message(&self, total_bytes: u64, message: String) -> String {
        const NEXT: &str = "Of the allocated memory ";
        match self.conf().allowed_bytes(total_bytes) {
            Some(allowed) => message.replacen(NEXT, &format!("{} allowed; {NEXT}", pytorch_size(allowed)), 1),
            None => message,
        }
    }
}
