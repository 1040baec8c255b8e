//! The state of one connection: waiting for its client, or working on a request.
//!
//! A connection *waits* until it has received a complete request head, with or without TLS. It waits again once the
//! system has accepted all bytes of a response. Between the two it *works*. Each state has its own seats, so that idle
//! clients occupy no seats of active ones.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use axum::body::Body;
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::limit::{ConnectionLimit, ConnectionPermit};

/// The maximum number of waiting connections. A new connection evicts the oldest, so this limits the time for sending a
/// request during a connection flood. On loopback, one core accepts about 20,000 connections a second, which leaves 50
/// ms.
pub const WAITING_MAX: u32 = 1024;
/// The maximum number of working connections, sockets excluded. A browser opens six.
pub const WORKING_MAX: u32 = 512;

/// The seats that all connections of a server share.
#[derive(Debug)]
pub struct ConnectionLimits {
    waiting: Arc<ConnectionLimit>,
    working: Arc<ConnectionLimit>,
}

impl ConnectionLimits {
    /// Creates free seats.
    pub fn new() -> Self {
        Self {
            waiting: Arc::new(ConnectionLimit::new(WAITING_MAX)),
            working: Arc::new(ConnectionLimit::new(WORKING_MAX)),
        }
    }

    /// Evicts connections of the more frequent state, or else of the other. Returns whether there were any.
    pub fn thin(&self) -> bool {
        let [fuller, other] = if self.waiting.n() < self.working.n() {
            [&self.working, &self.waiting]
        } else {
            [&self.waiting, &self.working]
        };
        fuller.thin() || other.thin()
    }
}

/// The state and seat of a connection.
#[derive(Debug)]
enum ConnectionSlot {
    Waiting(#[expect(dead_code, reason = "held")] Option<ConnectionPermit>),
    Working(ConnectionPermit),
    /// The connection has ended, or became a socket, which has a seat elsewhere.
    Gone,
}

/// The part of a connection that other connections can access.
#[derive(Debug)]
pub struct Line {
    limits: Arc<ConnectionLimits>,
    address: IpAddr,
    evicted: CancellationToken,
    slot: Mutex<ConnectionSlot>,
    /// Whether the response's body is complete, although the system may not have accepted all of it.
    is_answered: AtomicBool,
}

impl Line {
    /// Creates the line of a newly accepted connection, which waits.
    pub fn new(limits: &Arc<ConnectionLimits>, address: IpAddr) -> Arc<Self> {
        let line = Self {
            limits: Arc::clone(limits),
            address,
            evicted: CancellationToken::new(),
            slot: Mutex::new(ConnectionSlot::Waiting(None)),
            is_answered: AtomicBool::new(false),
        };
        line.wait();
        Arc::new(line)
    }

    fn slot(&self) -> MutexGuard<'_, ConnectionSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state to waiting.
    fn wait(&self) {
        let mut slot = self.slot();
        if !matches!(*slot, ConnectionSlot::Gone) {
            // No waiting connection is protected from eviction, so there is always a seat.
            *slot = ConnectionSlot::Waiting(self.limits.waiting.enter(self.address, &self.evicted));
        }
    }

    /// Changes the state to working after a request head. Returns whether a seat was available.
    pub fn work(&self) -> bool {
        self.is_answered.store(false, Ordering::Relaxed);
        let mut slot = self.slot();
        match *slot {
            // A pipelined request: it was sent before the previous response was complete.
            ConnectionSlot::Working(_) => true,
            ConnectionSlot::Gone => false,
            ConnectionSlot::Waiting(_) => match self.limits.working.enter(self.address, &self.evicted) {
                Some(seat) => {
                    *slot = ConnectionSlot::Working(seat);
                    true
                }
                None => false,
            },
        }
    }

    /// Protects the connection from eviction until its response is complete, because its client is authenticated.
    pub fn keep(&self) {
        if let ConnectionSlot::Working(seat) = &mut *self.slot() {
            seat.keep();
        }
    }

    /// Resolves when the connection is evicted.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Frees the connection's seat.
    pub fn end(&self) {
        *self.slot() = ConnectionSlot::Gone;
    }

    /// Wraps the body of a response, so that the line is informed of its end.
    pub fn tracked(self: &Arc<Self>, body: Body) -> Body {
        let guard = BodyGuard(Arc::clone(self));
        // The closure holds the guard, which is dropped with the body.
        Body::new(body.map_err(move |error| {
            let _held = &guard;
            error
        }))
    }
}

/// Records on drop that a response's body is complete.
struct BodyGuard(Arc<Line>);

impl Drop for BodyGuard {
    fn drop(&mut self) {
        self.0.is_answered.store(true, Ordering::Relaxed);
    }
}

/// The stream of a connection, which detects that the system has accepted a complete response.
///
/// An evicted or stalled connection is reset instead of closed. After a close, the system would keep unread data and
/// retry for minutes.
pub struct Wire {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    line: Arc<Line>,
}

impl Wire {
    /// Wraps the stream of a line.
    pub fn new(stream: Pin<Box<TimeoutStream<TcpStream>>>, line: Arc<Line>) -> Self {
        Self { stream, line }
    }

    /// Evicts the connection after a write timeout: such a client will not read the rest either.
    fn watch(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Err(error)) = &outcome
            && error.kind() == io::ErrorKind::TimedOut
        {
            self.line.evicted.cancel();
        }
        outcome
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.line.evicted.is_cancelled() {
            let _ = self.stream.get_ref().set_zero_linger();
        }
    }
}
impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watch(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.watch(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_flush(context);
        // A flush completes only after all layers above have written their buffers.
        if outcome.is_ready() && this.line.is_answered.swap(false, Ordering::Relaxed) {
            this.line.wait();
        }
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
