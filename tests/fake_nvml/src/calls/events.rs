//! Event sets and waiting. The only kind of event is the driver's critical error, Xid.
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
    state::{Handle, handle, of_gpu, system, unfold},
};

/// `nvmlEventTypeXidCriticalError`.
const XID_CRITICAL_ERROR: c_ulonglong = 8;
/// nvml.h's `nvmlEventData_t`.
#[repr(C)]
pub struct EventData {
    device: Handle,
    event_type: c_ulonglong,
    event_data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// The last handle, and for each set its GPUs with the number of errors already reported.
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
    of_gpu("nvmlDeviceRegisterEvents", device, |gpu, time_s| {
        if kinds & !XID_CRITICAL_ERROR != 0 {
            return Err(code::NOT_SUPPORTED);
        }
        // Earlier errors are not reported.
        let n_before = gpu.xids.iter().filter(|(at_s, _)| *at_s <= time_s).count();
        with_sets(|all| {
            let gpus = all.sets.get_mut(&set.addr()).ok_or(code::INVALID_ARGUMENT)?;
            gpus.insert(unfold(device).0, n_before);
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
                let gpus = all.sets.get_mut(&set.addr()).ok_or(code::INVALID_ARGUMENT)?;
                for (gpu, n_reported) in gpus {
                    let xids = scenario.gpus.get(*gpu).map_or(&[][..], |gpu| &gpu.xids);
                    if let Some(&(_, xid)) = xids.get(*n_reported).filter(|(at_s, _)| *at_s <= time_s) {
                        *n_reported += 1;
                        found = Some((*gpu, xid));
                        break;
                    }
                }
                Ok(())
            })
        });
        if answer != code::SUCCESS {
            return answer;
        }
        if let Some((gpu, xid)) = found {
            let data = EventData {
                device: handle(gpu, None),
                event_type: XID_CRITICAL_ERROR,
                event_data: xid,
                gpu_instance: 0,
                compute_instance: 0,
            };
            return unsafe { put(out, data) }.err().unwrap_or(code::SUCCESS);
        }
        // A real driver blocks without polling, and polling here would count as the agent's CPU time.
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return code::TIMEOUT,
            left => thread::sleep(left),
        }
    }
}
