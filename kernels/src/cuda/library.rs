//! The kernel files and kernels that are loaded on a device.

use std::ffi::CString;

use super::{
    calls::{Function, FunctionAttribute, LoadedModule},
    error::CudaError,
};

/// A file of kernels: `kernels/ptx/<name>.ptx`, from `kernels/cuda/<name>.cu`.
#[derive(Debug)]
pub struct Module {
    /// Name of the file without its extension.
    pub name: &'static str,
    /// PTX source text.
    pub ptx: &'static str,
}

/// A kernel, with the properties that its source fixes.
#[derive(Debug)]
pub struct Kernel {
    /// File that contains the kernel.
    pub module: &'static Module,
    /// Name of the entry point.
    pub name: &'static str,
    /// Threads per block, along x.
    pub threads: u32,
    /// Bytes of dynamic shared memory per block, equal to the `static_assert` in the source; 0 if the kernel uses none.
    pub shared_bytes: u32,
}

/// A loaded kernel and the sizes of its parameters.
#[derive(Clone, Debug)]
pub struct LoadedKernel {
    pub function: Function,
    pub parameter_bytes: Vec<u64>,
}

/// The modules and kernels loaded on a device.
#[derive(Debug, Default)]
pub struct Library {
    kernels: Vec<(&'static str, LoadedKernel)>,
    modules: Vec<(&'static str, LoadedModule)>,
}

impl Library {
    /// Returns a loaded kernel; `available_bytes` is the GPU's maximum of shared memory per block.
    #[track_caller]
    pub fn kernel(&mut self, kernel: &Kernel, available_bytes: u64) -> Result<LoadedKernel, CudaError> {
        if let Some((_, loaded)) = self.kernels.iter().find(|(name, _)| *name == kernel.name) {
            return Ok(loaded.clone());
        }
        let function = self.module(kernel.module)?.function(kernel.name)?;
        let needed_bytes = u64::from(kernel.shared_bytes);
        if needed_bytes > available_bytes {
            return Err(CudaError::SharedMemory { kernel: kernel.name, needed_bytes, available_bytes });
        }
        function.set_attribute(FunctionAttribute::DynamicSharedBytesMax, kernel.shared_bytes)?;
        let loaded = LoadedKernel { function, parameter_bytes: function.parameter_bytes() };
        self.kernels.push((kernel.name, loaded.clone()));
        Ok(loaded)
    }

    #[track_caller]
    pub fn module(&mut self, module: &'static Module) -> Result<&LoadedModule, CudaError> {
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
    // The text ends at a zero byte, as it would for the driver.
    let text = module.ptx.split('\0').next().unwrap_or_default();
    let ptx = CString::new(text).unwrap_or_default();
    LoadedModule::load(module.name, &ptx)
}
