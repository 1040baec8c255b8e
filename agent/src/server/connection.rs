//! One connection: perhaps TLS, then requests one after another, or a socket.

use std::{pin::pin, time::Duration};

use axum::Router;
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
};

use super::{Peer, stall::StallGuard, tls::Tls};

/// Bytes of a request's line and headers. Cookies count, and those of everything else on localhost come along, since
/// cookies do not know ports.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Headers of a request; a browser sends about twenty.
const HEADERS_MAX: usize = 100;
/// Time for a whole head to arrive, and for which a connection may stay without a request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);
/// Time for which a client may take nothing of an answer.
const STALL_TIME_MAX: Duration = Duration::from_secs(30);

/// Answers until the client leaves, the connection becomes a socket, or the server stops.
pub async fn answer(stream: TcpStream, tls: Option<Tls>, peer: Peer, app: Router, stopping: watch::Receiver<bool>) {
    let stream = StallGuard::new(stream, STALL_TIME_MAX);
    match tls {
        None => requests(stream, peer, app, stopping).await,
        Some(tls) => {
            // A client that speaks no TLS, or none in time, gets no answer: there is none that it would understand.
            if let Some(stream) = tls.accept(stream).await {
                requests(stream, peer, app, stopping).await;
            }
        }
    }
}

async fn requests<S>(stream: S, peer: Peer, app: Router, mut stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let app = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        app.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    // A client that breaks off or breaks the protocol harms only itself.
    tokio::select! {
        _ = &mut connection => return,
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
