//! The driver's calls, each once: results checked, handles given back when they are dropped. Beside it only the
//! loading of libraries and the calls of cuBLASLt and cuDNN have unsafe code on the CUDA side.
//!
//! SAFETY, of every call here: the driver is loaded, as nothing here is reachable without a [`super::driver::Driver`];
//! handles are those that the driver gave and that are not given back yet, as only the owners here make and end them;
//! and pointers are to variables of the function that calls, which the driver writes before it returns.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
};

use super::{
    driver::Driver,
    error::{At, Code, CudaError},
    interface::{
        self, Address, Basics, CardNumber, EVENT_DEFAULT, Functions, Handle, JIT_ERROR_LOG_BUFFER,
        JIT_ERROR_LOG_BUFFER_SIZE_BYTES, STREAM_NON_BLOCKING, SUCCESS, Status,
    },
};

pub use interface::{CardAttribute, FunctionAttribute};

/// Turns the driver's answer to a call into a result.
#[track_caller]
fn answer(basics: &Basics, call: &'static str, status: Status) -> Result<(), CudaError> {
    if status == SUCCESS {
        return Ok(());
    }
    Err(CudaError::Call { call, code: code(basics, status), at: At::caller() })
}

/// A code with the driver's name and description of it. The driver may return a code that it cannot describe.
fn code(basics: &Basics, status: Status) -> Code {
    let text = |get: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
        let mut text = ptr::null();
        // SAFETY: as of every call; the text is the driver's own and stays.
        let answer = unsafe { get(status, &raw mut text) };
        let known = answer == SUCCESS && !text.is_null();
        // SAFETY: a text of the driver's, with its end.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    Code {
        number: status,
        name: text(basics.cuGetErrorName).unwrap_or_else(|| "no name".to_owned()),
        description: text(basics.cuGetErrorString)
            .unwrap_or_else(|| "the driver returned an error code that it does not describe".to_owned()),
    }
}

/// The tables of the open driver.
fn tables() -> Result<(&'static Basics, &'static Functions), CudaError> {
    Driver::opened().map(|driver| (driver.basics(), driver.functions()))
}

/// A call with one result.
macro_rules! get {
    ($start:expr, $call:ident($($before:expr),*; $($after:expr),*)) => {{
        let mut out = $start;
        // No closure, in which the place of the call would be lost.
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

/// A call with none.
macro_rules! tell {
    ($call:ident($($argument:expr),*)) => {
        match tables() {
            Ok((basics, functions)) => {
                // SAFETY: as of every call, and as its function says of the arguments.
                let status = unsafe { (functions.$call)($($argument),*) };
                answer(basics, stringify!($call), status)
            }
            Err(error) => Err(error),
        }
    };
}

/// Initializes a driver, which is not open before.
#[track_caller]
pub fn init(basics: &Basics) -> Result<(), CudaError> {
    // SAFETY: as of every call; 0 is the only value of its argument.
    answer(basics, "cuInit", unsafe { (basics.cuInit)(0) })
}

/// As 12040 for 12.4; the only call that may come before [`init`].
#[track_caller]
pub fn driver_version(basics: &Basics) -> Result<i32, CudaError> {
    let mut version = 0;
    // SAFETY: as of every call.
    answer(basics, "cuDriverGetVersion", unsafe { (basics.cuDriverGetVersion)(&raw mut version) })?;
    Ok(version)
}

#[track_caller]
pub fn n_cards() -> Result<u32, CudaError> {
    get!(0, cuDeviceGetCount(;)).map(|n: c_int| n.unsigned_abs())
}

/// A card as the driver numbers it: a number, which is never given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardHandle(CardNumber);

impl CardHandle {
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
        // The end is the driver's to write; were it not there, all of it is the name.
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    #[track_caller]
    pub fn uuid(self) -> Result<[u8; 16], CudaError> {
        get!([0; 16], cuDeviceGetUuid_v2(; self.0))
    }

    #[track_caller]
    pub fn attribute(self, attribute: CardAttribute) -> Result<u32, CudaError> {
        get!(0, cuDeviceGetAttribute(; attribute, self.0)).map(|value: c_int| value.unsigned_abs())
    }

    #[track_caller]
    pub fn total_bytes(self) -> Result<u64, CudaError> {
        get!(0, cuDeviceTotalMem_v2(; self.0)).map(|bytes| bytes as u64)
    }
}

/// A card's primary context, which whatever else in the process uses the card shares.
#[derive(Debug)]
pub struct Context {
    card: CardHandle,
    raw: Handle,
}

// SAFETY: a context belongs to no thread; each makes it its own before it calls.
unsafe impl Send for Context {}
// SAFETY: the driver's calls may come from several threads at once.
unsafe impl Sync for Context {}

impl Context {
    #[track_caller]
    pub fn retain(card: CardHandle) -> Result<Self, CudaError> {
        let raw = get!(ptr::null_mut(), cuDevicePrimaryCtxRetain(; card.0))?;
        Ok(Self { card, raw })
    }

    /// Makes it the one that this thread's calls are for.
    #[track_caller]
    pub fn bind(&self) -> Result<(), CudaError> {
        tell!(cuCtxSetCurrent(self.raw))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // After a fault it fails, and there is nobody left to tell.
        let _: Result<(), CudaError> = tell!(cuDevicePrimaryCtxRelease_v2(self.card.0));
    }
}

/// Free bytes, and all, of the card of this thread's context.
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

/// Ends an allocation. A wrong address is refused by the driver.
#[track_caller]
pub fn free(address: u64) -> Result<(), CudaError> {
    tell!(cuMemFree_v2(address))
}

/// What runs in order on a card.
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

    /// As libraries that launch by themselves are given it.
    pub const fn raw(&self) -> *mut c_void {
        self.0
    }

    #[track_caller]
    pub fn synchronize(&self) -> Result<(), CudaError> {
        tell!(cuStreamSynchronize(self.0))
    }

    /// Copies to the card, and is done when it returns, so that `from` may change or end: by a wait. The driver takes a
    /// copy of memory that is not pinned only where it "must first be staged", and such calls "might be synchronous" (CUDA
    /// driver API, "API synchronization behavior"): a card that reads the host's pages by itself need do neither.
    #[track_caller]
    pub fn copy_to_card(&self, to: u64, from: &[u8]) -> Result<(), CudaError> {
        tell!(cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.0))?;
        self.synchronize()
    }

    /// Copies from the card, and is done when it returns: by a wait, likewise.
    #[track_caller]
    pub fn copy_from_card(&self, to: &mut [u8], from: u64) -> Result<(), CudaError> {
        tell!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), self.0))?;
        self.synchronize()
    }

    #[track_caller]
    pub fn copy_on_card(&self, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
        tell!(cuMemcpyDtoDAsync_v2(to, from, bytes, self.0))
    }

    #[track_caller]
    pub fn fill(&self, to: u64, byte: u8, bytes: usize) -> Result<(), CudaError> {
        tell!(cuMemsetD8Async(to, byte, bytes, self.0))
    }

    /// Launches a kernel.
    ///
    /// `arguments` are addresses of values of the sizes that [`Function::parameter_bytes`] tells, alive until this
    /// returns; whoever calls has compared them.
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

/// A file of kernels as the driver has it.
#[derive(Debug)]
pub struct LoadedModule(Handle);

// SAFETY: as of a context.
unsafe impl Send for LoadedModule {}
// SAFETY: as of a context.
unsafe impl Sync for LoadedModule {}

impl LoadedModule {
    /// Has the driver translate the PTX of a file. What its compiler says comes with the error.
    #[track_caller]
    pub fn load(module: &'static str, ptx: &CStr) -> Result<Self, CudaError> {
        const LENGTH: usize = 4096;
        let mut log = [0_u8; LENGTH];
        let mut options = [JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The size stands where a pointer would.
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

    /// A kernel of it. It may be used as long as the module is there.
    #[track_caller]
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        // A name with a zero is no kernel's, and the empty one is nobody's either.
        let name = CString::new(name).unwrap_or_default();
        get!(ptr::null_mut(), cuModuleGetFunction(; self.0, name.as_ptr())).map(Function)
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        let _: Result<(), CudaError> = tell!(cuModuleUnload(self.0));
    }
}

/// A kernel as the driver has it, while its module is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Function(Handle);

// SAFETY: as of a context.
unsafe impl Send for Function {}
// SAFETY: as of a context.
unsafe impl Sync for Function {}

impl Function {
    /// Bytes of each of its parameters.
    pub fn parameter_bytes(&self) -> Vec<u64> {
        let bytes = |index| {
            let (_, functions) = tables().ok()?;
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: as of every call. Past the last parameter it is answered that the value is wrong.
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

/// A moment in a stream's order.
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

    /// Milliseconds from another event to this one; both have been reached.
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
