//! Errors of cards that the driver reports as they happen (Xid), by NVML's events, on a thread of their own: to wait for
//! one is a call that comes back when there is one.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use super::{
    Observed,
    shared::{Attached, Shared},
};

/// How often cards are looked for while none can be listened to: drivers without such events stay without.
const LOOK: Duration = Duration::from_secs(2);
/// How long a round over all cards waits: the end of reading waits for it too.
#[cfg(target_os = "linux")]
const ROUND_MS: u32 = 200;

/// Tells errors until it is told to stop.
pub fn watch(shared: &Shared, stopped: &Receiver<()>, tell: &impl Fn(Observed)) {
    loop {
        if let Some(attached) = shared.get() {
            follow(&attached, shared, stopped, tell);
        }
        match stopped.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Listens to the cards that answer now, as long as it is they.
#[cfg(target_os = "linux")]
fn follow(attached: &Attached, shared: &Shared, stopped: &Receiver<()>, tell: &impl Fn(Observed)) {
    use nvml_wrapper::{bitmasks::event::EventTypes, enums::event::XidError, error::NvmlError};
    use std::sync::mpsc::TryRecvError;

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
    while stopped.try_recv() == Err(TryRecvError::Empty) && is_current(attached, shared) {
        for (gpu, set) in &sets {
            match set.wait(wait_ms.max(1)) {
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
fn follow(_: &Attached, _: &Shared, _: &Receiver<()>, _: &impl Fn(Observed)) {}

#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing is followed there"))]
fn is_current(attached: &Attached, shared: &Shared) -> bool {
    shared.get().is_some_and(|now| {
        let addresses = |attached: &Attached| attached.targets.iter().map(|target| target.address).collect::<Vec<_>>();
        Arc::ptr_eq(&now.library, &attached.library) && addresses(&now) == addresses(attached)
    })
}
