//! The C symbols declared in cuda.h.
//!
//! SAFETY, for every symbol: the caller passes pointers that are valid for the reads and writes that cuda.h specifies,
//! and null only where it permits null. No pointer is kept after the call.

mod copy;
mod gpu;
mod launch;
mod memory;
mod module;
mod stream;
mod system;

use std::ffi::c_char;

pub use stream::{check as check_stream, exists as stream_exists};

use crate::{
    code,
    state::{CallResult, Handle},
};

/// Writes a result to the caller's memory.
///
/// # Safety
/// As for every symbol.
pub unsafe fn put<T>(out: *mut T, value: T) -> CallResult {
    if out.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: not null, and valid for writing.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a text with its terminator, truncated to the caller's buffer.
///
/// # Safety
/// As for every symbol.
pub unsafe fn put_text(out: *mut c_char, room: usize, text: &str) -> CallResult {
    if out.is_null() || room == 0 {
        return Err(code::INVALID_VALUE);
    }
    let length = text.len().min(room - 1);
    // SAFETY: the caller's buffer has that size.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
        out.add(length).write(0);
    }
    Ok(())
}

/// Converts a number to a handle.
pub fn handle(number: usize) -> Handle {
    std::ptr::without_provenance_mut(number)
}
