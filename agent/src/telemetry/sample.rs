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

use super::{
    answers::{Answers, most, plausible},
    facts::watts,
};

/// Reads a card.
pub fn read(device: &Device<'_>, gpu: u32, answers: &mut Answers) -> Sample {
    let memory = answers.reading(memory(device));
    let rates = answers.reading(device.utilization_rates());
    let (memory_used_bytes, memory_free_bytes, memory_reserved_bytes) = match memory {
        Reading::Is(memory) => {
            // Of a whole that cannot be, no part is believed.
            let total = plausible(memory.total_bytes, most::MEMORY_BYTES);
            let part = |bytes| total.clone().and_then(|total| plausible(bytes, total));
            (part(memory.used_bytes), part(memory.free_bytes), memory.reserved_bytes.and_then(part))
        }
        Reading::Missing { missing: why } => (Reading::missing(why), Reading::missing(why), Reading::missing(why)),
    };
    Sample {
        gpu,
        memory_used_bytes,
        memory_free_bytes,
        memory_reserved_bytes,
        utilization_percent: rates.clone().and_then(|rates| plausible(rates.gpu, most::PERCENT)).map(u64::from),
        memory_utilization_percent: rates.and_then(|rates| plausible(rates.memory, most::PERCENT)).map(u64::from),
        power_watts: answers.bounded(device.power_usage(), most::MILLIWATTS).map(watts),
        clock_sm_mhz: answers.bounded(device.clock_info(Clock::SM), most::MHZ).map(u64::from),
        clock_memory_mhz: answers.bounded(device.clock_info(Clock::Memory), most::MHZ).map(u64::from),
        temperature_celsius: answers.bounded(device.temperature(TemperatureSensor::Gpu), most::CELSIUS).map(u64::from),
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
