//! What cards take: joules since reading began, of which a run takes differences.
//!
//! A card that counts its energy itself is believed; of one that does not, power is summed over time.

use headroom_shared::protocol::{Slow, Telemetry};

use super::{Observed, cards::CARDS_MAX};

/// Between two readings power is taken for their mean, but not across a hole of more than so long: what a card took
/// while nobody read is not known.
const HOLE_MS: u64 = 2000;

/// What a bill counts in.
pub const JOULES_PER_KWH: f64 = 3_600_000.0;

/// Energy of every card.
#[derive(Clone, Debug, Default)]
pub struct Energy {
    /// By their places.
    cards: Vec<Card>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Card {
    joules: Option<f64>,
    /// The card's own count, as it was read last. A card that has one is summed by it alone.
    counter_joules: Option<f64>,
    /// When power was read last, and what it was.
    power: Option<(u64, f64)>,
}

impl Energy {
    /// Takes what is told of the cards.
    pub fn observe(&mut self, observed: &Observed) {
        match observed {
            Observed::Telemetry(telemetry) => self.telemetry(telemetry),
            Observed::Slow(slow) => self.slow(slow),
            _ => {}
        }
    }

    /// What a card took since reading began, by its place; nothing where it tells neither energy nor power. It never
    /// falls.
    pub fn joules(&self, gpu: u32) -> Option<f64> {
        self.cards.get(usize::try_from(gpu).ok()?)?.joules
    }

    fn telemetry(&mut self, telemetry: &Telemetry) {
        for sample in &telemetry.gpus {
            let (Some(card), Some(&watts)) = (self.card(sample.gpu), sample.power_watts.get()) else { continue };
            if card.counter_joules.is_some() {
                continue;
            }
            let joules = card.joules.get_or_insert(0.0);
            if let Some((time_ms, before)) = card.power {
                let passed_ms = telemetry.time_ms.saturating_sub(time_ms);
                if passed_ms <= HOLE_MS {
                    *joules += (watts + before) / 2.0 * passed_ms as f64 / 1000.0;
                }
            }
            card.power = Some((telemetry.time_ms, watts));
        }
    }

    fn slow(&mut self, slow: &Slow) {
        for sample in &slow.gpus {
            let (Some(card), Some(&counter)) = (self.card(sample.gpu), sample.energy_joules.get()) else { continue };
            // A counter begins anew when the driver is loaded: what it has then was taken since.
            let step =
                card.counter_joules.map_or(0.0, |before| if counter < before { counter } else { counter - before });
            *card.joules.get_or_insert(0.0) += step;
            card.counter_joules = Some(counter);
        }
    }

    fn card(&mut self, gpu: u32) -> Option<&mut Card> {
        let place = usize::try_from(gpu).ok().filter(|&place| place < CARDS_MAX)?;
        if self.cards.len() <= place {
            self.cards.resize(place + 1, Card::default());
        }
        self.cards.get_mut(place)
    }
}
