//! The line of a loss curve, thinned to the columns of the drawing.

use super::{
    loss_axis::IterAxis,
    losses::Point,
    path::{Path, stroke},
};

/// A column's first, minimum, maximum and last points, in their order. Points without a number end a stretch.
pub(super) fn thinned(points: &[Point], axis: &IterAxis, n_columns: usize) -> Vec<Point> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the columns")]
    let column = |point: &Point| (axis.x(point.iter) * n_columns as f64) as u64;
    let mut out = Vec::new();
    for column in points.chunk_by(|a, b| column(a) == column(b)) {
        let numbers = || column.iter().enumerate().filter_map(|(index, point)| Some((index, point.loss?)));
        let least = numbers().min_by(|a, b| a.1.total_cmp(&b.1)).map(|found| found.0);
        let greatest = numbers().max_by(|a, b| a.1.total_cmp(&b.1)).map(|found| found.0);
        let mut kept = [Some(0), least, greatest, Some(column.len() - 1)];
        kept.sort_unstable();
        let mut before = None;
        for index in kept.into_iter().flatten() {
            if before != Some(index) {
                out.push(column[index]);
            }
            before = Some(index);
        }
    }
    out
}

/// A line through points, with a gap at points without a number.
pub(super) fn drawn(points: &[Point], at: impl Fn(u64, f64) -> (i64, i64)) -> String {
    let mut path = Path::default();
    for stretch in points.split(|point| point.loss.is_none()) {
        let stretch: Vec<(i64, i64)> = stretch.iter().filter_map(|point| Some(at(point.iter, point.loss?))).collect();
        stroke(&mut path, &stretch);
    }
    path.text()
}
