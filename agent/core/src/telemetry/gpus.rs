//! The GPUs seen so far; each keeps its index, even while it is gone.

use headroom_protocol::gpu::Gpu;
use nvml_wrapper::{Device, Nvml, error::NvmlError};

/// Upper bound of GPUs and MIG instances. NVML numbers at most 64 GPUs; the rest is not read.
pub const GPUS_MAX: usize = 64;
/// Upper bound of a GPU's MIG instances; current GPUs have seven.
pub const INSTANCES_MAX: u32 = 16;

/// NVML's address of a GPU, valid until the driver is reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// A GPU, by its index.
    Gpu(u32),
    /// A MIG instance of a GPU.
    Instance {
        /// The GPU's index.
        gpu: u32,
        /// The instance's index.
        instance: u32,
    },
}

impl Address {
    /// Returns the device that is now at this address.
    pub fn device(self, nvml: &Nvml) -> Result<Device<'_>, NvmlError> {
        match self {
            Self::Gpu(gpu) => nvml.device_by_index(gpu),
            Self::Instance { gpu, instance } => nvml.device_by_index(gpu)?.mig_device_by_index(instance),
        }
    }

    /// Returns whether it is a whole GPU.
    pub const fn is_gpu(self) -> bool {
        matches!(self, Self::Gpu(_))
    }
}

/// An entry of the list of GPUs.
#[derive(Clone, Debug)]
pub struct GpuEntry {
    /// The GPU, including whether it responds.
    pub gpu: Gpu,
    /// Its last known address.
    pub address: Address,
    /// Whether it has never responded. Any GPU that appears at its address takes this entry.
    pub unknown: bool,
}

/// All entries, in the order in which they were first seen.
#[derive(Clone, Debug, Default)]
pub struct GpuTable {
    entries: Vec<GpuEntry>,
}

impl GpuTable {
    /// Returns all entries.
    pub fn entries(&self) -> &[GpuEntry] {
        &self.entries
    }

    /// Returns the list of GPUs as the protocol has it.
    pub fn inventory(&self) -> Vec<Gpu> {
        self.entries.iter().map(|entry| entry.gpu.clone()).collect()
    }

    /// Returns the index for a GPU that responds: its own, that of an unknown GPU at its address, or a new one. `None`
    /// if the list is full.
    pub fn find(&self, uuid: &str, address: Address) -> Option<usize> {
        let own = self.entries.iter().position(|entry| entry.gpu.uuid == uuid);
        let position = own.or_else(|| self.unknown_at(address)).unwrap_or(self.entries.len());
        (position < GPUS_MAX).then_some(position)
    }

    /// Returns whether a GPU that does not respond already has an entry.
    pub fn is_known_at(&self, address: Address) -> bool {
        self.entries.iter().any(|entry| entry.address == address)
    }

    fn unknown_at(&self, address: Address) -> Option<usize> {
        self.entries.iter().position(|entry| entry.unknown && entry.address == address)
    }

    /// Stores an entry at the index that [`Self::find`] returned.
    pub fn put(&mut self, position: usize, entry: GpuEntry) {
        match self.entries.get_mut(position) {
            Some(taken) => *taken = entry,
            None => self.entries.push(entry),
        }
    }

    /// Updates a GPU's address.
    pub fn move_to(&mut self, position: usize, address: Address) {
        self.entries[position].address = address;
    }

    /// Marks a GPU as missing, and returns its UUID if it was present before.
    pub fn lose(&mut self, position: usize) -> Option<String> {
        let gpu = &mut self.entries[position].gpu;
        let was_present = std::mem::replace(&mut gpu.present, false);
        was_present.then(|| gpu.uuid.clone())
    }

    /// Returns whether a whole GPU that was seen before is missing.
    pub fn is_one_lost(&self) -> bool {
        self.entries.iter().any(|entry| !entry.gpu.present && entry.address.is_gpu())
    }

    /// Returns whether a GPU is in MIG mode, so that instances come and go.
    pub fn is_one_split(&self) -> bool {
        self.entries.iter().any(|entry| entry.gpu.mig_enabled.get() == Some(&true))
    }
}
