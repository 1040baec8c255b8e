//! What a card is doing now, as cheaply as it can be asked: ten times a second.

use std::mem::MaybeUninit;

use headroom_shared::protocol::{
    gpu::Sample,
    reading::{Reading, Why},
};
use nvml_wrapper::{
    Device,
    enum_wrappers::device::{Clock, TemperatureSensor},
    error::{NvmlError, nvml_sym, nvml_try},
};

use super::{answers::Answers, facts::watts};

/// Reads a card.
pub fn read(device: &Device<'_>, gpu: u32, answers: &mut Answers) -> Sample {
    let memory = answers.reading(memory(device));
    let rates = answers.reading(device.utilization_rates());
    let (memory_used_bytes, memory_free_bytes, memory_reserved_bytes) = match memory {
        Reading::Is(memory) => (Reading::Is(memory.used_bytes), Reading::Is(memory.free_bytes), memory.reserved_bytes),
        Reading::Missing { missing: why } => (Reading::missing(why), Reading::missing(why), Reading::missing(why)),
    };
    Sample {
        gpu,
        memory_used_bytes,
        memory_free_bytes,
        memory_reserved_bytes,
        utilization_percent: rates.clone().map(|rates| u64::from(rates.gpu)),
        memory_utilization_percent: rates.map(|rates| u64::from(rates.memory)),
        power_watts: answers.reading(device.power_usage()).map(watts),
        clock_sm_mhz: answers.reading(device.clock_info(Clock::SM)).map(u64::from),
        clock_memory_mhz: answers.reading(device.clock_info(Clock::Memory)).map(u64::from),
        temperature_celsius: answers.reading(device.temperature(TemperatureSensor::Gpu)).map(u64::from),
        throttle: answers.reading(device.current_throttle_reasons()).map(|reasons| reasons.bits()),
    }
}

/// A card's memory.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The whole.
    pub total_bytes: u64,
    /// Of every process; before driver 510 what the driver keeps for itself is in it.
    pub used_bytes: u64,
    /// What is left.
    pub free_bytes: u64,
    /// What the driver keeps for itself.
    pub reserved_bytes: Reading<u64>,
}

/// Reads a card's memory, by the older call where the driver has no newer one.
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
    // SAFETY: the call is the library's own of that name, the handle is of this library and alive as `device` is, and
    // what is written is a struct of numbers, which zeros are one of.
    let info = unsafe {
        nvml_try(call(device.handle(), info.as_mut_ptr()))?;
        info.assume_init()
    };
    Ok(Memory {
        total_bytes: info.total,
        used_bytes: info.used,
        free_bytes: info.free,
        reserved_bytes: Reading::missing(Why::OldDriver),
    })
}
