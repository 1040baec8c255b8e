//! The static properties of a GPU, read when it is first seen and when it is back.

use headroom_planner::hardware;
use headroom_protocol::{
    gpu::Gpu,
    reading::{MissingReason, Reading},
};
use nvml_wrapper::{
    Device,
    enum_wrappers::device::{Clock, TemperatureThreshold},
    error::NvmlError,
};

use super::{
    nvml_errors::{NvmlErrors, most, plausible, plausible_memory},
    sample::{memory, watts},
};

/// Upper bound of a GPU's NVLinks: `NVML_NVLINK_MAX_LINKS` in nvml.h.
const NVLINKS_MAX: u32 = 18;

/// Reads a GPU's properties.
pub fn read(device: &Device<'_>, index: u32, uuid: String, answers: &mut NvmlErrors) -> Gpu {
    let memory = answers.reading(memory(device));
    let constraints = answers.reading(device.power_management_limit_constraints());
    let name = device.name().unwrap_or_else(|_| format!("NVIDIA GPU {index}"));
    let listed = hardware::reported(&name, memory.get().map(|memory| memory.total_bytes));
    Gpu {
        index,
        uuid,
        name,
        present: true,
        memory_total_bytes: memory.and_then(|memory| plausible_memory(memory.total_bytes)),
        compute_capability: answers
            .reading(compute_capability(device))
            .and_then(|(major, minor)| plausible(major.max(minor), most::COMPUTE_CAPABILITY).map(|_| (major, minor))),
        power_limit_watts: answers.bounded(device.enforced_power_limit(), most::MILLIWATTS).map(watts),
        power_limit_max_watts: constraints
            .and_then(|constraints| plausible(constraints.max_limit, most::MILLIWATTS))
            .map(watts),
        temperature_slowdown_celsius: threshold(device, TemperatureThreshold::Slowdown, answers),
        temperature_shutdown_celsius: threshold(device, TemperatureThreshold::Shutdown, answers),
        clock_sm_max_mhz: answers.bounded(device.max_clock_info(Clock::SM), most::MHZ).map(u64::from),
        clock_memory_max_mhz: answers.bounded(device.max_clock_info(Clock::Memory), most::MHZ).map(u64::from),
        mig_enabled: answers.reading(device.mig_mode()).map(|mode| mode.current != 0),
        nvlinks_active: answers.reading(nvlinks(device)),
        pci_bus_id: answers.reading(device.pci_info()).map(|pci| short_bus_id(&pci.bus_id)),
        listed_as: listed.map(|gpu| gpu.name.to_string()),
    }
}

/// Returns an entry for a GPU that has never responded; only its presence is known.
pub fn unknown(index: u32, nvml_index: u32) -> Gpu {
    const fn lost<T>() -> Reading<T> {
        Reading::missing(MissingReason::GpuLost)
    }
    Gpu {
        index,
        uuid: format!("unknown-{nvml_index}"),
        name: format!("NVIDIA GPU {nvml_index}, which does not respond"),
        present: false,
        memory_total_bytes: lost(),
        compute_capability: lost(),
        power_limit_watts: lost(),
        power_limit_max_watts: lost(),
        temperature_slowdown_celsius: lost(),
        temperature_shutdown_celsius: lost(),
        clock_sm_max_mhz: lost(),
        clock_memory_max_mhz: lost(),
        mig_enabled: lost(),
        nvlinks_active: lost(),
        pci_bus_id: lost(),
        listed_as: None,
    }
}

fn compute_capability(device: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    let capability = device.cuda_compute_capability()?;
    let number = |n: i32| u32::try_from(n).map_err(|_| NvmlError::Unknown);
    Ok((number(capability.major)?, number(capability.minor)?))
}

fn threshold(device: &Device<'_>, threshold: TemperatureThreshold, answers: &mut NvmlErrors) -> Reading<u64> {
    answers.bounded(device.temperature_threshold(threshold), most::CELSIUS).map(u64::from)
}

/// Counts the active NVLinks. A GPU with fewer than the maximum reports an error for the first link that it lacks.
fn nvlinks(device: &Device<'_>) -> Result<u32, NvmlError> {
    let mut n_active = 0;
    for link in 0..NVLINKS_MAX {
        match device.link_wrapper_for(link).is_active() {
            Ok(active) => n_active += u32::from(active),
            Err(NvmlError::InvalidArg | NvmlError::NotSupported) if link > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(n_active)
}

/// Shortens the PCI domain from NVML's eight digits to the usual four.
fn short_bus_id(bus_id: &str) -> String {
    let short = bus_id.strip_prefix("0000").filter(|rest| rest.find(':') == Some(4));
    short.unwrap_or(bus_id).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_bus_id_is_as_other_tools_write_it() {
        assert_eq!(super::short_bus_id("00000000:0A:00.0"), "0000:0a:00.0");
        assert_eq!(super::short_bus_id("0000:01:00.0"), "0000:01:00.0");
        assert_eq!(super::short_bus_id("00010000:01:00.0"), "00010000:01:00.0");
    }
}
