//! Driver errors of GPUs (Xid), from NVML's events. They have a thread of their own, so that nothing else waits for a
//! driver with a failing GPU.

#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::time::Duration;

use super::{
    Stop, TelemetryEvent,
    shared::{AttachedGpus, Shared},
};

/// The interval of retries while no GPU supports events, which is permanent with some drivers.
const LOOK: Duration = Duration::from_secs(2);
/// The number of shorter intervals at the start, when the GPUs are about to appear.
const N_SOON: u32 = 20;
/// The shorter interval.
const SOON: Duration = Duration::from_millis(100);
/// The interval at which the driver is polled; it queues errors meanwhile. Blocking waits would cost as many wake-ups
/// as there are GPUs.
#[cfg(target_os = "linux")]
const ASK: Duration = Duration::from_secs(1);

/// Reports errors until `stop` is set.
pub fn watch(shared: &Shared, stop: &Stop, tell: &impl Fn(TelemetryEvent)) {
    let mut n_looks = 0;
    loop {
        if let Some(attached) = shared.get() {
            follow(&attached, shared, stop, tell);
            n_looks = N_SOON;
        }
        if stop.wait(if n_looks < N_SOON { SOON } else { LOOK }) {
            return;
        }
        n_looks = (n_looks + 1).min(N_SOON);
    }
}

/// Polls the present GPUs until the list changes.
#[cfg(target_os = "linux")]
fn follow(attached: &AttachedGpus, shared: &Shared, stop: &Stop, tell: &impl Fn(TelemetryEvent)) {
    use nvml_wrapper::{bitmasks::event::EventTypes, enums::event::XidError, error::NvmlError};

    let nvml = &attached.library.nvml;
    // Each GPU has its own event set, because a GPU that has fallen off the bus can no longer be identified.
    let listen = |target: &super::shared::Target| {
        let device = target.address.device(nvml).ok()?;
        let uuid = device.uuid().ok()?;
        let set = nvml.create_event_set().ok()?;
        Some((uuid, device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()?))
    };
    let sets: Vec<_> = attached.targets.iter().filter(|target| target.address.is_gpu()).filter_map(listen).collect();
    if sets.is_empty() {
        return;
    }
    while is_current(attached, shared) {
        for (gpu, set) in &sets {
            match set.wait(0) {
                Ok(event) => {
                    let xid = match event.event_data {
                        Some(XidError::Value(xid)) => xid,
                        Some(XidError::Unknown) | None => 0,
                    };
                    tell(TelemetryEvent::Xid { gpu: gpu.clone(), xid });
                }
                Err(NvmlError::Timeout) => {}
                Err(_) => return,
            }
        }
        if stop.wait(ASK) {
            return;
        }
    }
}

/// Does nothing: NVML has events only on Linux.
#[cfg(not(target_os = "linux"))]
fn follow(_: &AttachedGpus, _: &Shared, _: &Stop, _: &impl Fn(TelemetryEvent)) {}

#[cfg(target_os = "linux")]
fn is_current(attached: &AttachedGpus, shared: &Shared) -> bool {
    shared.get().is_some_and(|now| {
        let addresses =
            |attached: &AttachedGpus| attached.targets.iter().map(|target| target.address).collect::<Vec<_>>();
        Arc::ptr_eq(&now.library, &attached.library) && addresses(&now) == addresses(attached)
    })
}
