//! The server: the page, from memory, to this machine. Sockets, telemetry and runs will be routes beside it.
//!
//! [`app`] takes all it needs, so tests can build one of their own; [`serve`] takes its end as a future. Every answer
//! passes [`headers`], every request passes [`host`] first: a web page that the user happens to open can reach a local
//! server too.

pub mod assets;
mod encoding;
mod error;
mod headers;
pub mod host;
#[allow(dead_code, reason = "the route that answers it comes with the wire")]
pub mod metrics;
mod stall;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use axum::{Router, middleware};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

use assets::Assets;
use host::Hosts;
use stall::StallGuard;

/// Connections at once; further ones wait in the system's queue. A browser opens six, and common systems allow a
/// program 1,024 open files.
const CONNECTIONS_MAX: usize = 512;
/// Bytes of a request's line and headers. Cookies count, and those of everything else on localhost come along, since
/// cookies do not know ports.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Headers of a request; a browser sends about twenty.
const HEADERS_MAX: usize = 100;
/// Time for a whole head to arrive, and for which a connection may stay without a request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);
/// Time for which a client may take nothing of an answer.
const STALL_TIME_MAX: Duration = Duration::from_secs(30);
/// Time for answers under way once the server is told to stop.
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
}

/// Every route, with the checks that each request passes.
pub fn app(state: State) -> Router {
    let state = Arc::new(state);
    Router::new()
        .fallback(assets::page)
        .layer(middleware::from_fn_with_state(Arc::clone(&state), host::check))
        // Outermost, so that a refusal carries them too.
        .layer(middleware::from_fn(headers::add))
        .with_state(state)
}

/// Answers connections until `shutdown` resolves, then ends those that are open, within a limit.
pub async fn serve(listener: TcpListener, app: Router, shutdown: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        while connections.try_join_next().is_some() {}
        let Some((stream, slot)) = accepted else { continue };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(
                TokioIo::new(StallGuard::new(stream, STALL_TIME_MAX)),
                TowerToHyperService::new(app.clone()),
            );
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            // A client that breaks off or breaks the protocol harms only itself.
            let _ = connection.await;
            drop(slot);
        });
    }
    drop(listener);
    // Whoever has not finished by then is cut off as the set is dropped.
    let _ = timeout(SHUTDOWN_TIME_MAX, graceful.shutdown()).await;
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Answers leave in one piece; waiting for more of them only delays.
            let _ = stream.set_nodelay(true);
            Some((stream, slot))
        }
        Err(_) => {
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
