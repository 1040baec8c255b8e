//! The part that runs on WebGPU. Drivers are third-party code: any failure of one becomes a line with a reason.

use std::{
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
};

use headroom_kernels::bench::{
    Effort, Model,
    webgpu::{Device, Figures, planned_bytes, weights_name},
};

use super::{
    NO_WEBGPU, enough_memory, models, print,
    report::{Kind, Report},
};

/// Measures every model that generates text.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(report: &Report, effort: Effort) -> Result<(), print::Error> {
    report.progress("looking for a device of WebGPU");
    let device = match guarded(Device::open) {
        Ok(device) => device,
        Err(reason) => return report.line(Kind::Webgpu, NO_WEBGPU, None, Err::<(), _>(reason)),
    };
    let name = if device.name().is_empty() { NO_WEBGPU } else { device.name() };
    for model in models(effort) {
        for half in [false, true] {
            report.progress(&format!("writing with {} on {name}, weights in {}", model.name, weights_name(half)));
            let figures = measure(&device, &model, half, effort);
            report.line(Kind::Webgpu, name, Some(model.name), figures)?;
        }
    }
    Ok(())
}

fn measure(device: &Device, model: &Model, half: bool, effort: Effort) -> Result<Figures, String> {
    let config = model.config().map_err(|error| error.to_string())?;
    if device.is_software() {
        // A software device uses this machine's memory.
        enough_memory(planned_bytes(&config, half).map_err(|error| error.to_string())?)?;
    }
    guarded(|| device.measure(model, &config, half, effort))
}

/// Runs code that calls a driver. A panic, for example of a library that did not expect the driver's answer, becomes a
/// reason.
fn guarded<T, E: Display>(work: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    // The state of the measurement is discarded. Only the device is used afterwards, and it keeps itself consistent.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
            Err(format!("the driver or its library failed: {}", said.unwrap_or("it did not say why")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_fails_is_a_reason() {
        assert_eq!(guarded(|| Ok::<_, String>(1)), Ok(1));
        assert_eq!(guarded(|| Err::<(), _>("no memory")), Err("no memory".to_owned()));
        let failed = guarded(|| -> Result<(), String> { panic!("no such queue") });
        assert_eq!(failed, Err("the driver or its library failed: no such queue".to_owned()));
    }
}
