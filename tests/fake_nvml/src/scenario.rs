//! What a scenario says: the driver, its cards, and how their values go with time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::code;

const GIB: f64 = (1_u64 << 30) as f64;

/// A machine. What a file does not say is that of an RTX 4070 that trains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// As `580.95.05`.
    pub driver_version: String,
    /// As 13000 for 13.0.
    pub cuda_version: i32,
    /// The code that `nvmlInit` answers.
    pub init: u32,
    /// The code that everything else answers, as when the driver is unloaded.
    pub every_call: Option<u32>,
    /// The time, where it stands still; else it is what has passed since the file was written.
    pub time_s: Option<f64>,
    /// Milliseconds that a symbol takes, by its name.
    pub slow_ms: BTreeMap<String, u64>,
    /// The cards.
    pub cards: Vec<Card>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            driver_version: "580.95.05".to_owned(),
            cuda_version: 13_000,
            init: code::SUCCESS,
            every_call: None,
            time_s: None,
            slow_ms: BTreeMap::new(),
            cards: vec![],
        }
    }
}

impl Scenario {
    /// So many cards alike.
    #[must_use]
    pub fn of_cards(n_cards: usize) -> Self {
        Self { cards: (0..n_cards).map(Card::numbered).collect(), ..Self::default() }
    }
}

/// A card, or an instance of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Card {
    /// As NVML has it.
    pub name: String,
    /// As `GPU-…`.
    pub uuid: String,
    /// As `00000000:01:00.0`.
    pub pci_bus_id: String,
    /// The whole of its memory.
    pub memory_total_bytes: u64,
    /// What the driver keeps.
    pub memory_reserved_bytes: u64,
    /// What processes have.
    pub memory_used_bytes: Course,
    /// Share of the time in which a kernel ran.
    pub utilization_percent: Course,
    /// Share of the time in which memory was used.
    pub memory_utilization_percent: Course,
    /// What it takes.
    pub power_watts: Course,
    /// Since the driver was loaded.
    pub energy_joules: Course,
    /// Of the chip.
    pub temperature_celsius: Course,
    /// Of the multiprocessors.
    pub clock_sm_mhz: Course,
    /// Of the memory.
    pub clock_memory_mhz: Course,
    /// NVML's bits.
    pub throttle: u64,
    /// Of the first fan.
    pub fan_percent: Course,
    /// Links that are up, and those there are.
    pub nvlinks: (u32, u32),
    /// Errors of memory that were mended, and that were not.
    pub ecc: (u64, u64),
    /// Who uses it.
    pub processes: Vec<Process>,
    /// Codes that symbols answer for this card, by their names; `*` is every symbol that has the card already.
    pub errors: BTreeMap<String, u32>,
    /// The driver's critical errors: when, and NVIDIA's number.
    pub xids: Vec<(f64, u64)>,
    /// From when until when it does not answer.
    pub lost_s: Vec<(f64, f64)>,
    /// From when until when it is not even counted.
    pub uncounted_s: Vec<(f64, f64)>,
    /// Its instances, where it is split.
    pub mig: Option<Vec<Card>>,
}

impl Default for Card {
    fn default() -> Self {
        Self {
            name: "NVIDIA GeForce RTX 4070".to_owned(),
            uuid: "GPU-00000000-0000-4000-8000-000000000000".to_owned(),
            pci_bus_id: "00000000:01:00.0".to_owned(),
            memory_total_bytes: 12 << 30,
            memory_reserved_bytes: 300 << 20,
            memory_used_bytes: Course::Stays(7.0 * GIB),
            utilization_percent: Course::Stays(97.0),
            memory_utilization_percent: Course::Stays(42.0),
            power_watts: Course::Stays(199.5),
            energy_joules: Course::Goes(vec![(0.0, 1000.0), (1e6, 1000.0 + 199.5e6)]),
            temperature_celsius: Course::Stays(61.0),
            clock_sm_mhz: Course::Stays(2475.0),
            clock_memory_mhz: Course::Stays(10_501.0),
            throttle: 4,
            fan_percent: Course::Stays(38.0),
            nvlinks: (0, 0),
            ecc: (0, 0),
            processes: vec![],
            errors: BTreeMap::new(),
            xids: vec![],
            lost_s: vec![],
            uncounted_s: vec![],
            mig: None,
        }
    }
}

impl Card {
    /// A card that no other of its kind is.
    #[must_use]
    pub fn numbered(number: usize) -> Self {
        Self {
            uuid: format!("GPU-00000000-0000-4000-8000-{number:012x}"),
            pci_bus_id: format!("00000000:{:02X}:00.0", number + 1),
            ..Self::default()
        }
    }

    /// The same card, but a symbol answers a code.
    #[must_use]
    pub fn without(mut self, symbol: &str, code: u32) -> Self {
        self.errors.insert(symbol.to_owned(), code);
        self
    }

    pub(crate) fn is_lost(&self, time_s: f64) -> bool {
        is_within(&self.lost_s, time_s)
    }

    pub(crate) fn is_counted(&self, time_s: f64) -> bool {
        !is_within(&self.uncounted_s, time_s)
    }
}

fn is_within(spans: &[(f64, f64)], time_s: f64) -> bool {
    spans.iter().any(|&(from, to)| (from..to).contains(&time_s))
}

/// A process on a card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// As the host counts it.
    pub pid: u32,
    /// What it has of the card; none where Windows hides it.
    pub memory_used_bytes: Option<u64>,
    /// It draws; else it computes.
    pub graphics: bool,
}

/// A value over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Course {
    /// Always the same.
    Stays(f64),
    /// Straight from point to point, of seconds and values; before the first and after the last it stays.
    Goes(Vec<(f64, f64)>),
}

impl Course {
    pub(crate) fn at(&self, time_s: f64) -> f64 {
        let points = match self {
            Self::Stays(value) => return *value,
            Self::Goes(points) => points,
        };
        let next = points.iter().position(|(from, _)| *from > time_s);
        match next {
            None => points.last().map_or(0.0, |(_, value)| *value),
            Some(0) => points[0].1,
            Some(next) => {
                let ((from, before), (to, after)) = (points[next - 1], points[next]);
                before + (after - before) * (time_s - from) / (to - from)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_straight_from_point_to_point() {
        let course = Course::Goes(vec![(1.0, 10.0), (3.0, 20.0), (3.0, 50.0)]);
        let values = [0.0, 1.0, 2.0, 3.0, 9.0].map(|time_s| course.at(time_s));
        assert_eq!(values.map(|value| format!("{value:.0}")), ["10", "10", "15", "50", "50"]);
        assert!((Course::Goes(vec![]).at(1.0)).abs() < 1e-9);
    }

    #[test]
    fn what_a_file_does_not_say_is_the_usual() {
        let read = |text: &str| serde_json::from_str::<Scenario>(text).expect("a scenario");
        assert_eq!(read("{}"), Scenario::default());
        let card = &read(r#"{"cards": [{"temperature_celsius": [[0, 50], [10, 90]]}]}"#).cards[0];
        assert!((card.temperature_celsius.at(5.0) - 70.0).abs() < 1e-9);
        assert_eq!(card.name, Card::default().name);
        serde_json::from_str::<Scenario>(r#"{"card": []}"#).expect_err("a slip of the pen is told");
    }
}
