//! The kernels that were compiled.

use std::ffi::c_void;

/// One of them.
#[derive(Debug)]
pub struct Kernel {
    name: &'static str,
    call: unsafe extern "C" fn(*const *const c_void),
    parameters: unsafe extern "C" fn(*mut u32, u32) -> u32,
}

impl Kernel {
    /// Its name; of a mutation with two underscores and the mutation's behind it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Bytes of each of its parameters.
    #[must_use]
    pub fn parameter_bytes(&self) -> Vec<u32> {
        let mut bytes = [0; PARAMETERS_MAX as usize];
        // SAFETY: it writes so many at most.
        let n = unsafe { (self.parameters)(bytes.as_mut_ptr(), PARAMETERS_MAX) };
        bytes[..(n as usize).min(bytes.len())].to_vec()
    }

    /// Runs it as one thread.
    ///
    /// # Safety
    /// As for the driver's call; on a fiber of a grid alone.
    pub(crate) unsafe fn call(&self, arguments: *const *const c_void) {
        // SAFETY: as the caller promises.
        unsafe { (self.call)(arguments) }
    }
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The kernel of a name.
#[must_use]
pub fn kernel(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

/// All kernels, mutations too.
pub fn kernels() -> impl Iterator<Item = &'static Kernel> {
    KERNELS.iter()
}
