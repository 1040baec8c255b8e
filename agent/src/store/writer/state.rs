//! Whether history is kept, what is said of it, and when a file that could not be written is tried again.

use headroom_shared::protocol::{event::Event, event::What, state::HistoryState};
use rusqlite::ErrorCode;

use super::{Role, Tell, Told, Trouble, Trust, Writer, is_due};
use crate::store::queue::Queue;

/// After a failure; doubled each time that writing did not last.
const RETRY_MS: u64 = 5000;
/// The longest of those: somebody who made room sees it within a minute.
const RETRY_MS_MAX: u64 = 60_000;
/// How long another program may hold the file before that is said.
const BUSY_MS_MAX: u64 = 10_000;
/// How often the file's size is said.
const SIZE_EVERY_MS: u64 = 60_000;
/// Times that a file is found damaged within a row before it is let be.
const DAMAGED_MAX: u32 = 3;

/// How the file is.
#[derive(Debug)]
pub struct Health {
    trust: Trust,
    n_damaged: u32,
    set_aside: Option<String>,
    /// None until it was opened once, or could not be.
    state: Option<HistoryState>,
    told_ms: u64,
    tried_ms: u64,
    retry_ms: u64,
    resumed_ms: u64,
    busy_since_ms: Option<u64>,
}

impl Health {
    /// Of a file that nobody looked at.
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            n_damaged: 0,
            set_aside: None,
            state: None,
            told_ms: 0,
            tried_ms: 0,
            retry_ms: RETRY_MS,
            resumed_ms: 0,
            busy_since_ms: None,
        }
    }

    /// How far the file is trusted when it is opened next.
    pub const fn trust(&self) -> Trust {
        self.trust
    }

    /// It was opened, perhaps begun anew.
    pub fn opened(&mut self, set_aside: Option<String>) {
        self.trust = Trust::Whole;
        if set_aside.is_some() {
            // Said once more than the state before, whatever that was.
            (self.set_aside, self.told_ms) = (set_aside, 0);
        }
    }

    const fn is_paused(&self) -> bool {
        matches!(self.state, Some(HistoryState::Paused { .. }))
    }

    /// Whether it is time to try; it always is where nothing failed.
    pub const fn may_try(&self, now_ms: u64) -> bool {
        !self.is_paused() || is_due(self.tried_ms, self.retry_ms, now_ms)
    }
}

impl Trouble {
    /// Whether the connection is as good as before.
    pub fn keeps_open(&self) -> bool {
        match self {
            Self::Busy => true,
            Self::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::DiskFull),
            Self::Newer { .. } | Self::Damaged(_) | Self::System { .. } => false,
        }
    }
}

impl Writer {
    /// A turn did all that it had to.
    pub(super) fn is_well(&mut self, queue: &Queue, now_ms: u64, tell: Tell<'_>) {
        let health = &mut self.health;
        (health.n_damaged, health.busy_since_ms) = (0, None);
        let resumes = health.is_paused();
        if health.state.is_some() && !resumes && !is_due(health.told_ms, SIZE_EVERY_MS, now_ms) {
            return;
        }
        health.told_ms = now_ms;
        let state = HistoryState::Kept { bytes: self.file.bytes(), set_aside: health.set_aside.clone() };
        if health.state.as_ref() == Some(&state) {
            return;
        }
        health.state = Some(state.clone());
        tell(Told::State(state));
        if resumes {
            health.resumed_ms = now_ms;
            if self.role == Role::Agent {
                queue.push_event(now_ms, None, What::HistoryResumed);
            }
        }
    }

    /// A turn failed; what waits in the queue waits on.
    pub(super) fn is_ill(&mut self, trouble: &Trouble, queue: &Queue, now_ms: u64, tell: Tell<'_>) {
        let health = &mut self.health;
        match trouble {
            Trouble::Damaged(_) if health.n_damaged < DAMAGED_MAX => {
                health.trust = if health.n_damaged == 0 { Trust::Suspect } else { Trust::None };
                health.n_damaged += 1;
                return;
            }
            Trouble::Busy => {
                let since_ms = *health.busy_since_ms.get_or_insert(now_ms);
                if !is_due(since_ms, BUSY_MS_MAX, now_ms) {
                    return;
                }
            }
            _ => {}
        }
        health.tried_ms = now_ms;
        let reason = trouble.to_string();
        let since_ms = match &health.state {
            Some(HistoryState::Paused { reason: said, .. }) if *said == reason => return,
            Some(HistoryState::Paused { since_ms, .. }) => *since_ms,
            _ => {
                let lasted = is_due(health.resumed_ms, RETRY_MS_MAX, now_ms);
                health.retry_ms = if lasted { RETRY_MS } else { (2 * health.retry_ms).min(RETRY_MS_MAX) };
                if self.role == Role::Agent {
                    queue.push_event(now_ms, None, What::HistoryPaused { reason: reason.clone() });
                }
                now_ms
            }
        };
        let state = HistoryState::Paused { reason, since_ms };
        health.state = Some(state.clone());
        tell(Told::State(state));
    }

    /// While nothing can be written, events are told as they come, without their numbers.
    pub(super) fn tell_unnumbered(&self, queue: &Queue, tell: Tell<'_>) {
        if !self.health.is_paused() {
            return;
        }
        for event in queue.untold() {
            let (run, what) = (event.run.clone(), event.what.clone());
            tell(Told::Event(Event { id: 0, time_ms: event.time_ms, run, what }));
        }
    }
}
