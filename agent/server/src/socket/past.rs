//! The data that a viewer missed, read from the history in pieces while live data continues.
//!
//! Telemetry ends where the viewer's subscription began. The history is written once a second, so the newest moments
//! come from memory. Each piece is read after the previous one was sent, so that a slow viewer holds only one piece.

use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use headroom_protocol::{
    ResumePoint, ServerMessage, SlowReadings, Telemetry, event::Event, history::MissedHistory as Message,
};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tracing::Span;

use super::State;
use crate::{
    archive::Archive,
    audience::Audience,
    hub::{Broadcast, Subscription},
    wire::{EncodedMessage, encoded},
};
use headroom_agent_core::{clock::now_ms, logging::HTTP, store};

/// The maximum age of telemetry sent at full rate. Pages request older telemetry in ranges, and rarely at full
/// resolution.
const TELEMETRY_TIME_MAX_MS: u64 = 10 * 60 * 1000;
/// The maximum number of moments per message: ten seconds, about 200 KB for eight GPUs.
const MOMENTS_MAX: usize = 100;
/// The maximum number of events per message.
const EVENTS_MAX: usize = 500;
/// The number of events for a viewer without any: the number of lines in a page's list of events.
const FIRST_EVENTS_MAX: usize = 50;
/// The maximum age of those events.
const FIRST_EVENTS_TIME_MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// The maximum lead of the newest telemetry over the clock. It exceeds the steps back after which telemetry's times run
/// ahead of the clock.
const CLOCK_TOLERANCE_MS: u64 = 60_000;

/// The pieces still to be read.
#[derive(Debug)]
pub struct PendingHistory {
    todo: Option<Todo>,
    reading: Option<JoinHandle<(Utf8Bytes, Option<Todo>)>>,
}

#[derive(Debug)]
struct Todo {
    archive: Arc<dyn Archive>,
    /// Moments after this time are sent.
    after_ms: u64,
    /// Moments before this time are read from the history; `None` once all are read.
    until_ms: Option<u64>,
    /// Newer moments, from memory.
    recent: Vec<Arc<Telemetry>>,
    /// Events after `after_event`, up to and including `last_event`, are sent.
    after_event: u64,
    last_event: u64,
    /// For a viewer without any data: the newest events after this time are sent.
    first_after_ms: Option<u64>,
    slow: Option<Arc<SlowReadings>>,
    from_ms: u64,
    audience: Audience,
}

impl PendingHistory {
    /// Determines the data that a viewer missed. A viewer without any data gets the newest events that have a line, and
    /// the newest slow readings.
    pub fn new(
        state: &State,
        after: Option<ResumePoint>,
        subscription: &Subscription,
        last_event: u64,
        audience: Audience,
    ) -> Self {
        let now_ms = now_ms();
        let first_after_ms = after.is_none().then(|| now_ms.saturating_sub(FIRST_EVENTS_TIME_MAX_MS));
        let after = after.unwrap_or(ResumePoint { time_ms: now_ms, event: last_event });
        // A time in the future comes from a clock that was set back later, so the viewer's state is unknown.
        let is_to_come = after.time_ms > now_ms.saturating_add(CLOCK_TOLERANCE_MS);
        let after_time_ms = if is_to_come { 0 } else { after.time_ms };
        let after_ms = after_time_ms.max(now_ms.saturating_sub(TELEMETRY_TIME_MAX_MS));
        let recent: Vec<_> = subscription.recent.iter().filter(|moment| moment.time_ms > after_ms).cloned().collect();
        let todo = Todo {
            archive: Arc::clone(&state.archive),
            after_ms,
            until_ms: Some(subscription.recent.first().map_or(now_ms, |moment| moment.time_ms)),
            recent,
            // An event number that the history has not reached belongs to an earlier history.
            after_event: if after.event > last_event { 0 } else { after.event },
            last_event,
            first_after_ms,
            slow: subscription.slow.clone(),
            from_ms: after_ms,
            audience,
        };
        Self { todo: Some(todo), reading: None }
    }

    /// Returns the next message; `None` after the last. Cancel-safe.
    pub async fn next(&mut self) -> Option<Utf8Bytes> {
        if self.reading.is_none() {
            let todo = self.todo.take()?;
            let span = Span::current();
            self.reading = Some(spawn_blocking(move || span.in_scope(|| todo.read())));
        }
        let read = self.reading.as_mut()?.await;
        self.reading = None;
        // A failed read ends the sequence.
        let (text, todo) = read.inspect_err(log_end).ok()?;
        self.todo = todo;
        Some(text)
    }
}

impl Todo {
    /// Reads the next message, and returns it with the rest.
    fn read(mut self) -> (Utf8Bytes, Option<Self>) {
        let telemetry = self.moments();
        let events = self.events();
        let done = self.until_ms.is_none() && self.recent.is_empty() && self.after_event >= self.last_event;
        let slow = if done { self.slow.take().map(|slow| SlowReadings::clone(&slow)) } else { None };
        let message = Message { telemetry, slow, events, done, from_ms: self.from_ms };
        (encoded(&self.audience.shown(ServerMessage::Past(message))), (!done).then_some(self))
    }

    fn moments(&mut self) -> Vec<Telemetry> {
        if let Some(until_ms) = self.until_ms {
            let read = if self.after_ms < until_ms {
                self.archive.telemetry_after(self.after_ms, MOMENTS_MAX)
            } else {
                Ok(vec![])
            };
            if read.is_err() {
                // Unreadable telemetry is skipped; the page may request it in ranges later.
                self.from_ms = until_ms;
            }
            let mut moments = or_default(read);
            let n_read = moments.len();
            moments.retain(|moment| moment.time_ms < until_ms);
            if n_read < MOMENTS_MAX || moments.len() < n_read {
                self.until_ms = None;
            }
            if let Some(newest) = moments.last() {
                self.after_ms = newest.time_ms;
                return moments;
            }
            self.until_ms = None;
        }
        let n = self.recent.len().min(MOMENTS_MAX);
        self.recent.drain(..n).map(|moment| Telemetry::clone(&moment)).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        if let Some(after_ms) = self.first_after_ms.take() {
            return or_default(self.archive.newest(self.last_event, after_ms, FIRST_EVENTS_MAX));
        }
        if self.after_event >= self.last_event {
            return vec![];
        }
        let read = or_default(self.archive.events(None, self.after_event, EVENTS_MAX));
        let events: Vec<Event> = read.into_iter().take_while(|event| event.id <= self.last_event).collect();
        // No further events: the rest was deleted or cannot be read.
        self.after_event = events.last().map_or(self.last_event, |event| event.id);
        events
    }
}

/// Returns what was read. If history cannot be read, logs the cause, and the viewer receives the rest.
fn or_default<T: Default>(read: Result<T, store::Error>) -> T {
    read.inspect_err(log_unreadable).unwrap_or_default()
}

fn log_unreadable(error: &store::Error) {
    tracing::warn!(target: HTTP, %error, "cannot read what a viewer missed");
}

/// Logs that a thread ended without a result.
fn log_end(error: &JoinError) {
    tracing::error!(target: HTTP, %error, "cannot read what a viewer missed");
}

/// Events that a connected viewer missed because it was too slow for the queue.
#[derive(Debug)]
pub struct MissedEvents {
    archive: Arc<dyn Archive>,
    after: u64,
    reading: Option<JoinHandle<Option<Vec<Broadcast>>>>,
}

impl MissedEvents {
    /// Creates the sequence of events after a number.
    pub fn new(state: &State, after: u64) -> Self {
        Self { archive: Arc::clone(&state.archive), after, reading: None }
    }

    /// Reads the next events: empty at the end, `None` if the history cannot be read. Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<Broadcast>> {
        let (archive, after) = (Arc::clone(&self.archive), self.after);
        let reading = self.reading.get_or_insert_with(|| {
            let span = Span::current();
            spawn_blocking(move || {
                let _entered = span.enter();
                let events = archive.events(None, after, EVENTS_MAX).inspect_err(log_unreadable).ok()?;
                let broadcasts = |event: Event| Broadcast {
                    id: event.id,
                    encoded: EncodedMessage::new(&ServerMessage::Event(event)),
                };
                Some(events.into_iter().map(broadcasts).collect())
            })
        });
        let read: Option<Vec<Broadcast>> = reading.await.inspect_err(log_end).ok().flatten();
        self.reading = None;
        let broadcasts = read?;
        self.after = broadcasts.last().map_or(self.after, |broadcasts| broadcasts.id);
        Some(broadcasts)
    }
}
