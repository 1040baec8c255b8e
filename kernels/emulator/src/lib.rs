//! An emulator of a CUDA GPU, for tests without one. It runs the kernels' own C++, compiled for the CPU.
//!
//! Each thread of a block is a fiber that runs until it waits. Every load and store is checked. The following mistakes
//! are faults, reported with the kernel's source line and independent of the order in which threads run:
//! - a data race between two threads without a barrier;
//! - a read of uninitialised memory;
//! - an address outside its allocation;
//! - a misaligned address;
//! - an asynchronous copy without a wait;
//! - a barrier that not all threads reach.
//!
//! Not emulated: register use (the kernel's compiler reports it), speed, bank conflicts, and the order in which a GPU's
//! caches make writes visible without a barrier. Such an access is a race here in any case.

mod block;
mod copies;
mod fault;
mod grid;
mod kernel;
mod memory;
mod native;
mod shadow;
mod warp;

use std::ffi::c_void;

use corosensei::stack::DefaultStack;

pub use fault::{Fault, FaultKind, OutOfBounds};
pub use kernel::{Kernel, kernel, kernels};
use memory::Memory;

/// A grid's or a block's size, by x, y and z.
pub type Size = [u32; 3];

/// The configuration of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks of the grid.
    pub grid: Size,
    /// Threads of each block.
    pub block: Size,
    /// Bytes of shared memory of each block.
    pub shared_bytes: u32,
}

/// An emulated GPU: its memory, and the order in which its threads run.
pub struct Emulator {
    memory: Memory,
    random: fastrand::Rng,
    /// The seed of the order; with 0, threads run in the order of their numbers.
    seed: u64,
    /// The time at which accesses are recorded. Advances at every barrier.
    tick: u32,
    stacks: Vec<DefaultStack>,
    /// The host's changes to the memory since the last report; `None` until they are first requested.
    changes: Option<Vec<Change>>,
}

/// A change that the host made to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Allocated memory: its address and size in bytes.
    Allocated(u64, u64),
    /// Freed the memory at an address.
    Freed(u64),
    /// Wrote memory: the address and size in bytes.
    Written(u64, u64),
}

impl std::fmt::Debug for Emulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emulator").field("memory", &self.memory).field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl Emulator {
    /// An emulated GPU whose threads run in an order given by a seed; seed 0 is the order of their numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            memory: Memory::default(),
            random: fastrand::Rng::with_seed(seed),
            seed,
            tick: 1,
            stacks: vec![],
            changes: None,
        }
    }

    /// Changes the seed of later launches and keeps the memory.
    pub fn reseed(&mut self, seed: u64) {
        self.random = fastrand::Rng::with_seed(seed);
        self.seed = seed;
    }

    /// Allocates memory at a multiple of at least 512; `None` if the host is out of memory.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let address = self.memory.allocate(bytes)?;
        self.record(Change::Allocated(address, bytes));
        Some(address)
    }

    /// Frees memory. Returns whether an allocation starts at the address.
    pub fn free(&mut self, address: u64) -> bool {
        self.record(Change::Freed(address));
        self.memory.free(address)
    }

    /// The host's changes since the last call. The first call returns the existing allocations.
    pub fn changes(&mut self) -> Vec<Change> {
        let allocated =
            |memory: &Memory| memory.sizes().map(|(address, bytes)| Change::Allocated(address, bytes)).collect();
        self.changes.replace(vec![]).unwrap_or_else(|| allocated(&self.memory))
    }

    /// The address and bytes of every allocation, for code other than the kernels' C++ that works on them.
    pub fn allocations(&mut self) -> impl Iterator<Item = (u64, &mut [u8])> {
        self.memory.all()
    }

    fn record(&mut self, change: Change) {
        if let Some(changes) = &mut self.changes {
            changes.push(change);
        }
    }

    /// The bytes of the allocation that starts at an address.
    #[must_use]
    pub fn allocated_bytes(&self, address: u64) -> Option<u64> {
        self.memory.allocated_bytes(address)
    }

    /// Writes to the GPU's memory from the host.
    ///
    /// # Errors
    /// The range is not within one allocation.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let tick = self.next_tick();
        self.memory.host_slice_mut(address, bytes.len() as u64, tick)?.copy_from_slice(bytes);
        self.record(Change::Written(address, bytes.len() as u64));
        Ok(())
    }

    /// Fills `n` bytes of the GPU's memory from the host.
    ///
    /// # Errors
    /// The range is not within one allocation.
    pub fn fill(&mut self, address: u64, byte: u8, n: u64) -> Result<(), OutOfBounds> {
        let tick = self.next_tick();
        self.memory.host_slice_mut(address, n, tick)?.fill(byte);
        self.record(Change::Written(address, n));
        Ok(())
    }

    /// Reads the GPU's memory to the host. Uninitialised bytes are 0.
    ///
    /// # Errors
    /// The range is not within one allocation.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        bytes.copy_from_slice(self.memory.host_slice(address, bytes.len() as u64)?);
        Ok(())
    }

    /// Copies `n` bytes within the GPU's memory.
    ///
    /// # Errors
    /// A range is not within one allocation.
    pub fn copy(&mut self, to: u64, from: u64, n: u64) -> Result<(), OutOfBounds> {
        let bytes = self.memory.host_slice(from, n)?.to_vec();
        self.write(to, &bytes)
    }

    /// Runs a kernel until it ends or faults. `arguments` are the addresses of its parameters' values.
    ///
    /// # Safety
    /// Each address points to a value of the parameter's type, as for the driver's own call.
    ///
    /// # Errors
    /// The kernel's first fault.
    pub unsafe fn launch(
        &mut self,
        kernel: &'static Kernel,
        launch: Launch,
        arguments: &[*const c_void],
    ) -> Result<(), Box<Fault>> {
        self.next_tick();
        // SAFETY: as the caller promises.
        unsafe { grid::run(self, kernel, launch, arguments) }
    }

    /// Changes the order in which threads of later launches run.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
        self.random.seed(seed);
    }

    fn next_tick(&mut self) -> u32 {
        // After 2^32 barriers old accesses would look new. No test comes near a millionth of that.
        self.tick = self.tick.checked_add(1).expect("a test with fewer barriers");
        self.tick
    }
}
