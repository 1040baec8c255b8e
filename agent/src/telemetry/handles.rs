//! What NVML calls each card, kept between its looks: to ask for it anew at each moment would be one call in nine.

use std::{mem, sync::Arc};

use nvml_wrapper::{Device, error::NvmlError};

use super::{cards::Address, library::Library};

/// Handles of one library, by the cards' places.
#[derive(Debug)]
pub struct Handles {
    /// Of `library` alone, and given out for as long as it is borrowed from here.
    devices: Vec<Option<Device<'static>>>,
    library: Arc<Library>,
}

impl Handles {
    /// None yet.
    pub fn new(library: Arc<Library>) -> Self {
        Self { devices: Vec::new(), library }
    }

    /// The library whose handles they are.
    pub const fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// Forgets all: where cards come and go, a number may be another card's.
    pub fn clear(&mut self) {
        self.devices.clear();
    }

    /// The card of a place, which stands at an address; asked for once.
    pub fn device(&mut self, place: usize, address: Address) -> Result<&Device<'_>, NvmlError> {
        if self.devices.len() <= place {
            self.devices.resize_with(place + 1, || None);
        }
        match &mut self.devices[place] {
            Some(device) => Ok(device),
            none => {
                let device = address.device(&self.library.nvml)?;
                // SAFETY: the device refers to the library behind `self.library`, which lives at one place for as long
                // as this does, and is never exchanged; what leaves here lives no longer than `self` is borrowed.
                Ok(none.insert(unsafe { mem::transmute::<Device<'_>, Device<'static>>(device) }))
            }
        }
    }
}
