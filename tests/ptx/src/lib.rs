//! An interpreter of PTX, for tests without a card: the kernels as they ship, after the compiler.
//!
//! Its semantics are those of NVIDIA's "Parallel Thread Execution ISA", version 8.4, and of nothing else in this
//! repository: the emulator runs the kernels' C++, and what the two have in common they have from NVIDIA. An instruction
//! that is not known to the last word is an error of the parser.
//!
//! A warp's lanes run together where they are at the same instruction, else those behind come first. Warps of a block
//! run in an order that a seed makes. A [`Fault`] ends a launch: an access out of bounds or misaligned, a load of memory
//! or a use of a register that nothing wrote, two threads at the same word with no barrier between, a copy that was not
//! waited for, lanes that are elsewhere when a warp multiplies matrices, and a block without end. It names the entry,
//! the line of the PTX and the thread.
//!
//! Not here: time, caches, the order of memory between blocks, and what ptxas makes of PTX.

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
pub use fault::{Access, Fault, Mistake, Space};
pub use global::{Allocation, Memory};
pub use mutation::{Mutation, NoMutation, mutations};
pub use parse::Unreadable;
pub use program::Parameter;

/// Blocks that several threads of the host are worth beginning for.
const BLOCKS_A_THREAD: u64 = 2;

/// A file of PTX.
#[derive(Clone, Debug)]
pub struct Module {
    text: String,
    entries: Vec<program::Entry>,
}

impl Module {
    /// Reads a file.
    ///
    /// # Errors
    /// A line that is not known.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        Ok(Self { text: text.to_owned(), entries: parse::entries(text)? })
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names of its entries.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.name)
    }

    /// The lines of an entry that have an instruction, counted from 1, with its opcode.
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

    /// The parameters of an entry.
    #[must_use]
    pub fn parameters(&self, entry: &str) -> Option<&[Parameter]> {
        self.entries.iter().find(|found| found.name == entry).map(|entry| &*entry.parameters)
    }

    /// Runs an entry to its end or its first fault. `parameters` are the bytes of its parameter memory; memory without
    /// an allocation here cannot be accessed. Blocks run on all cores. `None` where there is no such entry.
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
                    // The first block's, whichever thread comes first.
                    if failed.as_ref().is_none_or(|(other, _)| number < *other) {
                        *failed = Some((number, fault));
                    }
                    // Nobody begins another.
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
