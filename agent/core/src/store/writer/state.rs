//! State of the history as it is reported, and the times of retries after an error.

use headroom_protocol::{
    event::{Event, EventKind},
    message::Message,
    state::HistoryState,
};
use rusqlite::ErrorCode;

use super::{FileUnusable, NotifyCallback, Role, StoreEvent, Trust, Writer, is_due};
use crate::{logging::HISTORY, store::queue::Queue};

/// Delay after a failure; doubled if the next success did not last.
const RETRY_MS: u64 = 5000;
/// Maximum delay. After the owner frees disk space, recording resumes within a minute.
const RETRY_MS_MAX: u64 = 60_000;
/// Time for which another program may lock the file before this is reported.
const BUSY_MS_MAX: u64 = 10_000;
/// Interval between reports of the file's size.
const SIZE_EVERY_MS: u64 = 60_000;
/// Number of consecutive findings of damage after which the writer gives up.
const DAMAGED_MAX: u32 = 3;

/// State of the file.
#[derive(Debug)]
pub struct Health {
    trust: Trust,
    n_damaged: u32,
    set_aside: Option<String>,
    /// `None` until the file was opened, or could not be opened.
    state: Option<HistoryState>,
    reported_ms: u64,
    tried_ms: u64,
    retry_ms: u64,
    resumed_ms: u64,
    busy_since_ms: Option<u64>,
}

impl Health {
    /// Creates the state of a file that was not checked yet.
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            n_damaged: 0,
            set_aside: None,
            state: None,
            reported_ms: 0,
            tried_ms: 0,
            retry_ms: RETRY_MS,
            resumed_ms: 0,
            busy_since_ms: None,
        }
    }

    /// Returns how thoroughly the file must be checked when it is next opened.
    pub const fn trust(&self) -> Trust {
        self.trust
    }

    /// Records that the file was opened or replaced.
    pub fn opened(&mut self, set_aside: Option<String>) {
        self.trust = Trust::Whole;
        if set_aside.is_some() {
            // Forces another report of the state.
            (self.set_aside, self.reported_ms) = (set_aside, 0);
        }
    }

    const fn is_paused(&self) -> bool {
        matches!(self.state, Some(HistoryState::Paused { .. }))
    }

    /// Whether it is time to try; always true after a success.
    pub const fn may_try(&self, now_ms: u64) -> bool {
        !self.is_paused() || is_due(self.tried_ms, self.retry_ms, now_ms)
    }
}

impl FileUnusable {
    /// Whether the connection remains usable after this error.
    pub fn keeps_open(&self) -> bool {
        match self {
            Self::Busy => true,
            Self::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::DiskFull),
            Self::Newer { .. } | Self::Damaged(_) | Self::System { .. } => false,
        }
    }
}

impl Writer {
    /// Handles a successful turn.
    pub(super) fn is_well(&mut self, queue: &Queue, now_ms: u64, tell: NotifyCallback<'_>) {
        let health = &mut self.health;
        (health.n_damaged, health.busy_since_ms) = (0, None);
        let resumes = health.is_paused();
        if health.state.is_some() && !resumes && !is_due(health.reported_ms, SIZE_EVERY_MS, now_ms) {
            return;
        }
        health.reported_ms = now_ms;
        let state = HistoryState::Kept { bytes: self.file.bytes(), set_aside: health.set_aside.clone() };
        if health.state.as_ref() == Some(&state) {
            return;
        }
        health.state = Some(state.clone());
        tell(StoreEvent::State(state));
        if resumes {
            health.resumed_ms = now_ms;
            if self.role == Role::Agent {
                queue.push_event(now_ms, None, EventKind::HistoryResumed);
            }
        }
    }

    /// Handles a failed turn. Queued data remains in the queue.
    pub(super) fn is_ill(&mut self, trouble: &FileUnusable, queue: &Queue, now_ms: u64, tell: NotifyCallback<'_>) {
        let health = &mut self.health;
        match trouble {
            FileUnusable::Damaged(cause) if health.n_damaged < DAMAGED_MAX => {
                tracing::warn!(target: HISTORY, cause, "the history file is damaged");
                health.trust = if health.n_damaged == 0 { Trust::Suspect } else { Trust::None };
                health.n_damaged += 1;
                return;
            }
            FileUnusable::Busy => {
                let since_ms = *health.busy_since_ms.get_or_insert(now_ms);
                if !is_due(since_ms, BUSY_MS_MAX, now_ms) {
                    return;
                }
            }
            _ => {}
        }
        health.tried_ms = now_ms;
        let reason = Message::from(trouble.text());
        tracing::debug!(target: HISTORY, reason = reason.en, "cannot write history");
        let since_ms = match &health.state {
            Some(HistoryState::Paused { reason: said, .. }) if *said == reason => return,
            Some(HistoryState::Paused { since_ms, .. }) => *since_ms,
            _ => {
                let lasted = is_due(health.resumed_ms, RETRY_MS_MAX, now_ms);
                health.retry_ms = if lasted { RETRY_MS } else { (2 * health.retry_ms).min(RETRY_MS_MAX) };
                if self.role == Role::Agent {
                    queue.push_event(now_ms, None, EventKind::HistoryPaused { reason: reason.clone() });
                }
                now_ms
            }
        };
        let state = HistoryState::Paused { reason, since_ms };
        health.state = Some(state.clone());
        tell(StoreEvent::State(state));
    }

    /// While nothing can be written, sends notifications about events without numbers.
    pub(super) fn tell_unnumbered(&self, queue: &Queue, tell: NotifyCallback<'_>) {
        if !self.health.is_paused() {
            return;
        }
        for event in queue.unreported() {
            let (run, what) = (event.run.clone(), event.what.clone());
            tell(StoreEvent::Event(Event { id: 0, time_ms: event.time_ms, run, what }));
        }
    }
}
