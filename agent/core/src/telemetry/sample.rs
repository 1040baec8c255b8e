//! A GPU's cheap readings, taken ten times per second.

use std::mem::MaybeUninit;

use headroom_protocol::{
    gpu::Gpu,
    metric::Sample,
    reading::{MissingReason, Reading},
};
use nvml_wrapper::{
    Device,
    enum_wrappers::device::{Clock, TemperatureSensor},
    error::{NvmlError, nvml_sym, nvml_try},
};

use super::{
    call::{Call, call},
    nvml_errors::{NvmlErrors, clock_bound, most, plausible, plausible_memory},
};

/// The calls, with the IDs of their metrics.
pub const CALLS: &[Call] = &[
    call("memory", |gpu| memory(gpu).map(drop)),
    call("utilization", |gpu| gpu.utilization_rates().map(drop)),
    call("power", |gpu| gpu.power_usage().map(drop)),
    call("clock_sm", |gpu| gpu.clock_info(Clock::SM).map(drop)),
    call("clock_memory", |gpu| gpu.clock_info(Clock::Memory).map(drop)),
    call("temperature", |gpu| gpu.temperature(TemperatureSensor::Gpu).map(drop)),
    call("throttle", |gpu| gpu.current_throttle_reasons().map(drop)),
];

/// Reads a GPU with these properties.
pub fn read(device: &Device<'_>, gpu: &Gpu, answers: &mut NvmlErrors) -> Sample {
    let memory = answers.reading(memory(device));
    let rates = answers.reading(device.utilization_rates());
    let (memory_used_bytes, memory_free_bytes, memory_reserved_bytes) = match memory {
        Reading::Is(memory) => {
            // If the total is implausible, no part of it is used.
            let total = plausible_memory(memory.total_bytes);
            let part = |bytes| total.clone().and_then(|total| plausible(bytes, total));
            (part(memory.used_bytes), part(memory.free_bytes), memory.reserved_bytes.and_then(part))
        }
        Reading::Missing { missing: why } => (Reading::missing(why), Reading::missing(why), Reading::missing(why)),
    };
    let [sm_most, memory_most] = [&gpu.clock_sm_max_mhz, &gpu.clock_memory_max_mhz].map(clock_bound);
    Sample {
        gpu: gpu.index,
        memory_used_bytes,
        memory_free_bytes,
        memory_reserved_bytes,
        utilization_percent: rates.clone().and_then(|rates| plausible(rates.gpu, most::PERCENT)).map(u64::from),
        memory_utilization_percent: rates.and_then(|rates| plausible(rates.memory, most::PERCENT)).map(u64::from),
        power_watts: answers.bounded(device.power_usage(), most::MILLIWATTS).map(watts),
        clock_sm_mhz: answers.bounded(device.clock_info(Clock::SM), sm_most).map(u64::from),
        clock_memory_mhz: answers.bounded(device.clock_info(Clock::Memory), memory_most).map(u64::from),
        temperature_celsius: answers.bounded(device.temperature(TemperatureSensor::Gpu), most::CELSIUS).map(u64::from),
        throttle: answers.reading(device.current_throttle_reasons()).map(|reasons| reasons.bits()),
    }
}

/// A GPU's memory, in bytes.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Total memory.
    pub total_bytes: u64,
    /// Memory of all processes; before driver 510 it includes the driver's own.
    pub used_bytes: u64,
    /// Free memory.
    pub free_bytes: u64,
    /// Memory that the driver reserves for itself.
    pub reserved_bytes: Reading<u64>,
}

/// Converts NVML's milliwatts to watts.
pub fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1000.0
}

/// Reads a GPU's memory, by the older call if the driver lacks the newer one.
pub fn memory(device: &Device<'_>) -> Result<Memory, NvmlError> {
    match device.memory_info() {
        Ok(info) => Ok(Memory {
            total_bytes: info.total,
            used_bytes: info.used,
            free_bytes: info.free,
            reserved_bytes: Reading::Is(info.reserved),
        }),
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => memory_before_510(device),
        Err(error) => Err(error),
    }
}

fn memory_before_510(device: &Device<'_>) -> Result<Memory, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut info = MaybeUninit::zeroed();
    // SAFETY: the function is the library's own of that name. The handle belongs to this library and is valid as long
    // as `device` lives. The call writes a struct of integers, for which zeros are a valid value.
    let info = unsafe {
        nvml_try(call(device.handle(), info.as_mut_ptr()))?;
        info.assume_init()
    };
    Ok(Memory {
        total_bytes: info.total,
        used_bytes: info.used,
        free_bytes: info.free,
        reserved_bytes: Reading::missing(MissingReason::OldDriver),
    })
}
