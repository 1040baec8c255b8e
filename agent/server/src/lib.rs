//! The HTTP server: the embedded page, a WebSocket for live data, and a REST API.
//!
//! [`app`] takes all of its dependencies as arguments, so that tests can build one. [`serve`] takes a future that
//! resolves at shutdown. Every response passes [`headers`], and every request passes [`host`] first. The latter is
//! necessary because any web page that the user opens can send requests to a local server.

pub mod access;
pub mod alerts;
pub mod api;
pub mod archive;
pub mod assets;
mod audience;
mod authorization;
mod blocking;
mod connection;
mod cors;
mod encoding;
mod error;
mod etag;
#[cfg(test)]
mod fakes;
mod faults;
pub mod figures;
mod headers;
pub mod host;
pub mod hub;
mod metrics;
pub mod orders;
mod request_id;
pub mod rig;
pub mod run_manager;
pub mod secrets;
mod socket;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod webhook;
mod wire;

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
use tokio_util::task::TaskTracker;

use access::{Access, network};
use api::checkpoint::CHECKPOINT_READS_MAX;
use archive::Archive;
use assets::Assets;
use connection::{ConnectionLimits, Line, Setting, WAITING_MAX, WORKING_MAX, limit::ConnectionLimit};
use error::ApiError;
use host::HostPolicy;
use hub::Hub;
use orders::Orders;
use tls::Tls;

use headroom_agent_core::logging::{HTTP, LastError};

/// The maximum number of simultaneous viewers: a class with its phones, or the open pages of a fleet's owners.
pub const VIEWERS_MAX: u32 = 1024;
/// The maximum number of sockets that have not sent a greeting. Each has five seconds. The oldest is closed early if
/// there are more.
const GREETINGS_MAX: u32 = 512;
/// The number of connections accepted before other tasks run. In that time, evicted connections close their files, and
/// data sent by new clients is read: a thousand connections are accepted before one must be evicted.
const ACCEPTS_PER_TURN: u32 = 128;
/// The number of other open files: the history's, checkpoints being downloaded, the listener, a terminal.
const OTHER_FILES: u32 = 128;
/// The maximum number of files that may be open at once.
pub const FILES_MAX: u32 = VIEWERS_MAX + GREETINGS_MAX + WAITING_MAX + WORKING_MAX + ACCEPTS_PER_TURN + OTHER_FILES;
/// The length of the listen queue. All viewers reconnect at once when the agent restarts. A queue of four times this
/// length was tried: during a connection flood, each new client then waited behind the whole queue, a second each time.
const BACKLOG: u32 = 1024;
/// The size of a connection's send buffer in bytes, which the system doubles. A buffer of megabytes would delay data
/// for a slow viewer, and would hide from the server that the viewer is slow. A page takes about twice as much in all.
const SEND_BUFFER_BYTES: u32 = 64 * 1024;
/// The time for pending responses and for closing sockets at shutdown.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(3);
/// The pause after the system fails to accept a connection, for example because files run out. An immediate retry would
/// only spin.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
/// An additional pause if no connection could be evicted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The shared state of all handlers.
#[derive(Debug)]
pub struct State {
    /// The files of the page.
    pub assets: Assets,
    /// The host names and origins of this server.
    pub hosts: HostPolicy,
    /// Authentication and permissions.
    pub access: Access,
    /// Live data.
    pub hub: Hub,
    /// Recorded data.
    pub archive: Arc<dyn Archive>,
    /// The runs that the agent starts itself.
    pub orders: Arc<dyn Orders>,
    /// The name of the machine.
    pub name: String,
    /// A random identifier of this start of the agent.
    pub session: String,
    /// Permits for viewers.
    viewers: Semaphore,
    /// Seats for sockets that have not sent a greeting.
    greetings: Arc<ConnectionLimit>,
    /// Permits for responses that read a checkpoint.
    checkpoint_reads: Arc<Semaphore>,
    /// All open sockets.
    sockets: TaskTracker,
    /// Becomes true once, at shutdown.
    stopping: watch::Sender<bool>,
}

impl State {
    /// Creates the state of a server without connections.
    pub fn new(
        assets: Assets,
        hosts: HostPolicy,
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
            greetings: Arc::new(ConnectionLimit::new(GREETINGS_MAX)),
            checkpoint_reads: Arc::new(Semaphore::new(CHECKPOINT_READS_MAX)),
            sockets: TaskTracker::new(),
            stopping: watch::Sender::new(false),
        }
    }

    /// Waits until every socket has received its last message and has closed.
    async fn sockets_end(&self) {
        self.sockets.close();
        self.sockets.wait().await;
    }
}

/// The address at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // The connection inserts the address; a request without one is a bug and is refused.
        parts.extensions.get::<Self>().copied().ok_or_else(|| ApiError::internal("the request has no peer address"))
    }
}

/// Returns the router with all routes and the checks that each request passes.
pub fn app(state: Arc<State>) -> Router {
    api::routes(&state)
        .route("/ws", get(socket::open))
        .method_not_allowed_fallback(async || ApiError::method())
        .fallback(assets::page)
        .layer(middleware::from_fn_with_state(Arc::clone(&state), host::check))
        .layer(middleware::from_fn(connection::admit))
        .layer(middleware::from_fn(error::dress))
        .layer(middleware::from_fn_with_state(Arc::clone(&state), cors::share))
        // Outermost, so that refusals have the headers and the ID too.
        .layer(middleware::from_fn(headers::add))
        .layer(middleware::from_fn(request_id::assign))
        .with_state(state)
}

/// Opens the port.
///
/// # Errors
/// The address is not available.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted agent can bind its port although connections of its predecessor linger. On Windows, the option would
    // let two programs bind the same port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves connections until `shutdown` resolves, then ends open connections within `SHUTDOWN_TIME_MAX`.
pub async fn serve(listener: TcpListener, state: Arc<State>, tls: Option<Tls>, shutdown: impl Future<Output = ()>) {
    let setting = Setting { app: app(Arc::clone(&state)), tls, stopping: state.stopping.subscribe() };
    // A task, like each connection: the accept loop is scheduled together with the connections, not before them.
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
    // Dropping the set aborts connections that have not finished by then.
    if timeout(SHUTDOWN_TIME_MAX, ended).await.is_err() {
        tracing::info!(target: HTTP, "connections were closed before they ended");
    }
}

/// Accepts connections until the server stops, evicting others if necessary, and returns the open connections.
async fn take(listener: TcpListener, setting: Setting, state: Arc<State>) -> JoinSet<()> {
    let limits = Arc::new(ConnectionLimits::new());
    let mut connections = JoinSet::new();
    let mut stopping = setting.stopping.clone();
    let mut n_taken = 0;
    let mut last_error = LastError::default();
    loop {
        let accepted = tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return connections,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, address)) => {
                last_error.clear();
                let line = Line::new(&limits, network(address.ip()));
                connections.spawn(connection::answer(stream, Peer(address.ip()), line, setting.clone()));
            }
            // The client closed the connection before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if last_error.is_new(&error) {
                    tracing::warn!(target: HTTP, %error, "cannot accept connections");
                }
                // New connections run first, so that their requests are read before any of them is evicted.
                sleep(ACCEPT_PAUSE_MIN).await;
                if !limits.thin() && !state.greetings.thin() {
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
