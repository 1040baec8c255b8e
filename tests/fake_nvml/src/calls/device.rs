//! Table of the symbols that read a GPU.
#![allow(non_snake_case, reason = "names of nvml.h")]

use std::os::raw::{c_char, c_int, c_uint, c_ulonglong};

use super::{put, put_text, whole, whole_u64};
use crate::{
    code,
    state::{Handle, of_gpu},
};

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: Handle, out: *mut c_char, length: c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetName", device, |gpu, _| unsafe { put_text(out, length, &gpu.name) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: Handle, out: *mut c_char, length: c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetUUID", device, |gpu, _| unsafe { put_text(out, length, &gpu.uuid) })
}

/// nvml.h's `nvmlPciInfo_t`.
#[repr(C)]
struct Pci {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_sub_system_id: c_uint,
    bus_id: [c_char; 32],
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, out: *mut Pci) -> c_uint {
    of_gpu("nvmlDeviceGetPciInfo_v3", device, |gpu, _| {
        let mut pci = Pci {
            bus_id_legacy: [0; 16],
            domain: 0,
            bus: 1,
            device: 0,
            pci_device_id: 0x2786_10de,
            pci_sub_system_id: 0,
            bus_id: [0; 32],
        };
        unsafe { put_text(pci.bus_id.as_mut_ptr(), 32, &gpu.pci_bus_id)? };
        unsafe { put(out, pci) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Handle,
    major: *mut c_int,
    minor: *mut c_int,
) -> c_uint {
    of_gpu("nvmlDeviceGetCudaComputeCapability", device, |_, _| unsafe {
        put(major, 8)?;
        put(minor, 9)
    })
}

/// nvml.h's `nvmlMemory_t`.
#[repr(C)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Handle, out: *mut Memory) -> c_uint {
    of_gpu("nvmlDeviceGetMemoryInfo", device, |gpu, time_s| {
        // The older call counts the driver's reserved memory as used.
        let total = gpu.memory_total_bytes;
        let used = whole_u64(gpu.memory_used_bytes.at(time_s)).saturating_add(gpu.memory_reserved_bytes);
        unsafe { put(out, Memory { total, free: total.saturating_sub(used), used }) }
    })
}

/// nvml.h's `nvmlMemory_v2_t`.
#[repr(C)]
struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, out: *mut MemoryV2) -> c_uint {
    of_gpu("nvmlDeviceGetMemoryInfo_v2", device, |gpu, time_s| {
        let version = u32::try_from(size_of::<MemoryV2>()).unwrap_or(0) | 2 << 24;
        // SAFETY: the caller states the struct's version in its first field.
        if out.is_null() || unsafe { (*out).version } != version {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        let (total, reserved) = (gpu.memory_total_bytes, gpu.memory_reserved_bytes);
        let used = whole_u64(gpu.memory_used_bytes.at(time_s));
        let free = total.saturating_sub(used.saturating_add(reserved));
        unsafe { put(out, MemoryV2 { version, total, reserved, free, used }) }
    })
}

/// nvml.h's `nvmlUtilization_t`.
#[repr(C)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: Handle, out: *mut Utilization) -> c_uint {
    of_gpu("nvmlDeviceGetUtilizationRates", device, |gpu, time_s| {
        let [gpu, memory] = [&gpu.utilization_percent, &gpu.memory_utilization_percent];
        let rates = Utilization { gpu: whole(gpu.at(time_s)), memory: whole(memory.at(time_s)) };
        unsafe { put(out, rates) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: Handle, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetPowerUsage", device, |gpu, time_s| unsafe {
        put(out, whole(1000.0 * gpu.power_watts.at(time_s)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEnergyConsumption(device: Handle, out: *mut c_ulonglong) -> c_uint {
    of_gpu("nvmlDeviceGetTotalEnergyConsumption", device, |gpu, time_s| unsafe {
        put(out, whole_u64(1000.0 * gpu.energy_joules.at(time_s)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(device: Handle, _sensor: c_uint, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetTemperature", device, |gpu, time_s| unsafe {
        put(out, whole(gpu.temperature_celsius.at(time_s)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperatureThreshold(device: Handle, kind: c_uint, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetTemperatureThreshold", device, |_, _| match kind {
        0 => unsafe { put(out, 98) },
        1 => unsafe { put(out, 95) },
        _ => Err(code::NOT_SUPPORTED),
    })
}

/// nvml.h's `NVML_CLOCK_MEM`.
const CLOCK_MEM: c_uint = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetClockInfo(device: Handle, kind: c_uint, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetClockInfo", device, |gpu, time_s| {
        let clock = if kind == CLOCK_MEM { &gpu.clock_memory_mhz } else { &gpu.clock_sm_mhz };
        unsafe { put(out, whole(clock.at(time_s))) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(device: Handle, kind: c_uint, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetMaxClockInfo", device, |_, _| unsafe {
        put(out, if kind == CLOCK_MEM { 10_501 } else { 3105 })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(device: Handle, out: *mut c_ulonglong) -> c_uint {
    of_gpu("nvmlDeviceGetCurrentClocksThrottleReasons", device, |gpu, _| unsafe { put(out, gpu.throttle) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFanSpeed_v2(device: Handle, _fan: c_uint, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetFanSpeed_v2", device, |gpu, time_s| unsafe { put(out, whole(gpu.fan_percent.at(time_s))) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPcieThroughput(device: Handle, counter: c_uint, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetPcieThroughput", device, |_, _| unsafe { put(out, if counter == 0 { 3000 } else { 12_000 }) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(device: Handle, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetCurrPcieLinkGeneration", device, |_, _| unsafe { put(out, 4) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(device: Handle, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetCurrPcieLinkWidth", device, |_, _| unsafe { put(out, 16) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: Handle,
    kind: c_uint,
    _counter: c_uint,
    out: *mut c_ulonglong,
) -> c_uint {
    of_gpu("nvmlDeviceGetTotalEccErrors", device, |gpu, _| unsafe {
        put(out, if kind == 0 { gpu.ecc.0 } else { gpu.ecc.1 })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(device: Handle, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetEnforcedPowerLimit", device, |_, _| unsafe { put(out, 200_000) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerManagementLimitConstraints(
    device: Handle,
    min: *mut c_uint,
    max: *mut c_uint,
) -> c_uint {
    of_gpu("nvmlDeviceGetPowerManagementLimitConstraints", device, |_, _| unsafe {
        put(min, 100_000)?;
        put(max, 215_000)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(device: Handle, current: *mut c_uint, pending: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetMigMode", device, |gpu, _| unsafe {
        let mode = u32::from(gpu.mig.is_some());
        put(current, mode)?;
        put(pending, mode)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetNvLinkState(device: Handle, link: c_uint, out: *mut c_uint) -> c_uint {
    of_gpu("nvmlDeviceGetNvLinkState", device, |gpu, _| match gpu.nvlinks {
        (_, 0) => Err(code::NOT_SUPPORTED),
        (_, n_links) if link >= n_links => Err(code::INVALID_ARGUMENT),
        (n_active, _) => unsafe { put(out, u32::from(link < n_active)) },
    })
}
