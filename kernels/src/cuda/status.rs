//! Results of driver calls, from the status that each returns.

use std::{
    ffi::{CStr, c_char},
    ptr,
};

use super::{
    error::{Code, CudaError, SourceLocation},
    interface::{Basics, SUCCESS, Status},
};

/// Converts the status of a driver call to a result.
#[track_caller]
pub fn answer(basics: &Basics, call: &'static str, status: Status) -> Result<(), CudaError> {
    if status == SUCCESS {
        return Ok(());
    }
    Err(CudaError::Call { call, code: code(basics, status), at: SourceLocation::caller() })
}

/// An error code with the driver's name and description. The driver may return a code that it cannot describe.
fn code(basics: &Basics, status: Status) -> Code {
    let text = |get: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
        let mut text = ptr::null();
        // SAFETY: the driver is loaded, and it writes the pointer to `text` before it returns.
        let answer = unsafe { get(status, &raw mut text) };
        let known = answer == SUCCESS && !text.is_null();
        // SAFETY: a null-terminated text of the driver.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    Code {
        number: status,
        name: text(basics.cuGetErrorName).unwrap_or_else(|| "no name".to_owned()),
        description: text(basics.cuGetErrorString)
            .unwrap_or_else(|| "the driver returned an error code that it does not describe".to_owned()),
    }
}
