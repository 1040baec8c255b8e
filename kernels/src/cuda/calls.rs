//! Safe wrappers of the driver's functions: results are checked, and handles are released on drop. The only other
//! unsafe code on the CUDA side loads libraries and calls cuBLASLt and cuDNN.
//!
//! SAFETY, of every call here: the driver is loaded, as nothing here is reachable without a [`super::driver::Driver`].
//! Handles come from the driver and are not released yet, as only the owners in this module create and release them.
//! Pointers refer to local variables of the calling function, which the driver writes before it returns.

use std::{
    ffi::{CStr, CString, c_int, c_void},
    ptr,
};

use super::{
    driver::Driver,
    error::CudaError,
    interface::{
        self, Address, Basics, EVENT_DEFAULT, Functions, GpuNumber, Handle, JIT_ERROR_LOG_BUFFER,
        JIT_ERROR_LOG_BUFFER_SIZE_BYTES, STREAM_NON_BLOCKING, SUCCESS,
    },
    status::answer,
};

pub use interface::{FunctionAttribute, GpuAttribute};

/// The function tables of the open driver.
fn tables() -> Result<(&'static Basics, &'static Functions), CudaError> {
    Driver::opened().map(|driver| (driver.basics(), driver.functions()))
}

/// Calls a driver function with one output parameter and returns the output.
macro_rules! get {
    ($start:expr, $call:ident($($before:expr),*; $($after:expr),*)) => {{
        let mut out = $start;
        // No closure: it would lose the caller's location.
        match tables() {
            Ok((basics, functions)) => {
                // SAFETY: as of every call.
                let status = unsafe { (functions.$call)($($before,)* &raw mut out $(, $after)*) };
                answer(basics, stringify!($call), status).map(|()| out)
            }
            Err(error) => Err(error),
        }
    }};
}

/// Calls a driver function without output parameters.
macro_rules! tell {
    ($call:ident($($argument:expr),*)) => {
        match tables() {
            Ok((basics, functions)) => {
                // SAFETY: as of every call; the calling function ensures that the arguments are valid.
                let status = unsafe { (functions.$call)($($argument),*) };
                answer(basics, stringify!($call), status)
            }
            Err(error) => Err(error),
        }
    };
}

#[track_caller]
pub fn n_gpus() -> Result<u32, CudaError> {
    get!(0, cuDeviceGetCount(;)).map(|n: c_int| n.unsigned_abs())
}

/// The driver's number of a GPU, which needs no release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuHandle(GpuNumber);

impl GpuHandle {
    #[track_caller]
    pub fn get(index: u32) -> Result<Self, CudaError> {
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        get!(0, cuDeviceGet(; index)).map(Self)
    }

    #[track_caller]
    pub fn name(self) -> Result<String, CudaError> {
        const LENGTH: c_int = 256;
        let mut name = [0; LENGTH as usize];
        tell!(cuDeviceGetName(name.as_mut_ptr().cast(), LENGTH, self.0))?;
        // The driver writes the terminating zero. Without one, the whole buffer is the name.
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    #[track_caller]
    pub fn uuid(self) -> Result<[u8; 16], CudaError> {
        get!([0; 16], cuDeviceGetUuid_v2(; self.0))
    }

    #[track_caller]
    pub fn attribute(self, attribute: GpuAttribute) -> Result<u32, CudaError> {
        get!(0, cuDeviceGetAttribute(; attribute, self.0)).map(|value: c_int| value.unsigned_abs())
    }

    #[track_caller]
    pub fn total_bytes(self) -> Result<u64, CudaError> {
        get!(0, cuDeviceTotalMem_v2(; self.0)).map(|bytes| bytes as u64)
    }
}

/// A GPU's primary context, shared with all other users of the GPU in this process.
#[derive(Debug)]
pub struct Context {
    gpu: GpuHandle,
    raw: Handle,
}

// SAFETY: a context is not tied to a thread; each thread makes it current before it calls.
unsafe impl Send for Context {}
// SAFETY: the driver's functions may be called from several threads at once.
unsafe impl Sync for Context {}

impl Context {
    #[track_caller]
    pub fn retain(gpu: GpuHandle) -> Result<Self, CudaError> {
        let raw = get!(ptr::null_mut(), cuDevicePrimaryCtxRetain(; gpu.0))?;
        Ok(Self { gpu, raw })
    }

    /// Makes this context current for the calling thread.
    #[track_caller]
    pub fn bind(&self) -> Result<(), CudaError> {
        tell!(cuCtxSetCurrent(self.raw))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // The release fails after a fault, which cannot be reported from here.
        let _: Result<(), CudaError> = tell!(cuDevicePrimaryCtxRelease_v2(self.gpu.0));
    }
}

/// Free and total bytes of the GPU of the current context.
#[track_caller]
pub fn memory_info() -> Result<(u64, u64), CudaError> {
    let mut total = 0;
    let free = get!(0, cuMemGetInfo_v2(; &raw mut total))?;
    Ok((free as u64, total as u64))
}

#[track_caller]
pub fn allocate(bytes: usize) -> Result<u64, CudaError> {
    get!(Address::MIN, cuMemAlloc_v2(; bytes))
}

/// Frees an allocation. The driver rejects an invalid address.
#[track_caller]
pub fn free(address: u64) -> Result<(), CudaError> {
    tell!(cuMemFree_v2(address))
}

/// A queue of operations that run in order on a GPU.
#[derive(Debug)]
pub struct Stream(Handle);

// SAFETY: as of a context.
unsafe impl Send for Stream {}
// SAFETY: as of a context.
unsafe impl Sync for Stream {}

impl Stream {
    #[track_caller]
    pub fn create() -> Result<Self, CudaError> {
        let flags = STREAM_NON_BLOCKING;
        get!(ptr::null_mut(), cuStreamCreate(; flags)).map(Self)
    }

    /// The raw handle, for libraries that launch by themselves.
    pub const fn raw(&self) -> *mut c_void {
        self.0
    }

    #[track_caller]
    pub fn synchronize(&self) -> Result<(), CudaError> {
        tell!(cuStreamSynchronize(self.0))
    }

    /// Copies to the GPU and waits for completion, so that `from` may be changed or freed afterwards. The driver copies
    /// pageable memory only if it "must first be staged", and such calls "might be synchronous" (CUDA driver API, "API
    /// synchronization behavior"). A GPU that reads pageable memory directly does neither.
    #[track_caller]
    pub fn copy_to_gpu(&self, to: u64, from: &[u8]) -> Result<(), CudaError> {
        tell!(cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.0))?;
        self.synchronize()
    }

    /// Copies from the GPU and waits for completion.
    #[track_caller]
    pub fn copy_from_gpu(&self, to: &mut [u8], from: u64) -> Result<(), CudaError> {
        tell!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), self.0))?;
        self.synchronize()
    }

    #[track_caller]
    pub fn copy_on_gpu(&self, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
        tell!(cuMemcpyDtoDAsync_v2(to, from, bytes, self.0))
    }

    #[track_caller]
    pub fn fill(&self, to: u64, byte: u8, bytes: usize) -> Result<(), CudaError> {
        tell!(cuMemsetD8Async(to, byte, bytes, self.0))
    }

    /// Launches a kernel.
    ///
    /// `arguments` are addresses of values with the sizes of [`Function::parameter_bytes`], valid until this returns.
    /// The caller has compared the sizes.
    #[track_caller]
    pub fn launch(
        &self,
        function: &Function,
        [x, y, z]: [u32; 3],
        threads: u32,
        shared_bytes: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let extra = ptr::null_mut();
        let arguments = arguments.as_mut_ptr();
        tell!(cuLaunchKernel(function.0, x, y, z, threads, 1, 1, shared_bytes, self.0, arguments, extra))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _: Result<(), CudaError> = tell!(cuStreamDestroy_v2(self.0));
    }
}

/// A file of kernels, loaded by the driver.
#[derive(Debug)]
pub struct LoadedModule(Handle);

// SAFETY: as of a context.
unsafe impl Send for LoadedModule {}
// SAFETY: as of a context.
unsafe impl Sync for LoadedModule {}

impl LoadedModule {
    /// Compiles PTX with the driver's compiler, whose log is part of the error.
    #[track_caller]
    pub fn load(module: &'static str, ptx: &CStr) -> Result<Self, CudaError> {
        const LENGTH: usize = 4096;
        let mut log = [0_u8; LENGTH];
        let mut options = [JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The option's value is the size itself, passed as a pointer.
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LENGTH)];
        let n_options = 2;
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        let loaded = get!(ptr::null_mut(), cuModuleLoadDataEx(; ptx.as_ptr().cast(), n_options, options, values));
        loaded.map(Self).map_err(|error| match error {
            CudaError::Call { code, .. } if !code.is_fault() => {
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(LENGTH);
                CudaError::Module { module, code, log: String::from_utf8_lossy(&log[..end]).trim().to_owned() }
            }
            other => other,
        })
    }

    /// Returns a kernel of the module, usable while the module is loaded.
    #[track_caller]
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        // A name with a zero byte becomes the empty name, which no kernel has.
        let name = CString::new(name).unwrap_or_default();
        get!(ptr::null_mut(), cuModuleGetFunction(; self.0, name.as_ptr())).map(Function)
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        let _: Result<(), CudaError> = tell!(cuModuleUnload(self.0));
    }
}

/// A kernel handle, valid while its module is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Function(Handle);

// SAFETY: as of a context.
unsafe impl Send for Function {}
// SAFETY: as of a context.
unsafe impl Sync for Function {}

impl Function {
    /// Size of each parameter in bytes.
    pub fn parameter_bytes(&self) -> Vec<u64> {
        let bytes = |index| {
            let (_, functions) = tables().ok()?;
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: as of every call. After the last parameter the driver returns an error for the invalid index.
            let status = unsafe { (functions.cuFuncGetParamInfo)(self.0, index, &raw mut offset, &raw mut bytes) };
            (status == SUCCESS).then_some(bytes as u64)
        };
        (0..).map_while(bytes).collect()
    }

    #[track_caller]
    pub fn set_attribute(&self, attribute: FunctionAttribute, value: u32) -> Result<(), CudaError> {
        let value = c_int::try_from(value).unwrap_or(c_int::MAX);
        tell!(cuFuncSetAttribute(self.0, attribute, value))
    }
}

/// A point in a stream's order of operations.
#[derive(Debug)]
pub struct Event(Handle);

// SAFETY: as of a context.
unsafe impl Send for Event {}
// SAFETY: as of a context.
unsafe impl Sync for Event {}

impl Event {
    #[track_caller]
    pub fn create() -> Result<Self, CudaError> {
        get!(ptr::null_mut(), cuEventCreate(; EVENT_DEFAULT)).map(Self)
    }

    #[track_caller]
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        tell!(cuEventRecord(self.0, stream.0))
    }

    #[track_caller]
    pub fn synchronize(&self) -> Result<(), CudaError> {
        tell!(cuEventSynchronize(self.0))
    }

    /// Milliseconds from `start` to this event, both of which have been reached.
    #[track_caller]
    pub fn millis_since(&self, start: &Self) -> Result<f32, CudaError> {
        get!(0.0, cuEventElapsedTime(; start.0, self.0))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _: Result<(), CudaError> = tell!(cuEventDestroy_v2(self.0));
    }
}
