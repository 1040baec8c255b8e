//! Cached NVML handles of the GPUs. Looking them up at each moment would be one call in nine.

use std::{mem, sync::Arc};

use nvml_wrapper::{Device, error::NvmlError};

use super::{gpus::Address, library::Library};

/// Handles of one library, by the GPUs' indices.
#[derive(Debug)]
pub struct Handles {
    /// Handles of `library` only. Their lifetime is limited to the borrow of `self` when they are handed out.
    devices: Vec<Option<Device<'static>>>,
    library: Arc<Library>,
}

impl Handles {
    /// Creates an empty cache.
    pub fn new(library: Arc<Library>) -> Self {
        Self { devices: Vec::new(), library }
    }

    /// Returns the library of the handles.
    pub const fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// Removes all handles: when GPUs come and go, an address may refer to another GPU.
    pub fn clear(&mut self) {
        self.devices.clear();
    }

    /// Returns the handle of a GPU by its index and address, and caches it.
    pub fn device(&mut self, place: usize, address: Address) -> Result<&Device<'_>, NvmlError> {
        if self.devices.len() <= place {
            self.devices.resize_with(place + 1, || None);
        }
        match &mut self.devices[place] {
            Some(device) => Ok(device),
            none => {
                let device = address.device(&self.library.nvml)?;
                // SAFETY: the device refers to the library in `self.library`. The `Arc` keeps that library at a fixed
                // address as long as `self` lives and is never replaced. The returned reference cannot outlive the
                // borrow of `self`.
                Ok(none.insert(unsafe { mem::transmute::<Device<'_>, Device<'static>>(device) }))
            }
        }
    }
}
