//! Runs whose watchers are gone: who was killed says nothing, so others have to find it out.

use headroom_shared::protocol::{event::What, run::RunStatus};
use rusqlite::TransactionBehavior;

use super::{Open, SEEN_EVERY_MS, Trouble, Writer, add};
use crate::{
    platform::Process,
    store::events::{self, Batch, Watch},
};

/// A run is lost whose watcher missed three signs of life, where nothing else is known of it; a second for the way.
const LOST_AFTER_MS: u64 = 3 * SEEN_EVERY_MS + 1000;

impl Writer {
    /// Ends runs whose watchers are gone, at their last sign of life; gives whether there were any.
    pub(super) fn lose(&self, open: &mut Open, now_ms: u64) -> Result<bool, Trouble> {
        let silent_ms = now_ms.saturating_sub(LOST_AFTER_MS);
        let is_gone = |watch: &Watch| match watch.process.as_ref().and_then(Process::lives) {
            Some(lives) => !lives,
            // Who slept with the machine has as long again to say so.
            None => watch.seen_ms < silent_ms && self.awake_ms <= silent_ms,
        };
        let gone: Vec<Watch> = events::watches(&open.connection)?.into_iter().filter(is_gone).collect();
        if gone.is_empty() {
            return Ok(false);
        }
        let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut batch = Batch::new(&transaction, now_ms);
        for watch in &gone {
            // The last that it wrote may have come since, its run's end among it; what came is looked at next time.
            // A run that cannot be read would stay as it is, and be told again each time.
            if events::is_unchanged(&transaction, watch)? && batch.knows(&watch.run)? {
                let lost = What::RunStatus { status: RunStatus::Lost, energy_joules: None };
                add(&mut batch, &watch.run, watch.seen_ms, &lost)?;
            }
        }
        batch.finish()?;
        transaction.commit()?;
        Ok(true)
    }
}
