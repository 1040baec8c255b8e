//! The compiled kernels.

use std::ffi::c_void;

/// A compiled kernel.
#[derive(Debug)]
pub struct Kernel {
    name: &'static str,
    call: unsafe extern "C" fn(*const *const c_void),
    parameters: unsafe extern "C" fn(*mut u32, u32) -> u32,
}

impl Kernel {
    /// The kernel's name; a mutation's name is appended after two underscores.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The size of each parameter, in bytes.
    #[must_use]
    pub fn parameter_bytes(&self) -> Vec<u32> {
        let mut bytes = [0; PARAMETERS_MAX as usize];
        // SAFETY: the function writes at most `PARAMETERS_MAX` elements.
        let n = unsafe { (self.parameters)(bytes.as_mut_ptr(), PARAMETERS_MAX) };
        bytes[..(n as usize).min(bytes.len())].to_vec()
    }

    /// Runs the kernel as one thread.
    ///
    /// # Safety
    /// The requirements of the driver's launch; only on a fiber of a grid.
    pub(crate) unsafe fn call(&self, arguments: *const *const c_void) {
        // SAFETY: as the caller promises.
        unsafe { (self.call)(arguments) }
    }
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// Returns the kernel with a name, if there is one.
#[must_use]
pub fn kernel(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

/// All kernels, including mutations.
pub fn kernels() -> impl Iterator<Item = &'static Kernel> {
    KERNELS.iter()
}
