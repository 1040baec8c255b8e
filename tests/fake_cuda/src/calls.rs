//! The C symbols, as cuda.h declares them.
//!
//! SAFETY, of every one: the caller gives pointers to what cuda.h says, which may be read or written as it says there,
//! or null only where it says so; nothing is kept of them.

mod card;
mod copy;
mod launch;
mod memory;
mod module;
mod stream;
mod system;

use std::ffi::c_char;

pub use stream::{check as check_stream, exists as stream_exists};

use crate::{
    code,
    state::{Answer, Handle},
};

/// Writes an answer where the caller wants it.
///
/// # Safety
/// As of every symbol.
pub unsafe fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's to be written.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes as much of a text as there is room for, with its end.
///
/// # Safety
/// As of every symbol.
pub unsafe fn put_text(out: *mut c_char, room: usize, text: &str) -> Answer {
    if out.is_null() || room == 0 {
        return Err(code::INVALID_VALUE);
    }
    let length = text.len().min(room - 1);
    // SAFETY: the caller has that much room there.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
        out.add(length).write(0);
    }
    Ok(())
}

/// A number as a handle.
pub fn handle(number: usize) -> Handle {
    std::ptr::without_provenance_mut(number)
}
