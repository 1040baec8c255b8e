//! The cards that were seen: each keeps its place, whatever happens to it.

use headroom_shared::protocol::gpu::Gpu;
use nvml_wrapper::{Device, Nvml, error::NvmlError};

/// Cards and instances of cards at most. NVML numbers 64 cards at the most; what is beyond is not read.
pub const CARDS_MAX: usize = 64;
/// Instances of one card at most: today's cards have seven.
pub const INSTANCES_MAX: u32 = 16;

/// How NVML calls a card, until the driver is loaded anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// A card, by its number.
    Card(u32),
    /// A part of a card that is split by MIG.
    Instance {
        /// The card's number.
        card: u32,
        /// The instance's.
        instance: u32,
    },
}

impl Address {
    /// The card that stands there now.
    pub fn device(self, nvml: &Nvml) -> Result<Device<'_>, NvmlError> {
        match self {
            Self::Card(card) => nvml.device_by_index(card),
            Self::Instance { card, instance } => nvml.device_by_index(card)?.mig_device_by_index(instance),
        }
    }

    /// Whether it is a whole card.
    pub const fn is_card(self) -> bool {
        matches!(self, Self::Card(_))
    }
}

/// One place.
#[derive(Clone, Debug)]
pub struct Place {
    /// What it is; whether it answers is in it.
    pub gpu: Gpu,
    /// Where it was seen last.
    pub address: Address,
    /// It never answered; whatever card appears at its address is this one.
    pub unknown: bool,
}

/// All places, in the order in which they were first seen.
#[derive(Clone, Debug, Default)]
pub struct Cards {
    places: Vec<Place>,
}

impl Cards {
    /// All of them.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// What is told of them.
    pub fn inventory(&self) -> Vec<Gpu> {
        self.places.iter().map(|place| place.gpu.clone()).collect()
    }

    /// The place of a card that answers: its own, or that of a card that never did, or a new one. None where there are
    /// too many.
    pub fn find(&self, uuid: &str, address: Address) -> Option<usize> {
        let own = self.places.iter().position(|place| place.gpu.uuid == uuid);
        let position = own.or_else(|| self.unknown_at(address)).unwrap_or(self.places.len());
        (position < CARDS_MAX).then_some(position)
    }

    /// Whether a card that does not answer has a place already.
    pub fn is_known_at(&self, address: Address) -> bool {
        self.places.iter().any(|place| place.address == address)
    }

    fn unknown_at(&self, address: Address) -> Option<usize> {
        self.places.iter().position(|place| place.unknown && place.address == address)
    }

    /// Puts a card into the place that was found for it.
    pub fn put(&mut self, position: usize, place: Place) {
        match self.places.get_mut(position) {
            Some(taken) => *taken = place,
            None => self.places.push(place),
        }
    }

    /// Says where a card is now.
    pub fn move_to(&mut self, position: usize, address: Address) {
        self.places[position].address = address;
    }

    /// Says that a card does not answer; its UUID, if it did before.
    pub fn lose(&mut self, position: usize) -> Option<String> {
        let gpu = &mut self.places[position].gpu;
        let was_present = std::mem::replace(&mut gpu.present, false);
        was_present.then(|| gpu.uuid.clone())
    }

    /// Whether a whole card is missing that was seen before.
    pub fn is_one_lost(&self) -> bool {
        self.places.iter().any(|place| !place.gpu.present && place.address.is_card())
    }

    /// Whether one is split into instances, which come and go.
    pub fn is_one_split(&self) -> bool {
        self.places.iter().any(|place| place.gpu.mig_enabled.get() == Some(&true))
    }
}
