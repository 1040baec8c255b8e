//! The chart's two axes: levels of memory, and the phases and stretches of the run.

use headroom_planner::memory::{program::Phase, timeline::Timeline};
use headroom_text::decimal;

use crate::text::{self, t};

/// A stretch of the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The start, as a share of the width.
    pub start: f64,
    /// The width, as a share of the chart's width.
    pub width: f64,
    /// The label.
    pub label: &'static str,
    /// The label for narrow stretches.
    pub short: &'static str,
    /// The full name.
    pub title: &'static str,
}

/// Powers of ten in GiB, from more memory than any GPU has to less than any model needs.
const MAGNITUDES: [f64; 12] = [1e5, 1e4, 1e3, 1e2, 1e1, 1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6];

/// About six round levels, with their labels.
pub fn levels(top: f64) -> Vec<(f64, String)> {
    let gib = top / (1_u64 << 30) as f64;
    let rough = gib / 6.0;
    // Computing a logarithm would add its code to the page for this use alone.
    let magnitude = MAGNITUDES.into_iter().find(|magnitude| *magnitude <= rough).unwrap_or(rough);
    let step = [1.0, 2.0, 4.0, 5.0, 10.0].map(|s| s * magnitude).into_iter().find(|s| *s >= rough).unwrap_or(rough);
    let mut levels = Vec::new();
    let mut level = 0.0;
    while level < gib && levels.len() < 12 {
        let text = decimal::fixed(level, u32::from(step < 1.0));
        levels.push((1.0 - level / gib, text));
        level += step;
    }
    levels
}

/// Merges adjacent spans of the same name into ticks.
pub fn ticks(timeline: &Timeline, n: usize) -> Vec<Tick> {
    let share = |columns: usize| columns as f64 / n.max(1) as f64;
    let mut ticks: Vec<Tick> = Vec::new();
    for span in &timeline.spans {
        let width = share(span.end - span.start);
        match ticks.last_mut() {
            Some(last) if last.title == t(span.phase.text()) => last.width += width,
            _ => {
                let (label, short) = text::phase_tick(span.phase);
                ticks.push(Tick { start: share(span.start), width, label, short, title: t(span.phase.text()) });
            }
        }
    }
    ticks
}

/// The run divided into train.py's evaluations and iterations.
pub fn stretches(timeline: &Timeline, n: usize) -> Vec<Tick> {
    let share = |columns: usize| columns as f64 / n.max(1) as f64;
    let mut ticks: Vec<Tick> = Vec::new();
    let mut n_iterations = 0;
    let mut before = None;
    for span in &timeline.spans {
        let in_iteration = text::is_in_iteration(span.phase);
        let ended = matches!(before, Some(Phase::FirstOptimizer | Phase::SteadyOptimizer));
        let starts = match before {
            Some(before) => ended || in_iteration != text::is_in_iteration(before) || before == Phase::Init,
            None => true,
        };
        let width = share(span.end - span.start);
        match ticks.last_mut() {
            Some(last) if !starts => last.width += width,
            _ => {
                let (label, short) =
                    if in_iteration { text::iteration(n_iterations) } else { text::stretch(span.phase) };
                n_iterations += usize::from(in_iteration);
                ticks.push(Tick { start: share(span.start), width, label, short, title: label });
            }
        }
        before = Some(span.phase);
    }
    ticks
}

/// Clips ticks of the whole run to a part of it, given in shares of the run.
pub fn clipped(ticks: Vec<Tick>, [start, end]: [f64; 2]) -> Vec<Tick> {
    let scale = (end - start).max(f64::MIN_POSITIVE);
    let clip = |share: f64| ((share - start) / scale).clamp(0.0, 1.0);
    let moved = ticks.into_iter().map(|tick| {
        let (from, to) = (clip(tick.start), clip(tick.start + tick.width));
        Tick { start: from, width: to - from, ..tick }
    });
    moved.filter(|tick| tick.width > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_round_and_few() {
        for gib in [0.3, 1.0, 6.0, 12.4, 25.0, 80.0, 700.0] {
            let levels = levels(gib * (1_u64 << 30) as f64);
            assert!((4..=8).contains(&levels.len()), "{gib}: {levels:?}");
        }
    }
}
