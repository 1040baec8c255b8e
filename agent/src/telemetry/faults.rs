//! Errors of cards that the driver reports as they happen (Xid), by NVML's events, on a thread of their own, so that
//! nothing else waits for a driver whose card is failing.

#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::time::Duration;

use super::{
    Observed, Stop,
    shared::{Attached, Shared},
};

/// How often cards are looked for while none can be listened to: drivers without such events stay without.
const LOOK: Duration = Duration::from_secs(2);
/// At the start they are there in a moment: so often they are looked for sooner,
const N_SOON: u32 = 20;
/// and by so much.
const SOON: Duration = Duration::from_millis(100);
/// How often the driver is asked for errors, which it keeps until then. To wait for one would cost as many wake-ups as
/// there are cards.
#[cfg(target_os = "linux")]
const ASK: Duration = Duration::from_secs(1);

/// Tells errors until it is told to stop.
pub fn watch(shared: &Shared, stop: &Stop, tell: &impl Fn(Observed)) {
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
                    tell(Observed::Xid { gpu: gpu.clone(), xid });
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
