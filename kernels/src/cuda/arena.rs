//! A run's GPU memory: one allocation, divided among the buffers of the plan.

use std::mem::size_of;

use headroom_planner::gpt::{
    buffers::{Buffer, Buffers, cuda::CudaTraining},
    tensors::{BLOCK_BYTES, TensorId},
};

use super::{Allocation, CudaError, Device, Element, Slice};

/// A buffer of the plan and its offset in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaSlot {
    /// Planned buffer.
    pub buffer: Buffer,
    /// Offset of the first byte; a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
}

/// Places buffers consecutively, each at a multiple of [`BLOCK_BYTES`]. Returns the places and the total size in bytes.
#[must_use]
pub fn in_a_row(list: &Buffers) -> (Vec<ArenaSlot>, u64) {
    let mut end = 0_u64;
    let place = |&buffer: &Buffer| {
        let offset = end;
        end = end.saturating_add(buffer.bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES));
        ArenaSlot { buffer, offset }
    };
    (list.all().iter().map(place).collect(), end)
}

/// The memory of a run: one allocation and the places of its buffers.
#[derive(Debug)]
pub struct Arena {
    memory: Allocation<u8>,
    places: Vec<ArenaSlot>,
    n_taken: usize,
}

impl Arena {
    /// Allocates `bytes` and assigns each buffer its place. Buffers whose lifetimes do not overlap may share a place.
    ///
    /// # Errors
    /// [`CudaError::OutOfDeviceMemory`] if less memory is free, in which case nothing is allocated;
    /// [`CudaError::Misplaced`] if a buffer does not fit into the arena.
    pub fn new(device: &Device, bytes: u64, places: Vec<ArenaSlot>) -> Result<Self, CudaError> {
        for ArenaSlot { buffer, offset } in &places {
            let end = offset.checked_add(buffer.bytes).filter(|&end| end <= bytes);
            if end.is_none() || offset % BLOCK_BYTES != 0 {
                let (offset, buffer_bytes) = (*offset, buffer.bytes);
                return Err(CudaError::Misplaced { buffer: buffer.name(), offset, buffer_bytes, arena_bytes: bytes });
            }
        }
        Ok(Self { memory: device.allocate(bytes)?, places, n_taken: 0 })
    }

    /// Allocates the memory of a training plan.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn planned(device: &Device, plan: &CudaTraining) -> Result<Self, CudaError> {
        let places = plan.slots.iter().map(|slot| ArenaSlot { buffer: slot.buffer, offset: slot.offset });
        Self::new(device, plan.bytes, places.collect())
    }

    /// Allocates a list of buffers, placed consecutively.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn in_a_row(device: &Device, list: &Buffers) -> Result<Self, CudaError> {
        let (places, bytes) = in_a_row(list);
        Self::new(device, bytes, places)
    }

    /// Size of the allocation in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.memory.slice().bytes()
    }

    /// The whole allocation, as bytes.
    #[must_use]
    pub const fn whole(&self) -> Slice<u8> {
        self.memory.slice()
    }

    /// Planned buffers and their offsets, in the order of the plan.
    #[must_use]
    pub fn places(&self) -> &[ArenaSlot] {
        &self.places
    }

    /// Takes the next buffer of the list, which must be `stored` of `layer`. Callers take all buffers in the order of
    /// the list.
    ///
    /// # Errors
    /// [`CudaError::NotPlanned`] if the next buffer is another one, or has another element type.
    pub fn take<T: Element>(&mut self, stored: impl Into<TensorId>, layer: Option<u64>) -> Result<Slice<T>, CudaError> {
        let stored = stored.into();
        let slice = self.at(self.n_taken, stored, layer)?;
        self.n_taken += 1;
        Ok(slice)
    }

    /// Takes the next `n` buffers as one slice, from the start of the first to the end of the last, alignment gaps
    /// included. Used for all parameters of one role.
    ///
    /// # Errors
    /// [`CudaError::NotPlanned`] if fewer than `n` buffers are left, or they are not contiguous.
    pub fn take_span<T: Element>(&mut self, n: usize) -> Result<Slice<T>, CudaError> {
        let places = self.places.get(self.n_taken..self.n_taken + n).filter(|places| !places.is_empty());
        let refused = || CudaError::NotPlanned { asked: format!("{n} buffers in a row"), planned: self.what_is_left() };
        let places = places.ok_or_else(refused)?;
        let start = places[0].offset;
        let mut end = start;
        for place in places {
            if place.offset != end.next_multiple_of(BLOCK_BYTES) {
                return Err(refused());
            }
            end = place.offset + place.buffer.bytes;
        }
        let slice = self.slice(start, (end - start) / size_of::<T>() as u64)?;
        self.n_taken += n;
        Ok(slice)
    }

    /// Returns the first buffer of `stored` and `layer`.
    ///
    /// # Errors
    /// [`CudaError::NotPlanned`] if the list does not contain the buffer.
    pub fn find<T: Element>(&self, stored: impl Into<TensorId>, layer: Option<u64>) -> Result<Slice<T>, CudaError> {
        let stored = stored.into();
        let is_it = |place: &ArenaSlot| place.buffer.stored == stored && place.buffer.layer == layer;
        self.at(self.places.iter().position(is_it).unwrap_or(self.places.len()), stored, layer)
    }

    /// Whether every buffer has been taken.
    #[must_use]
    pub fn is_all_taken(&self) -> bool {
        self.n_taken == self.places.len()
    }

    fn at<T: Element>(&self, index: usize, stored: TensorId, layer: Option<u64>) -> Result<Slice<T>, CudaError> {
        let is_it = |place: &&ArenaSlot| {
            let Buffer { stored: planned, layer: of, elements, bytes } = place.buffer;
            planned == stored && of == layer && elements.checked_mul(size_of::<T>() as u64) == Some(bytes)
        };
        let place = self.places.get(index).filter(is_it).ok_or_else(|| CudaError::NotPlanned {
            asked: format!("{} of {}", stored.name(layer), T::NAME),
            planned: self.places.get(index).map_or_else(|| NOTHING.to_owned(), described),
        })?;
        self.slice(place.offset, place.buffer.elements)
    }

    fn slice<T: Element>(&self, offset: u64, elements: u64) -> Result<Slice<T>, CudaError> {
        let whole = self.memory.slice();
        whole.part(offset, elements * size_of::<T>() as u64)?;
        Ok(Slice::new(whole.address() + offset, elements))
    }

    fn what_is_left(&self) -> String {
        let next = self.places.get(self.n_taken).map_or_else(|| NOTHING.to_owned(), described);
        format!("{} left, from {next} on", self.places.len() - self.n_taken)
    }
}

/// Error text for the position after the last buffer.
const NOTHING: &str = "nothing";

fn described(place: &ArenaSlot) -> String {
    let Buffer { elements, bytes, .. } = place.buffer;
    format!("{} of {elements} elements in {bytes} bytes", place.buffer.name())
}

#[cfg(test)]
mod tests {
    use headroom_planner::gpt::{GptConfig, buffers::cpu_training, presets::Preset};

    use super::*;

    #[test]
    fn places_in_a_row_touch_and_do_not_overlap() {
        let config = GptConfig::new(Preset::named("gpt2").expect("a preset").shape(64, 0.0)).expect("valid");
        let list = cpu_training(&config, 3, 2).expect("small");
        let (places, bytes) = in_a_row(&list);
        assert_eq!(places.len(), list.all().len());
        let mut end = 0;
        for place in &places {
            assert_eq!(place.offset, end, "{}", place.buffer.name());
            end = place.offset + place.buffer.bytes.next_multiple_of(BLOCK_BYTES);
        }
        assert_eq!(end, bytes);
        assert!(bytes >= list.bytes() && bytes - list.bytes() < 512 * places.len() as u64);
    }
}
