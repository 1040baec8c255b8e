//! A wall clock that tests set, for programs that run as processes of their own: a library whose `clock_gettime` adds
//! the seconds in a file to the time of day. The dynamic loader of Linux puts it before the C library's (`LD_PRELOAD`);
//! the other clocks of the machine stay as they are.

use std::{env, io, path::PathBuf};

/// The variable with the path of the file of seconds, as `31536000` or `-5`. No file is no shift.
pub const VARIABLE: &str = "HEADROOM_FAKE_CLOCK";

/// The library as cargo built it: beside the executable of a test that names this package under `[dev-dependencies]`.
///
/// # Errors
/// It is not there.
pub fn library() -> io::Result<PathBuf> {
    let name = format!("{}headroom_fake_clock{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let executable = env::current_exe()?;
    let folders = executable.ancestors().skip(1).take(2).flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let mut paths = folders.map(|folder| folder.join(&name));
    paths
        .find(|path| path.is_file())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("cargo built no {name} beside this test")))
}

#[cfg(target_os = "linux")]
mod preloaded {
    use std::ffi::c_int;

    use rustix::time::{ClockId, clock_gettime as read};

    /// Seconds and nanoseconds, as C has them on 64-bit machines.
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

    /// The C library's `clock_gettime`, with a shifted time of day.
    ///
    /// # Safety
    /// `out` is null or a place for a [`Timespec`].
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
            // SAFETY: the caller gives a place for it.
            unsafe { out.write(shifted) };
        }
        0
    }
}
