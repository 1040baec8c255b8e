//! Symbols for streams and events.
#![allow(non_snake_case, reason = "names of cuda.h")]

use std::{ffi::c_uint, time::Instant};

use super::{handle, put};
use crate::{
    code,
    state::{Handle, State, complain, in_context},
};

/// Checks that a stream exists; null is the default stream.
pub fn exists(state: &State, stream: Handle) -> Result<(), u32> {
    let is_there = stream.is_null() || state.streams.contains(&stream.addr());
    if is_there { Ok(()) } else { Err(code::INVALID_HANDLE) }
}

/// Checks a stream before new work is queued. The host's memory of a copy may change or be freed before a GPU has read
/// it. The host therefore synchronises after each copy, and work that follows a copy without that is rejected.
pub fn check(state: &State, stream: Handle) -> Result<(), u32> {
    exists(state, stream)?;
    if state.unawaited.contains(&stream.addr()) {
        complain("the stream was not synchronised after a copy of host memory");
        return Err(code::NOT_READY);
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(out: *mut Handle, flags: c_uint) -> c_uint {
    in_context(|state, _| {
        if flags > 1 {
            return Err(code::INVALID_VALUE);
        }
        let number = state.new_handle();
        state.streams.insert(number);
        unsafe { put(out, handle(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: Handle) -> c_uint {
    in_context(|state, _| {
        state.unawaited.remove(&stream.addr());
        if state.streams.remove(&stream.addr()) { Ok(()) } else { Err(code::INVALID_HANDLE) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> c_uint {
    in_context(|state, _| {
        exists(state, stream)?;
        state.unawaited.remove(&stream.addr());
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(out: *mut Handle, _flags: c_uint) -> c_uint {
    in_context(|state, _| {
        let number = state.new_handle();
        state.events.insert(number, None);
        unsafe { put(out, handle(number)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> c_uint {
    in_context(|state, _| {
        check(state, stream)?;
        let now = Instant::now() + state.ahead;
        *state.events.get_mut(&event.addr()).ok_or(code::INVALID_HANDLE)? = Some(now);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> c_uint {
    in_context(|state, _| state.events.get(&event.addr()).map(|_| ()).ok_or(code::INVALID_HANDLE))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(out: *mut f32, start: Handle, end: Handle) -> c_uint {
    in_context(|state, _| {
        let when = |event: Handle| state.events.get(&event.addr()).copied().flatten().ok_or(code::INVALID_HANDLE);
        let (start, end) = (when(start)?, when(end)?);
        unsafe { put(out, end.saturating_duration_since(start).as_secs_f32() * 1e3) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> c_uint {
    in_context(|state, _| state.events.remove(&event.addr()).map(|_| ()).ok_or(code::INVALID_HANDLE))
}
