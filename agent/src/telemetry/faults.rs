//! Errors of cards that the driver reports as they happen (Xid), by NVML's events, on a thread of their own: to wait for
//! one is a call that comes back when there is one.

#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::time::Duration;

use super::{
    Observed, Stop,
    shared::{Attached, Shared},
};

/// How often cards are looked for while none can be listened to: drivers without such events stay without.
const LOOK: Duration = Duration::from_secs(2);
/// How long a round over all cards waits. An error is kept until somebody asks.
#[cfg(target_os = "linux")]
const ROUND_MS: u32 = 1000;
/// How long one of them is waited for: the end of reading waits for it too.
#[cfg(target_os = "linux")]
const WAIT_MS_MAX: u32 = 250;

/// Tells errors until it is told to stop.
pub fn watch(shared: &Shared, stop: &Stop, tell: &impl Fn(Observed)) {
    loop {
        if let Some(attached) = shared.get() {
            follow(&attached, shared, stop, tell);
        }
        if stop.wait(LOOK) {
            return;
        }
    }
}

/// Listens to the cards that answer now, as long as it is they.
#[cfg(target_os = "linux")]
fn follow(attached: &Attached, shared: &Shared, stop: &Stop, tell: &impl Fn(Observed)) {
    use nvml_wrapper::{bitmasks::event::EventTypes, enums::event::XidError, error::NvmlError};

    let nvml = &attached.library.nvml;
    // A set for each: a card that fell off the bus does not say any more who it is.
    let listen = |target: &super::shared::Target| {
        let device = target.address.device(nvml).ok()?;
        let uuid = device.uuid().ok()?;
        let set = nvml.create_event_set().ok()?;
        Some((uuid, device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()?))
    };
    let sets: Vec<_> = attached.targets.iter().filter(|target| target.address.is_card()).filter_map(listen).collect();
    let Some(wait_ms) = u32::try_from(sets.len()).ok().and_then(|n_sets| ROUND_MS.checked_div(n_sets)) else { return };
    while is_current(attached, shared) {
        for (gpu, set) in &sets {
            if stop.is_set() {
                return;
            }
            match set.wait(wait_ms.clamp(1, WAIT_MS_MAX)) {
                Ok(event) => {
                    let xid = match event.event_data {
                        Some(XidError::Value(xid)) => xid,
                        Some(XidError::Unknown) | None => 0,
                    };
                    tell(Observed::Xid { gpu: gpu.clone(), xid });
                }
                Err(NvmlError::Timeout) => {}
                Err(_) => return,
            }
        }
    }
}

/// NVML has no events elsewhere.
#[cfg(not(target_os = "linux"))]
fn follow(_: &Attached, _: &Shared, _: &Stop, _: &impl Fn(Observed)) {}

#[cfg(target_os = "linux")]
fn is_current(attached: &Attached, shared: &Shared) -> bool {
    shared.get().is_some_and(|now| {
        let addresses = |attached: &Attached| attached.targets.iter().map(|target| target.address).collect::<Vec<_>>();
        Arc::ptr_eq(&now.library, &attached.library) && addresses(&now) == addresses(attached)
    })
}
