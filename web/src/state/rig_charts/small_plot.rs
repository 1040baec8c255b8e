//! A small drawing of another printed value, the learning rate or the gradient norm. It is below the losses and shares
//! their axis.

use super::{
    loss_axis::{IterAxis, LossScale},
    loss_line::{drawn, thinned},
    losses::Point,
    path::{units_x, units_y},
    scale::{Scale, figure},
};

/// The drawing, and the range of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct SmallPlot {
    /// The line.
    pub line: String,
    /// The minimum and the maximum.
    pub ends: [String; 2],
}

impl SmallPlot {
    /// Draws points on an axis in `n_columns` columns, from zero or with the scale of losses; `None` without a value.
    pub fn of(points: &[Point], axis: &IterAxis, n_columns: usize, is_from_zero: bool) -> Option<Self> {
        let values = || points.iter().filter_map(|point| point.loss);
        let (low, high) = (values().min_by(f64::total_cmp)?, values().max_by(f64::total_cmp)?);
        // The margin keeps the maximum below the top edge.
        let linear = Scale { low: low.min(0.0), high: high * 1.1 + f64::MIN_POSITIVE, levels: vec![] };
        let scale = LossScale::new(low, high);
        let y = |value| if is_from_zero { linear.y(value) } else { scale.y(value) };
        let line = drawn(&thinned(points, axis, n_columns), |iter, value| (units_x(axis.x(iter)), units_y(y(value))));
        Some(Self { line, ends: [figure(low), figure(high)] })
    }
}

/// The value of the point nearest to a share of the axis; the newest value without a share.
pub fn value_at(points: &[Point], axis: &IterAxis, share: Option<f64>) -> Option<String> {
    let near = |point: &&Point| share.map_or(u64::MAX - point.iter, |share| point.iter.abs_diff(axis.at(share)));
    points.iter().filter(|point| point.loss.is_some()).min_by_key(near)?.loss.map(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXIS: IterAxis = IterAxis { from: 0, to: 100 };

    fn points(values: &[Option<f64>]) -> Vec<Point> {
        values.iter().enumerate().map(|(iter, loss)| Point { iter: iter as u64 * 10, loss: *loss }).collect()
    }

    #[test]
    fn a_rate_is_drawn_from_zero_and_says_its_ends() {
        let rates = points(&[Some(0.0), Some(3e-4), None, Some(6e-4), Some(6e-5)]);
        let plot = SmallPlot::of(&rates, &AXIS, 100, true).expect("there are values");
        assert_eq!(plot.ends, ["0", "6e-4"]);
        assert!(plot.line.starts_with("M0 1000L400 "), "{}", plot.line);
        assert_eq!(plot.line.matches('M').count(), 2, "a gap: {}", plot.line);
        assert_eq!(value_at(&rates, &AXIS, Some(0.12)).as_deref(), Some("3e-4"));
        assert_eq!(value_at(&rates, &AXIS, Some(0.2)).as_deref(), Some("3e-4"), "where there is a number");
        assert_eq!(value_at(&rates, &AXIS, None).as_deref(), Some("6e-5"), "the newest");
    }

    #[test]
    fn empty_series_is_not_drawn_and_constant_series_is() {
        assert_eq!(SmallPlot::of(&[], &AXIS, 100, true), None);
        assert_eq!(SmallPlot::of(&points(&[None]), &AXIS, 100, false), None);
        for value in [0.0, 1.0] {
            for is_from_zero in [true, false] {
                let plot = SmallPlot::of(&points(&[Some(value); 3]), &AXIS, 100, is_from_zero).expect("values");
                assert!(plot.line.starts_with('M'), "{plot:?}");
            }
        }
    }
}
