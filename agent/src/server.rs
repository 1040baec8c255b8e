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
mod headers;
pub mod host;
pub mod hub;
#[cfg(test)]
pub mod made;
mod metrics;
pub mod orders;
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
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use access::Access;
use api::checkpoint::CHECKPOINT_READS_MAX;
use archive::Archive;
use assets::Assets;
use error::Refusal;
use host::Hosts;
use hub::Hub;
use orders::Orders;
use tls::Tls;

/// Viewers at once: a class with its phones, or every page that a fleet's owners leave open.
pub const VIEWERS_MAX: u32 = 1024;
/// Sockets at once whose client did not say yet who it is. They have five seconds.
const GREETINGS_MAX: u32 = 256;
/// Connections at once that are no sockets; further ones wait in the system's queue. A browser opens six.
const CONNECTIONS_MAX: u32 = 512;
/// Files that the program has open besides: its history's, checkpoints that are fetched, the listener, a terminal.
const OTHER_FILES: u32 = 128;
/// Files that may have to be open at once.
pub const FILES_MAX: u32 = VIEWERS_MAX + GREETINGS_MAX + CONNECTIONS_MAX + OTHER_FILES;
/// Connections that wait until they are taken. All of a rig's viewers come back at once when it starts anew.
const BACKLOG: u32 = 1024;
/// Bytes that wait in the system for one client, which doubles them. A queue of megabytes would show a slow viewer the
/// past and hide from us that it is slow; one page of ours takes about twice as much in all.
const SEND_BUFFER_BYTES: u32 = 64 * 1024;
/// Time for answers under way and for sockets to be told, once the server is told to stop.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(3);
/// Pause after the system refuses a connection, as it does when files run out: retrying at once would only spin.
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
    greetings: Arc<Semaphore>,
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
            greetings: Arc::new(Semaphore::new(GREETINGS_MAX as usize)),
            checkpoint_reads: Arc::new(Semaphore::new(CHECKPOINT_READS_MAX)),
            stopping: watch::Sender::new(false),
        }
    }

    /// Waits until every socket was told and has ended.
    async fn sockets_end(&self) {
        let _ = self.greetings.acquire_many(GREETINGS_MAX).await;
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
    let app = app(Arc::clone(&state));
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        while connections.try_join_next().is_some() {}
        let Some((stream, peer, slot)) = accepted else { continue };
        let connection = connection::answer(stream, tls.clone(), peer, app.clone(), state.stopping.subscribe());
        connections.spawn(async move {
            connection.await;
            drop(slot);
        });
    }
    drop(listener);
    state.stopping.send_replace(true);
    let ended = async {
        while connections.join_next().await.is_some() {}
        state.sockets_end().await;
    };
    // Whoever has not finished by then is cut off as the set is dropped.
    let _ = timeout(SHUTDOWN_TIME_MAX, ended).await;
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, Peer, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, address)) => {
            // Answers leave in one piece; waiting for more of them only delays.
            let _ = stream.set_nodelay(true);
            Some((stream, Peer(address.ip()), slot))
        }
        Err(_) => {
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
