//! The trainer's only allocations: each buffer of the planned list, in the list's order.

use aligned_vec::{AVec, ConstAlign, avec};
use headroom_planner::gpt::{
    buffers::{Buffer, Buffers},
    tensors::{Role, Tensor, TensorId},
};

/// A buffer aligned to a cache line, so that no vector load crosses two lines.
pub type Floats = AVec<f32, ConstAlign<64>>;

/// Allocates the buffers of the list one after the other.
#[derive(Debug)]
pub struct Arena<'a> {
    left: std::slice::Iter<'a, Buffer>,
    allocated_bytes: u64,
}

impl<'a> Arena<'a> {
    /// An arena without allocations.
    pub fn new(planned: &'a Buffers) -> Self {
        Self { left: planned.all().iter(), allocated_bytes: 0 }
    }

    /// Allocates the next buffer, which must be `tensor`'s.
    pub fn floats(&mut self, tensor: Tensor) -> Floats {
        let elements = self.next(tensor);
        self.allocate(elements)
    }

    /// Allocates the next buffer, which must be `tensor`'s, as 32-bit integers.
    pub fn tokens(&mut self, tensor: Tensor) -> Vec<u32> {
        let buffer = vec![0; addressable(self.next(tensor))];
        self.allocated_bytes += (buffer.capacity() * size_of::<u32>()) as u64;
        buffer
    }

    fn next(&mut self, tensor: Tensor) -> u64 {
        let buffer = self.left.next().expect("the list has as many buffers as the trainer");
        assert_eq!(buffer.stored, TensorId::from(tensor), "the trainer allocates in the list's order");
        buffer.elements
    }

    /// Allocates the next `n` buffers, which hold all parameters in one role, as a single buffer.
    pub fn flat(&mut self, n: usize, role: Role) -> Floats {
        let entries = self.left.by_ref().take(n);
        let elements =
            entries.inspect(|buffer| assert_eq!(buffer.stored.role, role)).map(|buffer| buffer.elements).sum();
        self.allocate(elements)
    }

    fn allocate(&mut self, elements: u64) -> Floats {
        let buffer = avec![[64] | 0.0; addressable(elements)];
        self.allocated_bytes += (buffer.capacity() * size_of::<f32>()) as u64;
        buffer
    }

    /// Returns the total of allocated bytes.
    ///
    /// # Panics
    /// If a buffer of the list was not allocated.
    pub fn finish(self) -> u64 {
        assert_eq!(self.left.len(), 0, "the trainer allocates everything that is on the list");
        self.allocated_bytes
    }
}

fn addressable(elements: u64) -> usize {
    usize::try_from(elements).expect("the trainer checked that all bytes are addressable")
}
