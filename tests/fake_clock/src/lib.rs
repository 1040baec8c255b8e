//! A wall clock for tests of separate processes: a library whose `clock_gettime` adds an offset from a file to the time
//! of day. Linux's dynamic loader places it before the C library (`LD_PRELOAD`). Other clocks are unchanged.

use std::{io, path::PathBuf};

use headroom_built_library::built_library;

/// The environment variable with the path of the file. The file has the offset in seconds, such as `31536000` or `-5`;
/// without the file the offset is 0.
pub const VARIABLE: &str = "HEADROOM_FAKE_CLOCK";

/// Returns the path of the built library. Cargo places it beside the executable of a test that has this package in
/// `[dev-dependencies]`.
///
/// # Errors
/// The library is not there.
pub fn library() -> io::Result<PathBuf> {
    built_library("headroom_fake_clock")
}

#[cfg(target_os = "linux")]
mod preloaded {
    use std::ffi::c_int;

    use rustix::time::{ClockId, clock_gettime as read};

    /// C's `timespec` on 64-bit machines.
    #[repr(C)]
    pub struct Timespec {
        seconds: i64,
        nanoseconds: i64,
    }

    const REALTIME: c_int = 0;

    fn shift_seconds() -> i64 {
        let file = std::env::var_os(super::VARIABLE).and_then(|path| std::fs::read_to_string(path).ok());
        file.and_then(|seconds| seconds.trim().parse().ok()).unwrap_or(0)
    }

    /// Replaces the C library's `clock_gettime`, with an offset to the time of day.
    ///
    /// # Safety
    /// `out` is null or valid for writing a [`Timespec`].
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn clock_gettime(clock: c_int, out: *mut Timespec) -> c_int {
        let (id, shift) = match clock {
            REALTIME => (ClockId::Realtime, shift_seconds()),
            1 => (ClockId::Monotonic, 0),
            2 => (ClockId::ProcessCPUTime, 0),
            3 => (ClockId::ThreadCPUTime, 0),
            4 => (ClockId::MonotonicRaw, 0),
            5 => (ClockId::RealtimeCoarse, shift_seconds()),
            6 => (ClockId::MonotonicCoarse, 0),
            7 => (ClockId::Boottime, 0),
            _ => return -1,
        };
        let now = read(id);
        if !out.is_null() {
            let shifted = Timespec { seconds: now.tv_sec.saturating_add(shift), nanoseconds: now.tv_nsec };
            // SAFETY: `out` is not null, and the caller promises that it is valid for writing.
            unsafe { out.write(shifted) };
        }
        0
    }
}
