//! A card's memory does not suffice: what is missing, who has it, and what to try.

use std::fmt;

use headroom_shared::{
    gpt::buffers::cuda::{CudaTraining, Multiplier, Recompute},
    protocol::gpu::Process,
    units::human_size,
};
use thiserror::Error;

use super::card::{Asked, Room};

/// Processes that are named; the largest first, and the rest are counted.
const HOLDERS_TOLD: usize = 4;

/// What a shortage says, and nothing else that a run dies of: by it a watcher knows one.
pub const MAY_BE_TAKEN: &str = " may be taken (";

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
    /// Whether everything would be computed again already.
    pub is_least: bool,
    /// Sequences a micro-batch, as asked for.
    pub batch_size: u64,
    /// Sequences a micro-batch that would fit; none where not even one does.
    pub fitting_batch_size: Option<u64>,
    /// Who else is on the card; none where the driver does not say.
    pub holders: Option<Vec<Process>>,
}

impl Shortage {
    fn text(&self) -> String {
        let Room { free_bytes, reserve_bytes, .. } = self.room;
        let usable_bytes = self.room.usable_bytes();
        let needed = human_size(self.needed_bytes);
        let again = if self.is_least { " with everything computed again" } else { "" };
        let card = &self.card;
        let said = match self.moment {
            Moment::Plan => format!("the run takes {needed}{again}, and {} of {card}", human_size(usable_bytes)),
            Moment::Allocation => {
                format!(
                    "the {needed} that were planned{again} are free no more: {} of {card}",
                    human_size(usable_bytes)
                )
            }
        };
        let missing = match self.needed_bytes.saturating_sub(usable_bytes) {
            0 => "it does not lie together".to_owned(),
            missing => format!("{} are missing", human_size(missing)),
        };
        format!(
            "{said}{MAY_BE_TAKEN}{} are free, of which {} are left alone): {missing}{}",
            human_size(free_bytes),
            human_size(reserve_bytes),
            held(self.holders.as_deref().unwrap_or_default())
        )
    }

    /// What to try.
    #[must_use]
    pub fn hint(&self) -> String {
        let mut tries = vec![];
        if !self.is_least {
            tries.push("--recompute=auto computes again as much as it takes".to_owned());
        }
        if let Some(batch_size) = self.fitting_batch_size.filter(|&fitting| fitting < self.batch_size) {
            tries.push(format!(
                "--batch_size={batch_size} fits, with more --gradient_accumulation_steps= for the same tokens"
            ));
        }
        if self.holders.as_ref().is_some_and(|holders| !holders.is_empty()) {
            tries.push("end what holds memory".to_owned());
        }
        tries.push("--device=cpu trains on the CPU".to_owned());
        tries.join("; ")
    }
}

/// The largest micro-batch that fits where everything is computed again, or at the level that is asked for; none where not
/// even one sequence does.
pub(super) fn fitting_batch_size(asked: &Asked<'_>, usable_bytes: u64, multiplier: Multiplier) -> Option<u64> {
    let n_layer = usize::try_from(asked.gpt.n_layer()).unwrap_or(usize::MAX);
    let level = asked.recompute.unwrap_or(Recompute::Block);
    let fits = |batch_size| {
        let plan = CudaTraining::with_multiplier(asked.gpt, batch_size, vec![level; n_layer], multiplier);
        plan.is_ok_and(|plan| plan.bytes <= usable_bytes)
    };
    // More sequences never take less: halved between one that fits and one that does not, 64 times at the most.
    let (mut fitting, mut beyond) = (0, asked.batch_size.saturating_add(1));
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    (fitting > 0).then_some(fitting)
}

/// Who holds memory, as the end of a sentence; nothing where nobody is known to.
pub(super) fn held(holders: &[Process]) -> String {
    if holders.is_empty() {
        return String::new();
    }
    let mut names: Vec<String> = holders.iter().take(HOLDERS_TOLD).map(|process| Holder(process).to_string()).collect();
    if holders.len() > HOLDERS_TOLD {
        names.push(format!("{} more", holders.len() - HOLDERS_TOLD));
    }
    format!("; others on the card: {}", names.join(", "))
}

struct Holder<'a>(&'a Process);

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Process { pid, name, memory_used_bytes, .. } = self.0;
        match name.get() {
            Some(name) => write!(f, "{name} (process {pid})")?,
            None => write!(f, "process {pid}")?,
        }
        if let Some(&bytes) = memory_used_bytes.get() {
            write!(f, " with {}", human_size(bytes))?;
        }
        Ok(())
    }
}
