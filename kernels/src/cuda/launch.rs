//! Kernels by their names, and how they are launched.

use std::{
    ffi::{CString, c_void},
    mem::size_of,
};

use super::{
    calls::{Function, FunctionAttribute, LoadedModule},
    device::Device,
    element::Element,
    error::{At, CudaError},
    memory::Slice,
};

/// A file of kernels: `kernels/ptx/<name>.ptx`, from `kernels/cuda/<name>.cu`.
#[derive(Debug)]
pub struct Module {
    /// The file's name without its ending.
    pub name: &'static str,
    /// Its text.
    pub ptx: &'static str,
}

/// A kernel, with what its source fixes.
#[derive(Debug)]
pub struct Kernel {
    /// The file that has it.
    pub module: &'static Module,
    /// Its entry's name.
    pub name: &'static str,
    /// Threads of a block, along x.
    pub threads: u32,
    /// Bytes of its struct of shared memory, as the `static_assert` beside it says; 0 where it has none.
    pub shared_bytes: u32,
}

/// How many blocks a launch has, along each axis: at most 2^31 - 1 along x and 65,535 along the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// `gridDim.x`, the fastest.
    pub x: u32,
    /// `gridDim.y`.
    pub y: u32,
    /// `gridDim.z`.
    pub z: u32,
}

impl Grid {
    /// Blocks along x alone.
    ///
    /// # Errors
    /// [`CudaError::TooLarge`] where a launch cannot have as many.
    pub fn x(blocks: u64) -> Result<Self, CudaError> {
        Self::new(blocks, 1, 1)
    }

    /// Blocks along x and y.
    ///
    /// # Errors
    /// As [`Self::x`].
    pub fn xy(x: u64, y: u64) -> Result<Self, CudaError> {
        Self::new(x, y, 1)
    }

    /// Blocks along all axes.
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

/// What a kernel takes: a slice as its address, u32, u64 and f32 as they are.
pub trait Argument: sealed::Sealed {
    /// Where the value lies on the host.
    #[doc(hidden)]
    fn pointer(&self) -> *const c_void;
    /// Its bytes there.
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

/// A kernel that the driver has, and what it takes.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    function: Function,
    parameter_bytes: Vec<u64>,
}

/// Everything that the driver has translated for a device.
#[derive(Debug, Default)]
pub(super) struct Library {
    kernels: Vec<(&'static str, Loaded)>,
    modules: Vec<(&'static str, LoadedModule)>,
}

impl Library {
    #[track_caller]
    fn kernel(&mut self, kernel: &Kernel, device: &Device) -> Result<Loaded, CudaError> {
        if let Some((_, loaded)) = self.kernels.iter().find(|(name, _)| *name == kernel.name) {
            return Ok(loaded.clone());
        }
        let function = self.module(kernel.module)?.function(kernel.name)?;
        let (needed_bytes, available_bytes) = (u64::from(kernel.shared_bytes), device.card().shared_bytes_max);
        if needed_bytes > available_bytes {
            return Err(CudaError::SharedMemory { kernel: kernel.name, needed_bytes, available_bytes });
        }
        function.set_attribute(FunctionAttribute::DynamicSharedBytesMax, kernel.shared_bytes)?;
        let loaded = Loaded { function, parameter_bytes: function.parameter_bytes() };
        self.kernels.push((kernel.name, loaded.clone()));
        Ok(loaded)
    }

    #[track_caller]
    fn module(&mut self, module: &'static Module) -> Result<&LoadedModule, CudaError> {
        let place = match self.modules.iter().position(|(name, _)| *name == module.name) {
            Some(place) => place,
            None => {
                self.modules.push((module.name, load(module)?));
                self.modules.len() - 1
            }
        };
        Ok(&self.modules[place].1)
    }
}

#[track_caller]
fn load(module: &'static Module) -> Result<LoadedModule, CudaError> {
    // A text with a zero in it is cut there, as the driver would.
    let text = module.ptx.split('\0').next().unwrap_or_default();
    let ptx = CString::new(text).unwrap_or_default();
    LoadedModule::load(module.name, &ptx)
}

impl Device {
    /// Has the driver translate a file of kernels; nothing where it has.
    ///
    /// # Errors
    /// [`CudaError::Module`] where it cannot.
    #[track_caller]
    pub(super) fn load(&self, module: &'static Module) -> Result<(), CudaError> {
        self.bind()?;
        self.told(self.library().module(module).map(|_| ()))
    }

    /// Launches a kernel: `device.launch(&KERNEL, Grid::x(blocks)?, &[&out, &inp, &n])`. It runs after all that was
    /// launched before; that it failed is told by whoever waits.
    ///
    /// # Errors [`CudaError::Arguments`] where the kernel takes others, [`CudaError::SharedMemory`] where the card has
    /// too little, [`CudaError::Module`] where the driver cannot translate it.
    #[track_caller]
    pub fn launch(&self, kernel: &Kernel, grid: Grid, arguments: &[&dyn Argument]) -> Result<(), CudaError> {
        let stream = self.stream()?;
        let loaded = self.told(self.library().kernel(kernel, self))?;
        let given = arguments.iter().map(|argument| argument.bytes());
        if !given.clone().eq(loaded.parameter_bytes.iter().copied()) {
            let (expected, given) = (loaded.parameter_bytes, given.collect());
            return Err(CudaError::Arguments { kernel: kernel.name, expected, given, at: At::caller() });
        }
        // The driver only reads them.
        let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.pointer().cast_mut()).collect();
        let grid = [grid.x, grid.y, grid.z];
        self.has_launched(kernel.name);
        self.told(stream.launch(&loaded.function, grid, kernel.threads, kernel.shared_bytes, &mut pointers))?;
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
