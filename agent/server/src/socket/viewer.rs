//! A viewer's connection after the greeting: sends all live data in order, as fast as the viewer receives it.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::ws::{Message, Utf8Bytes},
};
use futures_util::{Sink, SinkExt, Stream, StreamExt, stream::FuturesUnordered};
use headroom_protocol::{
    RefusalCode, ServerMessage,
    state::{HistoryState, State as Sources},
};
use tokio::{
    sync::{broadcast::error::RecvError, watch},
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until, timeout},
};

use super::{
    End, SEND_TIME_MAX, State,
    past::{MissedEvents, PendingHistory},
};
use crate::{
    access::AccessGrant,
    hub::{Broadcast, Hub, Subscription},
    wire::encoded,
};

/// The period of pings.
const PING_EVERY: Duration = Duration::from_secs(15);
/// The time limit for a pong. Data sent before the ping, up to some seconds of it, must be read first.
const PONG_TIME_MAX: Duration = Duration::from_secs(20);
/// The maximum time for which a viewer may lag behind in events, even if it makes progress.
const BEHIND_TIME_MAX: Duration = Duration::from_secs(60);
/// The burst of messages that a client may send after its greeting. Clients only need to send pongs; any other client
/// is not a page of this server.
const FURTHER_MESSAGES_BURST: u32 = 64;
/// The period after which that burst is allowed again.
const FURTHER_MESSAGES_TIME: Duration = Duration::from_secs(60);

/// The connection of one viewer.
pub struct Viewer<'a, S> {
    socket: &'a mut S,
    state: &'a State,
    grant: AccessGrant,
    changes: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    subscription: Subscription,
    /// The newest event that was sent; events up to this number are skipped.
    last_event: u64,
    pings: Interval,
    pong_until: Option<Instant>,
    missed: Option<MissedEvents>,
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
        grant: AccessGrant,
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
        send(self.socket, Message::Text(text)).await
    }

    /// Sends data until the connection ends.
    pub async fn stay(mut self, past: PendingHistory) -> End {
        let mut past = Some(past);
        loop {
            if let Err(end) = self.step(&mut past).await {
                return end;
            }
        }
    }

    /// Sends live data until another event happens, and then handles that event.
    async fn step(&mut self, past: &mut Option<PendingHistory>) -> Result<(), End> {
        let Self { socket, changes, stopping, subscription, pings, pong_until, behind_until, missed, .. } = self;
        let hub = &self.state.hub;
        let Subscription { live, events, state, gpus, .. } = subscription;
        let catches_up = missed.is_some();
        // Each branch only waits. The results are handled below, where nothing can cancel the handler.
        let seldom = async {
            tokio::select! {
                () = stopped(stopping) => RareEvent::Stopping,
                _ = changes.changed() => RareEvent::Access,
                () = until(*pong_until) => RareEvent::NoPong,
                () = until(*behind_until) => RareEvent::Behind,
                _ = pings.tick() => RareEvent::Ping,
                received = events.recv(), if !catches_up => RareEvent::Event(received),
                received = next_missed(missed) => RareEvent::Missed(received),
                Ok(()) = gpus.changed() => RareEvent::Gpus,
                Ok(()) = state.changed() => RareEvent::State,
            }
        };
        // Polled only when one of the branches wakes it. Otherwise each of a thousand viewers would poll all branches
        // at every moment.
        let mut seldom = FuturesUnordered::from_iter([seldom]);
        let happened = loop {
            tokio::select! {
                Some(seldom) = seldom.next() => break ViewerEvent::Seldom(seldom),
                said = socket.next() => break ViewerEvent::Said(said),
                received = live.recv() => tell_live(socket, hub, received).await?,
                text = next_past(past) => match text {
                    Some(text) => send(socket, Message::Text(text)).await?,
                    None => *past = None,
                },
            }
        };
        drop(seldom);
        match happened {
            ViewerEvent::Said(said) => self.hear(said.as_ref()),
            ViewerEvent::Seldom(seldom) => self.seldom(seldom).await,
        }
    }

    async fn seldom(&mut self, seldom: RareEvent) -> Result<(), End> {
        match seldom {
            RareEvent::Stopping => Err(End::stopping()),
            RareEvent::Access => self.check(),
            RareEvent::NoPong => Err(End::Left),
            RareEvent::Behind => Err(too_slow()),
            RareEvent::Ping => {
                self.pong_until = self.pong_until.or(Some(Instant::now() + PONG_TIME_MAX));
                send(self.socket, Message::Ping(Bytes::new())).await
            }
            RareEvent::Event(received) => self.event(received).await,
            RareEvent::Missed(received) => self.catch_up(received).await,
            RareEvent::Gpus => {
                let text = self.subscription.gpus.borrow_and_update().encoded.of_scope(self.grant.scope);
                self.send_text(text).await
            }
            RareEvent::State => {
                let text = self.subscription.state.borrow_and_update().encoded.of_scope(self.grant.scope);
                self.send_text(text).await
            }
        }
    }

    /// Checks the viewer's token again after tokens changed.
    fn check(&self) -> Result<(), End> {
        if self.state.access.holds(&self.grant) {
            Ok(())
        } else {
            Err(End::refused_plainly(RefusalCode::BadToken, "The token was revoked, or its scope changed."))
        }
    }

    /// Handles a message of the client, which should only send pongs.
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
            return Err(End::refused_plainly(
                RefusalCode::BadHello,
                "After its hello a client has nothing more to say.",
            ));
        }
        Ok(())
    }

    async fn event(&mut self, received: Result<Broadcast, RecvError>) -> Result<(), End> {
        match received {
            Ok(Broadcast { id, .. }) if id != 0 && id <= self.last_event => Ok(()),
            Ok(Broadcast { id, encoded }) => {
                self.last_event = self.last_event.max(id);
                self.send_text(encoded.of_scope(self.grant.scope)).await
            }
            Err(RecvError::Lagged(_)) => {
                // Events without a number are not in the history. A viewer that missed one must reconnect.
                let Sources { history: HistoryState::Kept { .. }, .. } = self.state.hub.state() else {
                    return Err(too_slow());
                };
                self.behind_until = self.behind_until.or(Some(Instant::now() + BEHIND_TIME_MAX));
                // The new queue starts at the newest event; the history has the events before that.
                self.subscription.events = self.state.hub.events();
                self.missed = Some(MissedEvents::new(self.state, self.last_event));
                Ok(())
            }
            Err(RecvError::Closed) => Err(End::stopping()),
        }
    }

    /// Sends missed events. After the last of them, the queue continues.
    async fn catch_up(&mut self, received: Option<Vec<Broadcast>>) -> Result<(), End> {
        let Some(received) = received else { return Err(too_slow()) };
        if received.is_empty() {
            self.missed = None;
            self.behind_until = None;
        }
        for Broadcast { id, encoded } in received {
            self.last_event = self.last_event.max(id);
            self.send_text(encoded.of_scope(self.grant.scope)).await?;
        }
        Ok(())
    }
}

/// An event that is rarer than telemetry.
enum RareEvent {
    Stopping,
    Access,
    NoPong,
    Behind,
    Ping,
    Event(Result<Broadcast, RecvError>),
    Missed(Option<Vec<Broadcast>>),
    Gpus,
    State,
}

/// The event that ends a wait for live data.
enum ViewerEvent<E> {
    Seldom(RareEvent),
    Said(Option<Result<Message, E>>),
}

async fn send<S: Sink<Message> + Unpin>(socket: &mut S, message: Message) -> Result<(), End> {
    match timeout(SEND_TIME_MAX, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(End::Left),
        Err(_) => Err(too_slow()),
    }
}

async fn tell_live<S>(socket: &mut S, hub: &Hub, received: Result<Utf8Bytes, RecvError>) -> Result<(), End>
where
    S: Sink<Message> + Unpin,
{
    let text = match received {
        Ok(text) => text,
        Err(RecvError::Lagged(n_messages)) => {
            hub.dropped_for_viewer(n_messages);
            encoded(&ServerMessage::Lost { n_messages })
        }
        Err(RecvError::Closed) => return Err(End::stopping()),
    };
    send(socket, Message::Text(text)).await
}

fn too_slow() -> End {
    End::refused_plainly(
        RefusalCode::TooSlow,
        "The page did not take what happened for too long. It may come back at once.",
    )
}

/// Resolves when the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// Resolves at the deadline; never without one.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn next_missed(missed: &mut Option<MissedEvents>) -> Option<Vec<Broadcast>> {
    match missed {
        Some(missed) => missed.next().await,
        None => std::future::pending().await,
    }
}

async fn next_past(past: &mut Option<PendingHistory>) -> Option<Utf8Bytes> {
    match past {
        Some(past) => past.next().await,
        None => std::future::pending().await,
    }
}
