//! A CUDA card that is simulated, for tests without one: the kernels' own C++, compiled for the CPU.
//!
//! Each thread of a block is a fiber that runs until it waits. What makes this worth more than a slow card is that every
//! load and store is seen: two threads that touch the same memory with no barrier between, a read of what nobody wrote,
//! an address outside of its allocation, a misaligned one, a copy that was not waited for and a barrier that not all
//! reach are faults, told with the kernel's line, however the threads happened to run.
//!
//! Not seen: how many registers a kernel takes (its compiler says so), how fast it is, bank conflicts, and the order in
//! which a card's caches make writes visible without a barrier, which is a race here in any case.

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

pub use fault::{Fault, What};
pub use kernel::{Kernel, kernel, kernels};
use memory::Memory;
pub use memory::OutOfBounds;

/// A grid's or a block's size, by x, y and z.
pub type Size = [u32; 3];

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks.
    pub grid: Size,
    /// Threads of each.
    pub block: Size,
    /// Shared memory of each block.
    pub shared_bytes: u32,
}

/// A card: its memory, and the order in which its threads run.
pub struct Emulator {
    memory: Memory,
    random: fastrand::Rng,
    /// 0 lets all threads run in the order of their numbers.
    seed: u64,
    /// Goes on at every barrier: what is told of an access is when, in this.
    tick: u32,
    stacks: Vec<DefaultStack>,
    /// What the host did to the memory, where somebody wants to know.
    changes: Option<Vec<Change>>,
}

/// What the host did to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It allocated so many bytes at an address.
    Allocated(u64, u64),
    /// It freed what begins at an address.
    Freed(u64),
    /// It wrote so many bytes at an address.
    Written(u64, u64),
}

impl std::fmt::Debug for Emulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emulator").field("memory", &self.memory).field("seed", &self.seed).finish_non_exhaustive()
    }
}

impl Emulator {
    /// A card whose threads run in an order by a seed; by seed 0 in that of their numbers.
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

    /// Lets the threads of launches from now on run in another order; its memory stays.
    pub fn reseed(&mut self, seed: u64) {
        self.random = fastrand::Rng::with_seed(seed);
        self.seed = seed;
    }

    /// Takes memory, whose address is a multiple of 512 at least; `None` where this machine gives no more.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let address = self.memory.allocate(bytes)?;
        self.record(Change::Allocated(address, bytes));
        Some(address)
    }

    /// Gives memory back; whether there was any at that address.
    pub fn free(&mut self, address: u64) -> bool {
        self.record(Change::Freed(address));
        self.memory.free(address)
    }

    /// What the host did since this was asked last; the first time, what is allocated.
    pub fn changes(&mut self) -> Vec<Change> {
        let allocated =
            |memory: &Memory| memory.sizes().map(|(address, bytes)| Change::Allocated(address, bytes)).collect();
        self.changes.replace(vec![]).unwrap_or_else(|| allocated(&self.memory))
    }

    /// The bytes of every allocation, by its address, for whoever runs other code than the kernels' C++ on them.
    pub fn allocations(&mut self) -> impl Iterator<Item = (u64, &mut [u8])> {
        self.memory.all()
    }

    fn record(&mut self, change: Change) {
        if let Some(changes) = &mut self.changes {
            changes.push(change);
        }
    }

    /// Bytes of the allocation that begins at an address.
    #[must_use]
    pub fn allocated_bytes(&self, address: u64) -> Option<u64> {
        self.memory.allocated_bytes(address)
    }

    /// Writes from the host.
    ///
    /// # Errors
    /// It is not all inside one allocation.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let tick = self.next_tick();
        self.memory.host_slice_mut(address, bytes.len() as u64, tick)?.copy_from_slice(bytes);
        self.record(Change::Written(address, bytes.len() as u64));
        Ok(())
    }

    /// Writes one byte again and again from the host.
    ///
    /// # Errors
    /// It is not all inside one allocation.
    pub fn fill(&mut self, address: u64, byte: u8, n: u64) -> Result<(), OutOfBounds> {
        let tick = self.next_tick();
        self.memory.host_slice_mut(address, n, tick)?.fill(byte);
        self.record(Change::Written(address, n));
        Ok(())
    }

    /// Reads to the host. What nobody wrote is 0.
    ///
    /// # Errors
    /// It is not all inside one allocation.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        bytes.copy_from_slice(self.memory.host_slice(address, bytes.len() as u64)?);
        Ok(())
    }

    /// Copies on the card.
    ///
    /// # Errors
    /// One of the two is not all inside one allocation.
    pub fn copy(&mut self, to: u64, from: u64, n: u64) -> Result<(), OutOfBounds> {
        let bytes = self.memory.host_slice(from, n)?.to_vec();
        self.write(to, &bytes)
    }

    /// Runs a kernel to its end, or to its first fault. `arguments` are the addresses of its parameters' values.
    ///
    /// # Safety
    /// Each address is that of a value of the parameter's type, as for the driver's own call.
    ///
    /// # Errors
    /// What the kernel did wrong.
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

    /// Lets threads run in another order from now on.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
        self.random.seed(seed);
    }

    fn next_tick(&mut self) -> u32 {
        // After four billion barriers old accesses would look new. No test has a millionth of that.
        self.tick = self.tick.checked_add(1).expect("a test with fewer barriers");
        self.tick
    }
}
