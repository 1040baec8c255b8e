//! A child's output on its way through: to our own streams at once and byte for byte, and a copy of it to who reads it.
//!
//! Each stream has a thread, in a [`relay`](super::relay) or in this process, which waits for nobody but the stream that it
//! writes to. The copy lies in a [`Mailbox`]; where its reader does not keep up, the oldest of it is given up, never the
//! child's time. Where our own stream is closed the child's is too, so that its next write fails as it would have without
//! us.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// What is read at once: what a pipe holds on Linux.
const PIECE_BYTES: usize = 64 << 10;
/// What a stream's copy may come to while it waits: a million lines at once.
pub const COPY_BYTES_MAX: usize = 64 << 20;
/// What of it may wait here where a relay keeps the rest.
const RELAYED_BYTES_MAX: usize = 1 << 20;
/// How long to wait where our stream takes nothing and was set not to wait by somebody.
const NOT_READY: Duration = Duration::from_millis(1);
/// Behind the child's end, output of programs that it left behind is read until its end, or until nothing came for so
/// long: a daemon that holds the pipe and prints nothing does not hold up whoever waits for the child's status.
const QUIET: Duration = Duration::from_secs(10);
/// After so long a person is told what is waited for.
const SAY_AFTER: Duration = Duration::from_secs(3);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Which of two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, and standard error as well where both are one.
    Out,
    /// Standard error.
    Err,
}

/// Copies of what passed, until they are read.
#[derive(Debug)]
pub struct Mailbox {
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug)]
struct Held {
    copies: [Copied; 2],
    /// Streams that have not ended.
    n_open: usize,
    /// Of those, the ones whose reader has not taken what came.
    n_writing: usize,
    last: Instant,
    /// The reader of copies is at work on what it took.
    is_read: bool,
    /// Nothing comes any more.
    closed: bool,
}

/// What came of one stream since it was last read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Some of it was given up before these bytes.
    pub gap: bool,
    /// The rest.
    pub bytes: Vec<u8>,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.copies.iter().all(|copy| copy.bytes.is_empty())
    }
}

impl Mailbox {
    /// An empty one.
    pub fn new() -> Arc<Self> {
        let held = Held {
            copies: Default::default(),
            n_open: 0,
            n_writing: 0,
            last: Instant::now(),
            is_read: false,
            closed: false,
        };
        Arc::new(Self { held: Mutex::new(held), changed: Condvar::new() })
    }

    /// A thread that panicked left numbers and bytes, which are whole.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what came of both streams, or waits for it; `None` where nothing comes any more.
    pub fn take(&self, wait: Duration) -> Option<[Copied; 2]> {
        let is_idle = |held: &mut Held| !held.closed && held.is_empty();
        let mut held = self.lock();
        if mem::take(&mut held.is_read) {
            held.last = Instant::now();
        }
        let (mut held, _) =
            self.changed.wait_timeout_while(held, wait, is_idle).unwrap_or_else(PoisonError::into_inner);
        held.is_read = !held.is_empty();
        let taken = (!held.closed || held.is_read).then(|| mem::take(&mut held.copies));
        drop(held);
        // There is room for what a relay keeps.
        self.changed.notify_all();
        taken
    }

    /// Nothing comes any more; what came can still be taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Keeps a copy that a relay gives, and waits while there is much of it: the relay keeps what follows.
    pub fn put(&self, stream: Stream, new: &Copied) {
        let mut held = self.lock();
        held.last = Instant::now();
        loop {
            if held.closed {
                return;
            }
            let copy = &mut held.copies[stream as usize];
            // A gap lies before all that is kept.
            let has_room = if new.gap { copy.bytes.is_empty() } else { copy.bytes.len() < RELAYED_BYTES_MAX };
            if has_room {
                copy.gap |= new.gap;
                copy.bytes.extend_from_slice(&new.bytes);
                break;
            }
            held = self.changed.wait_timeout(held, LOOK).map_or_else(|error| error.into_inner().0, |(held, _)| held);
        }
        drop(held);
        self.changed.notify_all();
    }

    /// The stream is still being written on: its reader takes its time.
    pub fn is_written(&self) {
        self.lock().last = Instant::now();
    }

    /// Whether a reader of ours has not taken what came.
    pub fn is_writing(&self) -> bool {
        self.lock().n_writing > 0
    }

    /// Whether some stream has not ended.
    pub fn is_open(&self) -> bool {
        self.lock().n_open > 0
    }

    /// Counts a stream that begins, or ends.
    pub fn count(&self, begins: bool) {
        let mut held = self.lock();
        held.n_open = if begins { held.n_open + 1 } else { held.n_open.saturating_sub(1) };
        drop(held);
        self.changed.notify_all();
    }

    /// Keeps a copy, and gives up the oldest where there is no room.
    fn keep(&self, stream: Stream, bytes: &[u8]) {
        let mut held = self.lock();
        held.last = Instant::now();
        if held.closed {
            return;
        }
        let copy = &mut held.copies[stream as usize];
        if copy.bytes.len() + bytes.len() > COPY_BYTES_MAX {
            *copy = Copied { gap: true, bytes: Vec::new() };
        }
        copy.bytes.extend_from_slice(bytes);
        drop(held);
        self.changed.notify_all();
    }

    /// Waits, behind the child's end, until the rest of its output has come, or nothing comes for [`QUIET`]. `interrupted`
    /// ends the waiting: for a reader of ours that takes nothing, like a pager, there is no limit. `say` is called once
    /// where it takes long.
    pub fn rest(&self, mut interrupted: impl FnMut() -> bool, say: impl FnOnce()) {
        let start = Instant::now();
        let mut say = Some(say);
        loop {
            let held = self.lock();
            let is_idle = held.n_writing == 0 && held.is_empty() && !held.is_read;
            let silent = held.last.max(start).elapsed();
            if held.n_open == 0 || (is_idle && silent > QUIET) {
                return;
            }
            drop(self.changed.wait_timeout(held, LOOK));
            if interrupted() {
                return;
            }
            if is_idle
                && start.elapsed() > SAY_AFTER
                && let Some(say) = say.take()
            {
                say();
            }
        }
    }
}

/// Passes a stream on, from now to its end, on a thread of its own.
///
/// # Errors
/// The system gives no thread.
pub fn pass(stream: Stream, from: File, to: impl Write + Send + 'static, mailbox: &Arc<Mailbox>) -> io::Result<()> {
    mailbox.count(true);
    let shared = Arc::clone(mailbox);
    let spawned = thread::Builder::new().name("pass".to_owned()).spawn(move || {
        pass_on(stream, from, to, &shared);
        shared.count(false);
    });
    if spawned.is_err() {
        mailbox.count(false);
    }
    spawned.map(drop)
}

/// Returns at the end of either side, and closes both.
pub fn pass_on(stream: Stream, mut from: impl Read, mut to: impl Write, mailbox: &Mailbox) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let n = match from.read(&mut piece) {
            Ok(0) => return,
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // The end of a terminal reads as an error.
            Err(_) => return,
        };
        mailbox.lock().n_writing += 1;
        let written = write(&mut to, &piece[..n]);
        mailbox.lock().n_writing -= 1;
        mailbox.keep(stream, &piece[..n]);
        if written.is_err() {
            return;
        }
    }
}

/// As `write_all`, and for a stream that was set not to wait.
fn write(to: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(NOT_READY),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (File, File) {
        crate::platform::pipe().expect("a pipe")
    }

    #[test]
    fn bytes_pass_as_they_are_and_a_copy_stays() {
        let mailbox = Mailbox::new();
        let ((from, mut child), (mut reader, to)) = (pipe(), pipe());
        pass(Stream::Err, from, to, &mailbox).expect("a thread");
        let written: Vec<u8> = (0..=255).collect();
        child.write_all(&written).expect("it is read");
        drop(child);
        let mut read = vec![];
        reader.read_to_end(&mut read).expect("it ends");
        assert_eq!(read, written);
        mailbox.rest(|| false, || ());
        mailbox.close();
        let [out, err] = mailbox.take(Duration::ZERO).expect("a copy");
        assert_eq!((out, err), (Copied::default(), Copied { gap: false, bytes: written }));
        assert_eq!(mailbox.take(Duration::from_secs(60)), None, "and no more");
    }

    #[test]
    fn a_child_never_waits_for_who_reads_the_copy() {
        let mailbox = Mailbox::new();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..COPY_BYTES_MAX >> 20 {
            mailbox.keep(Stream::Out, &piece);
        }
        mailbox.keep(Stream::Out, b"newest");
        let [out, _] = mailbox.take(Duration::ZERO).expect("a copy");
        assert_eq!(out, Copied { gap: true, bytes: b"newest".to_vec() });
        mailbox.keep(Stream::Out, b"next");
        let [out, _] = mailbox.take(Duration::ZERO).expect("a copy");
        assert_eq!(out, Copied { gap: false, bytes: b"next".to_vec() });
    }

    #[test]
    fn a_reader_that_has_gone_closes_the_child_s_side() {
        let mailbox = Mailbox::new();
        let ((from, mut child), (reader, to)) = (pipe(), pipe());
        drop(reader);
        pass(Stream::Out, from, to, &mailbox).expect("a thread");
        let mut refused = child.write_all(b"x");
        // The first write is taken before it is known.
        while refused.is_ok() {
            thread::yield_now();
            refused = child.write_all(b"x");
        }
        assert_eq!(refused.expect_err("it is closed").kind(), ErrorKind::BrokenPipe);
        mailbox.rest(|| false, || ());
    }
}
