//! The C symbols, as nvml.h declares them.
//!
//! SAFETY, of every one: the caller gives pointers to what nvml.h says, which may be written, or null only where it says
//! so; nothing is kept of them.

mod device;
mod events;
mod processes;
mod system;

use std::os::raw::{c_char, c_uint};

use crate::{code, state::Answer};

/// Writes an answer where the caller wants it.
///
/// # Safety
/// As of every symbol.
unsafe fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: not null, and the caller's to be written.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a text with its end, where it fits.
///
/// # Safety
/// As of every symbol.
unsafe fn put_text(out: *mut c_char, length: c_uint, text: &str) -> Answer {
    let bytes = text.as_bytes();
    if out.is_null() || usize::try_from(length).map_or(true, |length| length <= bytes.len()) {
        return Err(code::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller has that many bytes there, and the text with its end is no longer.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        out.add(bytes.len()).write(0);
    }
    Ok(())
}

/// A scenario's number as NVML's, which are whole.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate, as a scenario may say")]
fn whole(value: f64) -> u32 {
    value.round() as u32
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "floats saturate, as a scenario may say")]
fn whole_u64(value: f64) -> u64 {
    value.round() as u64
}
