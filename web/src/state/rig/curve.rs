//! A run's losses as paths.

use headroom_shared::decimal;

use super::{
    losses::{Losses, Thinned},
    plot::nice,
};

/// Width of the drawing.
pub const WIDTH: f64 = 600.0;
/// Height of the drawing.
pub const HEIGHT: f64 = 160.0;
/// The share of a run at its beginning that is drawn but does not stretch the drawing: there the loss falls from that of
/// a blind guess, and beside it all that follows would be a flat line.
const BEGINNING: f64 = 0.05;
/// Room above and below the curves, as a share of their range.
const MARGIN: f64 = 0.05;

/// A drawing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// Of single iterations.
    pub iterations: String,
    /// Of evaluations over training data.
    pub train: String,
    /// Of evaluations over the data held back.
    pub val: String,
    /// At the right end.
    pub x_max: f64,
    /// At the lower end.
    pub y_min: f64,
    /// At the upper end.
    pub y_max: f64,
}

/// Draws; nothing where there is nothing.
pub fn curves(losses: &Losses) -> Option<Curves> {
    let all = || [&losses.iterations, &losses.train, &losses.val].into_iter().flat_map(Thinned::points);
    let newest = all().map(|point| point.0).fold(0.0, f64::max);
    let x_max = nice(newest);
    let bounds = |from: f64| {
        let found = all().filter(|point| point.0 >= from).map(|point| point.1);
        found.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| (low.min(y), high.max(y)))
    };
    let (mut y_min, mut y_max) = bounds(newest * BEGINNING);
    if y_min > y_max {
        return None;
    }
    // A flat line stands in the middle.
    let margin = ((y_max - y_min) * MARGIN).max(y_max.abs() * 0.01).max(1e-6);
    (y_min, y_max) = (y_min - margin, y_max + margin);
    let path = |curve: &Thinned| {
        let mut path = String::new();
        for (x, y) in curve.points() {
            path.push(if path.is_empty() { 'M' } else { 'L' });
            path.push_str(&decimal::fixed(x / x_max * WIDTH, 1));
            path.push(' ');
            path.push_str(&decimal::fixed((y_max - y) / (y_max - y_min) * HEIGHT, 1));
        }
        if !path.is_empty() && !path.contains('L') {
            path.push_str("h.1");
        }
        path
    };
    let (iterations, train, val) = (path(&losses.iterations), path(&losses.train), path(&losses.val));
    Some(Curves { iterations, train, val, x_max, y_min, y_max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_share_one_range_and_stay_in_it() {
        let mut losses = Losses::default();
        for n in 0..500_u32 {
            losses.iterations.push(f64::from(n * 10), 11.0 / f64::from(n + 1) + 2.0);
        }
        losses.val.push(0.0, 11.0);
        losses.val.push(2500.0, 2.5);
        let curves = curves(&losses).expect("a drawing");
        assert!((curves.x_max - 5000.0).abs() < 1e-9 && curves.y_min < 2.02);
        assert!(curves.y_max < 5.0, "its beginning does not flatten the rest: {}", curves.y_max);
        assert_eq!((curves.val.matches('L').count(), curves.train.as_str()), (1, ""));
        let numbers = curves.iterations.split(['M', 'L', ' ']).filter_map(decimal::parse);
        assert!(numbers.into_iter().all(|n| (0.0..=WIDTH).contains(&n)));
    }

    #[test]
    fn nothing_printed_is_nothing_drawn_and_one_line_is_a_point() {
        let mut losses = Losses::default();
        assert_eq!(curves(&losses), None);
        losses.iterations.push(0.0, 0.0);
        assert!(curves(&losses).expect("a drawing").iterations.ends_with("h.1"));
    }
}
