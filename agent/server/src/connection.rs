//! A connection: an optional TLS handshake, then HTTP/1.1 requests or an upgrade to a WebSocket.

pub mod limit;
mod phase;

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::{
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
    time::timeout,
};
use tokio_io_timeout::TimeoutStream;

use super::{Peer, error::ApiError, tls::Tls};
use headroom_agent_core::logging::HTTP;
use phase::Wire;
pub use phase::{ConnectionLimits, Line, WAITING_MAX, WORKING_MAX};

/// The maximum size of a request's line and headers in bytes. It includes the cookies of all servers on localhost,
/// because cookies are not separated by port.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The maximum number of a request's headers; a browser sends about twenty.
const HEADERS_MAX: usize = 100;
/// The time limit for the first byte. A page sends at once; connections that a browser opens speculatively may be
/// closed.
const FIRST_BYTE_TIME_MAX: Duration = Duration::from_secs(5);
/// The time limit for a complete request head, and for an idle connection. A phone with a bad connection takes seconds.
/// nginx allows 60 s, Apache 20 s plus a second for each 500 bytes.
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);
/// The time after which a client that reads nothing of a response is disconnected.
const STALL_TIME_MAX: Duration = Duration::from_secs(30);

/// The settings that all connections of a server share.
#[derive(Clone)]
pub struct Setting {
    /// The router.
    pub app: Router,
    /// The TLS configuration, if the server uses TLS.
    pub tls: Option<Tls>,
    /// Becomes true once, at shutdown.
    pub stopping: watch::Receiver<bool>,
}

/// Serves a connection until the client leaves, the connection is evicted or upgraded, or the server stops.
pub async fn answer(stream: TcpStream, peer: Peer, line: Arc<Line>, setting: Setting) {
    tokio::select! {
        biased;
        () = line.evicted() => {}
        () = talk(stream, peer, &line, setting) => {}
    }
    line.end();
}

/// Returns the outcome of a future, or `None` if the server stops first.
async fn unless_stopped<T>(stopping: &mut watch::Receiver<bool>, outcome: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        outcome = outcome => Some(outcome),
        _ = stopping.wait_for(|stopping| *stopping) => None,
    }
}

async fn talk(stream: TcpStream, peer: Peer, line: &Arc<Line>, Setting { app, tls, mut stopping }: Setting) {
    // A connection allocates no buffer before its first byte, because there may be a thousand idle ones. `peek` waits
    // for a byte; `readable` may return without one.
    let mut byte = [0];
    let first_byte = timeout(FIRST_BYTE_TIME_MAX, stream.peek(&mut byte));
    let Some(Ok(Ok(1))) = unless_stopped(&mut stopping, first_byte).await else { return };
    // Responses are written in one piece; Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let stream = Wire::new(with_write_timeout(stream), Arc::clone(line));
    match tls {
        None => Box::pin(requests(stream, peer, line, app, stopping)).await,
        Some(tls) => {
            // A failed handshake gets no response, because the client could not decrypt one.
            if let Some(Some(stream)) = unless_stopped(&mut stopping, tls.accept(stream)).await {
                Box::pin(requests(stream, peer, line, app, stopping)).await;
            }
        }
    }
}

/// Wraps a stream, so that a write fails after a period without progress.
fn with_write_timeout<S: AsyncRead + AsyncWrite>(stream: S) -> Pin<Box<TimeoutStream<S>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALL_TIME_MAX));
    Box::pin(stream)
}

async fn requests<S>(stream: S, peer: Peer, line: &Arc<Line>, app: Router, mut stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let app = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(line));
        let answered = app.call(request);
        async move { Ok::<_, Infallible>(answered.await?.map(|body| line.tracked(body))) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let ended = match unless_stopped(&mut stopping, &mut connection).await {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // Errors of the client affect only its own connection.
    if let Err(error) = ended {
        tracing::debug!(target: HTTP, %error, "a connection ended");
    }
}

/// Middleware that refuses requests beyond the limit of simultaneous requests.
pub async fn admit(request: Request, next: Next) -> Response {
    if request.extensions().get::<Arc<Line>>().is_some_and(|line| !line.work()) {
        return ApiError::busy().into_response();
    }
    next.run(request).await
}

/// Protects the connection of an authenticated request from eviction.
pub fn keep(request: &Request) {
    if let Some(line) = request.extensions().get::<Arc<Line>>() {
        line.keep();
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::{Instant, sleep},
    };

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_given_up() {
        let (server, _client) = duplex(16);
        let mut server = with_write_timeout(server);
        let start = Instant::now();
        let error = server.write_all(&[0; 100]).await.expect_err("the peer reads nothing");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), STALL_TIME_MAX.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_served() {
        let (server, mut client) = duplex(16);
        let mut server = with_write_timeout(server);
        let written = tokio::spawn(async move { server.write_all(&[0; 100]).await });
        let mut buffer = [0; 16];
        let mut n = 0;
        while n < 100 {
            sleep(STALL_TIME_MAX / 2).await;
            n += client.read(&mut buffer).await.expect("there is more");
        }
        written.await.expect("it ends").expect("all was taken, in far more time than one wait may last");
    }
}
