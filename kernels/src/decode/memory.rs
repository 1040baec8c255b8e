//! What the decoder holds: every buffer of the list that `headroom_shared` plans, allocated at the start, once.

use headroom_shared::{
    dtype::Dtype,
    gpt::{
        buffers::Buffer,
        tensors::{Stored, Tensor},
    },
};

use super::DecodeError;

/// A buffer's memory.
#[derive(Debug)]
enum Memory {
    F32(Vec<f32>),
    Int16(Vec<i16>),
    Int64(Vec<i64>),
}

/// Buffers by row of the table, until they are taken into their places.
#[derive(Debug, Default)]
pub(super) struct Supply(Vec<(Stored, Option<u64>, Memory)>);

fn zeros<T: Copy + Default>(buffer: &Buffer) -> Result<(Vec<T>, u64), DecodeError> {
    let out_of_memory = || DecodeError::OutOfMemory { tensor: buffer.name(), requested_bytes: buffer.bytes };
    let n = usize::try_from(buffer.elements).map_err(|_| out_of_memory())?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(n).map_err(|_| out_of_memory())?;
    memory.resize(n, T::default());
    let allocated_bytes = (memory.capacity() * size_of::<T>()) as u64;
    Ok((memory, allocated_bytes))
}

impl Supply {
    /// Allocates a buffer, and gives the bytes it took.
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

    fn take(&mut self, stored: impl Into<Stored>, layer: Option<usize>) -> Option<Memory> {
        let (stored, layer) = (stored.into(), layer.map(|layer| layer as u64));
        let at = self.0.iter().position(|(other, of, _)| (*other, *of) == (stored, layer))?;
        Some(self.0.swap_remove(at).2)
    }

    /// A buffer of f32, where it is planned.
    pub(super) fn f32(&mut self, stored: impl Into<Stored>, layer: Option<usize>) -> Option<Vec<f32>> {
        self.take(stored, layer).map(|memory| match memory {
            Memory::F32(memory) => memory,
            _ => unreachable!("the table has it in float32"),
        })
    }

    /// A buffer of 16-bit integers, where it is planned.
    pub(super) fn int16(&mut self, stored: Stored, layer: Option<usize>) -> Option<Vec<i16>> {
        self.take(stored, layer).map(|memory| match memory {
            Memory::Int16(memory) => memory,
            _ => unreachable!("the table has it in 16-bit integers"),
        })
    }

    /// A buffer of token indices.
    pub(super) fn tokens(&mut self) -> Option<Vec<i64>> {
        self.take(Tensor::X, None).map(|memory| match memory {
            Memory::Int64(memory) => memory,
            _ => unreachable!("the table has it in int64"),
        })
    }

    /// Whether every buffer that was planned has found its place.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
