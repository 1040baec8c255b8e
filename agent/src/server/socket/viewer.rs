//! One viewer, from its greeting to its end: everything that is told, in turn, as fast as it takes it.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::ws::{Message, Utf8Bytes},
};
use futures_util::{Sink, SinkExt, Stream, StreamExt, stream::FuturesUnordered};
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
    spoken::Spoken,
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
    spoken: Spoken,
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
            spoken: Spoken::ENGLISH,
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

    /// In that language.
    pub fn speaking(self, spoken: Spoken) -> Self {
        Self { spoken, ..self }
    }

    pub async fn send_text(&mut self, text: Utf8Bytes) -> Result<(), End> {
        send(self.socket, Message::Text(text)).await
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

    /// Tells what is live until something else happens, and tells that.
    async fn step(&mut self, past: &mut Option<Past>) -> Result<(), End> {
        let Self { socket, changes, stopping, subscription, pings, pong_until, behind_until, missed, .. } = self;
        let Subscription { live, events, state, gpus, .. } = subscription;
        let catches_up = missed.is_some();
        // Every branch only waits; what it brings is worked on below, where nothing can interrupt it.
        let seldom = async {
            tokio::select! {
                () = stopped(stopping) => Seldom::Stopping,
                _ = changes.changed() => Seldom::Access,
                () = until(*pong_until) => Seldom::NoPong,
                () = until(*behind_until) => Seldom::Behind,
                _ = pings.tick() => Seldom::Ping,
                told = events.recv(), if !catches_up => Seldom::Event(told),
                told = next_missed(missed) => Seldom::Missed(told),
                Ok(()) = gpus.changed() => Seldom::Gpus,
                Ok(()) = state.changed() => Seldom::State,
            }
        };
        // Asked only when one of these says so: a thousand viewers would each ask all of them at every moment.
        let mut seldom = FuturesUnordered::from_iter([seldom]);
        let happened = loop {
            tokio::select! {
                Some(seldom) = seldom.next() => break Happened::Seldom(seldom),
                said = socket.next() => break Happened::Said(said),
                told = live.recv() => tell_live(socket, told).await?,
                text = next_past(past) => match text {
                    Some(text) => send(socket, Message::Text(text)).await?,
                    None => *past = None,
                },
            }
        };
        drop(seldom);
        match happened {
            Happened::Said(said) => self.hear(said.as_ref()),
            Happened::Seldom(seldom) => self.seldom(seldom).await,
        }
    }

    async fn seldom(&mut self, seldom: Seldom) -> Result<(), End> {
        match seldom {
            Seldom::Stopping => Err(End::stopping()),
            Seldom::Access => self.check(),
            Seldom::NoPong => Err(End::Left),
            Seldom::Behind => Err(too_slow()),
            Seldom::Ping => {
                self.pong_until = self.pong_until.or(Some(Instant::now() + PONG_TIME_MAX));
                send(self.socket, Message::Ping(Bytes::new())).await
            }
            Seldom::Event(told) => self.event(told).await,
            Seldom::Missed(told) => self.catch_up(told).await,
            Seldom::Gpus => {
                let text = self.subscription.gpus.borrow_and_update().texts.of_language(self.spoken);
                self.send_text(text).await
            }
            Seldom::State => {
                let text = self.subscription.state.borrow_and_update().texts.of_language(self.spoken);
                self.send_text(text).await
            }
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

    async fn event(&mut self, told: Result<Told, RecvError>) -> Result<(), End> {
        match told {
            Ok(Told { id, .. }) if id != 0 && id <= self.last_event => Ok(()),
            Ok(Told { id, texts }) => {
                self.last_event = self.last_event.max(id);
                self.send_text(texts.of_language(self.spoken)).await
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
        for Told { id, texts } in told {
            self.last_event = self.last_event.max(id);
            self.send_text(texts.of_language(self.spoken)).await?;
        }
        Ok(())
    }
}

/// What does not happen at every moment.
enum Seldom {
    Stopping,
    Access,
    NoPong,
    Behind,
    Ping,
    Event(Result<Told, RecvError>),
    Missed(Option<Vec<Told>>),
    Gpus,
    State,
}

/// What ends the telling of what is live.
enum Happened<E> {
    Seldom(Seldom),
    Said(Option<Result<Message, E>>),
}

async fn send<S: Sink<Message> + Unpin>(socket: &mut S, message: Message) -> Result<(), End> {
    match timeout(SEND_TIME_MAX, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End::Left),
        Err(_) => Err(too_slow()),
    }
}

async fn tell_live<S>(socket: &mut S, told: Result<Utf8Bytes, RecvError>) -> Result<(), End>
where
    S: Sink<Message> + Unpin,
{
    let text = match told {
        Ok(text) => text,
        Err(RecvError::Lagged(n_messages)) => encoded(&ServerMessage::Lost { n_messages }),
        Err(RecvError::Closed) => return Err(End::stopping()),
    };
    send(socket, Message::Text(text)).await
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
