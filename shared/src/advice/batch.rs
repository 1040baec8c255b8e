//! The largest micro-batch that fits, and larger ones that may.
//!
//! Whether a batch fits does not follow from a smaller one that does not: sizes that leave the allocator other pieces may
//! fail where a larger one fits. So the search ends by looking at each size near the end of the card. It starts at one
//! sequence, whatever the run has now, so that every run of a model gets the same answer.

use std::cell::RefCell;

use super::{Adviser, Change};
use crate::{
    plan::{Outlook, outlook},
    text::{self, Text},
};

/// Sizes that are looked at; beyond it nobody's batch reaches.
pub(super) const MAX_BATCH_SIZE: u64 = 1 << 16;
/// Most sizes that are looked at one by one, above the largest that bisection finds.
const MAX_NEIGHBOURS: u64 = 16;

/// A size that fails below one that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The size that fails.
    pub fails: u64,
    /// The larger size that fits.
    pub fits: u64,
    /// What that leaves of the card, in bytes.
    pub left_bytes: u64,
}

/// How large a micro-batch fits with everything else unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchSizes {
    /// The largest whose whole band of estimates fits; `None` where not even one sequence does.
    pub largest: Option<u64>,
    /// Larger ones that fit by the estimate and not by the whole of its band, rising.
    pub may_fit: Vec<u64>,
    /// Fragmentation among those that may fit: a size that fails below one that fits.
    pub gap: Option<Gap>,
}

impl BatchSizes {
    /// The sizes that may fit, as `13, 15` or `201–216`; empty where there are none.
    #[must_use]
    pub fn may_fit_text(&self) -> String {
        let runs = self.may_fit.chunk_by(|a, b| a + 1 == *b);
        let said = runs.map(|run| match run {
            [first, _, .., last] => format!("{first}–{last}"),
            few => few.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
        });
        said.collect::<Vec<_>>().join(", ")
    }

    /// What is said of larger batches: which may fit, and why others do not. `None` where none may.
    #[must_use]
    pub fn more_text(&self) -> Option<Text> {
        let may_fit = (!self.may_fit.is_empty()).then(|| text::may_fit(self.may_fit_text()))?;
        Some(match &self.gap {
            Some(gap) => {
                let between = text::fails_between(gap.fails, gap.fits, text::size(gap.left_bytes));
                text::two_sentences(may_fit, between)
            }
            None => may_fit,
        })
    }
}

/// What was looked at: each size is simulated once.
struct Looks<'a> {
    look: Box<dyn Fn(u64) -> Outlook + 'a>,
    known: RefCell<Vec<(u64, Outlook)>>,
}

impl Looks<'_> {
    fn at(&self, size: u64) -> Outlook {
        let known = self.known.borrow().iter().find(|(known, _)| *known == size).map(|(_, outlook)| *outlook);
        known.unwrap_or_else(|| {
            let outlook = (self.look)(size);
            self.known.borrow_mut().push((size, outlook));
            outlook
        })
    }

    /// The largest size from `low` up to below `high` that passes, by bisection; `low` passes and `high` does not.
    fn largest(&self, mut low: u64, mut high: u64, passes: impl Fn(Outlook) -> bool) -> u64 {
        while low + 1 < high {
            let middle = low.midpoint(high);
            if passes(self.at(middle)) { low = middle } else { high = middle }
        }
        low
    }
}

impl Adviser<'_> {
    /// How a run with these changes comes out; one that is no run is beyond any card.
    pub(super) fn outlook(&self, changes: &[Change]) -> Outlook {
        self.request(changes).map_or(Outlook::BEYOND, |request| outlook(&request))
    }

    /// The largest micro-batch, and those that may fit.
    pub(super) fn batch_sizes(&self) -> BatchSizes {
        let looks = Looks {
            look: Box::new(|size| self.outlook(&[Change::count("batch_size", size)])),
            known: RefCell::new(Vec::new()),
        };
        if looks.at(1).is_beyond {
            return BatchSizes::default();
        }
        let mut beyond = 2;
        while beyond < MAX_BATCH_SIZE && !looks.at(beyond).is_beyond {
            beyond *= 2;
        }
        // Tensors alone fill the card from here on, however they lie.
        let last = match looks.at(beyond).is_beyond {
            true => looks.largest(beyond / 2, beyond, |outlook| !outlook.is_beyond),
            false => beyond,
        };
        let mut largest = match (looks.at(1).is_certain, looks.at(last).is_certain) {
            (true, false) => looks.largest(1, last, |outlook| outlook.is_certain),
            (_, true) => last,
            (false, false) => 0,
        };
        let above = largest + 1..=last.min(largest.saturating_add(MAX_NEIGHBOURS));
        largest = above.clone().rev().find(|size| looks.at(*size).is_certain).unwrap_or(largest);
        let above = largest + 1..=*above.end();
        let may_fit: Vec<u64> = above.filter(|size| looks.at(*size).fits).collect();
        let gap = may_fit.iter().rev().find_map(|fits| {
            let fails = fits.checked_sub(1).filter(|fails| *fails > largest && !looks.at(*fails).fits)?;
            Some(Gap { fails, fits: *fits, left_bytes: looks.at(*fits).headroom_bytes.unsigned_abs() })
        });
        BatchSizes { largest: (largest > 0).then_some(largest), may_fit, gap }
    }
}
