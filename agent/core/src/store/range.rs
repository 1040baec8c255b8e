//! Readings over a range of time, in points of one width. Each part of the range uses the finest samples that are left.

use headroom_protocol::{
    history::{History, POINTS_MAX, Series},
    metric::Group,
};
use rusqlite::{Connection, Row};

use super::{
    resolution::Resolution,
    samples::{from_sql, gpu_row, to_sql},
    slow::HOST_ROW,
    spans,
};

/// Widths of points. Each is a multiple of the row widths that it is used for.
const STEPS_MS: [u64; 20] = [
    100,
    200,
    500,
    1000,
    2000,
    5000,
    10_000,
    20_000,
    30_000,
    60_000,
    2 * 60_000,
    5 * 60_000,
    10 * 60_000,
    15 * 60_000,
    30 * 60_000,
    HOUR_MS,
    2 * HOUR_MS,
    6 * HOUR_MS,
    12 * HOUR_MS,
    24 * HOUR_MS,
];
const HOUR_MS: u64 = 3_600_000;

/// Statistics of one metric within a point.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    n: f64,
    min: f64,
    mean: f64,
    max: f64,
}

/// A point with its metrics in the order of their group.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    time_ms: u64,
    metrics: Vec<Option<Spread>>,
}

/// The source and the group of the requested readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The group of metrics.
    pub group: Group,
    /// The GPU's UUID; ignored for the machine.
    pub gpu: &'a str,
}

impl Subject<'_> {
    fn row(self, connection: &Connection) -> rusqlite::Result<Option<i64>> {
        match self.group {
            Group::Fast | Group::Slow => gpu_row(connection, self.gpu),
            Group::Host => Ok(Some(HOST_ROW)),
        }
    }
}

/// A part of the range, and the resolution that has its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// The table's resolution.
    resolution: Resolution,
    /// Start, inclusive.
    from_ms: u64,
    /// End, exclusive.
    to_ms: u64,
}

/// Returns the readings over the range in at most `n_points` points; no points for an unknown GPU.
///
/// # Errors
/// SQLite reports an error.
pub fn history(
    connection: &mut Connection,
    subject: Subject<'_>,
    from_ms: u64,
    to_ms: u64,
    n_points: u64,
) -> rusqlite::Result<History> {
    let to_ms = to_ms.max(from_ms);
    // One transaction: concurrent cuts and roll-ups do not show.
    let transaction = connection.transaction()?;
    let group = subject.group;
    let row = subject.row(&transaction)?;
    let parts = match row {
        Some(_) => parts(&transaction, group, from_ms, to_ms)?,
        None => vec![],
    };
    let n_points = n_points.clamp(1, POINTS_MAX);
    let coarsest = parts.iter().map(|part| part.resolution).max_by_key(|resolution| resolution.step_ms(group));
    let coarsest_ms = coarsest.unwrap_or(Resolution::Full).step_ms(group);
    let step_ms = step_ms(from_ms, to_ms, n_points, coarsest_ms);
    let mut points: Vec<Point> = Vec::new();
    for part in &parts {
        for point in read(&transaction, group, row.unwrap_or(0), part, step_ms)? {
            match points.last_mut() {
                // Two adjacent parts share the point at their boundary.
                Some(last) if last.time_ms == point.time_ms => last.merge(&point),
                _ => points.push(point),
            }
        }
    }
    Ok(of_points(subject, (from_ms, to_ms), step_ms, &points))
}

/// Returns the stored rows of the range, oldest first: each part at its own resolution, without aggregation.
///
/// # Errors
/// SQLite reports an error.
pub fn kept(
    connection: &mut Connection,
    subject: Subject<'_>,
    from_ms: u64,
    to_ms: u64,
) -> rusqlite::Result<Vec<History>> {
    let transaction = connection.transaction()?;
    let group = subject.group;
    let Some(row) = subject.row(&transaction)? else { return Ok(vec![]) };
    let mut kept = Vec::new();
    for part in parts(&transaction, group, from_ms, to_ms)? {
        let step_ms = part.resolution.step_ms(group);
        // Full-rate samples remain separate rows, however close they are.
        let width_ms = if part.resolution == Resolution::Full { 1 } else { step_ms };
        let points = read(&transaction, group, row, &part, width_ms)?;
        kept.push(of_points(subject, (part.from_ms, part.to_ms), step_ms, &points));
    }
    Ok(kept)
}

fn of_points(subject: Subject<'_>, (from_ms, to_ms): (u64, u64), step_ms: u64, points: &[Point]) -> History {
    let series = (0..subject.group.metrics().len()).map(|metric| series(points, metric)).collect();
    let times_ms = points.iter().map(|point| point.time_ms).collect();
    History { gpu: subject.gpu.to_owned(), from_ms, to_ms, step_ms, times_ms, series }
}

/// Returns the table for each part of the range, oldest first: the finest one that has lost nothing of that part.
/// Samples that are rolled up but still exist at full rate count once.
///
/// # Errors
/// SQLite reports an error.
fn parts(connection: &Connection, group: Group, from_ms: u64, to_ms: u64) -> rusqlite::Result<Vec<Part>> {
    let spans = spans::all(connection)?;
    let mut parts = Vec::new();
    let mut left = spans::without(std::slice::from_ref(&(from_ms..to_ms)), &[]);
    for resolution in Resolution::ALL {
        let cut_ms = spans::cut_at(connection, resolution, group)?;
        let mut kept = spans::kept(&spans, cut_ms);
        if resolution != Resolution::Minute {
            // If spans overlap, one may be cut at this resolution and the other not. A coarser table has both.
            kept = spans::without(&kept, &spans::cut(&spans, cut_ms));
        }
        let here = spans::within(&left, &kept);
        left = spans::without(&left, &here);
        parts.extend(here.into_iter().map(|range| Part { resolution, from_ms: range.start, to_ms: range.end }));
    }
    parts.sort_by_key(|part| part.from_ms);
    Ok(parts)
}

/// Returns the smallest width that gives at most `n_points` points and is a multiple of the coarsest table's row width.
fn step_ms(from_ms: u64, to_ms: u64, n_points: u64, coarsest_ms: u64) -> u64 {
    let last_ms = to_ms.saturating_sub(1).max(from_ms);
    let fits = |step_ms: &u64| last_ms / step_ms - from_ms / step_ms < n_points;
    let days = (1..u64::BITS).map_while(|power| (24 * HOUR_MS).checked_mul(1 << power));
    let mut steps = STEPS_MS.into_iter().chain(days).filter(|step_ms| step_ms % coarsest_ms == 0);
    // The last width exceeds any time that fits in SQLite's integers.
    steps.find(fits).unwrap_or(u64::MAX)
}

fn read(connection: &Connection, group: Group, gpu: i64, part: &Part, step_ms: u64) -> rusqlite::Result<Vec<Point>> {
    let Part { resolution, from_ms, to_ms } = *part;
    let (table, metrics) = (resolution.table(group), resolution.all_aggregates(group));
    let step_ms = to_sql(step_ms);
    let mut select = connection.prepare(&format!(
        "SELECT time_ms / {step_ms} * {step_ms} AS point, {metrics} FROM {table} \
         WHERE gpu = ?1 AND time_ms >= ?2 AND time_ms < ?3 GROUP BY point ORDER BY point"
    ))?;
    let n_metrics = group.metrics().len();
    select.query_map([gpu, to_sql(from_ms), to_sql(to_ms)], |row| Point::of_row(row, n_metrics))?.collect()
}

impl Point {
    fn of_row(row: &Row<'_>, n_metrics: usize) -> rusqlite::Result<Self> {
        let mut metrics = vec![None; n_metrics];
        for (idx, metric) in metrics.iter_mut().enumerate() {
            let column = |place: usize| row.get::<_, Option<f64>>(1 + 4 * idx + place);
            *metric = match (column(0)?, column(1)?, column(2)?, column(3)?) {
                (Some(n), Some(min), Some(mean), Some(max)) if n > 0.0 => Some(Spread { n, min, mean, max }),
                _ => None,
            };
        }
        Ok(Self { time_ms: from_sql(row.get(0)?), metrics })
    }

    fn merge(&mut self, other: &Self) {
        for (own, other) in self.metrics.iter_mut().zip(&other.metrics) {
            *own = match (*own, *other) {
                (Some(a), Some(b)) => Some(Spread {
                    n: a.n + b.n,
                    min: a.min.min(b.min),
                    mean: (a.mean * a.n + b.mean * b.n) / (a.n + b.n),
                    max: a.max.max(b.max),
                }),
                (a, b) => a.or(b),
            };
        }
    }
}

fn series(points: &[Point], metric: usize) -> Series {
    let of =
        |value: fn(&Spread) -> f64| points.iter().map(|point| point.metrics.get(metric)?.as_ref().map(value)).collect();
    Series { min: of(|spread| spread.min), mean: of(|spread| spread.mean), max: of(|spread| spread.max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_step(from_ms: u64, to_ms: u64, n_points: u64, coarsest_ms: u64, expected_ms: u64) {
        let step_ms = step_ms(from_ms, to_ms, n_points, coarsest_ms);
        assert_eq!(step_ms, expected_ms);
        let n = to_ms.saturating_sub(1).max(from_ms) / step_ms - from_ms / step_ms + 1;
        assert!(n <= n_points, "{n} points");
    }

    #[test]
    fn points_are_as_fine_as_they_may_be() {
        let t = 1_795_000_000_000;
        check_step(t, t + 200_000, 2000, 100, 100);
        check_step(t, t + HOUR_MS, 2000, 100, 2000);
        check_step(t, t + HOUR_MS, 360, 100, 10_000);
        check_step(t, t + HOUR_MS, 2000, 10_000, 10_000);
        check_step(t, t + 24 * HOUR_MS, 2000, 10_000, 60_000);
        check_step(t, t + 24 * HOUR_MS, 200, 10_000, 10 * 60_000);
        check_step(t, t + 30 * 24 * HOUR_MS, 2000, 60_000, 30 * 60_000);
        check_step(t, t, 1, 100, 100);
    }

    #[test]
    fn the_widest_range_is_few_points() {
        let t = 16_384 * 24 * HOUR_MS;
        check_step(t - 1, t + 24 * HOUR_MS, 1, 60_000, 32_768 * 24 * HOUR_MS);
        assert!(step_ms(0, u64::MAX, 1, 60_000) > u64::MAX / 2);
    }
}
