//! One viewer, from its greeting to its end: everything that is told, in turn, as fast as it takes it.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::ws::{Message, Utf8Bytes},
};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use headroom_shared::protocol::{
    RefusalCode, ServerMessage,
    state::{HistoryState, State as Sources},
};
use tokio::{
    sync::{broadcast::error::RecvError, watch},
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until, timeout},
};

use super::{
    End, SEND_TIME_MAX, State,
    past::{Missed, Past},
};
use crate::server::{
    access::Grant,
    hub::{Subscription, Told, encoded},
};

/// How often a viewer is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(15);
/// How long its answer may take. What it did not read yet stands before the question: some seconds of it.
const PONG_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a viewer may be behind in events, however much it takes of them.
const BEHIND_TIME_MAX: Duration = Duration::from_secs(60);
/// Messages of a client after its greeting, at once. There are none to send but answers to pings; whoever goes on
/// talking is no page of ours.
const FURTHER_MESSAGES_BURST: u32 = 64;
/// After how long that many may come anew.
const FURTHER_MESSAGES_TIME: Duration = Duration::from_secs(60);

/// One viewer.
pub struct Viewer<'a, S> {
    socket: &'a mut S,
    state: &'a State,
    grant: Grant,
    changes: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    subscription: Subscription,
    /// The newest event it has; what comes with a number up to it was sent already.
    last_event: u64,
    pings: Interval,
    pong_until: Option<Instant>,
    missed: Option<Missed>,
    behind_until: Option<Instant>,
    n_further: u32,
    further_since: Instant,
}

impl<'a, S, E> Viewer<'a, S>
where
    S: Stream<Item = Result<Message, E>> + Sink<Message> + Unpin,
{
    pub fn new(
        socket: &'a mut S,
        state: &'a State,
        grant: Grant,
        subscription: Subscription,
        changes: watch::Receiver<u64>,
        last_event: u64,
    ) -> Self {
        let now = Instant::now();
        let mut pings = interval_at(now + PING_EVERY, PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            socket,
            state,
            grant,
            changes,
            stopping: state.stopping.subscribe(),
            subscription,
            last_event,
            pings,
            pong_until: None,
            missed: None,
            behind_until: None,
            n_further: 0,
            further_since: now,
        }
    }

    pub async fn send_text(&mut self, text: Utf8Bytes) -> Result<(), End> {
        self.send(Message::Text(text)).await
    }

    async fn send(&mut self, message: Message) -> Result<(), End> {
        match timeout(SEND_TIME_MAX, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Left),
            Err(_) => Err(too_slow()),
        }
    }

    /// Tells everything until it ends.
    pub async fn stay(mut self, past: Past) -> End {
        let mut past = Some(past);
        loop {
            if let Err(end) = self.step(&mut past).await {
                return end;
            }
        }
    }

    /// Waits for the next thing to happen and tells it.
    async fn step(&mut self, past: &mut Option<Past>) -> Result<(), End> {
        // Every branch only waits; what it brings is worked on below, where nothing can interrupt it.
        tokio::select! {
            () = stopped(&mut self.stopping) => Err(End::stopping()),
            _ = self.changes.changed() => self.check(),
            () = until(self.pong_until) => Err(End::Left),
            () = until(self.behind_until) => Err(too_slow()),
            _ = self.pings.tick() => {
                self.pong_until = self.pong_until.or(Some(Instant::now() + PONG_TIME_MAX));
                self.send(Message::Ping(Bytes::new())).await
            }
            said = self.socket.next() => self.hear(said.as_ref()),
            told = self.subscription.events.recv(), if self.missed.is_none() => self.event(told).await,
            told = next_missed(&mut self.missed) => self.catch_up(told).await,
            Ok(()) = self.subscription.gpus.changed() => {
                let text = self.subscription.gpus.borrow_and_update().text.clone();
                self.send_text(text).await
            }
            Ok(()) = self.subscription.state.changed() => {
                let text = self.subscription.state.borrow_and_update().text.clone();
                self.send_text(text).await
            }
            told = self.subscription.live.recv() => self.live(told).await,
            text = next_past(past) => match text {
                Some(text) => self.send_text(text).await,
                None => {
                    *past = None;
                    Ok(())
                }
            },
        }
    }

    /// Whether it may stay, after tokens changed.
    fn check(&self) -> Result<(), End> {
        if self.state.access.holds(&self.grant) {
            Ok(())
        } else {
            Err(End::refused(RefusalCode::BadToken, "The token was revoked, or its scope changed."))
        }
    }

    /// A client has nothing to say but that it is still there.
    fn hear(&mut self, said: Option<&Result<Message, E>>) -> Result<(), End> {
        match said {
            None | Some(Err(_) | Ok(Message::Close(_))) => return Err(End::Left),
            Some(Ok(_)) => self.pong_until = None,
        }
        if self.further_since.elapsed() >= FURTHER_MESSAGES_TIME {
            (self.n_further, self.further_since) = (0, Instant::now());
        }
        self.n_further += 1;
        if self.n_further > FURTHER_MESSAGES_BURST {
            return Err(End::refused(RefusalCode::BadHello, "After its hello a client has nothing more to say."));
        }
        Ok(())
    }

    async fn live(&mut self, told: Result<Utf8Bytes, RecvError>) -> Result<(), End> {
        match told {
            Ok(text) => self.send_text(text).await,
            Err(RecvError::Lagged(n_messages)) => self.send_text(encoded(&ServerMessage::Lost { n_messages })).await,
            Err(RecvError::Closed) => Err(End::stopping()),
        }
    }

    async fn event(&mut self, told: Result<Told, RecvError>) -> Result<(), End> {
        match told {
            Ok(Told { id, .. }) if id != 0 && id <= self.last_event => Ok(()),
            Ok(Told { id, text }) => {
                self.last_event = self.last_event.max(id);
                self.send_text(text).await
            }
            Err(RecvError::Lagged(_)) => {
                // Those without a number are in no history: who missed one comes back and starts anew.
                let Sources { history: HistoryState::Kept { .. }, .. } = self.state.hub.state() else {
                    return Err(too_slow());
                };
                self.behind_until = self.behind_until.or(Some(Instant::now() + BEHIND_TIME_MAX));
                // The queue is left at its end; up to there history has them.
                self.subscription.events = self.state.hub.events();
                self.missed = Some(Missed::new(self.state, self.last_event));
                Ok(())
            }
            Err(RecvError::Closed) => Err(End::stopping()),
        }
    }

    /// Sends what was missed; with the last of it the queue goes on.
    async fn catch_up(&mut self, told: Option<Vec<Told>>) -> Result<(), End> {
        let Some(told) = told else { return Err(too_slow()) };
        if told.is_empty() {
            self.missed = None;
            self.behind_until = None;
        }
        for Told { id, text } in told {
            self.last_event = self.last_event.max(id);
            self.send_text(text).await?;
        }
        Ok(())
    }
}

fn too_slow() -> End {
    End::refused(RefusalCode::TooSlow, "The page did not take what happened for too long. It may come back at once.")
}

/// When the server is told to stop.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// Never, where there is no deadline.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn next_missed(missed: &mut Option<Missed>) -> Option<Vec<Told>> {
    match missed {
        Some(missed) => missed.next().await,
        None => std::future::pending().await,
    }
}

async fn next_past(past: &mut Option<Past>) -> Option<Utf8Bytes> {
    match past {
        Some(past) => past.next().await,
        None => std::future::pending().await,
    }
}
