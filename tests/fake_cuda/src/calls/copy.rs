//! Symbols that copy between the host's and the GPU's memory. Kernels run when they are launched, so earlier work is
//! always complete.
#![allow(non_snake_case, reason = "names of cuda.h")]

use std::{
    ffi::{c_uchar, c_uint, c_void},
    slice,
};

use headroom_emulator::OutOfBounds;

use super::stream::check;
use crate::{
    code,
    state::{Handle, State, complain, in_context},
};

/// Reports a copy outside of an allocation. A real GPU would use the nearest allocation or fail asynchronously; here
/// the call fails immediately.
fn outside(error: &OutOfBounds) -> u32 {
    complain(format_args!("invalid copy: {error}"));
    code::INVALID_VALUE
}

/// Checks that the stream exists and the host pointer is not null.
fn may(state: &State, stream: Handle, host: *const c_void) -> Result<(), u32> {
    check(state, stream)?;
    if host.is_null() { Err(code::INVALID_VALUE) } else { Ok(()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle) -> c_uint {
    in_context(|state, _| {
        may(state, stream, from)?;
        let from = unsafe { slice::from_raw_parts(from.cast(), bytes) };
        state.unawaited.insert(stream.addr());
        state.emulator.write(to, from).map_err(|error| outside(&error))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) -> c_uint {
    in_context(|state, _| {
        may(state, stream, to)?;
        let to = unsafe { slice::from_raw_parts_mut(to.cast(), bytes) };
        state.unawaited.insert(stream.addr());
        state.emulator.read(from, to).map_err(|error| outside(&error))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> c_uint {
    in_context(|state, _| {
        check(state, stream)?;
        state.emulator.copy(to, from, bytes as u64).map_err(|error| outside(&error))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: u64, byte: c_uchar, bytes: usize, stream: Handle) -> c_uint {
    in_context(|state, _| {
        check(state, stream)?;
        state.emulator.fill(to, byte, bytes as u64).map_err(|error| outside(&error))
    })
}
