//! GPU memory: owned allocations, and slices that kernels take.

use std::{marker::PhantomData, mem::size_of, sync::Arc};

use super::{
    calls,
    device::{Device, DeviceState},
    element::Element,
    error::{CudaError, SourceLocation},
};

/// A contiguous range of elements in GPU memory. It owns nothing and is copied like a pointer: the underlying
/// allocation must outlive the kernels that use it.
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

    /// Address of the first element in GPU memory.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Number of elements.
    #[must_use]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Whether the slice has no elements.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.len * size_of::<T>() as u64
    }

    /// Returns `len` elements from `start`.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`] if the slice is shorter.
    #[track_caller]
    pub fn part(self, start: u64, len: u64) -> Result<Self, CudaError> {
        let end = start.saturating_add(len);
        if end > self.len {
            return Err(CudaError::OutOfRange { start, end, len: self.len, at: SourceLocation::caller() });
        }
        Ok(Self::new(self.address + start * size_of::<T>() as u64, len))
    }

    /// Checks that the length is the one that follows from an op's sizes.
    ///
    /// # Errors
    /// [`CudaError::Length`], with the names of the op and the argument.
    pub const fn expect(self, op: &'static str, tensor: &'static str, expected: u64) -> Result<(), CudaError> {
        if self.len == expected {
            return Ok(());
        }
        Err(CudaError::Length { op, tensor, expected, given: self.len })
    }

    /// The address as a kernel argument.
    pub(super) const fn address_field(&self) -> &u64 {
        &self.address
    }
}

/// GPU memory, freed on drop after all previously launched work has completed.
#[derive(Debug)]
pub struct Allocation<T> {
    slice: Slice<T>,
    device: Arc<DeviceState>,
}

impl<T: Element> Allocation<T> {
    pub(super) const fn new(slice: Slice<T>, device: Arc<DeviceState>) -> Self {
        Self { slice, device }
    }

    /// The whole allocation.
    #[must_use]
    pub const fn slice(&self) -> Slice<T> {
        self.slice
    }
}

impl<T> Drop for Allocation<T> {
    fn drop(&mut self) {
        if self.slice.len > 0 {
            // After a fault this fails, and the driver frees all memory when the process ends.
            let _: Result<(), CudaError> = self.device.bind().and_then(|()| calls::free(self.slice.address));
        }
    }
}

impl Device {
    /// Allocates uninitialized memory for a number of elements, aligned to 256 bytes.
    ///
    /// # Errors
    /// [`CudaError::OutOfDeviceMemory`] if less is free.
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

    /// Allocates memory and copies `values` to it.
    ///
    /// # Errors
    /// As [`Self::allocate`], or the copy fails.
    #[track_caller]
    pub fn upload<T: Element>(&self, values: &[T]) -> Result<Allocation<T>, CudaError> {
        let allocation = self.allocate(values.len() as u64)?;
        self.write(allocation.slice(), values)?;
        Ok(allocation)
    }

    /// Copies values to a slice of the same length after all previously launched work, and waits for completion.
    ///
    /// # Errors
    /// [`CudaError::Length`] if the lengths differ; [`CudaError::Fault`] if a previously launched kernel faulted.
    #[track_caller]
    pub fn write<T: Element>(&self, to: Slice<T>, values: &[T]) -> Result<(), CudaError> {
        to.expect("write", T::NAME, values.len() as u64)?;
        if values.is_empty() {
            return Ok(());
        }
        let copied = self.record_fault(self.stream()?.copy_to_gpu(to.address(), bytemuck::cast_slice(values)));
        copied.inspect(|()| self.has_waited())
    }

    /// Copies a slice to the host after all previously launched work.
    ///
    /// # Errors
    /// [`CudaError::Fault`] if a previously launched kernel faulted.
    #[track_caller]
    pub fn download<T: Element>(&self, from: Slice<T>) -> Result<Vec<T>, CudaError> {
        let too_large = |_| CudaError::TooLarge { what: "a slice to be copied to the host", value: from.len() };
        let mut values = vec![T::zeroed(); usize::try_from(from.len()).map_err(too_large)?];
        self.read(&mut values, from)?;
        Ok(values)
    }

    /// Copies a slice to host memory of the same length after all previously launched work.
    ///
    /// # Errors
    /// [`CudaError::Length`] if the lengths differ; [`CudaError::Fault`] if a previously launched kernel faulted.
    #[track_caller]
    pub fn read<T: Element>(&self, to: &mut [T], from: Slice<T>) -> Result<(), CudaError> {
        from.expect("read", T::NAME, to.len() as u64)?;
        if to.is_empty() {
            return Ok(());
        }
        let copied = self.record_fault(self.stream()?.copy_from_gpu(bytemuck::cast_slice_mut(to), from.address()));
        copied.inspect(|()| self.has_waited())
    }

    /// Copies from one slice to another of the same length, in stream order.
    ///
    /// # Errors
    /// [`CudaError::Length`] if the lengths differ.
    #[track_caller]
    pub fn copy<T: Element>(&self, to: Slice<T>, from: Slice<T>) -> Result<(), CudaError> {
        to.expect("copy", T::NAME, from.len())?;
        if to.is_empty() {
            return Ok(());
        }
        let bytes = addressable(to.bytes())?;
        self.record_fault(self.stream()?.copy_on_gpu(to.address(), from.address(), bytes))
    }

    /// Fills a slice with zeros, in stream order.
    ///
    /// # Errors
    /// The driver rejects the call.
    #[track_caller]
    pub fn zero<T: Element>(&self, to: Slice<T>) -> Result<(), CudaError> {
        if to.is_empty() {
            return Ok(());
        }
        let bytes = addressable(to.bytes())?;
        self.record_fault(self.stream()?.fill(to.address(), 0, bytes))
    }
}

fn addressable(bytes: u64) -> Result<usize, CudaError> {
    usize::try_from(bytes).map_err(|_| CudaError::TooLarge { what: "a slice's number of bytes", value: bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_within_its_slice() {
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
