//! Guard of a thread's launch settings, and the symbols by which it reaches the library that its process has loaded.

use std::io;

use libloading::{Library, Symbol};

use crate::{compiled, launch_settings, state};

/// Settings for this thread's launches until it is dropped. A fault of these launches is reported to this thread only.
#[derive(Debug)]
pub struct LaunchSettingsGuard {
    library: Library,
}

impl LaunchSettingsGuard {
    /// Starts settings in which a seed determines the order of threads.
    ///
    /// # Errors
    /// The library is not there.
    pub fn seeded(seed: u64) -> io::Result<Self> {
        // SAFETY: the library is part of this repository, and loading it runs no code.
        let library = unsafe { Library::new(crate::library()?) }.map_err(io::Error::other)?;
        let here = Self { library };
        here.say("begin", seed, "", "")?;
        Ok(here)
    }

    /// Starts settings in which the host's PTX runs instead of the kernels' C++, with the order of warps from a seed.
    /// They apply to modules that this thread loads from now on.
    ///
    /// # Errors
    /// The library is not there.
    pub fn compiled(seed: u64) -> io::Result<Self> {
        let here = Self::seeded(seed)?;
        here.say("compiled", 0, "", "")?;
        Ok(here)
    }

    /// Runs a mutated kernel from now on, out of `kernels/emulator/mutations.txt`, or `tests/ptx/mutations.txt` if the
    /// PTX runs.
    ///
    /// # Errors
    /// The loaded library is a different one.
    pub fn mutate(&self, kernel: &str, mutation: &str) -> io::Result<()> {
        self.say("mutate", 0, kernel, mutation)
    }

    /// Returns the first failed kernel's mistake with its line, or `None`.
    ///
    /// # Errors
    /// The loaded library is a different one.
    pub fn fault(&self) -> io::Result<Option<String>> {
        let mut text = vec![0; 4096];
        // SAFETY: the symbol is a function below.
        let length = unsafe {
            let fault: Symbol<'_, unsafe extern "C" fn(*mut u8, usize) -> usize> =
                self.library.get("headroom_fake_cuda_fault").map_err(io::Error::other)?;
            fault(text.as_mut_ptr(), text.len())
        };
        text.truncate(length);
        Ok((length > 0).then(|| String::from_utf8_lossy(&text).into_owned()))
    }

    fn say(&self, what: &str, number: u64, first: &str, second: &str) -> io::Result<()> {
        type Say = unsafe extern "C" fn(u64, *const u8, usize, *const u8, usize);
        let name = format!("headroom_fake_cuda_{what}");
        // SAFETY: the symbols are functions below, which all have this signature.
        unsafe {
            let say: Symbol<'_, Say> = self.library.get(name).map_err(io::Error::other)?;
            say(number, first.as_ptr(), first.len(), second.as_ptr(), second.len());
        }
        Ok(())
    }
}

impl Drop for LaunchSettingsGuard {
    fn drop(&mut self) {
        // The library that accepted the begin has the end too.
        let _: io::Result<()> = self.say("end", 0, "", "");
    }
}

/// # Safety
/// `start` is valid for reading `length` bytes.
unsafe fn text(start: *const u8, length: usize) -> String {
    // SAFETY: the caller promises it.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(start, length) }).into_owned()
}

#[unsafe(no_mangle)]
extern "C" fn headroom_fake_cuda_begin(seed: u64, _: *const u8, _: usize, _: *const u8, _: usize) {
    launch_settings::begin(seed);
}

#[unsafe(no_mangle)]
extern "C" fn headroom_fake_cuda_compiled(_: u64, _: *const u8, _: usize, _: *const u8, _: usize) {
    launch_settings::run_compiled();
    state::any(|state| {
        compiled::follow(state);
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn headroom_fake_cuda_end(_: u64, _: *const u8, _: usize, _: *const u8, _: usize) {
    launch_settings::end();
}

/// # Safety
/// The pointers are valid for reading the given lengths.
#[unsafe(no_mangle)]
unsafe extern "C" fn headroom_fake_cuda_mutate(_: u64, kernel: *const u8, n: usize, mutation: *const u8, m: usize) {
    // SAFETY: the caller promises it.
    let (kernel, mutation) = unsafe { (text(kernel, n), text(mutation, m)) };
    launch_settings::mutate(kernel, mutation);
}

/// # Safety
/// `out` is valid for writing `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn headroom_fake_cuda_fault(out: *mut u8, length: usize) -> usize {
    let fault = launch_settings::fault().unwrap_or_default();
    let length = fault.len().min(length);
    // SAFETY: the caller promises it.
    unsafe { out.copy_from_nonoverlapping(fault.as_ptr(), length) };
    length
}
