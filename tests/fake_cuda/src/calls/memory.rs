//! Symbols that allocate and free memory.
#![allow(non_snake_case, reason = "names of cuda.h")]

use std::ffi::c_uint;

use super::put;
use crate::{
    code,
    state::{Allocation, in_context},
};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_uint {
    in_context(|state, gpu| {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (free_bytes, total_bytes) = (state.free_bytes(gpu)?, state.scenario()?.gpus[gpu].total_bytes);
        unsafe { put(free, bytes(free_bytes)) }?;
        unsafe { put(total, bytes(total_bytes)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(out: *mut u64, bytes: usize) -> c_uint {
    in_context(|state, gpu| {
        let bytes = bytes as u64;
        if bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        state.n_allocations += 1;
        if bytes > state.free_bytes(gpu)? || state.scenario()?.no_memory_at == Some(state.n_allocations) {
            return Err(code::OUT_OF_MEMORY);
        }
        let address = state.emulator.allocate(bytes).ok_or(code::OUT_OF_MEMORY)?;
        state.allocations.insert(address, Allocation { gpu, bytes });
        unsafe { put(out, address) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> c_uint {
    in_context(|state, gpu| {
        let taken = state.allocations.get(&address).filter(|taken| taken.gpu == gpu);
        taken.ok_or(code::INVALID_VALUE)?;
        state.allocations.remove(&address);
        state.emulator.free(address).then_some(()).ok_or(code::INVALID_VALUE)
    })
}
