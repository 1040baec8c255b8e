//! The drawing of losses: a thin line of the iterations, evaluations as lines with dots, and marks for losses that are
//! not finite.

use super::{
    loss_axis::{IterAxis, LossScale},
    loss_line::{drawn, thinned},
    losses::{Evaluation, Losses, Point, words},
    path::{Path, stroke, units_x, units_y},
    small_plot::SmallPlot,
};
use crate::text::{self, Text};

/// The bounds on a plot's columns, whatever its width.
const COLUMNS: [usize; 2] = [30, 1000];
/// Pixels per column. A column has at most four points: its first, minimum, maximum and last.
const PX_PER_COLUMN: f64 = 2.0;
/// The most evaluations with dots; more would merge into a line.
const DOTS_MAX: usize = 60;
/// The most marks, enough to show that a run does not recover.
const MARKS_MAX: usize = 24;
/// The window of the smoothed line: the reciprocal share of the points, and the fewest points.
const SMOOTH_SHARE: usize = 50;
const SMOOTH_MIN: usize = 10;

/// A run drawn behind the shown one.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedCurve {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its losses.
    pub losses: Losses,
}

/// Everything that the chart draws.
#[derive(Clone, Debug, PartialEq)]
pub struct LossPlot {
    /// The losses of the iterations.
    pub iterations: String,
    /// Their exponential mean and its weight of earlier values; `None` unless requested and available for several
    /// points.
    pub smooth: Option<(String, f64)>,
    /// Evaluations on the training and on the validation data: a line each.
    pub evaluations: [String; 2],
    /// Dots of both, and of a single iteration's loss, which has no line.
    pub dots: [String; 3],
    /// The compared runs: the iterations' losses, smoothed if requested, and the evaluations on validation data.
    pub others: Vec<[String; 2]>,
    /// Learning rate and gradient norm, if the run prints them.
    pub besides: [Option<SmallPlot>; 2],
    /// The positions of losses that are not finite, as shares of the width.
    pub marks: Vec<f64>,
    /// The vertical axis.
    pub scale: LossScale,
    /// Its grid lines: share of the height from the top, and the label.
    pub levels: Vec<(f64, String)>,
    /// Iterations along the bottom: share of the width, and the label.
    pub ticks: Vec<(f64, String)>,
    /// The axis of iterations.
    pub axis: IterAxis,
    /// Whether the chart is empty.
    pub is_empty: bool,
}

impl LossPlot {
    /// Draws losses on a plot of `width_px` pixels in front of those of other runs, with a smoothed line if requested.
    pub fn of(losses: &Losses, others: &[ComparedCurve], width_px: f64, is_smooth: bool) -> Self {
        let (iterations, evaluations) = (losses.iterations(), losses.evaluations());
        let all = || others.iter().map(|other| &other.losses).chain([losses]);
        let oldest = all().filter_map(oldest).min().unwrap_or(0);
        let newest = all().filter_map(Losses::newest).max();
        let axis = IterAxis::new(oldest, newest.unwrap_or(0), losses.max_iters);
        let printed = all().flat_map(Losses::iterations).filter_map(|point| point.loss);
        let evaluated = all().flat_map(Losses::evaluations).flat_map(|found| [found.train, found.val]).flatten();
        let ends = printed.chain(evaluated).fold(None, |ends: Option<(f64, f64)>, loss| {
            let (low, high) = ends.unwrap_or((loss, loss));
            Some((low.min(loss), high.max(loss)))
        });
        let (low, high) = ends.unwrap_or((0.0, 1.0));
        let scale = LossScale::new(low, high);
        let at = |iter: u64, loss: f64| (units_x(axis.x(iter)), units_y(scale.y(loss)));
        let curve = |evaluations: &[Evaluation], of: fn(&Evaluation) -> Option<f64>| -> Vec<(i64, i64)> {
            evaluations.iter().filter_map(|evaluation| Some(at(evaluation.iter, of(evaluation)?))).collect()
        };
        let val: fn(&Evaluation) -> Option<f64> = |evaluation| evaluation.val;
        let curves = [curve(evaluations, |evaluation| evaluation.train), curve(evaluations, val)];
        let alone = if let [Point { iter, loss: Some(loss) }] = iterations { vec![at(*iter, *loss)] } else { vec![] };
        let dotted = |points: &Vec<(i64, i64)>| if points.len() <= DOTS_MAX { dots(points) } else { String::new() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let n_columns = (width_px / PX_PER_COLUMN).clamp(COLUMNS[0] as f64, COLUMNS[1] as f64) as usize;
        let line = |points: &[Point]| drawn(&thinned(points, &axis, n_columns), at);
        let behind = |other: &ComparedCurve| {
            let printed = other.losses.iterations();
            let smooth = is_smooth.then(|| smoothed(printed)).flatten();
            [
                line(smooth.as_ref().map_or(printed, |(points, _)| points)),
                through(&curve(other.losses.evaluations(), val)),
            ]
        };
        Self {
            others: others.iter().map(behind).collect(),
            iterations: line(iterations),
            smooth: is_smooth.then(|| smoothed(iterations)).flatten().map(|(points, weight)| (line(&points), weight)),
            besides: [0, 1].map(|at| SmallPlot::of(&losses.besides()[at], &axis, n_columns, at == 0)),
            dots: [&curves[0], &curves[1], &alone].map(dotted),
            evaluations: curves.map(|points| through(&points)),
            marks: marks(iterations, &axis),
            // Without data the axis has no range.
            ticks: if newest.is_some() { axis.ticks(width_px) } else { vec![] },
            levels: if ends.is_some() { scale.levels().to_vec() } else { vec![] },
            is_empty: newest.is_none(),
            scale,
            axis,
        }
    }
}

/// The first iteration with data.
fn oldest(losses: &Losses) -> Option<u64> {
    let firsts =
        [losses.iterations().first().map(|point| point.iter), losses.evaluations().first().map(|found| found.iter)];
    firsts.into_iter().flatten().min()
}

fn through(points: &[(i64, i64)]) -> String {
    let mut path = Path::default();
    stroke(&mut path, points);
    path.text()
}

/// Strokes without length, which round caps turn into dots.
fn dots(points: &[(i64, i64)]) -> String {
    let mut path = Path::default();
    for point in points {
        path.begin(*point);
        path.to(*point);
    }
    path.text()
}

/// The exponential mean at each point, as in TensorBoard, and its weight of earlier values. The mean starts at zero and
/// is corrected for that bias, so that the first point has its printed value. `None` for fewer than two points.
fn smoothed(points: &[Point]) -> Option<(Vec<Point>, f64)> {
    let weight = 1.0 - 1.0 / (points.len() / SMOOTH_SHARE).max(SMOOTH_MIN) as f64;
    let (mut mean, mut lacks) = (0.0, 1.0);
    let mut at = |point: &Point| {
        // A point without a number is a gap and does not enter the mean.
        let loss = point.loss.map(|loss| {
            mean = mean * weight + loss * (1.0 - weight);
            lacks *= weight;
            mean / (1.0 - lacks)
        });
        Point { iter: point.iter, loss }
    };
    (points.len() > 1).then(|| (points.iter().map(&mut at).collect(), weight))
}

/// The positions of losses that are not finite; adjacent ones are merged.
fn marks(points: &[Point], axis: &IterAxis) -> Vec<f64> {
    let apart = 1.0 / MARKS_MAX as f64;
    let mut marks: Vec<f64> = Vec::new();
    for point in points.iter().filter(|point| point.loss.is_none()) {
        let x = axis.x(point.iter);
        if marks.last().is_none_or(|last| x - last >= apart) {
            marks.push(x);
        }
    }
    marks
}

/// The data at a share of the axis: its own share, and the words.
pub fn reading(losses: &Losses, axis: &IterAxis, share: f64) -> Option<(f64, Vec<Text>)> {
    let iter = axis.at(share);
    let near = |of: u64| of.abs_diff(iter);
    let point = losses.iterations().iter().min_by_key(|point| near(point.iter));
    let evaluation = losses.evaluations().iter().min_by_key(|evaluation| near(evaluation.iter));
    let shown = point.map_or_else(|| evaluation.map(|evaluation| evaluation.iter), |point| Some(point.iter))?;
    // The last evaluation up to that iteration, for comparison.
    let until = losses.evaluations().partition_point(|evaluation| evaluation.iter <= shown);
    let mut said = Vec::new();
    said.extend(point.map(|point| text::losses_now(text::count(point.iter), words(point.loss))));
    said.extend(until.checked_sub(1).and_then(|index| losses.evaluations().get(index)).map(|evaluation| {
        text::losses_evaluated(text::count(evaluation.iter), words(evaluation.train), words(evaluation.val))
    }));
    Some((axis.x(shown), said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(points: impl IntoIterator<Item = (u64, Option<f64>)>) -> Losses {
        let mut losses = Losses::default();
        for (iter, loss) in points {
            losses.take_iteration(iter, loss);
        }
        losses
    }

    fn n_points(path: &str) -> usize {
        path.matches(['M', 'L']).count()
    }

    #[test]
    fn a_spike_between_two_pixels_is_drawn() {
        let losses = of((0..4000).map(|iter| (iter, Some(if iter == 2345 { 9.0 } else { 3.0 }))));
        let plot = LossPlot::of(&losses, &[], 100.0, false);
        let top = units_y(plot.scale.y(9.0));
        assert!(plot.iterations.contains(&format!("L{} {top}", units_x(plot.axis.x(2345)))), "{}", plot.iterations);
        assert!(n_points(&plot.iterations) <= 4 * 51, "{}", n_points(&plot.iterations));
        assert_eq!(plot.smooth, None, "smoothing is off");
    }

    #[test]
    fn a_loss_that_is_no_number_is_a_mark_and_a_gap() {
        let losses = of((0..100).map(|iter| (iter, (iter != 50).then_some(3.0))));
        let plot = LossPlot::of(&losses, &[], 4000.0, false);
        assert_eq!(plot.iterations.matches('M').count(), 2);
        assert_eq!(plot.marks.len(), 1);
        assert!((plot.marks[0] - 50.0 / 99.0).abs() < 1e-9);
        let lost = of((0..10_000).map(|iter| (iter, (iter < 10).then_some(3.0))));
        assert!((2..=MARKS_MAX + 1).contains(&LossPlot::of(&lost, &[], 400.0, false).marks.len()));
    }

    #[test]
    fn a_smoothed_line_says_how_smooth_it_is() {
        let losses = of((0..1000).map(|iter| (iter, Some(3.0 + (iter % 2) as f64))));
        let (path, weight) = LossPlot::of(&losses, &[], 4000.0, true).smooth.expect("there are enough");
        assert!((weight - 0.95).abs() < 1e-12, "{weight}");
        let (points, _) = smoothed(losses.iterations()).expect("there are enough");
        assert!(points[200..].iter().all(|point| (point.loss.unwrap() - 3.5).abs() < 0.03), "half of each");
        assert!(!path.is_empty());
        assert_eq!(LossPlot::of(&of([(0, Some(3.0))]), &[], 400.0, true).smooth, None);
    }

    #[test]
    fn a_smoothed_line_begins_where_the_first_loss_was_and_leaves_out_what_is_no_number() {
        let losses = of([(0, Some(4.0)), (1, Some(2.0)), (2, None), (3, Some(2.0))]);
        let (points, weight) = smoothed(losses.iterations()).expect("several");
        assert!((weight - 0.9).abs() < 1e-12, "{weight}");
        // (0.9 · 0.1 · 4 + 0.1 · 2) / (1 − 0.9²), and so on.
        let expected = [Some(4.0), Some(0.56 / 0.19), None, Some(0.704 / 0.271)];
        for (point, expected) in points.iter().zip(expected) {
            assert_eq!(point.loss.is_some(), expected.is_some());
            assert!((point.loss.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs() < 1e-9, "{point:?} {expected:?}");
        }
    }

    #[test]
    fn evaluations_have_dots_while_they_are_few() {
        let mut losses = Losses::default();
        for iter in 0..10 {
            losses.take_evaluation(iter * 250, Some(3.0), (iter > 0).then_some(3.1));
        }
        let plot = LossPlot::of(&losses, &[], 400.0, false);
        assert_eq!(plot.dots.each_ref().map(|dots| dots.matches('M').count()), [10, 9, 0]);
        assert_eq!(plot.evaluations.each_ref().map(|line| n_points(line)), [10, 9]);
        for iter in 10..100 {
            losses.take_evaluation(iter * 250, Some(3.0), Some(3.1));
        }
        assert_eq!(LossPlot::of(&losses, &[], 400.0, false).dots, ["", "", ""]);
    }

    #[test]
    fn a_loss_that_was_printed_alone_has_a_dot() {
        let dots = |points: &[(u64, Option<f64>)]| LossPlot::of(&of(points.iter().copied()), &[], 400.0, true).dots;
        let [_, _, alone] = dots(&[(0, Some(10.9))]);
        assert_eq!(alone.matches(['M', 'L']).count(), 2, "{alone}");
        assert_eq!(dots(&[(0, None)]), ["", "", ""]);
        assert_eq!(dots(&[(0, Some(10.9)), (1, Some(10.8))]), ["", "", ""], "a line goes through these");
    }

    #[test]
    fn the_cursor_says_the_iteration_and_the_evaluation_before_it() {
        let mut losses = of([(0, Some(10.9)), (10, Some(9.0)), (20, None)]);
        losses.take_evaluation(0, Some(11.0), Some(11.1));
        losses.take_evaluation(20, Some(8.0), Some(8.1));
        let axis = LossPlot::of(&losses, &[], 400.0, false).axis;
        let (x, said) = reading(&losses, &axis, 0.4).expect("there is one");
        let said: Vec<String> = said.iter().map(ToString::to_string).collect();
        assert!((x - 0.5).abs() < 1e-9);
        assert!(said[0].contains("10") && said[0].contains("9.0000") && said[1].contains("11.1000"), "{said:?}");
        assert_eq!(reading(&Losses::default(), &axis, 0.4), None);
    }

    #[test]
    fn another_run_is_drawn_on_the_same_axes() {
        let mut longer = of((0..2000).map(|iter| (iter, Some(if iter == 1500 { 9.0 } else { 3.0 }))));
        longer.take_evaluation(1000, Some(3.0), Some(4.0));
        let other = ComparedCurve { id: "b".to_owned(), name: "b".to_owned(), losses: longer };
        let own = of((0..1000).map(|iter| (iter, Some(2.0))));
        let plot = LossPlot::of(&own, std::slice::from_ref(&other), 400.0, false);
        assert_eq!(plot.axis.to, 1999, "both are on it");
        let at = |iter, loss| format!("{} {}", units_x(plot.axis.x(iter)), units_y(plot.scale.y(loss)));
        let [[iterations, val]] = &plot.others[..] else { panic!("one other: {:?}", plot.others) };
        assert!(iterations.contains(&at(1500, 9.0)), "its extremes too");
        assert!(plot.iterations.ends_with(&at(999, 2.0)), "{}", plot.iterations);
        assert!(n_points(val) == 2 && n_points(iterations) <= 4 * 201, "{val}");
        let smooth = LossPlot::of(&own, &[other], 400.0, true);
        assert_ne!(smooth.others[0][0], *iterations, "smoothed as its own is");
        assert!(LossPlot::of(&Losses::default(), &[], 400.0, true).is_empty);
    }

    proptest! {
        #[test]
        fn paths_are_bounded_and_the_newest_is_drawn(
            losses in prop::collection::vec(prop::option::weighted(0.95, 1e-3..1e3_f64), 1..600),
            width_px in prop_oneof![Just(f64::NAN), Just(f64::INFINITY), 0.0..600.0],
        ) {
            let newest = losses.last().copied().flatten();
            let n = losses.len() as u64;
            let losses = of(losses.into_iter().enumerate().map(|(iter, loss)| (iter as u64, loss)));
            let plot = LossPlot::of(&losses, &[], width_px, true);
            // Four per column; if each is a stretch of its own, a dash of two.
            prop_assert!(n_points(&plot.iterations) <= 8 * (COLUMNS[1] + 1));
            prop_assert!(width_px.is_nan() || n_points(&plot.iterations) as f64 <= (width_px.max(60.0) / 2.0 + 1.0) * 8.0);
            prop_assert!(plot.marks.len() <= MARKS_MAX + 1);
            if let Some(loss) = newest {
                let y = units_y(plot.scale.y(loss));
                prop_assert!(plot.iterations.ends_with(&format!(" {y}")), "{} of {}", plot.iterations, n);
            }
        }
    }
}
