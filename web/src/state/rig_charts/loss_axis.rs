//! The axes of the loss chart. The vertical axis is linear or logarithmic, whichever shows more. The horizontal one has
//! iterations, up to the planned end of the run.

use super::scale::{Scale, number, round_step};
use crate::text;

/// The ratio of losses from which the axis is logarithmic. From scratch to a good model it is about four. A linear axis
/// would spend most of its height on the first few hundred iterations.
const LOG_RATIO: f64 = 3.0;
/// The margin above and below the curve, as a share of its span.
const ROOM_SHARE: f64 = 0.05;
/// The most logarithmic levels. Only the powers of ten of a very wide range can exceed it.
const LOG_LEVELS_MAX: usize = 7;
/// The axis reaches to the planned end of the run once this share of it is done; before, the curve would be too small.
const WHOLE_SHARE: f64 = 0.2;
/// The width of an iteration's label in pixels, with its margin.
const TICK_PX: f64 = 84.0;
/// The most ticks.
const TICKS_MAX: f64 = 12.0;

/// The vertical axis.
#[derive(Clone, Debug, PartialEq)]
pub struct LossScale {
    /// Whether it is logarithmic.
    pub is_log: bool,
    /// Its ends, or their logarithms, and its levels.
    scale: Scale,
}

impl LossScale {
    /// The axis for losses between two values.
    pub fn new(low: f64, high: f64) -> Self {
        if low > 0.0 && high / low >= LOG_RATIO {
            let room = (high / low).ln() * ROOM_SHARE;
            let mut scale = Scale { low: low.ln() - room, high: high.ln() + room, levels: vec![] };
            scale.levels = log_levels(&scale);
            return Self { is_log: true, scale };
        }
        let room = (high - low) * ROOM_SHARE;
        Self { is_log: false, scale: Scale::new(low - room, high + room, 1.0) }
    }

    /// Grid lines: share of the height from the top, and the label.
    pub fn levels(&self) -> &[(f64, String)] {
        &self.scale.levels
    }

    /// The position of a loss, as a share of the height from the top.
    pub fn y(&self, loss: f64) -> f64 {
        self.scale.y(if self.is_log { loss.ln() } else { loss })
    }
}

fn log_levels(scale: &Scale) -> Vec<(f64, String)> {
    let of = |factors: &[f64]| {
        let mut levels = Vec::new();
        let mut power = 1e-9;
        // From a billionth to a billion billions.
        for exponent in -9..=18_i32 {
            for factor in factors {
                let level: f64 = factor * power;
                let y = scale.y(level.ln());
                if (0.0..=1.0).contains(&y) {
                    levels.push((y, number(level, u32::try_from(-exponent).unwrap_or(0))));
                }
            }
            power *= 10.0;
        }
        levels
    };
    let choices: [&[f64]; 4] = [&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0], &[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 5.0], &[1.0]];
    let mut levels = Vec::new();
    for factors in choices {
        levels = of(factors);
        if levels.len() <= LOG_LEVELS_MAX {
            break;
        }
    }
    levels
}

/// The axis of iterations.
#[derive(Clone, Debug, PartialEq)]
pub struct IterAxis {
    /// The first iteration.
    pub from: u64,
    /// The last iteration, after the first.
    pub to: u64,
}

impl IterAxis {
    /// The axis for a run with known iterations from `oldest` to `newest` and a planned end.
    pub fn new(oldest: u64, newest: u64, max_iters: Option<u64>) -> Self {
        let to = match max_iters {
            Some(max_iters) if max_iters > newest && (newest as f64) < max_iters as f64 * WHOLE_SHARE => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a round number of iterations"
                )]
                let round = round_step(newest as f64).0 as u64;
                round.clamp(newest, max_iters)
            }
            Some(max_iters) => max_iters.max(newest),
            None => newest,
        };
        // A run known from its start begins at the edge.
        let from = if oldest as f64 <= to as f64 / 20.0 { 0 } else { oldest };
        Self { from, to: to.max(from.saturating_add(1)) }
    }

    /// The position of an iteration, as a share of the width.
    pub fn x(&self, iter: u64) -> f64 {
        iter.saturating_sub(self.from) as f64 / self.span()
    }

    /// The iteration at a share of the width.
    pub fn at(&self, share: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the axis, never negative"
        )]
        let iters = (share.clamp(0.0, 1.0) * self.span()).round() as u64;
        self.from.saturating_add(iters)
    }

    fn span(&self) -> f64 {
        self.to.saturating_sub(self.from).max(1) as f64
    }

    /// Round iterations on the axis: share of the width, and the label.
    pub fn ticks(&self, width_px: f64) -> Vec<(f64, String)> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; NaN becomes 0")]
        let n_max = ((width_px / TICK_PX).clamp(0.0, TICKS_MAX) as u64).max(2);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a round number, at least one")]
        let step = (round_step(self.span() / n_max as f64).0 as u64).max(1);
        let first = self.from.div_ceil(step);
        let mut ticks = Vec::new();
        // The step keeps them few; the bound holds despite rounding errors.
        for index in 0..=n_max + 1 {
            let iter = first.saturating_add(index).saturating_mul(step);
            if iter > self.to {
                break;
            }
            ticks.push((self.x(iter), text::table().grouped(iter)));
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(levels: &[(f64, String)]) -> Vec<&str> {
        levels.iter().map(|(_, words)| words.as_str()).collect()
    }

    #[test]
    fn a_late_run_is_linear_and_one_from_scratch_is_logarithmic() {
        let late = LossScale::new(2.9, 4.1);
        assert!(!late.is_log);
        assert_eq!(words(late.levels()), ["3.0", "3.5", "4.0"]);
        let scratch = LossScale::new(2.9, 10.9);
        assert!(scratch.is_log);
        assert_eq!(words(scratch.levels()), ["3", "4", "5", "6", "8", "10"]);
        let overfitted = LossScale::new(0.05, 4.2);
        assert!(overfitted.is_log);
        assert_eq!(words(overfitted.levels()), ["0.05", "0.1", "0.2", "0.5", "1", "2", "5"]);
        assert!((overfitted.y(0.05) - overfitted.y(0.5) - (overfitted.y(0.4) - overfitted.y(4.0))).abs() < 1e-9);
        let wide = LossScale::new(1e-4, 1e5);
        assert!(words(wide.levels()).len() <= 10, "{wide:?}");
        assert!(!LossScale::new(-1.0, 50.0).is_log, "there is no logarithm");
        assert!(!LossScale::new(0.0, 50.0).is_log);
    }

    #[test]
    fn the_axis_ends_where_the_run_does_once_there_is_something_to_see() {
        for (newest, max_iters, to) in [
            (1200, Some(600_000), 2000),
            (119_000, Some(600_000), 200_000),
            (120_000, Some(600_000), 600_000),
            (600_000, Some(600_000), 600_000),
            // A run past its planned end, as after an extension.
            (700_000, Some(600_000), 700_000),
            (1200, None, 1200),
            (0, None, 1),
            (0, Some(5000), 1),
        ] {
            let axis = IterAxis::new(0, newest, max_iters);
            assert_eq!((axis.from, axis.to), (0, to), "{newest} of {max_iters:?}");
        }
        assert_eq!(IterAxis::new(100_000, 110_000, None), IterAxis { from: 100_000, to: 110_000 });
    }

    #[test]
    fn iterations_have_round_ticks() {
        assert_eq!(words(&IterAxis { from: 0, to: 600_000 }.ticks(360.0)), ["0", "200,000", "400,000", "600,000"]);
        assert_eq!(words(&IterAxis { from: 0, to: 1 }.ticks(f64::NAN)), ["0", "1"]);
    }

    proptest! {
        #[test]
        fn axes_hold_what_they_are_for(a in -1e6..1e6_f64, b in -1e6..1e6_f64) {
            let (low, high) = (a.min(b), a.max(b));
            let scale = LossScale::new(low, high);
            prop_assert!(scale.levels().len() <= 30);
            prop_assert!((-1e-9..=1.0).contains(&scale.y(high)) && (0.0..=1.000_001).contains(&scale.y(low)), "{:?}", scale);
        }

        #[test]
        fn iterations_lie_within_their_axis(oldest: u64, more: u64, max_iters: Option<u64>, width_px in -1.0..5000.0) {
            let newest = oldest.saturating_add(more);
            let axis = IterAxis::new(oldest, newest, max_iters);
            prop_assert!(axis.from <= oldest && newest <= axis.to || newest == u64::MAX, "{:?}", axis);
            prop_assert!((0.0..=1.0).contains(&axis.x(newest)));
            prop_assert!(axis.ticks(width_px).len() <= 15);
        }
    }
}
