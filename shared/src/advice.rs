//! What to change where a run does not fit: every candidate is simulated, alone and, where one is not enough, combined;
//! ranked by what it costs.
//!
//! The same training comes first, then time, then what is left on the card. Nothing here is a rule of thumb: a change
//! is applied to what the person gave, resolved and planned like any other question.

mod batch;
mod change;
mod code;
mod fix;
mod patch;
mod search;
#[cfg(test)]
mod tests;

pub use batch::{BatchSizes, Gap};
pub use change::{Change, Switch};
pub use code::{CodeChange, changed_files, changes_text, needs_text, patch_of};
pub use fix::{Effect, Fix, Kind};
pub use patch::ByHand;

use crate::{
    compute::step_time_ratio,
    hardware::{Device, devices},
    nanogpt::Settings,
    plan::{Plan, Request, fits, plan},
    session::{Options, resolve_settings},
};

/// Cards that are tried for a run that fits none of its own: the smallest first, so few are needed.
const MAX_CARDS_TRIED: usize = 8;

/// A change that does not suffice is named where it saves more than such a part of what is used.
const NOTEWORTHY: u64 = 100;

/// What can be said beyond a plan.
#[derive(Clone, Debug, Default)]
pub struct Advice {
    /// Changes, best first. Those that do not suffice alone come last; empty where the run fits.
    pub fixes: Vec<Fix>,
    /// How large a micro-batch fits with everything else unchanged, whatever the run has now.
    pub batch_sizes: BatchSizes,
    /// The smallest card of the table on which the run fits unchanged, where no change that keeps the model makes it fit.
    pub smallest_card: Option<&'static Device>,
}

impl Advice {
    /// Whether a fix suffices that leaves the model as it is.
    #[must_use]
    pub fn keeps_model(&self) -> bool {
        self.fixes.iter().any(|fix| fix.fits && fix.effect() != Effect::ChangesModel)
    }
}

/// Advice on a run that was planned from these settings and options.
#[must_use]
pub fn advise(settings: &Settings, options: &Options, before: &Plan) -> Advice {
    let adviser = Adviser { settings, options, before };
    let mut advice = Advice { batch_sizes: adviser.batch_sizes(), ..Advice::default() };
    if before.fits {
        return advice;
    }
    advice.fixes = adviser.fixes();
    if !advice.keeps_model() {
        advice.smallest_card = adviser.smallest_card();
    }
    advice
}

struct Adviser<'a> {
    settings: &'a Settings,
    options: &'a Options,
    before: &'a Plan,
}

impl Adviser<'_> {
    /// What is asked after these changes; `None` where that is no run.
    fn request(&self, changes: &[Change]) -> Option<Request> {
        let (mut settings, mut options) = (self.settings.clone(), self.options.clone());
        for change in changes {
            change.apply(&mut settings, &mut options);
        }
        resolve_settings(settings, &options).request
    }

    fn fits(&self, changes: &[Change]) -> bool {
        self.request(changes).is_some_and(|request| fits(&request))
    }

    /// The changes as a fix; `None` where they change nothing for the better.
    fn fix(&self, kinds: &[Kind], changes: Vec<Change>) -> Option<Fix> {
        let request = self.request(&changes)?;
        let step_time_ratio = step_time_ratio(&self.before.request, &request);
        let after = plan(request).ok()?;
        let saves_bytes = self.before.peak.device_used_bytes.saturating_sub(after.peak.device_used_bytes);
        if saves_bytes < self.before.peak.device_used_bytes / NOTEWORTHY && !after.fits {
            return None;
        }
        Some(Fix {
            kinds: kinds.to_vec(),
            changes,
            saves_bytes,
            fits: after.fits,
            headroom_bytes: after.headroom_bytes,
            step_time_ratio,
        })
    }

    /// The smallest card on which the run fits as it is.
    fn smallest_card(&self) -> Option<&'static Device> {
        let mut cards: Vec<&'static Device> = Vec::new();
        for card in devices() {
            let at = cards.partition_point(|smaller| smaller.total_bytes <= card.total_bytes);
            cards.insert(at, card);
        }
        // What it needs here, it needs there, but for a few kernels of other generations.
        let need_bytes = self.before.peak.max_reserved_bytes;
        cards.into_iter().filter(|card| card.total_bytes > need_bytes).take(MAX_CARDS_TRIED).find(|card| {
            let options = Options { gpu: card.name.to_string(), vram_bytes: None, ..self.options.clone() };
            resolve_settings(self.settings.clone(), &options).request.is_some_and(|request| fits(&request))
        })
    }
}
