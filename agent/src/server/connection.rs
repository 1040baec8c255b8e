//! One connection: perhaps TLS, then requests one after another, or a socket.

mod line;
pub mod room;

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

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

use super::{Peer, error::Refusal, stall::StallGuard, tls::Tls};
use line::{Answer, Wire};
pub use line::{Line, Rooms, WAITING_MAX, WORKING_MAX};

/// Bytes of a request's line and headers. Cookies count, and those of everything else on localhost come along, since
/// cookies do not know ports.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Headers of a request; a browser sends about twenty.
const HEADERS_MAX: usize = 100;
/// Time for the first byte. A page sends at once; a browser that opens a connection beforehand does without.
const FIRST_BYTE_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for a whole head to arrive, and for which a connection may stay without a further request. A phone with a bad
/// line takes seconds; nginx gives 60 s, Apache 20 s and more for each 500 bytes.
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);
/// Time for which a client may take nothing of an answer.
const STALL_TIME_MAX: Duration = Duration::from_secs(30);

/// What all connections of a server have.
#[derive(Clone)]
pub struct Setting {
    /// What answers.
    pub app: Router,
    /// By which they are taken, if by any.
    pub tls: Option<Tls>,
    /// Turns true once.
    pub stopping: watch::Receiver<bool>,
}

/// On a request that came while as many were being answered as may be.
#[derive(Clone, Copy, Debug)]
struct IsOneTooMany;

/// Answers until the client leaves, is sent away, the connection becomes a socket, or the server stops.
pub async fn answer(stream: TcpStream, peer: Peer, line: Arc<Line>, setting: Setting) {
    tokio::select! {
        biased;
        () = line.sent_away() => {}
        () = talk(stream, peer, &line, setting) => {}
    }
    line.end();
}

/// What comes of it, unless the server stops before.
async fn unless_stopped<T>(stopping: &mut watch::Receiver<bool>, outcome: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        outcome = outcome => Some(outcome),
        _ = stopping.wait_for(|stopping| *stopping) => None,
    }
}

async fn talk(stream: TcpStream, peer: Peer, line: &Arc<Line>, Setting { app, tls, mut stopping }: Setting) {
    // Before its first byte a connection has no buffer: there may be a thousand.
    // Looking at it waits for it, which `readable` need not.
    let mut byte = [0];
    let first_byte = timeout(FIRST_BYTE_TIME_MAX, stream.peek(&mut byte));
    let Some(Ok(Ok(1))) = unless_stopped(&mut stopping, first_byte).await else { return };
    // Answers leave in one piece; waiting for more of them only delays.
    let _ = stream.set_nodelay(true);
    let stream = Wire::new(StallGuard::new(stream, STALL_TIME_MAX), Arc::clone(line));
    match tls {
        None => Box::pin(requests(stream, peer, line, app, stopping)).await,
        Some(tls) => {
            // A client that speaks no TLS, or none in time, gets no answer: there is none that it would understand.
            if let Some(Some(stream)) = unless_stopped(&mut stopping, tls.accept(stream)).await {
                Box::pin(requests(stream, peer, line, app, stopping)).await;
            }
        }
    }
}

async fn requests<S>(stream: S, peer: Peer, line: &Arc<Line>, app: Router, mut stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let app = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(line));
        if !line.work() {
            request.extensions_mut().insert(IsOneTooMany);
        }
        let answered = app.call(request);
        async move { Ok::<_, Infallible>(answered.await?.map(|body| Answer::new(body, line))) }
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
    if unless_stopped(&mut stopping, &mut connection).await.is_none() {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// Refuses what there is no place for.
pub async fn refuse(request: Request, next: Next) -> Response {
    if request.extensions().get::<IsOneTooMany>().is_some() {
        return Refusal::busy().into_response();
    }
    next.run(request).await
}

/// Notes that whoever asks has shown a token.
pub fn keep(request: &Request) {
    if let Some(line) = request.extensions().get::<Arc<Line>>() {
        line.keep();
    }
}
