//! A metric over a range of time: history as it was fetched, and what came live since, in one drawing.

use std::collections::VecDeque;

use headroom_shared::protocol::history::History;

use super::{
    card::{SECOND_MS, Second},
    spark,
};

/// Columns of a drawing.
pub const COLUMNS: usize = 600;
/// Height of a drawing.
pub const HEIGHT: f64 = 100.0;

/// From when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// From here.
    pub from_ms: u64,
    /// Up to here.
    pub to_ms: u64,
}

impl Range {
    /// Its length.
    pub const fn span_ms(self) -> u64 {
        self.to_ms.saturating_sub(self.from_ms)
    }
}

/// Least, mean and greatest of a column.
pub type Column = Option<[f64; 3]>;

/// A metric's columns over a range. `metric` is its place in the protocol's list.
pub fn columns(history: Option<&History>, hour: Option<&VecDeque<Second>>, metric: usize, range: Range) -> Vec<Column> {
    let mut cells = vec![Cell::default(); COLUMNS];
    let mut end_ms = 0;
    if let Some((history, series)) = history.and_then(|history| Some((history, history.series.get(metric)?))) {
        for (at, time_ms) in history.times_ms.iter().enumerate() {
            let value = |values: &[Option<f64>]| values.get(at).copied().flatten();
            if let (Some(min), Some(mean), Some(max)) = (value(&series.min), value(&series.mean), value(&series.max)) {
                put(&mut cells, range, *time_ms, history.step_ms, [min, mean, max]);
            }
            end_ms = time_ms.saturating_add(history.step_ms);
        }
    }
    for second in hour.into_iter().flatten().filter(|second| second.time_ms >= end_ms) {
        if let Some(all) = second.parts.get(metric).and_then(super::card::Part::all) {
            put(&mut cells, range, second.time_ms, SECOND_MS, all.map(f64::from));
        }
    }
    cells.iter().map(Cell::column).collect()
}

#[derive(Clone, Copy)]
struct Cell {
    min: f64,
    sum: f64,
    max: f64,
    n: u32,
}

impl Default for Cell {
    fn default() -> Self {
        Self { min: f64::INFINITY, sum: 0.0, max: f64::NEG_INFINITY, n: 0 }
    }
}

impl Cell {
    fn column(&self) -> Column {
        (self.n > 0).then(|| [self.min, self.sum / f64::from(self.n), self.max])
    }
}

/// A point covers every column that its time touches, so that coarse points leave no gaps.
fn put(cells: &mut [Cell], range: Range, time_ms: u64, step_ms: u64, [min, mean, max]: [f64; 3]) {
    let end_ms = time_ms.saturating_add(step_ms.max(1));
    if end_ms <= range.from_ms || time_ms >= range.to_ms {
        return;
    }
    let column = |time_ms: u64| {
        let within = time_ms.saturating_sub(range.from_ms).saturating_mul(COLUMNS as u64);
        usize::try_from(within / range.span_ms().max(1)).unwrap_or(COLUMNS).min(COLUMNS - 1)
    };
    for cell in &mut cells[column(time_ms)..=column(end_ms - 1)] {
        cell.min = cell.min.min(min);
        cell.max = cell.max.max(max);
        cell.sum += mean;
        cell.n += 1;
    }
}

/// A drawing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// The mean, as a path.
    pub line: String,
    /// From the least to the greatest, as a path.
    pub band: String,
    /// The value at the upper end.
    pub top: f64,
}

/// Draws columns. `top` is what the upper end is at least: a card's memory, a hundred percent.
pub fn plot(columns: &[Column], top: f64) -> Plot {
    let greatest = columns.iter().flatten().map(|column| column[2]).fold(0.0, f64::max);
    let top = if greatest > top { nice(greatest) } else { top };
    let line = spark::line(columns.iter().map(|column| column.map(|column| column[1])), top, HEIGHT);
    let mut band = String::new();
    let mut start = 0;
    while start < columns.len() {
        let end = (start..columns.len()).find(|at| columns[*at].is_none()).unwrap_or(columns.len());
        if end > start {
            for (letter, (x, value)) in
                (start..end).map(|at| (at, 2)).chain((start..end).rev().map(|at| (at, 0))).enumerate().map(
                    |(n, (at, which))| (if n == 0 { 'M' } else { 'L' }, (at, columns[at].map_or(0.0, |c| c[which]))),
                )
            {
                band.push(letter);
                band.push_str(&x.to_string());
                band.push(' ');
                band.push_str(&spark::y_of(value, top, HEIGHT));
            }
            band.push('Z');
        }
        start = end + 1;
    }
    Plot { line, band, top }
}

/// The next number of one digit above, so that the upper end of a chart does not move with every reading.
pub fn nice(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let mut unit = 1.0;
    while unit * 10.0 <= value {
        unit *= 10.0;
    }
    while unit > value {
        unit /= 10.0;
    }
    let rounded = (value / unit).ceil() * unit;
    if rounded.is_finite() { rounded } else { value }
}

#[cfg(test)]
mod tests {
    use headroom_shared::protocol::history::Series;

    use super::*;
    use crate::state::rig::{
        card::Card,
        sample::{T, gpu, sample},
    };

    fn history(from_ms: u64, step_ms: u64, values: &[Option<f64>]) -> History {
        let series = Series { min: values.to_vec(), mean: values.to_vec(), max: values.to_vec() };
        let times_ms = (0..values.len() as u64).map(|at| from_ms + at * step_ms).collect();
        let to_ms = from_ms + values.len() as u64 * step_ms;
        History { gpu: "GPU-0".into(), from_ms, to_ms, step_ms, times_ms, series: vec![series; 7] }
    }

    #[test]
    fn live_seconds_go_on_where_history_ends_and_nothing_is_drawn_twice() {
        let range = Range { from_ms: T, to_ms: T + 600_000 };
        let past = history(T, 10_000, &[Some(10.0); 30]);
        let mut card = Card::new(gpu(0));
        for second in 250..400 {
            card.take(T + second * 1000, &sample(0, 90));
        }
        let columns = columns(Some(&past), Some(&card.hour), 1, range);
        assert_eq!(columns[299], Some([10.0; 3]), "history's own");
        assert_eq!(columns[300], Some([90.0; 3]), "live");
        assert_eq!((columns[399], columns[400]), (Some([90.0; 3]), None));
    }

    #[test]
    fn coarse_points_leave_no_gaps_and_missing_ones_do() {
        let range = Range { from_ms: T, to_ms: T + 600_000 };
        let past = history(T, 60_000, &[Some(1.0), None, Some(3.0)]);
        let columns = columns(Some(&past), None, 0, range);
        assert!(columns[..60].iter().all(Option::is_some) && columns[60..120].iter().all(Option::is_none));
        let plot = plot(&columns, 2.0);
        assert_eq!(plot.band.matches('Z').count(), 2);
        assert_eq!(plot.line.matches('M').count(), 2);
        assert!((plot.top - 3.0).abs() < 1e-9);
    }

    #[test]
    fn many_points_of_a_column_keep_their_least_and_greatest() {
        let range = Range { from_ms: T, to_ms: T + 600 };
        let past = history(T, 1, &(0..600).map(|at| Some(f64::from(at % 10))).collect::<Vec<_>>());
        let all = columns(Some(&past), None, 0, Range { to_ms: T + 6000, ..range });
        assert_eq!(all[0], Some([0.0, 4.5, 9.0]));
        assert_eq!(plot(&all, 9.0).line.matches('L').count(), 59);
    }

    #[test]
    fn no_range_and_no_history_is_too_strange() {
        let empty = Range { from_ms: T, to_ms: T };
        let past = history(T, 0, &[Some(f64::MAX)]);
        for range in [empty, Range { from_ms: 0, to_ms: u64::MAX }, Range { from_ms: T, to_ms: 0 }] {
            let columns = columns(Some(&past), None, 0, range);
            assert!(plot(&columns, 0.0).top.is_finite());
        }
        assert!(columns(Some(&past), None, 99, empty).iter().all(Option::is_none));
    }

    #[test]
    fn the_upper_end_is_a_number_of_one_digit() {
        for (value, expected) in [(183.0, 200.0), (200.0, 200.0), (0.13, 0.2), (0.0, 1.0), (f64::NAN, 1.0)] {
            assert!((nice(value) - expected).abs() < 1e-9, "{value}: {}", nice(value));
        }
    }
}
