//! C interface of the CUDA driver, limited to what Headroom calls: types, constants, and tables of functions.
//!
//! Every function returns its `CUresult` as a plain number. New drivers return new codes, and a Rust enum with a value
//! that it does not list is undefined behavior. For the same reason no other value written by the driver is an enum
//! here.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};

use libloading::Library;

/// `CUresult`: 0 for success, else an error code, which may be newer than any list.
pub type Status = c_uint;
/// `CUdevice`.
pub type GpuNumber = c_int;
/// `CUdeviceptr`.
pub type Address = u64;
/// `CUcontext`, `CUstream`, `CUevent`, `CUmodule` or `CUfunction`: a pointer that only the driver dereferences.
pub type Handle = *mut c_void;

/// CUDA_SUCCESS.
pub const SUCCESS: Status = 0;
/// CUDA_ERROR_NO_DEVICE.
pub const NO_DEVICE: Status = 100;
/// CU_STREAM_NON_BLOCKING.
pub const STREAM_NON_BLOCKING: c_uint = 1;
/// CU_EVENT_DEFAULT.
pub const EVENT_DEFAULT: c_uint = 0;
/// CU_JIT_ERROR_LOG_BUFFER.
pub const JIT_ERROR_LOG_BUFFER: c_uint = 5;
/// CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES.
pub const JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_uint = 6;

/// A property of a GPU: the attributes of `CUdevice_attribute` that Headroom reads.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum GpuAttribute {
    /// CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.
    Multiprocessors = 16,
    /// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.
    CapabilityMajor = 75,
    /// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR.
    CapabilityMinor = 76,
    /// CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, in bytes.
    SharedBytesMax = 97,
}

/// A setting of a kernel: the attributes of `CUfunction_attribute` that Headroom sets.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum FunctionAttribute {
    /// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
    DynamicSharedBytesMax = 8,
}

/// Declares a table of the driver's functions and how to find them in the library.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($name:ident($($argument:ty),*);)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[expect(non_snake_case, reason = "names of cuda.h")]
        pub struct $table {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl $table {
            /// # Safety
            /// The library must be a CUDA driver: its symbols of these names have the types of cuda.h.
            ///
            /// # Errors
            /// A symbol is missing.
            pub unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: as the caller promises.
                unsafe { Ok(Self { $($name: *library.get(stringify!($name))?,)* }) }
            }
        }
    };
}

functions! {
    /// Functions of every driver, including ones that are too old for the kernels.
    Basics {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuGetErrorName(Status, *mut *const c_char);
        cuGetErrorString(Status, *mut *const c_char);
    }
}

functions! {
    /// All other functions that Headroom calls. CUDA 12.4 introduced the newest, `cuFuncGetParamInfo`.
    Functions {
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut GpuNumber, c_int);
        cuDeviceGetName(*mut c_char, c_int, GpuNumber);
        cuDeviceGetUuid_v2(*mut [u8; 16], GpuNumber);
        cuDeviceGetAttribute(*mut c_int, GpuAttribute, GpuNumber);
        cuDeviceTotalMem_v2(*mut usize, GpuNumber);
        cuDevicePrimaryCtxRetain(*mut Handle, GpuNumber);
        cuDevicePrimaryCtxRelease_v2(GpuNumber);
        cuCtxSetCurrent(Handle);
        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut Address, usize);
        cuMemFree_v2(Address);
        cuMemcpyHtoDAsync_v2(Address, *const c_void, usize, Handle);
        cuMemcpyDtoHAsync_v2(*mut c_void, Address, usize, Handle);
        cuMemcpyDtoDAsync_v2(Address, Address, usize, Handle);
        cuMemsetD8Async(Address, c_uchar, usize, Handle);
        cuStreamCreate(*mut Handle, c_uint);
        cuStreamDestroy_v2(Handle);
        cuStreamSynchronize(Handle);
        cuEventCreate(*mut Handle, c_uint);
        cuEventDestroy_v2(Handle);
        cuEventRecord(Handle, Handle);
        cuEventSynchronize(Handle);
        cuEventElapsedTime(*mut f32, Handle, Handle);
        cuModuleLoadDataEx(*mut Handle, *const c_void, c_uint, *mut c_uint, *mut *mut c_void);
        cuModuleUnload(Handle);
        cuModuleGetFunction(*mut Handle, Handle, *const c_char);
        cuFuncGetParamInfo(Handle, usize, *mut usize, *mut usize);
        cuFuncSetAttribute(Handle, FunctionAttribute, c_int);
        cuLaunchKernel(
            Handle,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            Handle,
            *mut *mut c_void,
            *mut *mut c_void
        );
    }
}
