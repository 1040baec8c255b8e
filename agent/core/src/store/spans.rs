//! Recorded time: how long agents recorded samples, whatever the wall clock showed.
//!
//! Ages of samples are measured in recorded time. A wrong clock then deletes nothing, and neither does a time without
//! an agent. A [`Span`] is a period of the wall clock without a step. A step of more than [`STEP_MS`] in either
//! direction begins a new span, and so does a start of the agent after a longer pause.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::{
    resolution::floor,
    resolution::{CUT_MS, Resolution},
    samples::{from_sql, to_sql},
};
use headroom_protocol::metric::Group;

/// Step of the wall clock that begins a new span. Smaller steps do not distort ages, and time servers make them.
pub const STEP_MS: u64 = 10 * 60_000;
/// Maximum number of spans, and so of clock steps within the retention period. Beyond it, the oldest span is deleted
/// with its samples.
pub const SPANS_MAX: u64 = if cfg!(test) { 50 } else { 1000 };

/// A period of the wall clock in which samples were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    id: i64,
    /// Wall-clock time of the first sample.
    pub begin_ms: u64,
    /// Wall-clock time of the newest sample.
    pub end_ms: u64,
    /// Recorded time at the start of the span.
    pub recorded_ms: u64,
}

impl Span {
    /// Returns the recorded time at the end of the span.
    pub const fn recorded_end_ms(&self) -> u64 {
        self.recorded_ms.saturating_add(self.end_ms - self.begin_ms)
    }

    /// Returns the part that remains after a table is cut at a recorded time, in whole minutes of the wall clock.
    fn kept(&self, cut_ms: u64) -> Option<Range<u64>> {
        let begin_ms = self.begin_ms.saturating_add(cut_ms.saturating_sub(self.recorded_ms));
        (begin_ms <= self.end_ms).then(|| floor(begin_ms, CUT_MS)..ceil(self.end_ms))
    }

    /// Returns the part that is cut off.
    fn cut(&self, cut_ms: u64) -> Option<Range<u64>> {
        let begin_ms = floor(self.begin_ms, CUT_MS);
        let until_ms = self.kept(cut_ms).map_or_else(|| ceil(self.end_ms), |kept| kept.start);
        (begin_ms < until_ms).then_some(begin_ms..until_ms)
    }
}

/// Returns the end of the minute that contains a time.
const fn ceil(time_ms: u64) -> u64 {
    floor(time_ms, CUT_MS).saturating_add(CUT_MS)
}

/// The moment of a sample on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleTime {
    /// Wall-clock time of the sample.
    pub time_ms: u64,
    /// Milliseconds since the start of the program.
    pub since_start_ms: u64,
}

/// The newest span, and the offset of the wall clock from this program's monotonic clock at its start. The offset is
/// unknown for a span that another process began.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanWriter {
    span: Option<Span>,
    ahead_ms: Option<i128>,
}

/// Returns all spans in the order of recording.
///
/// # Errors
/// SQLite reports an error.
pub fn all(connection: &Connection) -> rusqlite::Result<Vec<Span>> {
    let mut select = connection.prepare_cached("SELECT id, begin_ms, end_ms, recorded_ms FROM spans ORDER BY id")?;
    select.query_map([], of_row)?.collect()
}

fn last(connection: &Connection) -> rusqlite::Result<Option<Span>> {
    let sql = "SELECT id, begin_ms, end_ms, recorded_ms FROM spans ORDER BY id DESC LIMIT 1";
    connection.prepare_cached(sql)?.query_row([], of_row).optional()
}

/// Returns the newest span, extended by later samples outside all spans. An older version of the agent wrote those
/// while this version migrated its file.
fn last_adopted(connection: &Connection) -> rusqlite::Result<Option<Span>> {
    let Some(span) = last(connection)? else { return Ok(None) };
    let sql = "SELECT max(t) FROM (SELECT max(time_ms) AS t FROM samples WHERE time_ms > ?1 AND time_ms < ?2 UNION ALL \
               SELECT max(time_ms) FROM host_samples WHERE time_ms > ?1 AND time_ms < ?2)";
    let next: Option<i64> =
        connection.query_row("SELECT min(begin_ms) FROM spans WHERE begin_ms > ?1", [to_sql(span.end_ms)], |row| {
            row.get(0)
        })?;
    let range = [to_sql(span.end_ms), next.unwrap_or(i64::MAX)];
    let newest: Option<i64> = connection.query_row(sql, range, |row| row.get(0))?;
    Ok(Some(Span { end_ms: newest.map_or(span.end_ms, from_sql).max(span.end_ms), ..span }))
}

fn of_row(row: &Row<'_>) -> rusqlite::Result<Span> {
    let begin_ms = from_sql(row.get(1)?);
    let end_ms = from_sql(row.get(2)?).max(begin_ms);
    Ok(Span { id: row.get(0)?, begin_ms, end_ms, recorded_ms: from_sql(row.get(3)?) })
}

impl SpanWriter {
    /// Loads the newest span if it is not loaded yet. Must be called before a sample is inserted.
    ///
    /// # Errors
    /// SQLite reports an error.
    pub fn begin(&mut self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        if self.span.is_none() {
            self.span = last_adopted(transaction)?;
        }
        Ok(())
    }

    /// Adds the moments of samples that were inserted in the transaction, oldest first by the monotonic clock. Calls
    /// `ended` with the end of a span and the start of the next one.
    ///
    /// # Errors
    /// SQLite reports an error.
    pub fn take(
        &mut self,
        transaction: &Transaction<'_>,
        moments: &[SampleTime],
        mut ended: impl FnMut(u64, u64) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        for &SampleTime { time_ms, since_start_ms } in moments {
            let ahead_ms = i128::from(time_ms) - i128::from(since_start_ms);
            let is_near = |a: i128, b: i128| a.abs_diff(b) <= u128::from(STEP_MS);
            let goes_on = |span: &Span| match self.ahead_ms {
                Some(before_ms) => is_near(ahead_ms, before_ms),
                // The time without an agent can only be measured by the wall clock.
                None => is_near(time_ms.into(), span.end_ms.into()),
            };
            if let Some(span) = self.span.filter(goes_on) {
                // After a small step back, a sample may precede the span.
                let begin_ms = span.begin_ms.min(time_ms);
                let recorded_ms = span.recorded_ms.saturating_sub(span.begin_ms - begin_ms);
                self.span = Some(Span { begin_ms, end_ms: span.end_ms.max(time_ms), recorded_ms, ..span });
                self.ahead_ms = self.ahead_ms.or(Some(ahead_ms));
                continue;
            }
            if let Some(span) = &self.span {
                update(transaction, span)?;
                ended(span.end_ms, time_ms)?;
            }
            let recorded_ms = self.span.map_or(0, |span| span.recorded_end_ms());
            let sql = "INSERT INTO spans (begin_ms, end_ms, recorded_ms) VALUES (?1, ?1, ?2)";
            transaction.execute(sql, [to_sql(time_ms), to_sql(recorded_ms)])?;
            let id = transaction.last_insert_rowid();
            self.span = Some(Span { id, begin_ms: time_ms, end_ms: time_ms, recorded_ms });
            self.ahead_ms = Some(ahead_ms);
        }
        match &self.span {
            Some(span) if !moments.is_empty() => update(transaction, span),
            _ => Ok(()),
        }
    }
}

fn update(transaction: &Transaction<'_>, span: &Span) -> rusqlite::Result<()> {
    let sql = "UPDATE spans SET begin_ms = ?2, end_ms = ?3, recorded_ms = ?4 WHERE id = ?1";
    let values = (span.id, to_sql(span.begin_ms), to_sql(span.end_ms), to_sql(span.recorded_ms));
    transaction.prepare_cached(sql)?.execute(values).map(|_| ())
}

/// Returns the current recorded time.
///
/// # Errors
/// SQLite reports an error.
pub fn recorded_ms(connection: &Connection) -> rusqlite::Result<u64> {
    Ok(last(connection)?.map_or(0, |span| span.recorded_end_ms()))
}

/// Returns the recorded time at a time in the newest span. For an earlier time, returns the recorded time at the start
/// of that span.
///
/// # Errors
/// SQLite reports an error.
pub fn recorded_at(connection: &Connection, time_ms: u64) -> rusqlite::Result<u64> {
    let at = |span: Span| span.recorded_ms.saturating_add(time_ms.saturating_sub(span.begin_ms));
    Ok(last(connection)?.map_or(0, at))
}

/// Deletes spans without samples in any table.
///
/// # Errors
/// SQLite reports an error.
pub fn forget(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut cut_ms = u64::MAX;
    for group in Group::ALL {
        cut_ms = cut_ms.min(cut_at(transaction, Resolution::Minute, group)?);
    }
    // The newest span remains, because later recording continues from it.
    let sql = "DELETE FROM spans WHERE recorded_ms + (end_ms - begin_ms) < ?1 AND id < (SELECT max(id) FROM spans)";
    transaction.execute(sql, [to_sql(cut_ms)]).map(|_| ())
}

/// Returns the recorded time at which all tables must be cut to keep at most [`SPANS_MAX`] spans.
///
/// # Errors
/// SQLite reports an error.
pub fn cut_for_bound(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT recorded_ms FROM spans ORDER BY id DESC LIMIT 1 OFFSET ?1";
    let first: Option<i64> = connection.query_row(sql, [to_sql(SPANS_MAX)], |row| row.get(0)).optional()?;
    Ok(first.map_or(0, from_sql))
}

fn cut_fact(resolution: Resolution, group: Group) -> String {
    format!("cut_{}", resolution.table(group))
}

/// Returns the recorded time at which a table is cut.
///
/// # Errors
/// SQLite reports an error.
pub fn cut_at(connection: &Connection, resolution: Resolution, group: Group) -> rusqlite::Result<u64> {
    let mut select = connection.prepare_cached("SELECT value FROM facts WHERE name = ?1")?;
    let value: Option<i64> = select.query_row([cut_fact(resolution, group)], |row| row.get(0)).optional()?;
    Ok(value.map_or(0, from_sql))
}

/// Stores the recorded time at which a table is cut.
///
/// # Errors
/// SQLite reports an error.
pub fn set_cut_at(
    transaction: &Transaction<'_>,
    resolution: Resolution,
    group: Group,
    cut_ms: u64,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO facts VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
    transaction.prepare_cached(sql)?.execute((cut_fact(resolution, group), to_sql(cut_ms))).map(|_| ())
}

/// Returns the wall-clock ranges with remaining samples in a table that is cut at a recorded time. The ranges are
/// sorted and disjoint.
pub fn kept(spans: &[Span], cut_ms: u64) -> Vec<Range<u64>> {
    union(spans.iter().filter_map(|span| span.kept(cut_ms)))
}

/// Returns the wall-clock ranges without samples in a table that is cut at a recorded time.
pub fn cut(spans: &[Span], cut_ms: u64) -> Vec<Range<u64>> {
    union(spans.iter().filter_map(|span| span.cut(cut_ms)))
}

/// Merges ranges into sorted disjoint ranges.
fn union(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut ranges: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
    ranges.sort_by_key(|range| range.start);
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

/// Returns `ranges` minus `others`. Inputs and output are sorted and disjoint.
pub fn without(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for range in ranges {
        let mut from_ms = range.start;
        for other in others.iter().filter(|other| other.start < range.end && other.end > range.start) {
            if from_ms < other.start {
                left.push(from_ms..other.start);
            }
            from_ms = from_ms.max(other.end);
        }
        if from_ms < range.end {
            left.push(from_ms..range.end);
        }
    }
    left
}

/// Returns the intersection of two lists of ranges.
pub fn within(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    without(ranges, &without(ranges, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin_ms: u64, end_ms: u64, recorded_ms: u64) -> Span {
        Span { id: 0, begin_ms, end_ms, recorded_ms }
    }

    #[test]
    fn a_span_is_cut_by_recorded_time_in_whole_minutes() {
        let minute = CUT_MS;
        let span = span(100 * minute + 5, 110 * minute + 5, 1000 * minute);
        assert_eq!(span.kept(0), Some(100 * minute..111 * minute));
        assert_eq!((span.kept(1004 * minute), span.cut(1004 * minute)), {
            (Some(104 * minute..111 * minute), Some(100 * minute..104 * minute))
        });
        assert_eq!(
            (span.kept(1010 * minute + 1), span.cut(1010 * minute + 1)),
            (None, Some(100 * minute..111 * minute))
        );
        assert_eq!(span.recorded_end_ms(), 1010 * minute);
    }

    #[test]
    fn ranges_are_joined_and_taken_apart() {
        assert_eq!(union([5..7, 1..3, 3..4, 6..9, 9..9].into_iter()), [1..4, 5..9]);
        assert_eq!(without(&[1..4, 5..9], &[2..3, 6..12]), [1..2, 3..4, 5..6]);
        assert_eq!(without(&[1..4, 5..9], &[]), [1..4, 5..9]);
        assert_eq!(without(&[1..4, 5..9], &[0..4, 5..10]), []);
        assert_eq!(within(&[1..4, 5..9], &[2..6, 8..20]), [2..4, 5..6, 8..9]);
    }
}
