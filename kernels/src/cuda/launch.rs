//! Launches of kernels.

use std::{ffi::c_void, mem::size_of};

use super::{
    device::Device,
    element::Element,
    error::{CudaError, SourceLocation},
    library::{Kernel, Module},
    memory::Slice,
};

/// Number of blocks of a launch along each axis: at most 2^31 - 1 along x and 65,535 along y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// `gridDim.x`, the fastest-varying axis.
    pub x: u32,
    /// `gridDim.y`.
    pub y: u32,
    /// `gridDim.z`.
    pub z: u32,
}

impl Grid {
    /// Creates a grid with blocks along x only.
    ///
    /// # Errors
    /// [`CudaError::TooLarge`] if a number exceeds the limit of its axis.
    pub fn x(blocks: u64) -> Result<Self, CudaError> {
        Self::new(blocks, 1, 1)
    }

    /// Creates a grid with blocks along x and y.
    ///
    /// # Errors
    /// As [`Self::x`].
    pub fn xy(x: u64, y: u64) -> Result<Self, CudaError> {
        Self::new(x, y, 1)
    }

    /// Creates a grid with blocks along all axes.
    ///
    /// # Errors
    /// As [`Self::x`].
    pub fn new(x: u64, y: u64, z: u64) -> Result<Self, CudaError> {
        let within = |what, value: u64, max: u32| {
            u32::try_from(value).ok().filter(|&value| value <= max).ok_or(CudaError::TooLarge { what, value })
        };
        Ok(Self {
            x: within("a grid's number of blocks along x", x, 0x7fff_ffff)?,
            y: within("a grid's number of blocks along y", y, 0xffff)?,
            z: within("a grid's number of blocks along z", z, 0xffff)?,
        })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An argument of a kernel: a slice is passed as its address; u32, u64 and f32 are passed by value.
pub trait Argument: sealed::Sealed {
    /// Address of the value on the host.
    #[doc(hidden)]
    fn pointer(&self) -> *const c_void;
    /// Size of the value in bytes.
    #[doc(hidden)]
    fn bytes(&self) -> u64;
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl sealed::Sealed for $number {}
        impl Argument for $number {
            fn pointer(&self) -> *const c_void {
                (&raw const *self).cast()
            }
            fn bytes(&self) -> u64 {
                size_of::<Self>() as u64
            }
        })*
    };
}

numbers!(u32, u64, f32);

impl<T: Element> sealed::Sealed for Slice<T> {}
impl<T: Element> Argument for Slice<T> {
    fn pointer(&self) -> *const c_void {
        self.address_field().pointer()
    }
    fn bytes(&self) -> u64 {
        self.address_field().bytes()
    }
}

impl Device {
    /// Loads a file of kernels unless it is loaded already.
    ///
    /// # Errors
    /// [`CudaError::Module`] if the driver cannot compile it.
    #[track_caller]
    pub(super) fn load(&self, module: &'static Module) -> Result<(), CudaError> {
        self.bind()?;
        self.record_fault(self.library().module(module).map(|_| ()))
    }

    /// Launches a kernel: `device.launch(&KERNEL, Grid::x(blocks)?, &[&out, &inp, &n])`. The kernel runs after all
    /// previously launched work; its faults are reported by the next synchronization.
    ///
    /// # Errors
    /// [`CudaError::Arguments`] if the arguments do not match the parameters; [`CudaError::SharedMemory`] if the GPU
    /// has too little shared memory; [`CudaError::Module`] if the driver cannot compile the file.
    #[track_caller]
    pub fn launch(&self, kernel: &Kernel, grid: Grid, arguments: &[&dyn Argument]) -> Result<(), CudaError> {
        let stream = self.stream()?;
        let loaded = self.record_fault(self.library().kernel(kernel, self.gpu().shared_bytes_max))?;
        let given = arguments.iter().map(|argument| argument.bytes());
        if !given.clone().eq(loaded.parameter_bytes.iter().copied()) {
            let (expected, given) = (loaded.parameter_bytes, given.collect());
            return Err(CudaError::Arguments { kernel: kernel.name, expected, given, at: SourceLocation::caller() });
        }
        // The driver only reads the values.
        let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.pointer().cast_mut()).collect();
        let grid = [grid.x, grid.y, grid.z];
        self.has_launched(kernel.name);
        self.record_fault(stream.launch(&loaded.function, grid, kernel.threads, kernel.shared_bytes, &mut pointers))?;
        if self.waits_for_each() { self.synchronize() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_within_what_a_launch_can_have() {
        assert_eq!(Grid::xy(3, 65_535).expect("it can"), Grid { x: 3, y: 65_535, z: 1 });
        assert_eq!(Grid::x(0x7fff_ffff).expect("it can").x, 0x7fff_ffff);
        for grid in [Grid::x(0x8000_0000), Grid::xy(1, 65_536), Grid::new(1, 1, 1 << 40)] {
            let error = grid.expect_err("beyond a launch");
            assert!(matches!(error, CudaError::TooLarge { .. }), "{error}");
        }
    }
}
