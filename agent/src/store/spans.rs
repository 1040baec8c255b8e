//! Recorded time: how long agents recorded samples, whatever the wall clock showed meanwhile.
//!
//! Ages of samples are counted in it, so that a clock that is set wrong deletes nothing, and neither does the time in
//! which no agent ran. A [`Span`] is a time of the wall clock without a step in it; a step of more than
//! [`STEP_MS`], forward or back, begins another one, and so does a start of the agent after a longer pause.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::{
    resolution::{CUT_MS, Resolution},
    rollup::floor,
    samples::{from_sql, to_sql},
};
use headroom_shared::protocol::history::Group;

/// A step of the wall clock that begins another span. Less does no harm to ages, and time servers correct that much.
pub const STEP_MS: u64 = 10 * 60_000;
/// Spans at most, which is as many steps of the clock within the time that is kept: of more, the oldest goes with its
/// samples.
pub const SPANS_MAX: u64 = if cfg!(test) { 50 } else { 1000 };

/// A time of the wall clock in which samples were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    id: i64,
    /// Wall clock, of the first sample.
    pub begin_ms: u64,
    /// Wall clock, of the newest sample.
    pub end_ms: u64,
    /// Recorded time at its begin.
    pub recorded_ms: u64,
}

impl Span {
    /// Recorded time at its end.
    pub const fn recorded_end_ms(&self) -> u64 {
        self.recorded_ms.saturating_add(self.end_ms - self.begin_ms)
    }

    /// The part, by the wall clock in whole minutes, that is left where a table is cut at a recorded time.
    fn kept(&self, cut_ms: u64) -> Option<Range<u64>> {
        let begin_ms = self.begin_ms.saturating_add(cut_ms.saturating_sub(self.recorded_ms));
        (begin_ms <= self.end_ms).then(|| floor(begin_ms, CUT_MS)..ceil(self.end_ms))
    }

    /// The part that is cut off.
    fn cut(&self, cut_ms: u64) -> Option<Range<u64>> {
        let begin_ms = floor(self.begin_ms, CUT_MS);
        let until_ms = self.kept(cut_ms).map_or_else(|| ceil(self.end_ms), |kept| kept.start);
        (begin_ms < until_ms).then_some(begin_ms..until_ms)
    }
}

/// The end of the minute that a time is in.
const fn ceil(time_ms: u64) -> u64 {
    floor(time_ms, CUT_MS).saturating_add(CUT_MS)
}

/// The moment of a sample, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The sample's time.
    pub time_ms: u64,
    /// Milliseconds that the program had run.
    pub since_start_ms: u64,
}

/// The newest span, and how far the wall clock was ahead of this program's own at its begin; that is not known of a span
/// that another process began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writing {
    span: Option<Span>,
    ahead_ms: Option<i128>,
}

/// All spans, in the order in which they were recorded.
///
/// # Errors
/// What SQLite says.
pub fn all(connection: &Connection) -> rusqlite::Result<Vec<Span>> {
    let mut select = connection.prepare_cached("SELECT id, begin_ms, end_ms, recorded_ms FROM spans ORDER BY id")?;
    select.query_map([], of_row)?.collect()
}

fn last(connection: &Connection) -> rusqlite::Result<Option<Span>> {
    let sql = "SELECT id, begin_ms, end_ms, recorded_ms FROM spans ORDER BY id DESC LIMIT 1";
    connection.prepare_cached(sql)?.query_row([], of_row).optional()
}

/// The newest span, with samples that follow it and are in none: those of an older version of the agent that went on
/// while this one brought its file forward.
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

impl Writing {
    /// Looks for the newest span where it is not known yet: before any sample is inserted.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn begin(&mut self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        if self.span.is_none() {
            self.span = last_adopted(transaction)?;
        }
        Ok(())
    }

    /// Takes the moments of samples that were inserted in the transaction, oldest first by the clock that only goes on.
    /// `ended` is called with the end of a span and the begin of the one that follows.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn take(
        &mut self,
        transaction: &Transaction<'_>,
        moments: &[Recorded],
        mut ended: impl FnMut(u64, u64) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        for &Recorded { time_ms, since_start_ms } in moments {
            let ahead_ms = i128::from(time_ms) - i128::from(since_start_ms);
            let is_near = |a: i128, b: i128| a.abs_diff(b) <= u128::from(STEP_MS);
            let goes_on = |span: &Span| match self.ahead_ms {
                Some(before_ms) => is_near(ahead_ms, before_ms),
                // How long no agent ran is not known: only the wall clock could tell.
                None => is_near(time_ms.into(), span.end_ms.into()),
            };
            if let Some(span) = self.span.filter(goes_on) {
                // A sample of after a small step back may be of a time before the span.
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

/// Recorded time up to now.
///
/// # Errors
/// What SQLite says.
pub fn recorded_ms(connection: &Connection) -> rusqlite::Result<u64> {
    Ok(last(connection)?.map_or(0, |span| span.recorded_end_ms()))
}

/// The recorded time at a time of the newest span; that of its begin for any earlier time.
///
/// # Errors
/// What SQLite says.
pub fn recorded_at(connection: &Connection, time_ms: u64) -> rusqlite::Result<u64> {
    let at = |span: Span| span.recorded_ms.saturating_add(time_ms.saturating_sub(span.begin_ms));
    Ok(last(connection)?.map_or(0, at))
}

/// Forgets spans of which nothing is left in any table.
///
/// # Errors
/// What SQLite says.
pub fn forget(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut cut_ms = u64::MAX;
    for group in Group::ALL {
        cut_ms = cut_ms.min(cut_at(transaction, Resolution::Minute, group)?);
    }
    // The newest stays: what is recorded next goes on from it.
    let sql = "DELETE FROM spans WHERE recorded_ms + (end_ms - begin_ms) < ?1 AND id < (SELECT max(id) FROM spans)";
    transaction.execute(sql, [to_sql(cut_ms)]).map(|_| ())
}

/// The recorded time that everything is to be cut at, so that no more spans are left than may be.
///
/// # Errors
/// What SQLite says.
pub fn cut_for_bound(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT recorded_ms FROM spans ORDER BY id DESC LIMIT 1 OFFSET ?1";
    let first: Option<i64> = connection.query_row(sql, [to_sql(SPANS_MAX)], |row| row.get(0)).optional()?;
    Ok(first.map_or(0, from_sql))
}

fn cut_fact(resolution: Resolution, group: Group) -> String {
    format!("cut_{}", resolution.table(group))
}

/// The recorded time that a table is cut at.
///
/// # Errors
/// What SQLite says.
pub fn cut_at(connection: &Connection, resolution: Resolution, group: Group) -> rusqlite::Result<u64> {
    let mut select = connection.prepare_cached("SELECT value FROM facts WHERE name = ?1")?;
    let value: Option<i64> = select.query_row([cut_fact(resolution, group)], |row| row.get(0)).optional()?;
    Ok(value.map_or(0, from_sql))
}

/// Says that a table is cut at a recorded time.
///
/// # Errors
/// What SQLite says.
pub fn set_cut_at(
    transaction: &Transaction<'_>,
    resolution: Resolution,
    group: Group,
    cut_ms: u64,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO facts VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
    transaction.prepare_cached(sql)?.execute((cut_fact(resolution, group), to_sql(cut_ms))).map(|_| ())
}

/// Times of the wall clock of which samples are left where a table is cut at a recorded time, in order, apart from each
/// other.
pub fn kept(spans: &[Span], cut_ms: u64) -> Vec<Range<u64>> {
    union(spans.iter().filter_map(|span| span.kept(cut_ms)))
}

/// Times of the wall clock of which a table that is cut at a recorded time has lost samples.
pub fn cut(spans: &[Span], cut_ms: u64) -> Vec<Range<u64>> {
    union(spans.iter().filter_map(|span| span.cut(cut_ms)))
}

/// Ranges as disjoint ones, in order.
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

/// What ranges have outside of others; both disjoint and in order, and so is what comes out.
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

/// What two lists of ranges have in common.
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
