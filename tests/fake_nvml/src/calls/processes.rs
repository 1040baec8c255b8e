//! The symbols that list processes: two kinds, each in two versions with the same layout.
#![allow(non_snake_case, reason = "names of nvml.h")]

use std::os::raw::{c_uint, c_ulonglong};

use crate::{
    code,
    state::{CallResult, Handle, of_gpu},
};

/// nvml.h's `nvmlProcessInfo_t`.
#[repr(C)]
struct Info {
    pid: c_uint,
    used_bytes: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    out: *mut Info,
) -> c_uint {
    unsafe { list("nvmlDeviceGetComputeRunningProcesses_v3", false, device, count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: Handle,
    count: *mut c_uint,
    out: *mut Info,
) -> c_uint {
    unsafe { list("nvmlDeviceGetComputeRunningProcesses_v2", false, device, count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    out: *mut Info,
) -> c_uint {
    unsafe { list("nvmlDeviceGetGraphicsRunningProcesses_v3", true, device, count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    device: Handle,
    count: *mut c_uint,
    out: *mut Info,
) -> c_uint {
    unsafe { list("nvmlDeviceGetGraphicsRunningProcesses_v2", true, device, count, out) }
}

/// Writes all entries if they fit, and their count in any case.
///
/// # Safety
/// As for every symbol.
unsafe fn list(symbol: &str, graphics: bool, device: Handle, count: *mut c_uint, out: *mut Info) -> c_uint {
    of_gpu(symbol, device, |gpu, _| -> CallResult {
        let infos: Vec<Info> = gpu
            .processes
            .iter()
            .filter(|process| process.graphics == graphics)
            .map(|process| Info {
                pid: process.pid,
                // nvml.h's NVML_VALUE_NOT_AVAILABLE.
                used_bytes: process.memory_used_bytes.unwrap_or(u64::MAX),
                gpu_instance: u32::MAX,
                compute_instance: u32::MAX,
            })
            .collect();
        if count.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: not null; the caller passes the capacity in `count` and gets the number of entries.
        let room = unsafe { count.replace(u32::try_from(infos.len()).unwrap_or(0)) };
        if usize::try_from(room).map_or(true, |room| room < infos.len()) {
            return Err(code::INSUFFICIENT_SIZE);
        }
        for (position, info) in infos.into_iter().enumerate() {
            // SAFETY: the capacity was checked.
            unsafe { out.add(position).write(info) };
        }
        Ok(())
    })
}
