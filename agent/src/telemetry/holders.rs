//! Who holds memory of a card: asked once, for a person whose run finds none.

use headroom_shared::protocol::gpu::Process;

use super::{answers::Answers, cards::CARDS_MAX, library, names::Names, processes::users};

/// The other processes on the card of a UUID, the largest first. None where there is no NVML, it does not know the card,
/// or tells nobody.
#[must_use]
pub fn holders(uuid: &str) -> Option<Vec<Process>> {
    let library = library::load(None).ok()?;
    let nvml = &library.nvml;
    let n_cards = nvml.device_count().ok()?.min(u32::try_from(CARDS_MAX).unwrap_or(u32::MAX));
    let mut cards = (0..n_cards).filter_map(|card| nvml.device_by_index(card).ok());
    let device = cards.find(|device| device.uuid().is_ok_and(|its| its == uuid))?;
    let is_split = device.mig_mode().is_ok_and(|mode| mode.current != 0);
    let mut users = users(&device, library.windows, is_split, &mut Answers::default()).get()?.clone();
    // The context that asked the driver is on the card too.
    users.retain(|user| user.pid != std::process::id());
    let mut names = Names::default();
    names.refresh(users.iter().map(|user| user.pid));
    Some(names.tell(users))
}
