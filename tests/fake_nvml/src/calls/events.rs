//! Events: sets of them, and waiting for one. Of all kinds there is the driver's critical error, Xid.
#![allow(non_snake_case, reason = "names of nvml.h")]

use std::{
    collections::BTreeMap,
    os::raw::{c_uint, c_ulonglong},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::put;
use crate::{
    code,
    state::{Handle, handle, of_card, system, unfold},
};

/// `nvmlEventTypeXidCriticalError`.
const XID_CRITICAL_ERROR: c_ulonglong = 8;
/// As nvml.h has it.
#[repr(C)]
pub struct EventData {
    device: Handle,
    event_type: c_ulonglong,
    event_data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// The last number that was given, and each set's cards with how many of their errors were told.
struct Sets {
    last: usize,
    sets: BTreeMap<usize, BTreeMap<usize, usize>>,
}

static SETS: Mutex<Sets> = Mutex::new(Sets { last: 0, sets: BTreeMap::new() });

fn with_sets<T>(change: impl FnOnce(&mut Sets) -> T) -> T {
    change(&mut SETS.lock().unwrap_or_else(PoisonError::into_inner))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(out: *mut Handle) -> c_uint {
    system("nvmlEventSetCreate", |_, _| {
        let number = with_sets(|all| {
            all.last += 1;
            all.sets.insert(all.last, BTreeMap::new());
            all.last
        });
        unsafe { put(out, std::ptr::without_provenance_mut(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: Handle) -> c_uint {
    system("nvmlEventSetFree", |_, _| {
        with_sets(|all| all.sets.remove(&set.addr())).map(drop).ok_or(code::INVALID_ARGUMENT)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(device: Handle, kinds: c_ulonglong, set: Handle) -> c_uint {
    of_card("nvmlDeviceRegisterEvents", device, |card, time_s| {
        if kinds & !XID_CRITICAL_ERROR != 0 {
            return Err(code::NOT_SUPPORTED);
        }
        // What happened before is told to nobody.
        let n_before = card.xids.iter().filter(|(at_s, _)| *at_s <= time_s).count();
        with_sets(|all| {
            let cards = all.sets.get_mut(&set.addr()).ok_or(code::INVALID_ARGUMENT)?;
            cards.insert(unfold(device).0, n_before);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(set: Handle, out: *mut EventData, timeout_ms: c_uint) -> c_uint {
    let until = Instant::now() + Duration::from_millis(timeout_ms.into());
    loop {
        let mut found = None;
        let answer = system("nvmlEventSetWait_v2", |scenario, time_s| {
            with_sets(|all| {
                let cards = all.sets.get_mut(&set.addr()).ok_or(code::INVALID_ARGUMENT)?;
                for (card, n_told) in cards {
                    let xids = scenario.cards.get(*card).map_or(&[][..], |card| &card.xids);
                    if let Some(&(_, xid)) = xids.get(*n_told).filter(|(at_s, _)| *at_s <= time_s) {
                        *n_told += 1;
                        found = Some((*card, xid));
                        break;
                    }
                }
                Ok(())
            })
        });
        if answer != code::SUCCESS {
            return answer;
        }
        if let Some((card, xid)) = found {
            let data = EventData {
                device: handle(card, None),
                event_type: XID_CRITICAL_ERROR,
                event_data: xid,
                gpu_instance: 0,
                compute_instance: 0,
            };
            return unsafe { put(out, data) }.err().unwrap_or(code::SUCCESS);
        }
        // A driver sleeps all the time, and looking oftener would be counted as the agent's.
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return code::TIMEOUT,
            left => thread::sleep(left),
        }
    }
}
