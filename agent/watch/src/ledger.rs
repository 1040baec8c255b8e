//! Ledger of the output that the history contains. The position is written to the run's directory about once a second,
//! so that a continuing watcher neither repeats nor omits a line.

use std::time::{Duration, Instant};

use super::{
    journal::Record,
    run_folder::{Position, RunFolder},
};
use headroom_agent_core::store::Mark;

/// Interval between writes of the position.
const EVERY: Duration = Duration::from_secs(1);

/// The last written position, and the next one, which waits for the history.
#[derive(Debug)]
pub struct Ledger {
    /// Lines of figures in the history when this process started.
    lines_before: u64,
    kept: Position,
    waiting: Option<(Mark, Position)>,
    kept_at: Option<Instant>,
}

impl Ledger {
    /// Starts at a position with `lines_before` lines that other processes recorded.
    pub const fn new(kept: Position, lines_before: u64) -> Self {
        Self { lines_before, kept, waiting: None, kept_at: None }
    }

    /// Records that everything up to `ends` was passed to `record`, and writes the position if due.
    pub fn turn(&mut self, record: &dyn Record, folder: &RunFolder, ends: [u64; 2]) {
        if let Some((mark, position)) = &self.waiting
            && record.has_kept(mark)
        {
            folder.keep_position(position);
            (self.kept, self.waiting, self.kept_at) = (*position, None, Some(Instant::now()));
        }
        let is_time = self.kept_at.is_none_or(|at| at.elapsed() >= EVERY);
        if self.waiting.is_none() && is_time && ends != self.kept.ends {
            let mark = record.mark();
            let lines = self.lines_before + mark.figures;
            self.waiting = Some((mark, Position { ends, lines }));
        }
    }
}
