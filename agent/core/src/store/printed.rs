//! Every line of training figures that a run printed. They have their own table beside the events, which are thinned
//! for viewers.

use std::sync::Arc;

use headroom_protocol::{
    event::EventKind,
    run::{Evaluation, Iteration},
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, Transaction, params_from_iter, types::Value};

use super::{
    rows,
    samples::{from_sql, to_sql},
};

/// Maximum number of rows per run: sixteen times nanoGPT's longest default run, at one line per iteration. They take
/// about 0.7 GB.
pub const ROWS_MAX: u64 = 10_000_000;
/// Approximate size of a row in the file, in bytes.
const ROW_BYTES: u64 = 64;
/// Number of rows per page.
const PAGE_ROWS: usize = 10_000;

const INSERT: &str =
    "INSERT OR REPLACE INTO printed VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

/// The figures of one line. Unlike in events, a loss may be infinite here; `None` is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figures {
    /// Figures of an iteration.
    Iteration(Iteration),
    /// Figures of an evaluation.
    Evaluation(Evaluation),
    /// Minimum number of lines that were omitted because the queue was full.
    LeftOut(u64),
}

/// A line and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrintedLine {
    /// Time of the line, in milliseconds since 1970.
    pub at_ms: u64,
    /// Figures of the line.
    pub figures: Figures,
}

/// A line that is not written yet.
#[derive(Clone, Debug)]
pub struct PendingLine {
    /// ID of the run.
    pub run: Arc<str>,
    /// The line.
    pub printed: PrintedLine,
}

/// Position in a run's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last event of an earlier version that was read.
    event: u64,
    /// Whether all those events were read.
    has_events: bool,
    /// Number of rows that were read.
    n: u64,
}

impl Cursor {
    /// Returns a page of an archive in memory. Such archives replace the database in tests.
    #[must_use]
    pub fn page_of(pages: &[Vec<PrintedLine>], after: Self) -> Page {
        let index = usize::try_from(after.n).unwrap_or(usize::MAX);
        let next = Self { n: after.n + 1, ..after };
        Page { lines: pages.get(index).cloned().unwrap_or_default(), next: (index + 1 < pages.len()).then_some(next) }
    }
}

/// A page of a run's lines.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The lines in the order of printing.
    pub lines: Vec<PrintedLine>,
    /// Start of the next page; `None` after the last page.
    pub next: Option<Cursor>,
}

/// Writes lines. Lines beyond `n_max` rows of a run are counted and omitted.
///
/// # Errors
/// SQLite reports an error.
pub fn insert(transaction: &Transaction<'_>, lines: &[PendingLine], n_max: u64) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(INSERT)?;
    for lines in lines.chunk_by(|a, b| a.run == b.run) {
        let Some(first) = lines.first() else { continue };
        let mut end = End::of(transaction, &first.run)?;
        for PendingLine { printed, .. } in lines {
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

/// The end of a run's rows, where the next row is inserted.
struct End {
    key: i64,
    n_rows: u64,
    /// Number of lines omitted after the last row with figures, and time of the newest of them.
    left_out: Option<(u64, u64)>,
}

impl End {
    fn of(transaction: &Transaction<'_>, run: &str) -> rusqlite::Result<Self> {
        let mut select = transaction.prepare_cached("SELECT key, n FROM printed_runs WHERE run = ?1")?;
        let found = select.query_row([run], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let Some((key, n)) = found else {
            let sql = "INSERT INTO printed_runs (run, n, since_event) VALUES (?1, 0, ?2)";
            transaction.execute(sql, (run, to_sql(rows::last_event(transaction)?)))?;
            return Ok(Self { key: transaction.last_insert_rowid(), n_rows: 0, left_out: None });
        };
        let mut end = Self { key, n_rows: from_sql(n), left_out: None };
        let mut select =
            transaction.prepare_cached("SELECT left_out, printed_ms FROM printed WHERE run = ?1 AND seq = ?2")?;
        let last = select.query_row((key, to_sql(end.n_rows)), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        // A row about omitted lines is the last one, and is rewritten with the new count.
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

    fn add(&mut self, insert: &mut CachedStatement<'_>, printed: &PrintedLine) -> rusqlite::Result<()> {
        self.close(insert)?;
        self.n_rows += 1;
        insert.execute(params_from_iter(self.row(printed))).map(drop)
    }

    /// Returns the columns of a row, in the order of the table.
    fn row(&self, printed: &PrintedLine) -> [Value; 14] {
        let (mut left_out, mut iter) = (Value::Null, Value::Null);
        let (mut of_iteration, mut of_evaluation) = ([None; 7], [None; 2]);
        match printed.figures {
            Figures::Iteration(it) => {
                iter = to_sql(it.iter).into();
                of_iteration = [
                    it.loss,
                    Some(it.time_ms),
                    it.tokens_per_second,
                    it.mfu_printed_percent,
                    it.mfu_percent,
                    it.learning_rate,
                    it.gradient_norm,
                ];
            }
            Figures::Evaluation(it) => {
                iter = to_sql(it.iter).into();
                of_evaluation = [it.train_loss, it.val_loss];
            }
            Figures::LeftOut(n) => left_out = to_sql(n).into(),
        }
        let [loss, time_ms, tokens_per_second, mfu_printed, mfu, learning_rate, gradient_norm] =
            of_iteration.map(Value::from);
        let [train_loss, val_loss] = of_evaluation.map(Value::from);
        let (key, seq, printed_ms) = (self.key.into(), to_sql(self.n_rows).into(), to_sql(printed.at_ms).into());
        [
            key,
            seq,
            printed_ms,
            left_out,
            iter,
            loss,
            time_ms,
            tokens_per_second,
            mfu_printed,
            mfu,
            learning_rate,
            gradient_norm,
            train_loss,
            val_loss,
        ]
    }

    /// Writes the row about omitted lines.
    fn close(&mut self, insert: &mut CachedStatement<'_>) -> rusqlite::Result<()> {
        match self.left_out.take() {
            Some((n, at_ms)) => self.add(insert, &PrintedLine { at_ms, figures: Figures::LeftOut(n) }),
            None => Ok(()),
        }
    }

    fn finish(mut self, transaction: &Transaction<'_>, insert: &mut CachedStatement<'_>) -> rusqlite::Result<()> {
        self.close(insert)?;
        let mut update = transaction.prepare_cached("UPDATE printed_runs SET n = ?2 WHERE key = ?1")?;
        update.execute((self.key, to_sql(self.n_rows))).map(drop)
    }
}

/// Reads the page after a position.
///
/// # Errors
/// SQLite reports an error.
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

/// Reads a page from the events in which an earlier version stored the lines.
fn earlier(connection: &Connection, run: &str, after: Cursor, until: i64) -> rusqlite::Result<Page> {
    let mut select = connection.prepare_cached(
        "SELECT id, time_ms, run, what FROM events WHERE run = ?1 AND id > ?2 AND id <= ?3 ORDER BY id LIMIT ?4",
    )?;
    let found = select.query_map((run, to_sql(after.event), until, to_sql(PAGE_ROWS as u64)), rows::event)?;
    let (mut page, mut n, mut last) = (Page::default(), 0, after.event);
    for event in found {
        let event = event?;
        (n, last) = (n + 1, event.id);
        let figures = match event.what {
            EventKind::RunIteration(iteration) => Figures::Iteration(iteration),
            EventKind::RunEvaluation(evaluation) => Figures::Evaluation(evaluation),
            _ => continue,
        };
        page.lines.push(PrintedLine { at_ms: event.time_ms, figures });
    }
    page.next = Some(Cursor { event: last, has_events: n < PAGE_ROWS, ..after });
    Ok(page)
}

fn line(row: &Row<'_>) -> rusqlite::Result<(u64, PrintedLine)> {
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
    Ok((from_sql(row.get("seq")?), PrintedLine { at_ms: from_sql(row.get("printed_ms")?), figures }))
}

/// Returns the number of a run's lines of figures, without omitted lines.
///
/// # Errors
/// SQLite reports an error.
pub fn count(connection: &Connection, run: &str) -> rusqlite::Result<u64> {
    let sql =
        "SELECT count(*) FROM printed WHERE run = (SELECT key FROM printed_runs WHERE run = ?1) AND left_out IS NULL";
    connection.query_row(sql, [run], |row| row.get(0)).map(from_sql)
}

/// Returns the approximate size of all runs' lines in the file, in bytes.
///
/// # Errors
/// SQLite reports an error.
pub fn bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let n_rows: i64 = connection.query_row("SELECT ifnull(sum(n), 0) FROM printed_runs", [], |row| row.get(0))?;
    Ok(from_sql(n_rows).saturating_mul(ROW_BYTES))
}

/// Deletes a run's lines.
///
/// # Errors
/// SQLite reports an error.
pub fn delete(transaction: &Transaction<'_>, run: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM printed WHERE run = (SELECT key FROM printed_runs WHERE run = ?1)", [run])?;
    transaction.execute("DELETE FROM printed_runs WHERE run = ?1", [run]).map(drop)
}
