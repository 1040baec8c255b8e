//! Symbols for a GPU's properties and its context.
#![allow(non_snake_case, reason = "names of cuda.h")]

use std::ffi::{c_char, c_int, c_uint};

use super::{handle, put, put_text};
use crate::{
    FakeGpu, code,
    state::{Handle, begun, complain, set_current},
};

/// The context handle of GPU 0.
const CONTEXT: usize = 0x100;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(out: *mut c_int) -> c_uint {
    begun(|state| unsafe { put(out, c_int::try_from(state.scenario()?.gpus.len()).unwrap_or(0)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(out: *mut c_int, number: c_int) -> c_uint {
    begun(|state| {
        state.gpu(number)?;
        unsafe { put(out, number) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(out: *mut c_char, length: c_int, gpu: c_int) -> c_uint {
    begun(|state| unsafe { put_text(out, usize::try_from(length).unwrap_or(0), &state.gpu(gpu)?.1.name) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(out: *mut [u8; 16], gpu: c_int) -> c_uint {
    begun(|state| {
        let digits: String = state.gpu(gpu)?.1.uuid.chars().filter(char::is_ascii_hexdigit).collect();
        let mut uuid = [0; 16];
        // The prefix `GPU-` has no hexadecimal digit.
        for (byte, place) in uuid.iter_mut().zip((0..).step_by(2)) {
            *byte = digits.get(place..place + 2).and_then(|two| u8::from_str_radix(two, 16).ok()).unwrap_or(0);
        }
        unsafe { put(out, uuid) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(out: *mut usize, gpu: c_int) -> c_uint {
    begun(|state| unsafe { put(out, usize::try_from(state.gpu(gpu)?.1.total_bytes).unwrap_or(usize::MAX)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(out: *mut c_int, attribute: c_uint, gpu: c_int) -> c_uint {
    begun(|state| {
        let value = value(attribute, state.gpu(gpu)?.1).ok_or_else(|| {
            complain(format_args!("attribute {attribute} of a GPU is not emulated"));
            code::INVALID_VALUE
        })?;
        unsafe { put(out, value) }
    })
}

/// Returns a `CUdevice_attribute`; only those that the host queries are known.
fn value(attribute: c_uint, gpu: &FakeGpu) -> Option<c_int> {
    Some(match attribute {
        // MAX_THREADS_PER_BLOCK
        1 => 1024,
        // MAX_SHARED_MEMORY_PER_BLOCK
        8 => 49_152,
        // WARP_SIZE
        10 => 32,
        // MULTIPROCESSOR_COUNT
        16 => gpu.multiprocessors,
        // COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR
        75 => gpu.capability.0,
        76 => gpu.capability.1,
        // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        97 => c_int::try_from(gpu.shared_bytes_max).ok()?,
        _ => return None,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(out: *mut Handle, gpu: c_int) -> c_uint {
    begun(|state| {
        let (number, gpu) = state.gpu(gpu)?;
        let has_room = gpu.others_bytes.saturating_add(gpu.context_bytes) <= gpu.total_bytes;
        let n_gpus = state.scenario()?.gpus.len();
        state.retained.resize(n_gpus.max(state.retained.len()), 0);
        if state.retained[number] == 0 && !has_room {
            return Err(code::OUT_OF_MEMORY);
        }
        state.retained[number] += 1;
        unsafe { put(out, handle(CONTEXT + number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(gpu: c_int) -> c_uint {
    begun(|state| {
        let (number, _) = state.gpu(gpu)?;
        let retained = state.retained.get_mut(number).filter(|retained| **retained > 0);
        *retained.ok_or(code::INVALID_CONTEXT)? -= 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> c_uint {
    begun(|state| {
        if context.is_null() {
            set_current(None);
            return Ok(());
        }
        let number = context.addr().checked_sub(CONTEXT);
        let gpu = number.filter(|&gpu| state.retained.get(gpu).is_some_and(|&n| n > 0));
        set_current(Some(gpu.ok_or(code::INVALID_CONTEXT)?));
        Ok(())
    })
}
