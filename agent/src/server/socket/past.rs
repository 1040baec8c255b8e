//! What a viewer missed, read from history piece by piece while everything live goes on.
//!
//! Telemetry ends where the viewer's own subscription began: history is written once a second, so its newest moments
//! are taken from memory. Each piece is read when the one before was sent, so that a slow viewer holds one piece.

use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use headroom_shared::protocol::{After, ServerMessage, Slow, Telemetry, event::Event, history::Past as Message};
use tokio::task::{JoinHandle, spawn_blocking};

use super::State;
use crate::{
    clock::now_ms,
    server::{
        archive::Archive,
        hub::{Subscription, Told, encoded},
        spoken::{Spoken, Texts},
    },
};

/// How far back telemetry is sent at full rate. What is older is asked for in ranges, and seldom looked at so closely.
const TELEMETRY_TIME_MAX_MS: u64 = 10 * 60 * 1000;
/// Moments in one message: ten seconds, which of eight cards are about 200 KB.
const MOMENTS_MAX: usize = 100;
/// Events in one message.
const EVENTS_MAX: usize = 500;
/// Events that a viewer gets who has none: as many lines as a page has of what happened.
const FIRST_EVENTS_MAX: usize = 50;
/// How far back those go.
const FIRST_EVENTS_TIME_MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// How far the newest telemetry may be ahead of the clock: more than a clock that is set back is followed at.
const CLOCK_TOLERANCE_MS: u64 = 60_000;

/// Pieces still to be read.
#[derive(Debug)]
pub struct Past {
    todo: Option<Todo>,
    reading: Option<JoinHandle<(Utf8Bytes, Option<Todo>)>>,
}

#[derive(Debug)]
struct Todo {
    archive: Arc<dyn Archive>,
    /// Moments after this.
    after_ms: u64,
    /// Moments before this are history's to tell; `None` where that has none to tell any more.
    until_ms: Option<u64>,
    /// Moments that are newer, from memory.
    recent: Vec<Arc<Telemetry>>,
    /// Events after this, up to and with the other.
    after_event: u64,
    last_event: u64,
    /// The viewer has nothing yet, and is to be told the newest events after this time.
    first_after_ms: Option<u64>,
    slow: Option<Arc<Slow>>,
    from_ms: u64,
    spoken: Spoken,
}

impl Past {
    /// What a viewer that has something already missed; who has nothing gets the newest events that have a line, and
    /// the slow readings, so that it need not wait for the next.
    pub fn new(
        state: &State,
        after: Option<After>,
        subscription: &Subscription,
        last_event: u64,
        spoken: Spoken,
    ) -> Self {
        let now_ms = now_ms();
        let first_after_ms = after.is_none().then(|| now_ms.saturating_sub(FIRST_EVENTS_TIME_MAX_MS));
        let after = after.unwrap_or(After { time_ms: now_ms, event: last_event });
        // A time that is yet to come is of a clock that was set back since: nothing is known of what the viewer has.
        let is_to_come = after.time_ms > now_ms.saturating_add(CLOCK_TOLERANCE_MS);
        let after_time_ms = if is_to_come { 0 } else { after.time_ms };
        let after_ms = after_time_ms.max(now_ms.saturating_sub(TELEMETRY_TIME_MAX_MS));
        let recent: Vec<_> = subscription.recent.iter().filter(|moment| moment.time_ms > after_ms).cloned().collect();
        let todo = Todo {
            archive: Arc::clone(&state.archive),
            after_ms,
            until_ms: Some(subscription.recent.first().map_or(now_ms, |moment| moment.time_ms)),
            recent,
            // A number that history does not have yet is one of a history before this.
            after_event: if after.event > last_event { 0 } else { after.event },
            last_event,
            first_after_ms,
            slow: subscription.slow.clone(),
            from_ms: after_ms,
            spoken,
        };
        Self { todo: Some(todo), reading: None }
    }

    /// The next message; `None` after the last. May be given up and asked again.
    pub async fn next(&mut self) -> Option<Utf8Bytes> {
        if self.reading.is_none() {
            let todo = self.todo.take()?;
            self.reading = Some(spawn_blocking(move || todo.read()));
        }
        let read = self.reading.as_mut()?.await;
        self.reading = None;
        // A reading that broke off is the last.
        let (text, todo) = read.ok()?;
        self.todo = todo;
        Some(text)
    }
}

impl Todo {
    /// The next message, and what is left after it.
    fn read(mut self) -> (Utf8Bytes, Option<Self>) {
        let telemetry = self.moments();
        let events = self.events();
        let done = self.until_ms.is_none() && self.recent.is_empty() && self.after_event >= self.last_event;
        let slow = if done { self.slow.take().map(|slow| Slow::clone(&slow)) } else { None };
        let message = Message { telemetry, slow, events, done, from_ms: self.from_ms };
        (encoded(&self.spoken.say(ServerMessage::Past(message))), (!done).then_some(self))
    }

    fn moments(&mut self) -> Vec<Telemetry> {
        if let Some(until_ms) = self.until_ms {
            let read = if self.after_ms < until_ms {
                self.archive.telemetry_after(self.after_ms, MOMENTS_MAX)
            } else {
                Ok(vec![])
            };
            if read.is_err() {
                // What cannot be read may be asked for in ranges later.
                self.from_ms = until_ms;
            }
            let mut moments = read.unwrap_or_default();
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
            return self.archive.newest(self.last_event, after_ms, FIRST_EVENTS_MAX).unwrap_or_default();
        }
        if self.after_event >= self.last_event {
            return vec![];
        }
        let read = self.archive.events(None, self.after_event, EVENTS_MAX).unwrap_or_default();
        let events: Vec<Event> = read.into_iter().take_while(|event| event.id <= self.last_event).collect();
        // None, or none up to there: what is left was deleted, or cannot be read.
        self.after_event = events.last().map_or(self.last_event, |event| event.id);
        events
    }
}

/// Events that a viewer missed while it was there: it was too slow for the queue.
#[derive(Debug)]
pub struct Missed {
    archive: Arc<dyn Archive>,
    after: u64,
    reading: Option<JoinHandle<Option<Vec<Told>>>>,
}

impl Missed {
    /// Those after a number.
    pub fn new(state: &State, after: u64) -> Self {
        Self { archive: Arc::clone(&state.archive), after, reading: None }
    }

    /// The next of them, none where that is all, `None` where history cannot be read. May be given up and asked again.
    pub async fn next(&mut self) -> Option<Vec<Told>> {
        let (archive, after) = (Arc::clone(&self.archive), self.after);
        let reading = self.reading.get_or_insert_with(|| {
            spawn_blocking(move || {
                let events = archive.events(None, after, EVENTS_MAX).ok()?;
                let told = |event: Event| Told { id: event.id, texts: Texts::of(&ServerMessage::Event(event)) };
                Some(events.into_iter().map(told).collect())
            })
        });
        let read: Option<Vec<Told>> = reading.await.ok().flatten();
        self.reading = None;
        let told = read?;
        self.after = told.last().map_or(self.after, |told| told.id);
        Some(told)
    }
}
