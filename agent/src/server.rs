//! The server: the page from memory, a socket for what is live, and answers to questions.
//!
//! [`app`] takes all it needs, so tests can build one of their own; [`serve`] takes its end as a future. Every answer
//! passes [`headers`], every request passes [`host`] first: a web page that the user happens to open can reach a local
//! server too.

pub mod access;
pub mod api;
pub mod archive;
pub mod assets;
mod connection;
mod encoding;
mod error;
mod etag;
mod faults;
mod headers;
pub mod host;
pub mod hub;
#[cfg(test)]
pub mod made;
mod metrics;
pub mod orders;
mod secrets;
mod share;
mod socket;
mod spoken;
mod stall;
#[cfg(test)]
mod tests;
pub mod tls;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{Router, extract::FromRequestParts, http::request::Parts, middleware, routing::get};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::{Semaphore, watch},
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};

use access::{Access, network};
use api::checkpoint::CHECKPOINT_READS_MAX;
use archive::Archive;
use assets::Assets;
use connection::{Line, Rooms, Setting, WAITING_MAX, WORKING_MAX, room::Room};
use error::Refusal;
use host::Hosts;
use hub::Hub;
use orders::Orders;
use tls::Tls;

/// Viewers at once: a class with its phones, or every page that a fleet's owners leave open.
pub const VIEWERS_MAX: u32 = 1024;
/// Sockets at once whose client did not say yet who it is. They have five seconds, and less where more come: the oldest
/// makes room.
const GREETINGS_MAX: u32 = 512;
/// Connections that are taken before all others have their turn. Those that make room for them close their files then,
/// and what their clients have sent is read: a thousand come before one of them has to go.
const ACCEPTS_PER_TURN: u32 = 128;
/// Files that the program has open besides: its history's, checkpoints that are fetched, the listener, a terminal.
const OTHER_FILES: u32 = 128;
/// Files that may have to be open at once.
pub const FILES_MAX: u32 = VIEWERS_MAX + GREETINGS_MAX + WAITING_MAX + WORKING_MAX + ACCEPTS_PER_TURN + OTHER_FILES;
/// Connections that wait until they are taken. All of a rig's viewers come back at once when it starts anew. Four times
/// as many were tried: while others open them without end whoever asks waits behind all of them, for a second each time.
const BACKLOG: u32 = 1024;
/// Bytes that wait in the system for one client, which doubles them. A queue of megabytes would show a slow viewer the
/// past and hide from us that it is slow; one page of ours takes about twice as much in all.
const SEND_BUFFER_BYTES: u32 = 64 * 1024;
/// Time for answers under way and for sockets to be told, once the server is told to stop.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(3);
/// Pause after the system refuses a connection, as it does when files run out: retrying at once would only spin.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
/// And a further one where nobody could be sent away for it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What answers are made of.
#[derive(Debug)]
pub struct State {
    /// The page.
    pub assets: Assets,
    /// The names this server goes by.
    pub hosts: Hosts,
    /// Who may do what.
    pub access: Access,
    /// What is live.
    pub hub: Hub,
    /// What was.
    pub archive: Arc<dyn Archive>,
    /// The agent's own runs.
    pub orders: Arc<dyn Orders>,
    /// What the machine is called.
    pub name: String,
    /// Of this start.
    pub session: String,
    /// Places of those who watch.
    viewers: Semaphore,
    /// Places of sockets whose client did not say yet who it is.
    greetings: Arc<Room>,
    /// Places of answers that read one.
    checkpoint_reads: Arc<Semaphore>,
    /// Turns true once.
    stopping: watch::Sender<bool>,
}

impl State {
    /// A server's, with nobody there.
    pub fn new(
        assets: Assets,
        hosts: Hosts,
        access: Access,
        hub: Hub,
        (archive, orders): (Arc<dyn Archive>, Arc<dyn Orders>),
        (name, session): (String, String),
    ) -> Self {
        Self {
            assets,
            hosts,
            access,
            hub,
            archive,
            orders,
            name,
            session,
            viewers: Semaphore::new(VIEWERS_MAX as usize),
            greetings: Arc::new(Room::new(GREETINGS_MAX)),
            checkpoint_reads: Arc::new(Semaphore::new(CHECKPOINT_READS_MAX)),
            stopping: watch::Sender::new(false),
        }
    }

    /// Waits until every socket was told and has ended.
    async fn sockets_end(&self) {
        self.greetings.emptied().await;
        let _ = self.viewers.acquire_many(VIEWERS_MAX).await;
    }
}

/// The address at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        // The connection puts it there; a request without one is a bug that lets nobody in.
        parts.extensions.get::<Self>().copied().ok_or_else(Refusal::internal)
    }
}

/// Every route, with the checks that each request passes.
pub fn app(state: Arc<State>) -> Router {
    api::routes(&state)
        .route("/ws", get(socket::open))
        .method_not_allowed_fallback(async || Refusal::method())
        .fallback(assets::page)
        .layer(middleware::from_fn_with_state(Arc::clone(&state), host::check))
        .layer(middleware::from_fn(connection::refuse))
        .layer(middleware::from_fn(error::dress))
        .layer(middleware::from_fn_with_state(Arc::clone(&state), share::share))
        // Outermost, so that a refusal carries them too.
        .layer(middleware::from_fn(headers::add))
        .with_state(state)
}

/// Opens the port.
///
/// # Errors
/// The address cannot be had.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // An agent that starts anew finds its port, though connections of the one before linger. On Windows the option
    // would let two programs have it.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Answers connections until `shutdown` resolves, then ends those that are open, within a limit.
pub async fn serve(listener: TcpListener, state: Arc<State>, tls: Option<Tls>, shutdown: impl Future<Output = ()>) {
    let setting = Setting { app: app(Arc::clone(&state)), tls, stopping: state.stopping.subscribe() };
    // A task as those of the connections are: it gets its turn with them, and not before them.
    let mut taking = JoinSet::new();
    taking.spawn(take(listener, setting, Arc::clone(&state)));
    shutdown.await;
    state.stopping.send_replace(true);
    let ended = async {
        if let Some(Ok(mut connections)) = taking.join_next().await {
            while connections.join_next().await.is_some() {}
        }
        state.sockets_end().await;
    };
    // Whoever has not finished by then is cut off as the set is dropped.
    let _ = timeout(SHUTDOWN_TIME_MAX, ended).await;
}

/// Takes connections until the server stops, whoever has to make room for them; those that are open then.
async fn take(listener: TcpListener, setting: Setting, state: Arc<State>) -> JoinSet<()> {
    let rooms = Arc::new(Rooms::new());
    let mut connections = JoinSet::new();
    let mut stopping = setting.stopping.clone();
    let mut n_taken = 0;
    loop {
        let accepted = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return connections,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, address)) => {
                let line = Line::new(&rooms, network(address.ip()));
                connections.spawn(connection::answer(stream, Peer(address.ip()), line, setting.clone()));
            }
            // It was broken off before it was taken.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => {
                // Those that were just taken have their turn first: what they have brought is read by then.
                sleep(ACCEPT_PAUSE_MIN).await;
                if !rooms.thin() && !state.greetings.thin() {
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        n_taken += 1;
        if n_taken % ACCEPTS_PER_TURN == 0 {
            yield_now().await;
        }
    }
}
