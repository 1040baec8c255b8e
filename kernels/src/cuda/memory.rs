//! A card's memory: who owns it, and stretches of it that kernels are given.

use std::{marker::PhantomData, mem::size_of, sync::Arc};

use super::{
    calls,
    device::{Device, Opened},
    element::Element,
    error::{At, CudaError},
};

/// Elements that lie one after the other in a card's memory. It owns nothing and is copied like an address: what it is
/// a part of has to be there still when a kernel uses it.
#[derive(Debug, PartialEq, Eq)]
pub struct Slice<T> {
    address: u64,
    len: u64,
    element: PhantomData<T>,
}

impl<T> Clone for Slice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice<T> {}

impl<T: Element> Slice<T> {
    pub(super) const fn new(address: u64, len: u64) -> Self {
        Self { address, len, element: PhantomData }
    }

    /// Where it begins in the card's memory.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Elements.
    #[must_use]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Bytes of all elements.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.len * size_of::<T>() as u64
    }

    /// `len` elements of it from `start`.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`] where it has fewer.
    #[track_caller]
    pub fn part(self, start: u64, len: u64) -> Result<Self, CudaError> {
        let end = start.saturating_add(len);
        if end > self.len {
            return Err(CudaError::OutOfRange { start, end, len: self.len, at: At::caller() });
        }
        Ok(Self::new(self.address + start * size_of::<T>() as u64, len))
    }

    /// Says where it has not as many elements as an op's sizes ask for.
    ///
    /// # Errors
    /// [`CudaError::Length`], by the op and its argument.
    pub const fn expect(self, op: &'static str, tensor: &'static str, expected: u64) -> Result<(), CudaError> {
        if self.len == expected {
            return Ok(());
        }
        Err(CudaError::Length { op, tensor, expected, given: self.len })
    }

    /// The address as kernels are given it.
    pub(super) const fn address_field(&self) -> &u64 {
        &self.address
    }
}

/// Memory of a card, given back when it is dropped: not before what was launched before that has run.
#[derive(Debug)]
pub struct Allocation<T> {
    slice: Slice<T>,
    device: Arc<Opened>,
}

impl<T: Element> Allocation<T> {
    pub(super) const fn new(slice: Slice<T>, device: Arc<Opened>) -> Self {
        Self { slice, device }
    }

    /// All of it.
    #[must_use]
    pub const fn slice(&self) -> Slice<T> {
        self.slice
    }
}

impl<T> Drop for Allocation<T> {
    fn drop(&mut self) {
        if self.slice.len > 0 {
            // After a fault it fails, and the driver takes all back when the process ends.
            let _: Result<(), CudaError> = self.device.bind().and_then(|()| calls::free(self.slice.address));
        }
    }
}

impl Device {
    /// Memory for so many elements, whose values nobody knows. It begins at a multiple of 256 bytes.
    ///
    /// # Errors
    /// [`CudaError::OutOfDeviceMemory`] where less is free.
    #[track_caller]
    pub fn allocate<T: Element>(&self, elements: u64) -> Result<Allocation<T>, CudaError> {
        let too_large = || CudaError::TooLarge { what: "an allocation's number of elements", value: elements };
        let bytes = elements.checked_mul(size_of::<T>() as u64).ok_or_else(too_large)?;
        if bytes == 0 {
            return Ok(Allocation::new(Slice::new(0, 0), self.opened()));
        }
        let address = self.allocate_bytes(usize::try_from(bytes).map_err(|_| too_large())?)?;
        Ok(Allocation::new(Slice::new(address, elements), self.opened()))
    }

    /// Memory with these values.
    ///
    /// # Errors
    /// As [`Self::allocate`], or the copy fails.
    #[track_caller]
    pub fn upload<T: Element>(&self, values: &[T]) -> Result<Allocation<T>, CudaError> {
        let allocation = self.allocate(values.len() as u64)?;
        self.write(allocation.slice(), values)?;
        Ok(allocation)
    }

    /// Copies values over a slice of as many, once all that was launched before has run, and waits for it.
    ///
    /// # Errors
    /// [`CudaError::Length`] where there are more or fewer; a fault of a kernel before.
    #[track_caller]
    pub fn write<T: Element>(&self, to: Slice<T>, values: &[T]) -> Result<(), CudaError> {
        to.expect("write", T::NAME, values.len() as u64)?;
        if values.is_empty() {
            return Ok(());
        }
        let copied = self.told(self.stream()?.copy_to_card(to.address(), bytemuck::cast_slice(values)));
        copied.inspect(|()| self.has_waited())
    }

    /// The values of a slice, once all that was launched before has run.
    ///
    /// # Errors
    /// A fault of a kernel before.
    #[track_caller]
    pub fn download<T: Element>(&self, from: Slice<T>) -> Result<Vec<T>, CudaError> {
        let too_large = |_| CudaError::TooLarge { what: "a slice to be copied to the host", value: from.len() };
        let mut values = vec![T::zeroed(); usize::try_from(from.len()).map_err(too_large)?];
        self.read(&mut values, from)?;
        Ok(values)
    }

    /// The same into memory that is there.
    ///
    /// # Errors
    /// [`CudaError::Length`] where there is more or less of it; a fault of a kernel before.
    #[track_caller]
    pub fn read<T: Element>(&self, to: &mut [T], from: Slice<T>) -> Result<(), CudaError> {
        from.expect("read", T::NAME, to.len() as u64)?;
        if to.is_empty() {
            return Ok(());
        }
        let copied = self.told(self.stream()?.copy_from_card(bytemuck::cast_slice_mut(to), from.address()));
        copied.inspect(|()| self.has_waited())
    }

    /// Copies from one slice to another of the same length, in the order of launches.
    ///
    /// # Errors
    /// [`CudaError::Length`] where the lengths differ.
    #[track_caller]
    pub fn copy<T: Element>(&self, to: Slice<T>, from: Slice<T>) -> Result<(), CudaError> {
        to.expect("copy", T::NAME, from.len())?;
        if to.is_empty() {
            return Ok(());
        }
        let bytes = addressable(to.bytes())?;
        self.told(self.stream()?.copy_on_card(to.address(), from.address(), bytes))
    }

    /// Fills a slice with zeros, in the order of launches.
    ///
    /// # Errors
    /// The driver refuses it.
    #[track_caller]
    pub fn zero<T: Element>(&self, to: Slice<T>) -> Result<(), CudaError> {
        if to.is_empty() {
            return Ok(());
        }
        let bytes = addressable(to.bytes())?;
        self.told(self.stream()?.fill(to.address(), 0, bytes))
    }
}

fn addressable(bytes: u64) -> Result<usize, CudaError> {
    usize::try_from(bytes).map_err(|_| CudaError::TooLarge { what: "a slice's number of bytes", value: bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_lies_within() {
        let whole = Slice::<f32>::new(4096, 10);
        let part = whole.part(3, 7).expect("the last seven");
        assert_eq!((part.address(), part.len(), part.bytes()), (4096 + 12, 7, 28));
        assert!(whole.part(10, 0).expect("nothing at the end").is_empty());
        for (start, len) in [(3, 8), (11, 0), (u64::MAX, 2)] {
            let error = whole.part(start, len).expect_err("beyond the end");
            assert!(matches!(error, CudaError::OutOfRange { len: 10, .. }), "{error}");
        }
    }
}
