//! Symbols that concern no GPU, and those that look one up.
#![allow(non_snake_case, reason = "names of nvml.h")]

use std::os::raw::{c_char, c_int, c_uint};

use super::{put, put_text};
use crate::{
    code,
    state::{Handle, begin, end, handle, of_gpu, system, unfold},
};

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_uint {
    begin()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    begin()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_uint {
    end()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) -> c_uint {
    system("nvmlSystemGetDriverVersion", |scenario, _| unsafe { put_text(out, length, &scenario.driver_version) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) -> c_uint {
    system("nvmlSystemGetCudaDriverVersion_v2", |scenario, _| unsafe { put(out, scenario.cuda_version) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> c_uint {
    system("nvmlDeviceGetCount_v2", |scenario, time_s| {
        let n_gpus = scenario.gpus.iter().filter(|gpu| gpu.is_counted(time_s)).count();
        unsafe { put(out, u32::try_from(n_gpus).unwrap_or(0)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Handle) -> c_uint {
    const SYMBOL: &str = "nvmlDeviceGetHandleByIndex_v2";
    system(SYMBOL, |scenario, time_s| {
        let mut counted = scenario.gpus.iter().enumerate().filter(|(_, gpu)| gpu.is_counted(time_s));
        let (position, gpu) =
            usize::try_from(index).ok().and_then(|index| counted.nth(index)).ok_or(code::INVALID_ARGUMENT)?;
        if gpu.is_lost(time_s) {
            return Err(code::GPU_IS_LOST);
        }
        gpu.errors.get(SYMBOL).map_or(Ok(()), |code| Err(*code))?;
        unsafe { put(out, handle(position, None)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetMaxMigDeviceCount", device, |gpu, _| {
        // The possible number of instances, not the current one.
        unsafe { put(out, if gpu.mig.is_some() { 7 } else { 0 }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(device: Handle, index: c_uint, out: *mut Handle) -> c_uint {
    of_gpu("nvmlDeviceGetMigDeviceHandleByIndex", device, |gpu, _| {
        let instances = gpu.mig.as_ref().ok_or(code::NOT_SUPPORTED)?;
        let instance = usize::try_from(index).ok().filter(|&index| index < instances.len()).ok_or(code::NOT_FOUND)?;
        unsafe { put(out, handle(unfold(device).0, Some(instance))) }
    })
}
