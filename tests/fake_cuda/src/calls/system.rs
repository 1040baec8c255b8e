//! Symbols that concern no GPU.
#![allow(non_snake_case, reason = "names of cuda.h")]

use std::ffi::{c_char, c_int, c_uint};

use super::put;
use crate::{code, state::any};

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> c_uint {
    any(|state| if flags == 0 { state.begin() } else { Err(code::INVALID_VALUE) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(out: *mut c_int) -> c_uint {
    any(|state| unsafe { put(out, state.scenario()?.driver_version) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: c_uint, out: *mut *const c_char) -> c_uint {
    let names = code::describe(error).ok_or(code::INVALID_VALUE);
    names.and_then(|(name, _)| unsafe { put(out, name.as_ptr()) }).err().unwrap_or(code::SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: c_uint, out: *mut *const c_char) -> c_uint {
    let names = code::describe(error).ok_or(code::INVALID_VALUE);
    names.and_then(|(_, description)| unsafe { put(out, description.as_ptr()) }).err().unwrap_or(code::SUCCESS)
}
