//! The error of a GPU with too little memory: the shortfall, the processes that hold memory, and suggestions.

use headroom_planner::gpt::buffers::cuda::{Backends, CudaTraining, size_with};
use headroom_protocol::gpu::Process;
use headroom_text::{self as text, Part, Separator, Text};
use thiserror::Error;

use super::gpu_request::{GpuRequest, MemoryBudget};

/// Number of processes that are named, largest first; the rest are counted.
const HOLDERS_REPORTED: usize = 4;

/// When the shortage was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortageStage {
    /// While the run was planned.
    Plan,
    /// While its memory was allocated, though it was free during planning.
    Allocation,
}

/// A run and a GPU with too little memory for it.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub struct DeviceOutOfMemory {
    /// The GPU's name and index.
    pub gpu: String,
    /// The memory that the run needs, in bytes.
    pub needed_bytes: u64,
    /// The GPU's memory.
    pub room: MemoryBudget,
    /// When the shortage was found.
    pub moment: ShortageStage,
    /// Whether the plan already recomputes every block in full.
    pub is_whole: bool,
    /// Whether the planner's own choice of recomputation would need no less memory.
    pub is_least: bool,
    /// Requested sequences per micro-batch.
    pub batch_size: u64,
    /// The most sequences per micro-batch that fit; `None` if not even one does.
    pub fitting_batch_size: Option<u64>,
    /// Other processes on the GPU; `None` if the driver does not list them.
    pub holders: Option<Vec<Process>>,
}

impl DeviceOutOfMemory {
    /// Returns the error as a text.
    #[must_use]
    pub fn text(&self) -> Text {
        let MemoryBudget { free_bytes, reserve_bytes, .. } = self.room;
        let usable_bytes = self.room.usable_bytes();
        let needed = text::size(self.needed_bytes);
        let needed = if self.is_whole { Part::of(&text::shortage_least(needed)) } else { needed };
        // If less is free than the reserve, the rest of the reserve is missing too.
        let missing = match self.needed_bytes.saturating_add(reserve_bytes).saturating_sub(free_bytes) {
            0 => text::SHORTAGE_APART.into(),
            missing => text::shortage_missing(text::size(missing)),
        };
        let missing = held(missing, self.holders.as_deref().unwrap_or_default());
        let [usable, free, reserve] = [usable_bytes, free_bytes, reserve_bytes].map(text::size);
        match self.moment {
            ShortageStage::Plan => text::shortage_plan(needed, usable, self.gpu.as_str(), free, reserve, missing),
            ShortageStage::Allocation => {
                text::shortage_allocation(needed, usable, self.gpu.as_str(), free, reserve, missing)
            }
        }
    }

    /// Returns a suggestion for the user.
    #[must_use]
    pub fn hint(&self) -> Text {
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
        joined(tries)
    }
}

/// Returns the largest micro-batch that fits, at the requested recomputation level or at any level. `None` if not even
/// one sequence fits.
pub(super) fn fitting_batch_size(asked: &GpuRequest<'_>, usable_bytes: u64, libraries: Backends) -> Option<u64> {
    let n_layer = usize::try_from(asked.gpt.n_layer()).unwrap_or(usize::MAX);
    let bytes = |batch_size| match asked.recompute {
        Some(level) => {
            CudaTraining::with_libraries(asked.gpt, batch_size, vec![level; n_layer], libraries).map(|plan| plan.bytes)
        }
        None => size_with(asked.gpt, batch_size, usable_bytes, libraries).map(|sized| sized.bytes),
    };
    let fits = |batch_size| bytes(batch_size).is_ok_and(|bytes| bytes <= usable_bytes);
    // Memory never decreases with more sequences, so bisection finds the limit in at most 64 steps.
    let (mut fitting, mut beyond) = (0, asked.batch_size.saturating_add(1));
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    (fitting > 0).then_some(fitting)
}

/// Joins suggestions to one hint.
pub fn joined(tries: impl IntoIterator<Item = Text>) -> Text {
    text::as_is(text::list(Separator::Semicolon, tries))
}

/// Appends the processes that hold memory to a sentence; unchanged if there are none.
pub fn held(missing: Text, holders: &[Process]) -> Text {
    if holders.is_empty() {
        return missing;
    }
    let mut names: Vec<Text> = holders.iter().take(HOLDERS_REPORTED).map(holder).collect();
    if holders.len() > HOLDERS_REPORTED {
        names.push(text::holders_more(holders.len() - HOLDERS_REPORTED));
    }
    text::shortage_held(missing, text::list(Separator::Comma, names))
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
    use headroom_languages::table;
    use headroom_protocol::reading::{MissingReason, Reading};

    use super::*;

    fn process(pid: u32, name: Option<&str>, bytes: Option<u64>) -> Process {
        let unknown = MissingReason::NotVisible;
        Process {
            pid,
            name: name.map_or_else(|| Reading::missing(unknown), |name| Reading::Is(name.to_owned())),
            user: Reading::missing(unknown),
            memory_used_bytes: bytes.map_or_else(|| Reading::missing(unknown), Reading::Is),
            run: None,
        }
    }

    #[test]
    fn missing_memory_is_reported_in_every_language() {
        const GIB: u64 = 1 << 30;
        let holders = vec![process(7, Some("python train.py"), Some(3 * GIB)), process(9, None, None)];
        let shortage = DeviceOutOfMemory {
            gpu: "NVIDIA GeForce RTX 4070 (cuda:0)".to_owned(),
            needed_bytes: 12 * GIB,
            room: MemoryBudget { total_bytes: 12 * GIB, free_bytes: 9 * GIB, reserve_bytes: GIB / 2 },
            moment: ShortageStage::Plan,
            is_whole: true,
            is_least: true,
            batch_size: 64,
            fitting_batch_size: Some(32),
            holders: Some(holders),
        };
        assert_eq!(
            shortage.to_string(),
            "the run needs 12.00 GiB with everything recomputed, but only 8.50 GiB of NVIDIA GeForce RTX 4070 (cuda:0) \
             are available (9.00 GiB free, minus a reserve of 512 MiB): 3.50 GiB are missing; other processes on the \
             GPU: python train.py (process 7) with 3.00 GiB, process 9"
        );
        let german = |text: &Text| table("de").say(text);
        assert_eq!(
            german(&shortage.text()),
            "der Lauf braucht 12,00 GiB selbst bei vollständiger Neuberechnung, und nutzbar sind 8,50 GiB von NVIDIA \
             GeForce RTX 4070 (cuda:0) (9,00 GiB sind frei, und 512 MiB bleiben ungenutzt): es fehlen 3,50 GiB; andere \
             Prozesse auf der GPU: python train.py (Prozess 7) mit 3,00 GiB, Prozess 9"
        );
        // The reserve of 512 MiB exceeds the 64 MiB that are free: both count.
        let room = MemoryBudget { free_bytes: 64 << 20, ..shortage.room };
        let full =
            DeviceOutOfMemory { needed_bytes: 128 << 20, room, is_whole: false, holders: None, ..shortage.clone() };
        assert_eq!(
            full.to_string(),
            "the run needs 128 MiB, but only 0 B of NVIDIA GeForce RTX 4070 (cuda:0) are available (64 MiB free, minus a \
             reserve of 512 MiB): 576 MiB are missing"
        );
        let hint = text::tries(DeviceOutOfMemory { is_least: false, ..shortage.clone() }.hint());
        assert_eq!(
            german(&hint),
            "Hinweis: --recompute=auto berechnet so viel neu wie nötig; --batch_size=32 passt, mit mehr \
             --gradient_accumulation_steps= für gleich viele Tokens; beenden Sie Prozesse, die Speicher belegen; \
             --device=cpu trainiert auf der CPU"
        );
        let later = DeviceOutOfMemory { moment: ShortageStage::Allocation, is_whole: false, holders: None, ..shortage };
        for language in ["zh", "ja"] {
            let said = table(language).say(&later.text());
            assert!(!said.contains("planned") && !said.contains("are free"), "{said}");
        }
    }
}
