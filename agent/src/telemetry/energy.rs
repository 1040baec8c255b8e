//! What cards take: joules since reading began, of which a run takes differences.
//!
//! A card that counts its energy itself is believed; of one that does not, power is summed over time.

use headroom_shared::protocol::{Slow, Telemetry};

use super::Observed;

/// Power is taken for what it was between two readings, except across a hole so long: what a card took while nobody
/// read is not known.
const GAP_MS_MAX: u64 = 2000;

/// One joule and another: kWh.
pub const JOULES_PER_KWH: f64 = 3_600_000.0;

/// Energy of every card.
#[derive(Clone, Debug, Default)]
pub struct Energy {
    cards: Vec<Card>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Card {
    /// Sum of the card's own counter's steps.
    counted: Option<f64>,
    counter: Option<f64>,
    /// Power over time.
    summed: Option<f64>,
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

    /// What a card took since reading began, by its place; nothing where it tells neither energy nor power.
    pub fn joules(&self, gpu: u32) -> Option<f64> {
        let card = self.cards.get(usize::try_from(gpu).ok()?)?;
        card.counted.or(card.summed)
    }

    fn telemetry(&mut self, telemetry: &Telemetry) {
        for sample in &telemetry.gpus {
            let (Some(card), Some(&watts)) = (self.card(sample.gpu), sample.power_watts.get()) else { continue };
            let sum = card.summed.get_or_insert(0.0);
            if let Some((time_ms, before)) = card.power {
                let passed_ms = telemetry.time_ms.saturating_sub(time_ms);
                if passed_ms <= GAP_MS_MAX {
                    *sum += (watts + before) / 2.0 * passed_ms as f64 / 1000.0;
                }
            }
            card.power = Some((telemetry.time_ms, watts));
        }
    }

    fn slow(&mut self, slow: &Slow) {
        for sample in &slow.gpus {
            let (Some(card), Some(&joules)) = (self.card(sample.gpu), sample.energy_joules.get()) else { continue };
            // A counter begins anew when the driver is loaded; what it has then was taken since.
            let step = card.counter.map_or(0.0, |before| if joules < before { joules } else { joules - before });
            *card.counted.get_or_insert(0.0) += step;
            card.counter = Some(joules);
        }
    }

    fn card(&mut self, gpu: u32) -> Option<&mut Card> {
        let place = usize::try_from(gpu).ok().filter(|&place| place < super::cards::CARDS_MAX)?;
        if self.cards.len() <= place {
            self.cards.resize(place + 1, Card::default());
        }
        self.cards.get_mut(place)
    }
}
