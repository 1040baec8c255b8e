//! Detects runs whose watchers are gone. A killed watcher reports nothing, so other programs must detect it.

use headroom_protocol::{event::EventKind, run::RunStatus};
use rusqlite::TransactionBehavior;

use super::{FileUnusable, Open, SEEN_EVERY_MS, Writer, add};
use crate::{
    platform::Process,
    store::events::{self, Batch, RunWatcher},
};

/// Age of the last heartbeat at which a run is lost, unless its process can be checked: three intervals and one second
/// of tolerance.
const LOST_AFTER_MS: u64 = 3 * SEEN_EVERY_MS + 1000;

/// Time within which another process continues a run whose watcher is gone and whose directory still exists.
const CONTINUED_WITHIN_MS: u64 = 60_000;

impl Writer {
    /// Ends runs whose watchers are gone, at their last heartbeat. Returns whether there were any.
    pub(super) fn lose(&self, open: &mut Open, now_ms: u64) -> Result<bool, FileUnusable> {
        let silent_ms = now_ms.saturating_sub(LOST_AFTER_MS);
        // Another process continues the run. Without one after a minute, the run is lost.
        let is_continued = |watch: &RunWatcher| {
            watch.seen_ms.saturating_add(CONTINUED_WITHIN_MS) > now_ms && self.file.watched(&watch.run).exists()
        };
        let is_gone = |watch: &RunWatcher| match watch.process.as_ref().and_then(Process::lives) {
            Some(lives) => !lives,
            // A watcher that slept with the machine has the same time again for a heartbeat.
            None => watch.seen_ms < silent_ms && self.awake_ms <= silent_ms,
        };
        let gone = events::watches(&open.connection)?;
        let gone: Vec<RunWatcher> = gone.into_iter().filter(|watch| is_gone(watch) && !is_continued(watch)).collect();
        if gone.is_empty() {
            return Ok(false);
        }
        let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut batch = Batch::new(&transaction, now_ms);
        for watch in &gone {
            // The watcher's last write, such as the run's end, may have arrived since. The next pass checks it again.
            // An unreadable run would remain unchanged and cause a notification in each pass.
            if events::is_unchanged(&transaction, watch)? && batch.knows(&watch.run)? {
                let lost = EventKind::RunStatus { status: RunStatus::Lost, energy_joules: None };
                add(&mut batch, &watch.run, watch.seen_ms, &lost)?;
            }
        }
        batch.finish()?;
        transaction.commit()?;
        Ok(true)
    }
}
