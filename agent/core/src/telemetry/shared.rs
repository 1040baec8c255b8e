//! State shared by the telemetry threads: the library and the GPUs that respond.

use std::sync::{Arc, Mutex, PoisonError};

use super::{gpus::Address, library::Library};

/// The GPUs that respond.
#[derive(Clone, Debug)]
pub struct AttachedGpus {
    /// Their library; dropping the last reference shuts NVML down.
    pub library: Arc<Library>,
    /// The GPUs.
    pub targets: Vec<Target>,
}

/// A GPU that responds.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its index in the list of GPUs.
    pub gpu: u32,
    /// Its address.
    pub address: Address,
    /// Whether it is in MIG mode.
    pub split: bool,
}

/// The GPUs as both threads see them.
#[derive(Debug, Default)]
pub struct Shared(Mutex<Option<AttachedGpus>>);

impl Shared {
    /// Replaces the GPUs that respond; `None` without a driver.
    pub fn set(&self, attached: Option<AttachedGpus>) {
        // The old value is dropped after the lock is released, because shutting NVML down may take long.
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), attached);
        drop(before);
    }

    /// Returns the GPUs that respond.
    pub fn get(&self) -> Option<AttachedGpus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
