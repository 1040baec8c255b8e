//! Every line of training figures that a run printed: rows of their own beside the events, which are thinned for viewers.

use std::sync::Arc;

use headroom_shared::protocol::{
    event::What,
    run::{Evaluation, Iteration},
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, Transaction};

use super::{
    events,
    samples::{from_sql, to_sql},
};

/// Rows of one run at most: sixteen times nanoGPT's longest default run, at one line an iteration. They take about 0.7 GB.
pub const ROWS_MAX: u64 = 10_000_000;
/// Bytes of a row in the file, about.
const ROW_BYTES: u64 = 64;
/// Rows that are read at once.
const PAGE_ROWS: usize = 10_000;

const INSERT: &str =
    "INSERT OR REPLACE INTO printed VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

/// What one line says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figures {
    /// An iteration.
    Iteration(Iteration),
    /// An evaluation.
    Evaluation(Evaluation),
    /// At least so many lines that were not kept: there was no room for them.
    LeftOut(u64),
}

/// A line, and when it was printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Printed {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Its figures.
    pub figures: Figures,
}

/// A line that is not written yet.
#[derive(Clone, Debug)]
pub struct Unwritten {
    /// Its run.
    pub run: Arc<str>,
    /// The line.
    pub printed: Printed,
}

/// How far a run's lines were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last event of an earlier version that was read.
    event: u64,
    /// Whether those were all read.
    has_events: bool,
    /// Rows that were read.
    n: u64,
}

#[cfg(test)]
impl Cursor {
    /// A page of lines that are made up, by pages.
    pub fn page_of(pages: &[Vec<Printed>], after: Self) -> Page {
        let index = usize::try_from(after.n).unwrap_or(usize::MAX);
        let next = Self { n: after.n + 1, ..after };
        Page { lines: pages.get(index).cloned().unwrap_or_default(), next: (index + 1 < pages.len()).then_some(next) }
    }
}

/// Some of a run's lines.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// In the order in which they were printed.
    pub lines: Vec<Printed>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Cursor>,
}

/// Writes lines; those beyond `n_max` rows of a run are counted and left out.
///
/// # Errors
/// What SQLite says.
pub fn insert(transaction: &Transaction<'_>, lines: &[Unwritten], n_max: u64) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(INSERT)?;
    for lines in lines.chunk_by(|a, b| a.run == b.run) {
        let Some(first) = lines.first() else { continue };
        let mut end = End::of(transaction, &first.run)?;
        for Unwritten { printed, .. } in lines {
            match printed.figures {
                Figures::LeftOut(n) => end.leave_out(n, printed.at_ms),
                _ if end.n_rows >= n_max => end.leave_out(1, printed.at_ms),
                _ => end.add(&mut insert, printed)?,
            }
        }
        end.finish(transaction, &mut insert)?;
    }
    Ok(())
}

/// The end of a run's rows, where the next one goes.
struct End {
    key: i64,
    n_rows: u64,
    /// Lines that were left out behind the last row with figures, and when the newest of them was printed.
    left_out: Option<(u64, u64)>,
}

impl End {
    fn of(transaction: &Transaction<'_>, run: &str) -> rusqlite::Result<Self> {
        let mut select = transaction.prepare_cached("SELECT key, n FROM printed_runs WHERE run = ?1")?;
        let found = select.query_row([run], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((key, n)) = found else {
            let sql = "INSERT INTO printed_runs (run, n, since_event) VALUES (?1, 0, ?2)";
            transaction.execute(sql, (run, to_sql(events::last(transaction)?)))?;
            return Ok(Self { key: transaction.last_insert_rowid(), n_rows: 0, left_out: None });
        };
        let mut end = Self { key, n_rows: from_sql(n), left_out: None };
        let mut select =
            transaction.prepare_cached("SELECT left_out, printed_ms FROM printed WHERE run = ?1 AND seq = ?2")?;
        let last = select.query_row((key, to_sql(end.n_rows)), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        // A row of what was left out is the last one, and is written again with more.
        if let Some((Some(left_out), at_ms)) = last {
            end.left_out = Some((from_sql(left_out), from_sql(at_ms)));
            end.n_rows = end.n_rows.saturating_sub(1);
        }
        Ok(end)
    }

    fn leave_out(&mut self, n: u64, at_ms: u64) {
        let before = self.left_out.map_or(0, |(before, _)| before);
        self.left_out = Some((before.saturating_add(n), at_ms));
    }

    fn add(&mut self, insert: &mut CachedStatement<'_>, printed: &Printed) -> rusqlite::Result<()> {
        self.close(insert)?;
        self.n_rows += 1;
        let at = (self.key, to_sql(self.n_rows), to_sql(printed.at_ms));
        match printed.figures {
            Figures::Iteration(it) => insert.execute(rusqlite::params![
                at.0,
                at.1,
                at.2,
                None::<i64>,
                to_sql(it.iter),
                it.loss,
                it.time_ms,
                it.tokens_per_second,
                it.mfu_printed_percent,
                it.mfu_percent,
                it.learning_rate,
                it.gradient_norm,
                None::<f64>,
                None::<f64>,
            ]),
            Figures::Evaluation(it) => insert.execute(rusqlite::params![
                at.0,
                at.1,
                at.2,
                None::<i64>,
                to_sql(it.iter),
                None::<f64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
                it.train_loss,
                it.val_loss,
            ]),
            Figures::LeftOut(n) => insert.execute(rusqlite::params![
                at.0,
                at.1,
                at.2,
                to_sql(n),
                None::<i64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
                None::<f64>,
            ]),
        }
        .map(drop)
    }

    /// Writes the row of what was left out.
    fn close(&mut self, insert: &mut CachedStatement<'_>) -> rusqlite::Result<()> {
        match self.left_out.take() {
            Some((n, at_ms)) => self.add(insert, &Printed { at_ms, figures: Figures::LeftOut(n) }),
            None => Ok(()),
        }
    }

    fn finish(mut self, transaction: &Transaction<'_>, insert: &mut CachedStatement<'_>) -> rusqlite::Result<()> {
        self.close(insert)?;
        let mut update = transaction.prepare_cached("UPDATE printed_runs SET n = ?2 WHERE key = ?1")?;
        update.execute((self.key, to_sql(self.n_rows))).map(drop)
    }
}

/// Reads on in a run's lines.
///
/// # Errors
/// What SQLite says.
pub fn page(connection: &Connection, run: &str, after: Cursor) -> rusqlite::Result<Page> {
    let mut select = connection.prepare_cached("SELECT key, since_event FROM printed_runs WHERE run = ?1")?;
    let found: Option<(i64, i64)> = select.query_row([run], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    if !after.has_events {
        let until = found.map_or(i64::MAX, |(_, since_event)| since_event);
        return earlier(connection, run, after, until);
    }
    let Some((key, _)) = found else { return Ok(Page::default()) };
    let mut select =
        connection.prepare_cached("SELECT * FROM printed WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3")?;
    let lines = select.query_map((key, to_sql(after.n), to_sql(PAGE_ROWS as u64)), line)?;
    let (mut page, mut n) = (Page::default(), after.n);
    for line in lines {
        let (seq, line) = line?;
        n = seq;
        page.lines.push(line);
    }
    page.next = (page.lines.len() == PAGE_ROWS).then_some(Cursor { n, ..after });
    Ok(page)
}

/// The same of the events in which an earlier version kept them.
fn earlier(connection: &Connection, run: &str, after: Cursor, until: i64) -> rusqlite::Result<Page> {
    let mut select = connection.prepare_cached(
        "SELECT id, time_ms, run, what FROM events WHERE run = ?1 AND id > ?2 AND id <= ?3 ORDER BY id LIMIT ?4",
    )?;
    let found = select.query_map((run, to_sql(after.event), until, to_sql(PAGE_ROWS as u64)), events::event)?;
    let (mut page, mut n, mut last) = (Page::default(), 0, after.event);
    for event in found {
        let event = event?;
        (n, last) = (n + 1, event.id);
        let figures = match event.what {
            What::RunIteration(iteration) => Figures::Iteration(iteration),
            What::RunEvaluation(evaluation) => Figures::Evaluation(evaluation),
            _ => continue,
        };
        page.lines.push(Printed { at_ms: event.time_ms, figures });
    }
    page.next = Some(Cursor { event: last, has_events: n < PAGE_ROWS, ..after });
    Ok(page)
}

fn line(row: &Row<'_>) -> rusqlite::Result<(u64, Printed)> {
    let number = |column: &str| row.get::<_, Option<f64>>(column);
    let iter = from_sql(row.get::<_, Option<i64>>("iter")?.unwrap_or(0));
    let left_out: Option<i64> = row.get("left_out")?;
    let figures = match (left_out, number("time_ms")?) {
        (Some(n), _) => Figures::LeftOut(from_sql(n)),
        (None, Some(time_ms)) => Figures::Iteration(Iteration {
            iter,
            loss: number("loss")?,
            time_ms,
            tokens_per_second: number("tokens_per_second")?,
            mfu_printed_percent: number("mfu_printed_percent")?,
            mfu_percent: number("mfu_percent")?,
            learning_rate: number("learning_rate")?,
            gradient_norm: number("gradient_norm")?,
        }),
        (None, None) => {
            let (train_loss, val_loss) = (number("train_loss")?, number("val_loss")?);
            Figures::Evaluation(Evaluation { iter, train_loss, val_loss })
        }
    };
    Ok((from_sql(row.get("seq")?), Printed { at_ms: from_sql(row.get("printed_ms")?), figures }))
}

/// Bytes that all runs' lines take in the file, about.
///
/// # Errors
/// What SQLite says.
pub fn bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let n_rows: i64 = connection.query_row("SELECT ifnull(sum(n), 0) FROM printed_runs", [], |row| row.get(0))?;
    Ok(from_sql(n_rows).saturating_mul(ROW_BYTES))
}

/// Deletes a run's lines.
///
/// # Errors
/// What SQLite says.
pub fn delete(transaction: &Transaction<'_>, run: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM printed WHERE run = (SELECT key FROM printed_runs WHERE run = ?1)", [run])?;
    transaction.execute("DELETE FROM printed_runs WHERE run = ?1", [run]).map(drop)
}
