//! `/ws`: the handshake and greeting of a viewer's WebSocket. [`viewer`] sends the rest.
//!
//! A browser lets any page open a socket to any address, and sends the page's `Origin`. The upgrade is refused unless
//! the `Origin` is allowed. Browsers cannot send headers with a socket, so the token is in the first message, within a
//! time limit.

mod past;
#[cfg(test)]
mod tests;
mod viewer;

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    extract::{
        FromRequestParts, Request, State as Extract,
        ws::{CloseFrame, Message, WebSocketUpgrade},
    },
    response::{IntoResponse, Response},
};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use headroom_protocol::{
    CLIENT_MESSAGE_BYTES_MAX, ClientMessage, Hello, PROTOCOL_VERSION, RefusalCode, ResumePoint, ServerMessage,
    client::read_client_message, message::Message as ProtocolMessage,
};
use headroom_text as text;
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};
use tracing::{Instrument, Span};

use super::{
    Peer, State,
    access::{AccessGrant, error::AccessError, network},
    archive::{RUNS_IN_HELLO, asked},
    audience::Audience,
    authorization::check_query,
    connection::limit::ConnectionPermit,
    error::ApiError,
    hub::Subscription,
    wire::encoded,
};
use headroom_agent_core::{clock::now_ms, logging::HTTP};
use past::PendingHistory;
use viewer::Viewer;

/// The time limit for the greeting.
const HELLO_TIME_MAX: Duration = Duration::from_secs(5);
/// The time limit for a client to receive one message. Telemetry that a slow client misses is dropped and reported.
/// Events are not dropped: the client is disconnected, and requests the missed events when it reconnects.
const SEND_TIME_MAX: Duration = Duration::from_secs(20);
/// The time limit for the last message and for the client's close frame.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);
/// The size of a socket's read buffer in bytes. A client sends only one message, and there may be a thousand sockets.
const READ_BYTES: usize = CLIENT_MESSAGE_BYTES_MAX;

/// The reason why a socket ends.
#[derive(Debug)]
enum End {
    /// The client left or does not respond.
    Left,
    /// The server closes the socket with this refusal.
    Refused(headroom_protocol::Refusal),
}

impl End {
    fn refused(code: RefusalCode, message: impl Into<ProtocolMessage>) -> Self {
        Self::Refused(headroom_protocol::Refusal::new(code, message.into()))
    }

    /// Creates a refusal whose message is not translated.
    fn refused_plainly(code: RefusalCode, message: &str) -> Self {
        Self::refused(code, ProtocolMessage::plain(message))
    }

    /// Logs the end without its message, which may quote the client.
    fn log(&self) {
        match self {
            Self::Left => tracing::debug!(target: HTTP, "a viewer left"),
            Self::Refused(refusal) if refusal.code == RefusalCode::BadToken => {
                tracing::info!(target: HTTP, code = ?refusal.code, "refused");
            }
            Self::Refused(refusal) => tracing::debug!(target: HTTP, code = ?refusal.code, "the socket is closed"),
        }
    }

    /// Creates the refusal of a server that shuts down.
    fn stopping() -> Self {
        Self::refused_plainly(RefusalCode::Stopping, "The agent is stopping.")
    }
}

/// Upgrades a request of an allowed page to a socket.
pub async fn open(Extract(state): Extract<Arc<State>>, Peer(from): Peer, request: Request) -> Response {
    let judged = check_query(request.uri().query())
        .and_then(|()| state.hosts.judge_origin(request.headers()).map_err(ApiError::from));
    if let Err(refusal) = judged {
        return refusal.into_response();
    }
    let (mut parts, _) = request.into_parts();
    let Ok(upgrade) = WebSocketUpgrade::from_request_parts(&mut parts, &state).await else {
        return ApiError::no_upgrade().into_response();
    };
    // The client is not authenticated yet, so it occupies a seat for greetings, not one for viewers.
    let evicted = CancellationToken::new();
    let Some(seat) = state.greetings.enter(network(from), &evicted) else {
        return ApiError::too_many().into_response();
    };
    let greeting = Greeting { seat, evicted, tracked: state.sockets.token() };
    // The session has the ID of its request.
    let span = Span::current();
    upgrade
        .max_message_size(CLIENT_MESSAGE_BYTES_MAX)
        .max_frame_size(CLIENT_MESSAGE_BYTES_MAX)
        .read_buffer_size(READ_BYTES)
        // Sends each message immediately.
        .write_buffer_size(0)
        .on_upgrade(move |mut socket| async move { attend(&mut socket, &state, from, greeting).await }.instrument(span))
}

/// The seat of a socket that has not sent its greeting.
struct Greeting {
    seat: ConnectionPermit,
    evicted: CancellationToken,
    /// Held until the socket ends.
    tracked: TaskTrackerToken,
}

/// Serves a socket from its first message to its last.
async fn attend<S, E>(socket: &mut S, state: &State, from: IpAddr, greeting: Greeting)
where
    S: Stream<Item = Result<Message, E>> + Sink<Message> + Unpin,
{
    let Greeting { seat, evicted, tracked: _tracked } = greeting;
    let greeted = async {
        match greet(socket, state, from).await {
            Ok(greeted) => Some(greeted),
            // The refusal takes up to a second. It keeps its seat for that time, which bounds the number of refused
            // sockets.
            Err(end) => {
                end.log();
                close(socket, end).await;
                None
            }
        }
    };
    let greeted = tokio::select! {
        greeted = greeted => greeted,
        // An evicted socket gets no refusal. A flood of sockets would otherwise leave as many that wait for theirs.
        () = evicted.cancelled() => None,
    };
    drop(seat);
    if let Some(greeted) = greeted {
        tracing::debug!(target: HTTP, scope = ?greeted.grant.scope, "a viewer connected");
        let end = stay(socket, state, greeted).await;
        end.log();
        close(socket, end).await;
    }
}

/// An authenticated client, and the data that it already has.
#[derive(Debug)]
struct AuthenticatedClient {
    grant: AccessGrant,
    after: Option<ResumePoint>,
}

/// Waits for the greeting and authenticates the client.
async fn greet<S, E>(socket: &mut S, state: &State, from: IpAddr) -> Result<AuthenticatedClient, End>
where
    S: Stream<Item = Result<Message, E>> + Unpin,
{
    let bad = |message: &str| End::refused_plainly(RefusalCode::BadHello, message);
    let mut stopping = state.stopping.subscribe();
    let first = async {
        loop {
            match socket.next().await {
                // Libraries may ping at any time.
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
    let ClientMessage::Hello { token, after, .. } = read_client_message(&text).map_err(End::Refused)?;
    match state.access.judge(&token, from) {
        Ok(grant) => Ok(AuthenticatedClient { grant, after }),
        Err(error @ AccessError::BadToken) => Err(End::refused(RefusalCode::BadToken, error.text())),
        Err(error) => Err(End::refused(RefusalCode::TooMany, error.text())),
    }
}

/// Sends the hello message and then all data until the viewer leaves.
async fn stay<S, E>(socket: &mut S, state: &State, AuthenticatedClient { grant, after }: AuthenticatedClient) -> End
where
    S: Stream<Item = Result<Message, E>> + Sink<Message> + Unpin,
{
    let audience = Audience(grant.scope);
    let Ok(_place) = state.viewers.try_acquire() else {
        return End::refused(RefusalCode::TooMany, text::TOO_MANY_VIEWERS);
    };
    let _counted = state.hub.viewer();
    let changes = state.access.changes();
    // The subscription begins here, and older data is read from the history.
    let mut subscription = state.hub.subscribe();
    let (hello, last_event) = hello(state, &grant, &mut subscription).await;
    let past = PendingHistory::new(state, after, &subscription, last_event, audience);
    let mut viewer = Viewer::new(socket, state, grant, subscription, changes, last_event);
    if let Err(end) = viewer.send_text(encoded(&audience.shown(hello))).await {
        return end;
    }
    viewer.stay(past).await
}

/// Returns the hello message, and the newest event that it covers. If the history cannot be read, the message has no
/// runs, and its state contains the reason.
async fn hello(state: &State, grant: &AccessGrant, subscription: &mut Subscription) -> (ServerMessage, u64) {
    let (last_event, runs, alerts) = asked(&state.archive, |archive| {
        // In this order, runs and alerts may be newer than the event. Events about them are then sent once more.
        let last_event = archive.last_event()?;
        Ok((last_event, archive.runs(RUNS_IN_HELLO)?, archive.alerts()?))
    })
    .await
    .unwrap_or_else(|error| {
        tracing::warn!(target: HTTP, %error, "cannot read history for a viewer");
        Default::default()
    });
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

/// Sends the refusal, closes, and waits for the client's close frame, or else the refusal may be lost.
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
