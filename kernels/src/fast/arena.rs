//! The one place where the trainer allocates: each buffer as the list from the table has it, in its order.

use headroom_shared::gpt::{
    buffers::{Buffer, Buffers},
    tensors::{Role, Stored, Tensor},
};

/// Hands out the list's buffers, one after the other.
#[derive(Debug)]
pub struct Arena<'a> {
    left: std::slice::Iter<'a, Buffer>,
    allocated_bytes: u64,
}

impl<'a> Arena<'a> {
    /// Nothing is allocated yet.
    pub fn new(planned: &'a Buffers) -> Self {
        Self { left: planned.all().iter(), allocated_bytes: 0 }
    }

    /// Allocates the next buffer, which is `tensor`'s.
    pub fn floats(&mut self, tensor: Tensor) -> Vec<f32> {
        self.take(tensor, 0.0)
    }

    /// Allocates the next buffer, which is `tensor`'s, of 32-bit integers.
    pub fn tokens(&mut self, tensor: Tensor) -> Vec<u32> {
        self.take(tensor, 0)
    }

    fn take<T: Clone>(&mut self, tensor: Tensor, zero: T) -> Vec<T> {
        let buffer = self.left.next().expect("the list has as many buffers as the trainer");
        assert_eq!(buffer.stored, Stored::from(tensor), "the trainer allocates in the list's order");
        self.allocate(buffer.elements, zero)
    }

    /// Allocates the next `n` buffers, every parameter in some role, as one.
    pub fn flat(&mut self, n: usize, role: Role) -> Vec<f32> {
        let entries = self.left.by_ref().take(n);
        let elements =
            entries.inspect(|buffer| assert_eq!(buffer.stored.role, role)).map(|buffer| buffer.elements).sum();
        self.allocate(elements, 0.0)
    }

    fn allocate<T: Clone>(&mut self, elements: u64, zero: T) -> Vec<T> {
        let elements = usize::try_from(elements).expect("the trainer checked that all bytes are addressable");
        let buffer = vec![zero; elements];
        self.allocated_bytes += (buffer.capacity() * size_of::<T>()) as u64;
        buffer
    }

    /// What was allocated in all, once nothing is left.
    pub fn finish(self) -> u64 {
        assert_eq!(self.left.len(), 0, "the trainer allocates everything that is on the list");
        self.allocated_bytes
    }
}
