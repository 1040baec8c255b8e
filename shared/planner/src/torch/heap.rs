//! Storages of tensors: counts references, and records each allocation and free.

use std::{cell::RefCell, rc::Rc};

/// An event of the run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Allocation of a block of this number of bytes.
    Alloc {
        /// Number of the block; a later block may have the same number after a free.
        block: u32,
        /// Requested size in bytes, not rounded.
        bytes: u64,
        /// Operation and role of the tensor, as in `"layer_norm mean"`.
        name: &'static str,
    },
    /// The last reference to the block is gone.
    Free {
        /// Number of the block.
        block: u32,
    },
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    /// References to each block.
    counts: Vec<u32>,
    free: Vec<u32>,
    is_paused: bool,
}

/// All storages of a run.
#[derive(Debug, Default)]
pub struct Heap(RefCell<State>);

/// A reference to a storage. Dropping the last one frees the storage.
#[derive(Debug)]
pub struct Storage {
    heap: Rc<Heap>,
    /// `None` for a tensor without memory of its own.
    block: Option<u32>,
}

impl Heap {
    /// Allocates a storage. A paused heap allocates nothing.
    pub fn alloc(self: &Rc<Self>, bytes: u64, name: &'static str) -> Storage {
        let state = &mut *self.0.borrow_mut();
        if state.is_paused {
            return Storage { heap: Rc::clone(self), block: None };
        }
        let block = state.free.pop().unwrap_or_else(|| {
            state.counts.push(0);
            u32::try_from(state.counts.len() - 1).unwrap_or(u32::MAX)
        });
        state.counts[block as usize] = 1;
        state.events.push(Event::Alloc { block, bytes, name });
        Storage { heap: Rc::clone(self), block: Some(block) }
    }

    /// Pauses allocations, as an exception ends a function early. Frees continue.
    pub fn pause(&self, is_paused: bool) {
        self.0.borrow_mut().is_paused = is_paused;
    }

    /// Takes the events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.borrow_mut().events)
    }
}

impl Storage {
    /// Whether this is the only reference.
    pub fn is_unique(&self) -> bool {
        self.block.is_some_and(|block| self.heap.0.borrow().counts[block as usize] == 1)
    }
}

impl Clone for Storage {
    fn clone(&self) -> Self {
        if let Some(block) = self.block {
            self.heap.0.borrow_mut().counts[block as usize] += 1;
        }
        Self { heap: Rc::clone(&self.heap), block: self.block }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let Some(block) = self.block else { return };
        let state = &mut *self.heap.0.borrow_mut();
        let count = &mut state.counts[block as usize];
        *count -= 1;
        if *count == 0 {
            state.events.push(Event::Free { block });
            state.free.push(block);
        }
    }
}
