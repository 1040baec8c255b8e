//! Where one connection stands: whether it waits for its client, or its client for an answer.
//!
//! A connection *waits* until it has brought a whole head of a request, by TLS or without, and again from the moment
//! that the system has all of an answer. Between the two it is *at work*. Each of the two has a room of its own, so that
//! clients that say nothing take no place of those that ask.

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

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::room::{Leave, Room, Seat};
use crate::server::stall::StallGuard;

/// Connections at once that wait for their client. The oldest makes room for whoever comes, so that this is how long a
/// client has to bring its request while others open connections without end: on loopback a core takes some 20,000 a
/// second, and this many are 50 ms.
pub const WAITING_MAX: u32 = 1024;
/// Connections at once that are at work and no sockets. A browser opens six.
pub const WORKING_MAX: u32 = 512;
/// And of one address: half of a rig's viewers may sit behind one router, and one machine with a token that fetches as
/// slowly as it may leaves the other half.
const WORKING_PER_ADDRESS_MAX: u32 = WORKING_MAX / 2;

/// What all connections of a server share.
#[derive(Debug)]
pub struct Rooms {
    waiting: Arc<Room>,
    working: Arc<Room>,
}

impl Rooms {
    /// Empty ones.
    pub fn new() -> Self {
        Self {
            waiting: Arc::new(Room::new(WAITING_MAX)),
            working: Arc::new(Room::shared(WORKING_MAX, WORKING_PER_ADDRESS_MAX)),
        }
    }

    /// Sends some away of the fuller room, or else of the other; whether there were any.
    pub fn thin(&self) -> bool {
        let [fuller, other] = if self.waiting.n() < self.working.n() {
            [&self.working, &self.waiting]
        } else {
            [&self.waiting, &self.working]
        };
        fuller.thin() || other.thin()
    }
}

/// Where it sits.
#[derive(Debug)]
enum Place {
    Waiting(#[expect(dead_code, reason = "held")] Option<Seat>),
    Working(Seat),
    /// It has ended, or became a socket, which has a place elsewhere.
    Gone,
}

/// One connection, as far as others are concerned.
#[derive(Debug)]
pub struct Line {
    rooms: Arc<Rooms>,
    address: IpAddr,
    leave: Arc<Leave>,
    place: Mutex<Place>,
    /// Nothing more of an answer will come, though the system may not have all of it yet.
    is_answered: AtomicBool,
}

impl Line {
    /// One that was just taken from that address, and waits.
    pub fn new(rooms: &Arc<Rooms>, address: IpAddr) -> Arc<Self> {
        let line = Self {
            rooms: Arc::clone(rooms),
            address,
            leave: Arc::default(),
            place: Mutex::new(Place::Waiting(None)),
            is_answered: AtomicBool::new(false),
        };
        line.wait();
        Arc::new(line)
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It waits from now on.
    fn wait(&self) {
        let mut place = self.place();
        if matches!(*place, Place::Gone) {
            return;
        }
        let seat = self.rooms.waiting.enter(self.address, &self.leave);
        if seat.is_none() {
            // Not while everybody who waits can be sent away.
            self.leave.ask();
        }
        *place = Place::Waiting(seat);
    }

    /// It has brought a request; whether there is a place for it to be at work.
    pub fn work(&self) -> bool {
        self.is_answered.store(false, Ordering::Relaxed);
        let mut place = self.place();
        match *place {
            // The request was sent before the answer to the one before was taken.
            Place::Working(_) => true,
            Place::Gone => false,
            Place::Waiting(_) => match self.rooms.working.enter(self.address, &self.leave) {
                Some(seat) => {
                    *place = Place::Working(seat);
                    true
                }
                None => false,
            },
        }
    }

    /// Its client has shown a token: nobody else gets its place until it is answered.
    pub fn keep(&self) {
        if let Place::Working(seat) = &mut *self.place() {
            seat.keep();
        }
    }

    /// Resolves when somebody else gets its place.
    pub async fn sent_away(&self) {
        self.leave.asked().await;
    }

    /// It takes no place any more.
    pub fn end(&self) {
        *self.place() = Place::Gone;
    }
}

/// An answer's body, which tells when there is no more of it to come.
pub struct Answer {
    body: Body,
    line: Arc<Line>,
}

impl Answer {
    /// That of an answer on a line.
    pub fn new(body: Body, line: &Arc<Line>) -> Self {
        Self { body, line: Arc::clone(line) }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.line.is_answered.store(true, Ordering::Relaxed);
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The stream of a connection, which tells when the system has all of an answer.
///
/// One that was sent away or given up is reset, not closed: the system would keep what its client does not take, and try for
/// minutes, which is more than we kept.
pub struct Wire {
    stream: StallGuard<TcpStream>,
    line: Arc<Line>,
}

impl Wire {
    /// That of a line.
    pub fn new(stream: StallGuard<TcpStream>, line: Arc<Line>) -> Self {
        Self { stream, line }
    }

    /// A client that took nothing for too long will not take the rest either.
    fn watch(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Err(error)) = &outcome
            && error.kind() == io::ErrorKind::TimedOut
        {
            self.line.leave.ask();
        }
        outcome
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.line.leave.is_asked() {
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
        // Flushed is what was written, and everything that is buffered above is written before.
        if outcome.is_ready() && this.line.is_answered.swap(false, Ordering::Relaxed) {
            this.line.wait();
        }
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
