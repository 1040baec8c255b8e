//! Forwards a child's output byte for byte to our own streams, and copies it for the journal.
//!
//! Each stream has a thread, in a [`relay`](super::relay) or in this process, which waits only for its destination. A
//! [`OutputBuffer`] holds the copy. If its reader falls behind, the mailbox drops the oldest bytes and never delays the
//! child. If our own stream is closed, the child's is closed too, so its next write fails as it would without the
//! watcher. A terminal that is gone is an exception: see [`OwnOutput`].

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use headroom_agent_core::platform::is_hung_up;

/// Read size: the capacity of a pipe on Linux.
const PIECE_BYTES: usize = 64 << 10;
/// Limit of a stream's unread copy: about a million lines.
pub const COPY_BYTES_MAX: usize = 64 << 20;
/// Limit of a relayed copy in this process; the relay keeps the rest.
const RELAYED_BYTES_MAX: usize = 1 << 20;
/// Delay before a retry on a non-blocking output stream that is not ready.
const NOT_READY: Duration = Duration::from_millis(1);
/// After the child's end, output of its remaining processes is read until it ends or pauses for this long. A silent
/// daemon that holds the pipe therefore does not delay the exit status.
const QUIET: Duration = Duration::from_secs(10);
/// Delay before a message about the wait.
const SAY_AFTER: Duration = Duration::from_secs(3);
/// Polling interval of the wait.
const LOOK: Duration = Duration::from_millis(10);

/// An output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, and standard error if both are the same.
    Out,
    /// Standard error.
    Err,
}

/// Unread copies of the output.
#[derive(Debug)]
pub struct OutputBuffer {
    held: Mutex<HeldOutput>,
    changed: Condvar,
}

#[derive(Debug)]
struct HeldOutput {
    copies: [StreamCopy; 2],
    /// Number of open streams.
    n_open: usize,
    /// Number of streams with a write in progress to our own output.
    n_writing: usize,
    last: Instant,
    /// Whether the reader is still processing the bytes that it took.
    is_read: bool,
    /// Whether the mailbox is closed: no more copies arrive.
    closed: bool,
}

/// Copy of a stream since the last read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StreamCopy {
    /// Whether bytes before these were dropped.
    pub gap: bool,
    /// Bytes that were kept.
    pub bytes: Vec<u8>,
    /// Offset in the stream after these bytes, with dropped bytes counted.
    pub end: u64,
}

impl HeldOutput {
    fn is_empty(&self) -> bool {
        self.copies.iter().all(|copy| copy.bytes.is_empty())
    }
}

impl OutputBuffer {
    /// Creates an empty mailbox.
    pub fn new() -> Arc<Self> {
        Self::starting_at(0)
    }

    /// Creates an empty mailbox for streams that continue at an offset.
    pub fn starting_at(end: u64) -> Arc<Self> {
        let held = HeldOutput {
            copies: [(); 2].map(|()| StreamCopy { end, ..StreamCopy::default() }),
            n_open: 0,
            n_writing: 0,
            last: Instant::now(),
            is_read: false,
            closed: false,
        };
        Arc::new(Self { held: Mutex::new(held), changed: Condvar::new() })
    }

    /// Locks the state, which is consistent even after a panic.
    fn lock(&self) -> MutexGuard<'_, HeldOutput> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the copies of both streams, and waits up to `wait` for some. `None` if the mailbox is closed and empty.
    pub fn take(&self, wait: Duration) -> Option<[StreamCopy; 2]> {
        let is_idle = |held: &mut HeldOutput| !held.closed && held.is_empty();
        let mut held = self.lock();
        if mem::take(&mut held.is_read) {
            held.last = Instant::now();
        }
        let (mut held, _) =
            self.changed.wait_timeout_while(held, wait, is_idle).unwrap_or_else(PoisonError::into_inner);
        held.is_read = !held.is_empty();
        let taken = (!held.closed || held.is_read).then(|| {
            let ends = held.copies.each_ref().map(|copy| copy.end);
            let next = ends.map(|end| StreamCopy { end, ..StreamCopy::default() });
            mem::replace(&mut held.copies, next)
        });
        drop(held);
        // Frees room for a relay.
        self.changed.notify_all();
        taken
    }

    /// Closes the mailbox. Copies in it can still be taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Adds a copy from a relay. Blocks while the mailbox is full; the relay keeps what follows.
    pub fn put(&self, stream: Stream, new: &StreamCopy) {
        let mut held = self.lock();
        held.last = Instant::now();
        loop {
            if held.closed {
                return;
            }
            let copy = &mut held.copies[stream as usize];
            // A gap can only precede the kept bytes.
            let has_room = if new.gap { copy.bytes.is_empty() } else { copy.bytes.len() < RELAYED_BYTES_MAX };
            if has_room {
                copy.gap |= new.gap;
                copy.bytes.extend_from_slice(&new.bytes);
                copy.end = new.end;
                break;
            }
            held = self.changed.wait_timeout(held, LOOK).map_or_else(|error| error.into_inner().0, |(held, _)| held);
        }
        drop(held);
        self.changed.notify_all();
    }

    /// Records that a write to the stream is still in progress.
    pub fn is_written(&self) {
        self.lock().last = Instant::now();
    }

    /// Whether a write to our own output is in progress.
    pub fn is_writing(&self) -> bool {
        self.lock().n_writing > 0
    }

    /// Whether a stream is open.
    pub fn is_open(&self) -> bool {
        self.lock().n_open > 0
    }

    /// Counts the start or end of a stream.
    pub fn count(&self, begins: bool) {
        let mut held = self.lock();
        held.n_open = if begins { held.n_open + 1 } else { held.n_open.saturating_sub(1) };
        drop(held);
        self.changed.notify_all();
    }

    /// Adds a copy, and drops the oldest bytes if there is no room.
    fn keep(&self, stream: Stream, bytes: &[u8]) {
        let mut held = self.lock();
        held.last = Instant::now();
        if held.closed {
            return;
        }
        let copy = &mut held.copies[stream as usize];
        if copy.bytes.len() + bytes.len() > COPY_BYTES_MAX {
            (copy.gap, copy.bytes) = (true, Vec::new());
        }
        copy.bytes.extend_from_slice(bytes);
        copy.end += bytes.len() as u64;
        drop(held);
        self.changed.notify_all();
    }

    /// Waits, after the child's end, for the rest of its output, or until [`QUIET`] passes without any. A blocked
    /// output, such as a pager, has no time limit; `interrupted` ends the wait. `say` is called once if the wait is
    /// long.
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

/// Spawns a thread that forwards a stream to its end.
///
/// # Errors
/// The thread cannot be started.
pub fn pass(
    stream: Stream,
    from: File,
    to: impl Write + Send + 'static,
    mailbox: &Arc<OutputBuffer>,
) -> io::Result<()> {
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

/// One of our own output streams. After its terminal is gone it discards what is written, so that the command continues
/// and is still recorded.
#[derive(Debug)]
pub struct OwnOutput(pub File);

impl Write for OwnOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if is_hung_up(&self.0, &error) => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Side that ended the forwarding of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The stream ended.
    Source,
    /// The destination is closed or full.
    Destination,
}

/// Forwards until either side ends, and closes both.
pub fn pass_on(stream: Stream, mut from: impl Read, mut to: impl Write, mailbox: &OutputBuffer) -> EndedBy {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let n = match from.read(&mut piece) {
            Ok(0) => return EndedBy::Source,
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A closed terminal reads as an error.
            Err(_) => return EndedBy::Source,
        };
        mailbox.lock().n_writing += 1;
        let written = write(&mut to, &piece[..n]);
        mailbox.lock().n_writing -= 1;
        mailbox.keep(stream, &piece[..n]);
        if written.is_err() {
            return EndedBy::Destination;
        }
    }
}

/// Like `write_all`, and retries on a non-blocking stream.
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
        headroom_agent_core::platform::pipe().expect("a pipe")
    }

    #[test]
    fn bytes_pass_as_they_are_and_a_copy_stays() {
        let mailbox = OutputBuffer::new();
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
        assert_eq!((out, err), (StreamCopy::default(), StreamCopy { gap: false, bytes: written, end: 256 }));
        assert_eq!(mailbox.take(Duration::from_secs(60)), None, "and no more");
    }

    #[test]
    fn child_never_waits_for_log_parser() {
        let mailbox = OutputBuffer::new();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..COPY_BYTES_MAX >> 20 {
            mailbox.keep(Stream::Out, &piece);
        }
        mailbox.keep(Stream::Out, b"newest");
        let [out, _] = mailbox.take(Duration::ZERO).expect("a copy");
        let end = COPY_BYTES_MAX as u64 + 6;
        assert_eq!(out, StreamCopy { gap: true, bytes: b"newest".to_vec(), end });
        mailbox.keep(Stream::Out, b"next");
        let [out, _] = mailbox.take(Duration::ZERO).expect("a copy");
        assert_eq!(out, StreamCopy { gap: false, bytes: b"next".to_vec(), end: end + 4 });
    }

    #[test]
    fn the_rest_is_waited_for_as_long_as_it_is_read() {
        let mailbox = OutputBuffer::new();
        mailbox.count(true);
        mailbox.put(Stream::Out, &StreamCopy { bytes: b"x".to_vec(), ..StreamCopy::default() });
        // Unread output counts as activity, and no other program holds the stream open.
        let looks = std::cell::Cell::new(0);
        let looked = || {
            looks.set(looks.get() + 1);
            looks.get() > 10
        };
        mailbox.rest(looked, || panic!("nothing is left open by others"));
        let taken = mailbox.take(Duration::ZERO).expect("a copy");
        assert_eq!(taken[0].bytes, b"x");
        mailbox.count(false);
        mailbox.rest(|| panic!("all has ended"), || ());
    }

    #[test]
    fn closed_buffer_does_not_block_relay() {
        let mailbox = OutputBuffer::new();
        let full = StreamCopy { bytes: vec![0; RELAYED_BYTES_MAX], ..StreamCopy::default() };
        mailbox.put(Stream::Out, &full);
        let waits = Arc::clone(&mailbox);
        let more = StreamCopy { bytes: b"more".to_vec(), ..StreamCopy::default() };
        let putting = thread::spawn(move || waits.put(Stream::Out, &more));
        mailbox.close();
        putting.join().expect("it waits no longer");
    }

    #[test]
    fn a_reader_that_has_gone_closes_the_child_s_side() {
        let mailbox = OutputBuffer::new();
        let ((from, mut child), (reader, to)) = (pipe(), pipe());
        drop(reader);
        pass(Stream::Out, from, to, &mailbox).expect("a thread");
        let mut refused = child.write_all(b"x");
        // The first write succeeds before the closed stream is detected.
        while refused.is_ok() {
            thread::yield_now();
            refused = child.write_all(b"x");
        }
        assert_eq!(refused.expect_err("it is closed").kind(), ErrorKind::BrokenPipe);
        mailbox.rest(|| false, || ());
    }
}
