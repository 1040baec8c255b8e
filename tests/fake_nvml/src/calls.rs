//! The C symbols declared in nvml.h.
//!
//! SAFETY, for every symbol: the caller passes pointers that are valid for the writes that nvml.h specifies, and null
//! only where it permits null. No pointer is kept after the call.

mod device;
mod events;
mod processes;
mod system;

use std::os::raw::{c_char, c_uint};

use crate::{code, state::CallResult};

/// Writes a result to the caller's memory.
///
/// # Safety
/// As for every symbol.
unsafe fn put<T>(out: *mut T, value: T) -> CallResult {
    if out.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and valid for writing.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a text with its terminator, if it fits.
///
/// # Safety
/// As for every symbol.
unsafe fn put_text(out: *mut c_char, length: c_uint, text: &str) -> CallResult {
    let bytes = text.as_bytes();
    if out.is_null() || usize::try_from(length).map_or(true, |length| length <= bytes.len()) {
        return Err(code::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller's buffer has that size, and the text with its terminator fits.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        out.add(bytes.len()).write(0);
    }
    Ok(())
}

/// Rounds a scenario's number to an integer, as NVML has them.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate, as a scenario may say")]
fn whole(value: f64) -> u32 {
    value.round() as u32
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate, as a scenario may say")]
fn whole_u64(value: f64) -> u64 {
    value.round() as u64
}
