//! Search for the largest micro-batch that fits, and for larger ones that may fit.
//!
//! Fitting is not monotonic in the batch size: fragmentation can make a size fail although a larger one fits. The
//! search therefore ends by testing the sizes near the memory limit. It starts at one sequence, so that the answer does
//! not depend on the run's own batch size, which is tested as well.

use std::cell::RefCell;

use super::{Adviser, Change, largest};
use crate::plan::{PlanOutcome, outlook};
use headroom_text::{self as text, Text, decimal};

/// Maximum size tested; real batches stay below it.
pub(crate) const MAX_BATCH_SIZE: u64 = 1 << 16;
/// Number of sizes tested one by one above the largest that is certain to fit.
const MAX_NEIGHBOURS: u64 = 16;

/// Number of sizes tested, largest first, above the one that the bisection finds.
const MAX_LARGER: u64 = 256;

/// A size that fails below a size that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The size that fails.
    pub fails: u64,
    /// The larger size that fits.
    pub fits: u64,
    /// Memory that `fits` leaves on the GPU, in bytes.
    pub left_bytes: u64,
}

/// Micro-batch sizes that fit with everything else unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchSizes {
    /// The largest size whose whole band of estimates fits; `None` if one sequence does not fit.
    pub largest: Option<u64>,
    /// Larger sizes that fit by the estimate but not over its whole band, ascending.
    pub may_fit: Vec<u64>,
    /// Fragmentation among the sizes that may fit: a size that fails below one that fits.
    pub gap: Option<Gap>,
}

impl BatchSizes {
    /// The sizes that may fit, as `13, 15` or `201-216`; empty if there are none.
    #[must_use]
    pub fn may_fit_text(&self) -> String {
        let runs = self.may_fit.chunk_by(|a, b| a + 1 == *b);
        let sizes = runs.map(|run| match run {
            [first, _, .., last] => format!("{first}-{last}"),
            few => decimal::list(few),
        });
        sizes.reduce(|list, sizes| list + ", " + &sizes).unwrap_or_default()
    }

    /// Sentences about larger batches: which may fit, and why another does not. Empty if none may fit.
    #[must_use]
    pub fn more(&self) -> Vec<Text> {
        let may_fit = (!self.may_fit.is_empty()).then(|| text::may_fit(self.may_fit_text()));
        let between = |gap: Gap| text::fails_between(gap.fails, gap.fits, text::size(gap.left_bytes));
        may_fit.into_iter().chain(self.gap.map(between)).collect()
    }
}

/// Cached outlooks; each size is simulated once.
struct Looks<'a> {
    look: Box<dyn Fn(u64) -> PlanOutcome + 'a>,
    known: RefCell<Vec<(u64, PlanOutcome)>>,
}

impl Looks<'_> {
    fn at(&self, size: u64) -> PlanOutcome {
        let known = self.known.borrow().iter().find(|(known, _)| *known == size).map(|(_, outlook)| *outlook);
        known.unwrap_or_else(|| {
            let outlook = (self.look)(size);
            self.known.borrow_mut().push((size, outlook));
            outlook
        })
    }

    /// The largest passing size in `low..high`, by bisection; `low` passes and `high` does not.
    fn largest(&self, low: u64, high: u64, passes: impl Fn(PlanOutcome) -> bool) -> u64 {
        largest(low, high, |size| passes(self.at(size)))
    }
}

impl Adviser<'_> {
    /// Outlook of a run with these changes; invalid runs count as [`PlanOutcome::BEYOND`].
    pub(super) fn outlook(&self, changes: &[Change]) -> PlanOutcome {
        self.request(changes).map_or(PlanOutcome::BEYOND, |request| outlook(&request))
    }

    /// The largest micro-batch, and the sizes that may fit.
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
        // From the next size on, the tensors alone exceed the memory, regardless of fragmentation.
        let last = match looks.at(beyond).is_beyond {
            true => looks.largest(beyond / 2, beyond, |outlook| !outlook.is_beyond),
            false => beyond,
        };
        let mut largest = match (looks.at(1).is_certain, looks.at(last).is_certain) {
            (true, false) => looks.largest(1, last, |outlook| outlook.is_certain),
            (_, true) => last,
            (false, false) => 0,
        };
        // The bisection misses sizes that are certain beyond others that are not.
        let step = (last - largest).div_ceil(MAX_LARGER).max(1);
        let own = self.before.request.train.batch_size;
        let larger = (0..MAX_LARGER).map(|n| last.saturating_sub(n * step));
        let larger = larger.take_while(|size| *size > largest).find(|size| looks.at(*size).is_certain);
        largest = larger.unwrap_or(largest);
        if own > largest && own <= last && looks.at(own).is_certain {
            largest = own;
        }
        let above = loop {
            let above = largest + 1..=last.min(largest.saturating_add(MAX_NEIGHBOURS));
            match above.clone().rev().find(|size| looks.at(*size).is_certain) {
                Some(size) => largest = size,
                None => break above,
            }
        };
        let may_fit: Vec<u64> = above.filter(|size| looks.at(*size).fits).collect();
        let gap = may_fit.iter().rev().find_map(|fits| {
            let fails = fits.checked_sub(1).filter(|fails| *fails > largest && !looks.at(*fails).fits)?;
            Some(Gap { fails, fits: *fits, left_bytes: looks.at(*fits).headroom_bytes.unsigned_abs() })
        });
        BatchSizes { largest: (largest > 0).then_some(largest), may_fit, gap }
    }
}
