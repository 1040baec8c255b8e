//! A look at which cards there are: who is new, who is back, who is gone.

use headroom_shared::protocol::reading::Why;
use nvml_wrapper::Device;

use super::{
    Observed,
    answers::{Answers, Trouble, refused},
    cards::{Address, CARDS_MAX, Cards, INSTANCES_MAX, Place},
    facts,
    library::Library,
    sample,
};

/// One look.
#[derive(Debug)]
pub struct Scan<'a> {
    library: &'a Library,
    cards: &'a mut Cards,
    seen: Vec<usize>,
    events: Vec<Observed>,
    changed: bool,
}

impl<'a> Scan<'a> {
    /// Looks for cards and puts them into their places.
    pub fn new(library: &'a Library, cards: &'a mut Cards) -> Self {
        Self { library, cards, seen: Vec::new(), events: Vec::new(), changed: false }
    }

    /// Looks at every card and every instance of one; an error is the driver's.
    pub fn all(&mut self, n_cards: u32) -> Result<(), String> {
        for card in 0..n_cards.min(u32::try_from(CARDS_MAX).unwrap_or(u32::MAX)) {
            let Some(position) = self.one(Address::Card(card))? else { continue };
            if self.cards.places()[position].gpu.mig_enabled.get() == Some(&true) {
                let device = Address::Card(card).device(&self.library.nvml);
                let n_instances = device.and_then(|device| device.mig_device_count()).unwrap_or(0);
                for instance in 0..n_instances.min(INSTANCES_MAX) {
                    self.one(Address::Instance { card, instance })?;
                }
            }
        }
        Ok(())
    }

    /// What is to be told: the events, and whether the list of cards is another one.
    pub fn finish(mut self) -> (Vec<Observed>, bool) {
        for position in (0..self.cards.places().len()).filter(|position| !self.seen.contains(position)) {
            if let Some(uuid) = self.cards.lose(position) {
                self.events.push(Observed::CardLost(uuid));
                self.changed = true;
            }
        }
        (self.events, self.changed)
    }

    fn one(&mut self, address: Address) -> Result<Option<usize>, String> {
        let library = self.library;
        match address.device(&library.nvml) {
            Ok(device) => self.answering(&device, address),
            Err(error) => match refused(&error) {
                Trouble::Driver(reason) => Err(reason),
                Trouble::Card => {
                    // A container counts cards that it was not given; they are none of its.
                    if address.is_card() && Answers::default().why(&error) != Why::NoPermission {
                        self.silent(address);
                    }
                    Ok(None)
                }
            },
        }
    }

    fn answering(&mut self, device: &Device<'_>, address: Address) -> Result<Option<usize>, String> {
        let mut answers = Answers::default();
        let uuid = uuid(device, address, &mut answers);
        let Some(position) = self.cards.find(&uuid, address) else { return Ok(None) };
        let known = self.cards.places().get(position);
        if known.is_some_and(|place| place.gpu.present) && answers.is_well() {
            self.cards.move_to(position, address);
            self.seen.push(position);
            return Ok(Some(position));
        }
        let index = u32::try_from(position).unwrap_or(u32::MAX);
        let gpu = facts::read(device, index, uuid.clone(), &mut answers);
        // It is back when everything that could tell of its loss is well, or it would come and go with every look.
        sample::read(device, index, &mut answers);
        match answers.trouble() {
            Some(Trouble::Driver(reason)) => Err(reason),
            Some(Trouble::Card) => {
                self.silent(address);
                Ok(None)
            }
            None => {
                if known.is_some() {
                    self.events.push(Observed::CardBack(uuid));
                }
                self.cards.put(position, Place { gpu, address, unknown: false });
                self.seen.push(position);
                self.changed = true;
                Ok(Some(position))
            }
        }
    }

    /// A card that NVML counts, and that does not answer; if it never did it takes a place all the same.
    fn silent(&mut self, address: Address) {
        let Address::Card(card) = address else { return };
        let position = self.cards.places().len();
        if !self.cards.is_known_at(address) && position < CARDS_MAX {
            let gpu = facts::unknown(u32::try_from(position).unwrap_or(u32::MAX), card);
            self.events.push(Observed::CardLost(gpu.uuid.clone()));
            self.cards.put(position, Place { gpu, address, unknown: true });
            self.changed = true;
        }
    }
}

/// What a card is called on every start; one that has no UUID is called by its place on the bus.
fn uuid(device: &Device<'_>, address: Address, answers: &mut Answers) -> String {
    let uuid = answers.reading(device.uuid());
    let pci = || answers.reading(device.pci_info()).get().map(|pci| format!("PCI-{}", pci.bus_id));
    uuid.get().cloned().or_else(pci).unwrap_or_else(|| match address {
        Address::Card(card) => format!("card-{card}"),
        Address::Instance { card, instance } => format!("card-{card}-{instance}"),
    })
}
