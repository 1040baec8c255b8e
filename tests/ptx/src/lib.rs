//! A PTX interpreter, for tests of the compiled kernels without a GPU.
//!
//! The semantics follow NVIDIA's "Parallel Thread Execution ISA", version 8.4. The interpreter is independent of the
//! emulator, which runs the kernels' C++. Unknown instructions are parse errors.
//!
//! Lanes of a warp run together while they are at the same instruction; otherwise those at the lowest instruction run
//! first. Warps of a block run in an order given by a seed.
//!
//! A [`Fault`] ends a launch and names the kernel, the PTX line and the thread. Faults are:
//! - an access out of bounds or misaligned;
//! - a use of uninitialised memory or an uninitialised register;
//! - a data race without a barrier;
//! - an asynchronous copy without a wait;
//! - a warp-wide operation, such as a matrix product, with diverged lanes;
//! - a block that does not end.
//!
//! Not modelled: time, caches, the order of memory accesses between blocks, and the compilation of PTX by ptxas.

mod arithmetic;
mod block;
mod fault;
mod global;
mod math;
mod mutation;
mod parse;
mod program;
mod registers;
mod shared;
mod tensor;

use std::{
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use block::Blocks;

pub use block::Launch;
pub use fault::{Access, Fault, MistakeKind, Space};
pub use global::{Allocation, Memory};
pub use mutation::{Mutation, NoMutation, mutations};
pub use parse::PtxParseError;
pub use program::Parameter;

/// The minimum number of blocks per host thread.
const BLOCKS_A_THREAD: u64 = 2;

/// A parsed PTX file.
#[derive(Clone, Debug)]
pub struct Module {
    text: String,
    entries: Vec<program::Entry>,
}

impl Module {
    /// Parses a PTX file.
    ///
    /// # Errors
    /// The first line that is not supported.
    pub fn read(text: &str) -> Result<Self, PtxParseError> {
        Ok(Self { text: text.to_owned(), entries: parse::entries(text)? })
    }

    /// The file's text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names of the file's kernels.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.name)
    }

    /// The lines of a kernel with instructions, counted from 1, and their opcodes.
    pub fn instructions(&self, entry: &str) -> Vec<(u32, &str)> {
        let Some(entry) = self.entries.iter().find(|found| found.name == entry) else { return vec![] };
        let lines: Vec<&str> = self.text.lines().collect();
        let opcode = |line: u32| {
            let text = lines.get((line as usize).saturating_sub(1)).copied().unwrap_or_default().trim();
            let text = if text.starts_with('@') {
                text.split_once(char::is_whitespace).map_or("", |(_, rest)| rest)
            } else {
                text
            };
            text.split_whitespace().next().unwrap_or_default().trim_end_matches(';')
        };
        entry.instructions.iter().map(|instruction| (instruction.line, opcode(instruction.line))).collect()
    }

    /// The parameters of a kernel; `None` if it does not exist.
    #[must_use]
    pub fn parameters(&self, entry: &str) -> Option<&[Parameter]> {
        self.entries.iter().find(|found| found.name == entry).map(|entry| &*entry.parameters)
    }

    /// Runs a kernel to its end or its first fault; `None` if it does not exist.
    ///
    /// `parameters` are the bytes of the parameter memory. Memory that is not in `allocations` cannot be accessed.
    /// Blocks run on all cores.
    pub fn launch(
        &self,
        entry: &str,
        launch: Launch,
        parameters: &[u8],
        memory: &mut Memory,
        allocations: Vec<Allocation<'_>>,
    ) -> Option<Result<(), Box<Fault>>> {
        let entry = self.entries.iter().find(|found| found.name == entry)?;
        let view = memory.view(allocations);
        let n_blocks: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
        let next = AtomicU64::new(0);
        let failed: Mutex<Option<(u64, Box<Fault>)>> = Mutex::new(None);
        let work = || {
            let mut blocks = Blocks::new(entry, launch, parameters, &view);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= n_blocks {
                    return;
                }
                if let Err(fault) = blocks.run(number, &self.text) {
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    // Keeps the fault of the block with the lowest number, independent of thread timing.
                    if failed.as_ref().is_none_or(|(other, _)| number < *other) {
                        *failed = Some((number, fault));
                    }
                    // Prevents other threads from starting another block.
                    next.store(n_blocks, Ordering::Relaxed);
                    return;
                }
            }
        };
        let cores = thread::available_parallelism().map_or(1, NonZero::get) as u64;
        let n_threads = cores.min(n_blocks / BLOCKS_A_THREAD).max(1);
        thread::scope(|scope| {
            for _ in 1..n_threads {
                scope.spawn(work);
            }
            work();
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        Some(failed.map_or(Ok(()), |(_, fault)| Err(fault)))
    }
}
