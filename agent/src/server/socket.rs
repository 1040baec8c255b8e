//! `/ws`: who may open a socket, and the greeting. What a viewer then gets is [`viewer`]'s.
//!
//! A browser lets every page open a socket to every address, and sends along which page it is: a socket without an
//! Origin of ours is refused before it is one. A browser cannot send a token in a header of a socket either, so the
//! token comes in the first message, within a time.

mod past;
#[cfg(test)]
mod tests;
mod viewer;

use std::{fmt::Display, net::IpAddr, sync::Arc, time::Duration};

use axum::{
    extract::{
        FromRequestParts, Request, State as Extract,
        ws::{CloseFrame, Message, WebSocketUpgrade},
    },
    response::{IntoResponse, Response},
};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use headroom_shared::{
    protocol::{
        After, CLIENT_MESSAGE_BYTES_MAX, ClientMessage, Hello, PROTOCOL_VERSION, RefusalCode, ServerMessage,
        client::read_client_message,
    },
    text,
};
use tokio::time::timeout;

use super::{
    Peer, State,
    access::{AccessError, Grant, network},
    api::check_query,
    archive::asked,
    connection::room::{Leave, Seat},
    error::Refusal,
    hub::{Subscription, encoded},
    spoken::Spoken,
};
use crate::clock::now_ms;
use past::Past;
use viewer::Viewer;

/// Time for a greeting.
const HELLO_TIME_MAX: Duration = Duration::from_secs(5);
/// Time in which a client has to take one message. Telemetry that waits is lost and told; an event is not, and whoever
/// takes nothing for so long is sent away, to come back and ask for what it missed.
const SEND_TIME_MAX: Duration = Duration::from_secs(20);
/// Time for the last words, and for the client to close its side.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);
/// Runs in a greeting; the newest, and those that have not ended.
pub const RUNS_IN_HELLO: usize = 50;
/// Bytes that a socket reads at once. All that a client says is one message, and there are a thousand of them.
const READ_BYTES: usize = CLIENT_MESSAGE_BYTES_MAX;

/// Why a socket ends.
#[derive(Debug)]
enum End {
    /// The client left, or does not answer.
    Left,
    /// It is told why.
    Refused(headroom_shared::protocol::Refusal),
}

impl End {
    fn refused(code: RefusalCode, message: impl Display) -> Self {
        Self::Refused(headroom_shared::protocol::Refusal::new(code, message.to_string()))
    }

    /// That of a server that stops.
    fn stopping() -> Self {
        Self::refused(RefusalCode::Stopping, "The agent is stopping.")
    }
}

/// Opens a socket for a page of ours.
pub async fn open(Extract(state): Extract<Arc<State>>, Peer(from): Peer, request: Request) -> Response {
    let judged = check_query(request.uri().query())
        .and_then(|()| state.hosts.judge_origin(request.headers()).map_err(Refusal::from));
    if let Err(refusal) = judged {
        return refusal.into_response();
    }
    let (mut parts, _) = request.into_parts();
    let Ok(upgrade) = WebSocketUpgrade::from_request_parts(&mut parts, &state).await else {
        return Refusal::no_upgrade().into_response();
    };
    // Nobody knows yet who it is: those who say nothing take no place of a viewer's.
    let leave = Arc::default();
    let Some(seat) = state.greetings.enter(network(from), &leave) else {
        return Refusal::too_many().into_response();
    };
    let greeting = Greeting { seat, leave };
    upgrade
        .max_message_size(CLIENT_MESSAGE_BYTES_MAX)
        .max_frame_size(CLIENT_MESSAGE_BYTES_MAX)
        .read_buffer_size(READ_BYTES)
        // Each message leaves at once.
        .write_buffer_size(0)
        .on_upgrade(async move |mut socket| attend(&mut socket, &state, from, greeting).await)
}

/// A place of a socket whose client did not say yet who it is.
struct Greeting {
    #[expect(dead_code, reason = "held")]
    seat: Seat,
    leave: Arc<Leave>,
}

/// A socket from its first message to its last.
async fn attend<S, E>(socket: &mut S, state: &State, from: IpAddr, greeting: Greeting)
where
    S: Stream<Item = Result<Message, E>> + Sink<Message> + Unpin,
{
    let greeted = async {
        match greet(socket, state, from).await {
            Ok(greeted) => Some(greeted),
            // Last words take a second, for which it keeps its place: nobody has more sockets by being refused.
            Err(end) => {
                close(socket, end).await;
                None
            }
        }
    };
    let greeted = tokio::select! {
        greeted = greeted => greeted,
        // Without a word: whoever opens sockets without end would have as many that wait for their last one.
        () = greeting.leave.asked() => None,
    };
    drop(greeting);
    if let Some(greeted) = greeted {
        let end = stay(socket, state, greeted).await;
        close(socket, end).await;
    }
}

/// Who was let in, and what it has.
#[derive(Debug)]
struct Greeted {
    grant: Grant,
    after: Option<After>,
    spoken: Spoken,
}

/// Waits for the greeting and judges it.
async fn greet<S, E>(socket: &mut S, state: &State, from: IpAddr) -> Result<Greeted, End>
where
    S: Stream<Item = Result<Message, E>> + Unpin,
{
    let bad = |message: &str| End::refused(RefusalCode::BadHello, message);
    let mut stopping = state.stopping.subscribe();
    let first = async {
        loop {
            match socket.next().await {
                // Libraries ping when they please.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Text(text))) => return Ok(text),
                Some(Ok(Message::Binary(_))) => return Err(bad("The first message has to be a hello, as text.")),
                Some(Ok(Message::Close(_))) | None => return Err(End::Left),
                Some(Err(_)) => {
                    return Err(bad(&format!("A message is a frame of {CLIENT_MESSAGE_BYTES_MAX} bytes at most.")));
                }
            }
        }
    };
    let text = tokio::select! {
        first = timeout(HELLO_TIME_MAX, first) => first.unwrap_or_else(|_| Err(bad("No hello came in time.")))?,
        _ = stopping.wait_for(|stopping| *stopping) => return Err(End::stopping()),
    };
    let ClientMessage::Hello { token, after, language, .. } = read_client_message(&text).map_err(End::Refused)?;
    let spoken = language.and_then(|code| Spoken::of_code(&code)).unwrap_or_default();
    match state.access.judge(&token, from) {
        Ok(grant) => Ok(Greeted { grant, after, spoken }),
        Err(error @ AccessError::BadToken) => Err(End::refused(RefusalCode::BadToken, error)),
        Err(error) => Err(End::refused(RefusalCode::TooMany, error)),
    }
}

/// Says hello and tells everything until the viewer leaves.
async fn stay<S, E>(socket: &mut S, state: &State, Greeted { grant, after, spoken }: Greeted) -> End
where
    S: Stream<Item = Result<Message, E>> + Sink<Message> + Unpin,
{
    let spoken = spoken.of_scope(grant.scope);
    let Ok(_place) = state.viewers.try_acquire() else {
        return End::refused(RefusalCode::TooMany, text::TOO_MANY_VIEWERS);
    };
    let _counted = state.hub.viewer();
    let changes = state.access.changes();
    // From here on nothing is missed; what was before is read behind it.
    let mut subscription = state.hub.subscribe();
    let (hello, last_event) = hello(state, &grant, &mut subscription).await;
    let past = Past::new(state, after, &subscription, last_event, spoken);
    let mut viewer = Viewer::new(socket, state, grant, subscription, changes, last_event).speaking(spoken);
    if let Err(end) = viewer.send_text(encoded(&spoken.say(hello))).await {
        return end;
    }
    viewer.stay(past).await
}

/// The first message, and the newest event that it knows of. Where history cannot be read there are no runs in it, and
/// its state says why.
async fn hello(state: &State, grant: &Grant, subscription: &mut Subscription) -> (ServerMessage, u64) {
    let (last_event, runs, alerts) = asked(&state.archive, |archive| {
        // In this order: runs and alerts may be newer than the event, and what an event says of them comes once more.
        let last_event = archive.last_event()?;
        Ok((last_event, archive.runs(RUNS_IN_HELLO)?, archive.alerts()?))
    })
    .await
    .unwrap_or_default();
    let hello = Hello {
        protocol: PROTOCOL_VERSION,
        agent: env!("CARGO_PKG_VERSION").to_owned(),
        session: state.session.clone(),
        name: state.name.clone(),
        scope: grant.scope,
        time_ms: now_ms(),
        gpus: subscription.gpus.borrow_and_update().value.clone(),
        state: subscription.state.borrow_and_update().value.clone(),
        runs,
        last_event,
        alerts,
    };
    (ServerMessage::Hello(Box::new(hello)), last_event)
}

/// Says why, closes, and lets the client close too, or the last words would be lost on the way.
async fn close<S, E>(socket: &mut S, end: End)
where
    S: Stream<Item = Result<Message, E>> + Sink<Message> + Unpin,
{
    let End::Refused(refusal) = end else { return };
    let code = match refusal.code {
        RefusalCode::Stopping => axum::extract::ws::close_code::AWAY,
        RefusalCode::TooMany | RefusalCode::TooSlow => axum::extract::ws::close_code::AGAIN,
        _ => axum::extract::ws::close_code::POLICY,
    };
    let last_words = async {
        let text = encoded(&ServerMessage::Refused(refusal));
        let frame = CloseFrame { code, reason: "refused".into() };
        if socket.send(Message::Text(text)).await.is_ok() && socket.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = socket.next().await {}
        }
    };
    let _ = timeout(CLOSE_TIME_MAX, last_words).await;
}
