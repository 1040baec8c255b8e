//! A run's memory on the card: allocated once, in one piece, and handed out by the list that planned it.

use std::mem::size_of;

use headroom_shared::gpt::{
    buffers::{Buffer, Buffers, cuda::CudaTraining},
    tensors::{BLOCK_BYTES, Stored},
};

use super::{Allocation, CudaError, Device, Element, Slice};

/// A buffer of the list, and where it begins in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What was planned.
    pub buffer: Buffer,
    /// Its first byte; a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
}

/// Places buffers one after the other, each at a multiple of [`BLOCK_BYTES`]; with the bytes of all.
#[must_use]
pub fn in_a_row(list: &Buffers) -> (Vec<Place>, u64) {
    let mut end = 0_u64;
    let place = |&buffer: &Buffer| {
        let offset = end;
        end = end.saturating_add(buffer.bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES));
        Place { buffer, offset }
    };
    (list.all().iter().map(place).collect(), end)
}

/// All memory of a run.
#[derive(Debug)]
pub struct Arena {
    memory: Allocation<u8>,
    places: Vec<Place>,
    n_taken: usize,
}

impl Arena {
    /// Allocates `bytes`, in which each buffer has its place. Buffers that are not needed at the same time may share
    /// one.
    ///
    /// # Errors [`CudaError::OutOfDeviceMemory`] where less is free, and then nothing was allocated;
    /// [`CudaError::Misplaced`] where a buffer's place is not within.
    pub fn new(device: &Device, bytes: u64, places: Vec<Place>) -> Result<Self, CudaError> {
        for Place { buffer, offset } in &places {
            let end = offset.checked_add(buffer.bytes).filter(|&end| end <= bytes);
            if end.is_none() || offset % BLOCK_BYTES != 0 {
                let (offset, buffer_bytes) = (*offset, buffer.bytes);
                return Err(CudaError::Misplaced { buffer: buffer.name(), offset, buffer_bytes, arena_bytes: bytes });
            }
        }
        Ok(Self { memory: device.allocate(bytes)?, places, n_taken: 0 })
    }

    /// Allocates what a run is planned to take.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn planned(device: &Device, plan: &CudaTraining) -> Result<Self, CudaError> {
        let places = plan.slots.iter().map(|slot| Place { buffer: slot.buffer, offset: slot.offset });
        Self::new(device, plan.bytes, places.collect())
    }

    /// Allocates a list whose buffers lie one after the other.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn in_a_row(device: &Device, list: &Buffers) -> Result<Self, CudaError> {
        let (places, bytes) = in_a_row(list);
        Self::new(device, bytes, places)
    }

    /// What was allocated, to the byte.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.memory.slice().bytes()
    }

    /// All of it, as bytes.
    #[must_use]
    pub const fn whole(&self) -> Slice<u8> {
        self.memory.slice()
    }

    /// What was planned.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The list's next buffer, which has to be this one: whoever takes them goes through the list in its order.
    ///
    /// # Errors
    /// [`CudaError::NotPlanned`] where the list has another one there, or one of other elements.
    pub fn take<T: Element>(&mut self, stored: impl Into<Stored>, layer: Option<u64>) -> Result<Slice<T>, CudaError> {
        let stored = stored.into();
        let slice = self.at(self.n_taken, stored, layer)?;
        self.n_taken += 1;
        Ok(slice)
    }

    /// The next `n` buffers as one, from the first's beginning to the last's end: every parameter in some role. What
    /// lies between them for the sake of their beginnings belongs to it.
    ///
    /// # Errors
    /// [`CudaError::NotPlanned`] where there are fewer, or they do not follow each other.
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

    /// The first buffer of a name.
    ///
    /// # Errors
    /// [`CudaError::NotPlanned`] where there is none.
    pub fn find<T: Element>(&self, stored: impl Into<Stored>, layer: Option<u64>) -> Result<Slice<T>, CudaError> {
        let stored = stored.into();
        let is_it = |place: &Place| place.buffer.stored == stored && place.buffer.layer == layer;
        self.at(self.places.iter().position(is_it).unwrap_or(self.places.len()), stored, layer)
    }

    /// Whether every buffer was taken.
    #[must_use]
    pub fn is_all_taken(&self) -> bool {
        self.n_taken == self.places.len()
    }

    fn at<T: Element>(&self, index: usize, stored: Stored, layer: Option<u64>) -> Result<Slice<T>, CudaError> {
        let is_it = |place: &&Place| {
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

/// What the list has behind its last.
const NOTHING: &str = "nothing";

fn described(place: &Place) -> String {
    let Buffer { elements, bytes, .. } = place.buffer;
    format!("{} of {elements} elements in {bytes} bytes", place.buffer.name())
}

#[cfg(test)]
mod tests {
    use headroom_shared::gpt::{GptConfig, buffers::cpu_training, presets::Preset};

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
