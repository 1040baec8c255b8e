//! Storages of tensors: counts references, and records each allocation and free.

use std::{
    cell::RefCell,
    hash::{Hash, Hasher},
    ops::Range,
    rc::Rc,
};

use super::{Layout, scope::Scope};
use crate::{
    dtype::Dtype,
    gpt::tensors::{Category, Lifetime},
};

/// An event of the run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Allocation of a block of this number of bytes.
    Alloc {
        /// Number of the block; a later block may have the same number after a free.
        block: u32,
        /// Requested size in bytes, not rounded.
        bytes: u64,
        /// The tensor.
        label: Label,
    },
    /// The last reference to the block is gone.
    Free {
        /// Number of the block.
        block: u32,
    },
}

/// Name of a tensor within its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A parameter, as in `named_parameters`.
    Parameter(&'static str),
    /// An operation's output, as in `"layer_norm mean"`.
    Operation(&'static str),
    /// A tensor that belongs to a parameter, such as its gradient: the role and the parameter's name.
    Of(&'static str, &'static str),
}

/// Name, module and role of an allocated tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Name within the module.
    pub name: Name,
    /// Module and block in which the tensor is allocated.
    pub scope: Scope,
    /// Category of the tensor.
    pub category: Category,
    /// Reason for its lifetime.
    pub lifetime: Lifetime,
    /// Shape of the allocated tensor.
    pub layout: Layout,
    /// Element type.
    pub dtype: Dtype,
}

impl Hash for Label {
    /// Hashes what differs most: module and sizes.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.scope.module.hash(state);
        (self.category as u8, self.dtype as u8).hash(state);
        self.layout.sizes().iter().for_each(|size| size.hash(state));
    }
}

impl Label {
    /// Size of the elements in bytes, not rounded.
    pub fn bytes(&self) -> u64 {
        self.layout.elements().saturating_mul(self.dtype.bytes())
    }
}

/// Label of a free.
const FREE: u32 = u32::MAX;

/// An [`Event`] with the number of its label: a run has tens of thousands.
#[derive(Clone, Copy, Debug)]
pub struct CompactEvent {
    /// Number of the block.
    pub block: u32,
    /// Index into [`Events::labels`], or [`FREE`].
    label: u32,
}

/// All events of a run, with their labels.
#[derive(Debug, Default)]
pub struct Events {
    /// Events in order.
    pub events: Vec<CompactEvent>,
    labels: Vec<Label>,
}

impl Events {
    /// The label of an allocation; `None` for a free.
    pub fn label(&self, event: CompactEvent) -> Option<&Label> {
        self.labels.get(event.label as usize)
    }

    /// Some of the events with their labels.
    pub fn expanded(&self, range: Range<usize>) -> Vec<Event> {
        let expanded = |&event: &CompactEvent| match self.label(event) {
            Some(label) => Event::Alloc { block: event.block, bytes: label.bytes(), label: *label },
            None => Event::Free { block: event.block },
        };
        self.events[range].iter().map(expanded).collect()
    }
}

#[derive(Debug, Default)]
struct State {
    events: Events,
    /// References to each block.
    counts: Vec<u32>,
    /// Index of each block's label.
    labels: Vec<u32>,
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
    pub fn alloc(self: &Rc<Self>, label: Label) -> Storage {
        let state = &mut *self.0.borrow_mut();
        if state.is_paused {
            return Storage { heap: Rc::clone(self), block: None };
        }
        let block = state.free.pop().unwrap_or_else(|| {
            state.counts.push(0);
            state.labels.push(0);
            u32::try_from(state.counts.len() - 1).unwrap_or(u32::MAX)
        });
        let number = u32::try_from(state.events.labels.len()).unwrap_or(FREE);
        state.events.labels.push(label);
        state.events.events.push(CompactEvent { block, label: number });
        state.counts[block as usize] = 1;
        state.labels[block as usize] = number;
        Storage { heap: Rc::clone(self), block: Some(block) }
    }

    /// Pauses allocations, as an exception ends a function early. Frees continue.
    pub fn pause(&self, is_paused: bool) {
        self.0.borrow_mut().is_paused = is_paused;
    }

    /// Number of events so far.
    pub fn n_events(&self) -> usize {
        self.0.borrow().events.events.len()
    }

    /// Takes all events.
    pub fn take_events(&self) -> Events {
        std::mem::take(&mut self.0.borrow_mut().events)
    }
}

impl Storage {
    /// Whether this is the only reference.
    pub fn is_unique(&self) -> bool {
        self.block.is_some_and(|block| self.heap.0.borrow().counts[block as usize] == 1)
    }

    /// Changes the label of the allocation.
    pub fn relabel(&self, change: impl FnOnce(&mut Label)) {
        let Some(block) = self.block else { return };
        let state = &mut *self.heap.0.borrow_mut();
        let number = state.labels[block as usize] as usize;
        if let Some(label) = state.events.labels.get_mut(number) {
            change(label);
        }
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
            state.events.events.push(CompactEvent { block, label: FREE });
            state.free.push(block);
        }
    }
}
