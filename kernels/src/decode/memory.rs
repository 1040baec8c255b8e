//! The decoder's memory: every buffer of the list planned by `headroom_planner`, allocated once at creation.

use headroom_planner::{
    dtype::Dtype,
    gpt::{
        buffers::Buffer,
        tensors::{Tensor, TensorId},
    },
};

use super::DecodeError;

/// A buffer's memory, by element type.
#[derive(Debug)]
enum Memory {
    F32(Vec<f32>),
    Int16(Vec<i16>),
    Int64(Vec<i64>),
}

/// The allocated buffers, by tensor and layer, until the decoder takes them.
#[derive(Debug, Default)]
pub(super) struct BufferPool(Vec<(TensorId, Option<u64>, Memory)>);

fn zeros<T: Copy + Default>(buffer: &Buffer) -> Result<(Vec<T>, u64), DecodeError> {
    let out_of_memory = || DecodeError::OutOfMemory { tensor: buffer.name(), requested_bytes: buffer.bytes };
    let n = usize::try_from(buffer.elements).map_err(|_| out_of_memory())?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(n).map_err(|_| out_of_memory())?;
    memory.resize(n, T::default());
    let allocated_bytes = (memory.capacity() * size_of::<T>()) as u64;
    Ok((memory, allocated_bytes))
}

impl BufferPool {
    /// Allocates a buffer, and returns its size in bytes.
    pub(super) fn allocate(&mut self, buffer: &Buffer) -> Result<u64, DecodeError> {
        let (memory, bytes) = match buffer.stored.dtype(Dtype::Float32) {
            Dtype::Float32 => zeros(buffer).map(|(memory, bytes)| (Memory::F32(memory), bytes))?,
            Dtype::Int16 => zeros(buffer).map(|(memory, bytes)| (Memory::Int16(memory), bytes))?,
            Dtype::Int64 => zeros(buffer).map(|(memory, bytes)| (Memory::Int64(memory), bytes))?,
            other => unreachable!("the decoder plans no {}", other.name()),
        };
        self.0.push((buffer.stored, buffer.layer, memory));
        Ok(bytes)
    }

    fn take(&mut self, stored: impl Into<TensorId>, layer: Option<usize>) -> Option<Memory> {
        let (stored, layer) = (stored.into(), layer.map(|layer| layer as u64));
        let at = self.0.iter().position(|(other, of, _)| (*other, *of) == (stored, layer))?;
        Some(self.0.swap_remove(at).2)
    }

    /// Takes a planned f32 buffer; `None` if it is not planned.
    pub(super) fn f32(&mut self, stored: impl Into<TensorId>, layer: Option<usize>) -> Option<Vec<f32>> {
        self.take(stored, layer).map(|memory| match memory {
            Memory::F32(memory) => memory,
            _ => unreachable!("the table stores it in float32"),
        })
    }

    /// Takes a planned buffer of 16-bit integers; `None` if it is not planned.
    pub(super) fn int16(&mut self, stored: TensorId, layer: Option<usize>) -> Option<Vec<i16>> {
        self.take(stored, layer).map(|memory| match memory {
            Memory::Int16(memory) => memory,
            _ => unreachable!("the table stores it in 16-bit integers"),
        })
    }

    /// Takes the buffer of token ids.
    pub(super) fn tokens(&mut self) -> Option<Vec<i64>> {
        self.take(Tensor::X, None).map(|memory| match memory {
            Memory::Int64(memory) => memory,
            _ => unreachable!("the table stores it in int64"),
        })
    }

    /// Whether every planned buffer was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
