//! A card's memory does not suffice: what is missing, who has it, and what to try.

use headroom_shared::{
    gpt::buffers::cuda::{CudaTraining, Libraries, size_with},
    protocol::gpu::Process,
    text::{self, Part, Text},
};
use thiserror::Error;

use super::card::{Asked, Room};

/// Processes that are named; the largest first, and the rest are counted.
const HOLDERS_TOLD: usize = 4;

/// When it was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// As the run was planned.
    Plan,
    /// As its memory was to be allocated, which was free as it was planned.
    Allocation,
}

/// A run, and a card that has too little for it.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub struct Shortage {
    /// The card, by name and number.
    pub card: String,
    /// What the run takes.
    pub needed_bytes: u64,
    /// What there is.
    pub room: Room,
    /// When it was found out.
    pub moment: Moment,
    /// Whether every block would be computed again already.
    pub is_whole: bool,
    /// Whether to compute other things again takes no less, or need not.
    pub is_least: bool,
    /// Sequences a micro-batch, as asked for.
    pub batch_size: u64,
    /// Sequences a micro-batch that would fit; none where not even one does.
    pub fitting_batch_size: Option<u64>,
    /// Who else is on the card; none where the driver does not say.
    pub holders: Option<Vec<Process>>,
}

impl Shortage {
    fn text(&self) -> Text {
        let Room { free_bytes, reserve_bytes, .. } = self.room;
        let usable_bytes = self.room.usable_bytes();
        let needed = text::size(self.needed_bytes);
        let needed = if self.is_whole { Part::of(&text::shortage_least(needed)) } else { needed };
        // Where less is free than is left alone, the rest of that is missing too.
        let missing = match self.needed_bytes.saturating_add(reserve_bytes).saturating_sub(free_bytes) {
            0 => text::SHORTAGE_APART.to_string(),
            missing => text::shortage_missing(text::size(missing)).to_string(),
        };
        let missing = held(missing, self.holders.as_deref().unwrap_or_default());
        let [usable, free, reserve] = [usable_bytes, free_bytes, reserve_bytes].map(text::size);
        match self.moment {
            Moment::Plan => text::shortage_plan(needed, usable, self.card.as_str(), free, reserve, missing),
            Moment::Allocation => text::shortage_allocation(needed, usable, self.card.as_str(), free, reserve, missing),
        }
    }

    /// What to try.
    #[must_use]
    pub fn hint(&self) -> String {
        let mut tries = vec![];
        if !self.is_least {
            tries.push(text::TRY_RECOMPUTE.into());
        }
        if let Some(batch_size) = self.fitting_batch_size.filter(|&fitting| fitting < self.batch_size) {
            tries.push(text::try_batch_size(batch_size));
        }
        if self.holders.as_ref().is_some_and(|holders| !holders.is_empty()) {
            tries.push(text::TRY_END_HOLDERS.into());
        }
        tries.push(text::TRY_CPU.into());
        joined(&tries)
    }
}

/// The largest micro-batch that fits with as much computed again as it takes, or at the level that is asked for; none
/// where not even one sequence does.
pub(super) fn fitting_batch_size(asked: &Asked<'_>, usable_bytes: u64, libraries: Libraries) -> Option<u64> {
    let n_layer = usize::try_from(asked.gpt.n_layer()).unwrap_or(usize::MAX);
    let bytes = |batch_size| match asked.recompute {
        Some(level) => {
            CudaTraining::with_libraries(asked.gpt, batch_size, vec![level; n_layer], libraries).map(|plan| plan.bytes)
        }
        None => size_with(asked.gpt, batch_size, usable_bytes, libraries).map(|sized| sized.bytes),
    };
    let fits = |batch_size| bytes(batch_size).is_ok_and(|bytes| bytes <= usable_bytes);
    // More sequences never take less: halved between one that fits and one that does not, 64 times at the most.
    let (mut fitting, mut beyond) = (0, asked.batch_size.saturating_add(1));
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    (fitting > 0).then_some(fitting)
}

/// What can be tried, as a hint has it.
pub(super) fn joined(tries: &[Text]) -> String {
    tries.iter().map(Text::to_string).collect::<Vec<_>>().join("; ")
}

/// A sentence with who holds memory; as it is where nobody is known to.
pub fn held(missing: String, holders: &[Process]) -> String {
    if holders.is_empty() {
        return missing;
    }
    let mut names: Vec<String> = holders.iter().take(HOLDERS_TOLD).map(|process| holder(process).to_string()).collect();
    if holders.len() > HOLDERS_TOLD {
        names.push(text::holders_more(holders.len() - HOLDERS_TOLD).to_string());
    }
    text::shortage_held(missing, names.join(", ")).to_string()
}

fn holder(process: &Process) -> Text {
    let pid = u64::from(process.pid);
    let holder = match process.name.get() {
        Some(name) => text::holder_named(name.as_str(), pid),
        None => text::holder_unnamed(pid),
    };
    match process.memory_used_bytes.get() {
        Some(&bytes) => text::holder_with(holder, text::size(bytes)),
        None => holder,
    }
}

#[cfg(test)]
mod tests {
    use headroom_shared::{
        protocol::reading::{Reading, Why},
        text::table,
    };

    use super::*;

    fn process(pid: u32, name: Option<&str>, bytes: Option<u64>) -> Process {
        let unknown = Why::NotVisible;
        Process {
            pid,
            name: name.map_or_else(|| Reading::missing(unknown), |name| Reading::Is(name.to_owned())),
            user: Reading::missing(unknown),
            memory_used_bytes: bytes.map_or_else(|| Reading::missing(unknown), Reading::Is),
            run: None,
        }
    }

    #[test]
    fn what_is_missing_is_said_in_every_language() {
        const GIB: u64 = 1 << 30;
        let holders = vec![process(7, Some("python train.py"), Some(3 * GIB)), process(9, None, None)];
        let shortage = Shortage {
            card: "NVIDIA GeForce RTX 4070 (cuda:0)".to_owned(),
            needed_bytes: 12 * GIB,
            room: Room { total_bytes: 12 * GIB, free_bytes: 9 * GIB, reserve_bytes: GIB / 2 },
            moment: Moment::Plan,
            is_whole: true,
            is_least: true,
            batch_size: 64,
            fitting_batch_size: Some(32),
            holders: Some(holders),
        };
        assert_eq!(
            shortage.to_string(),
            "the run takes 12.00 GiB with everything computed again, and 8.50 GiB of NVIDIA GeForce RTX 4070 (cuda:0) may \
             be taken (9.00 GiB are free, and 512 MiB are left alone): 3.50 GiB are missing; others on the card: \
             python train.py (process 7) with 3.00 GiB, process 9"
        );
        let german = |words: &str| table("de").translated(words);
        assert_eq!(
            german(&shortage.to_string()),
            "der Lauf braucht 12,00 GiB selbst bei vollständiger Neuberechnung, und belegen darf er 8,50 GiB von NVIDIA \
             GeForce RTX 4070 (cuda:0) (9,00 GiB sind frei, und 512 MiB bleiben unberührt): es fehlen 3,50 GiB; andere \
             auf der Karte: python train.py (Prozess 7) mit 3,00 GiB, Prozess 9"
        );
        // 512 MiB may not be taken of the 64 that are free: both count.
        let room = Room { free_bytes: 64 << 20, ..shortage.room };
        let full = Shortage { needed_bytes: 128 << 20, room, is_whole: false, holders: None, ..shortage.clone() };
        assert_eq!(
            full.to_string(),
            "the run takes 128 MiB, and 0 B of NVIDIA GeForce RTX 4070 (cuda:0) may be taken (64 MiB are free, and 512 \
             MiB are left alone): 576 MiB are missing"
        );
        let hint = format!("hint: {}", Shortage { is_least: false, ..shortage.clone() }.hint());
        assert_eq!(
            german(&hint),
            "Hinweis: --recompute=auto berechnet so viel neu wie nötig; --batch_size=32 passt, mit mehr \
             --gradient_accumulation_steps= für gleich viele Token; beenden, was Speicher belegt; --device=cpu trainiert \
             auf der CPU"
        );
        let later = Shortage { moment: Moment::Allocation, is_whole: false, holders: None, ..shortage };
        for language in ["zh", "ja"] {
            let said = table(language).translated(&later.to_string());
            assert!(!said.contains("planned") && !said.contains("are free"), "{said}");
        }
    }
}
