//! Relay: a process that forwards one stream of a watched command to its destination and a copy to the watcher.
//!
//! A relay has its own session and uses little memory. Whatever ends the watcher, such as `kill -9`, a signal to its
//! group or the kernel's OOM killer, does not end the relay. The command's output still reaches its destination, and
//! its writes neither fail nor block for long. The relay ends with the stream. If its destination is a terminal that is
//! gone, it discards the output and still copies it.
//!
//! If a relay is killed, the command's output stays open: the watcher and a [`guard`] hold the stream. The watcher, or
//! else the guard, replaces the relay. Output that the killed relay had read and not written is lost. The history marks
//! the gap, and skips the line after it, which may be incomplete.
//!
//! Its standard input is the stream, its standard output the destination, and its standard error a pipe to the watcher.
//! On the pipe it writes [`READY`] once it no longer receives signals of the terminal, followed by pieces. A piece
//! starts with a kind. A copy continues with its end offset (8 bytes), its length (4 bytes, both little-endian) and its
//! bytes. A copy is written to the [`spool`] first, and only to the spool once the watcher is gone.

mod guard;

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use super::{
    log::Log,
    spool,
    tee::{EndedBy, OutputBuffer, OwnOutput, Stream, StreamCopy, pass_on},
};
use guard::Guard;
use headroom_agent_core::{
    clock::now_ms,
    folders::private_file,
    platform::{CAN_RELAY, Process, ProgramEnding, ending, hand_on, name_process, our_outputs, own_session, pipe},
};
use headroom_train::output;

/// Hidden subcommand that runs a relay.
pub const COMMAND: &str = "relay";
/// Option for a bounded log file in place of standard output.
const LOG: &str = "--log";
/// Option with two values: the directory of a [`spool`], and the name of the stream.
const SPOOL: &str = "--spool";
/// Option of a relay that replaces a killed one. Its value is the offset of the output that the watcher received.
const AFTER: &str = "--after";
/// Option whose value is the watcher, for the guard.
const WATCHER: &str = "--watcher";
/// Limit of replacements of one relay by its watcher, which then forwards the stream itself.
const REPLACEMENTS_MAX: u32 = 100;
/// Attempts to lock the spool. The system releases the lock of a killed relay, and of a reader that checks it, within a
/// moment.
const LOCK_ATTEMPTS: u32 = 200;
/// Time between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Process name, distinct so that killing all `headroom` processes by name spares relays.
const NAME: &str = "hr-relay";

/// First byte from a relay.
const READY: u8 = b'R';
/// Kind of a copy.
const COPY: u8 = b'c';
/// Kind of a copy that follows dropped bytes.
const COPY_AFTER_GAP: u8 = b'g';
/// Kind of a report that a write is still in progress.
const WRITING: u8 = b'w';

/// Kind of a report without content.
const ALIVE: u8 = b'a';

/// Limit of a piece in bytes.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Interval of reports that a write is in progress.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// Destination of a stream.
#[derive(Debug)]
pub enum RelayTarget {
    /// An open stream.
    File(File),
    /// A bounded log.
    Log(PathBuf),
}

impl RelayTarget {
    /// Duplicates the destination.
    ///
    /// # Errors
    /// The limit of open files is reached.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::File(file) => Self::File(file.try_clone()?),
            Self::Log(path) => Self::Log(path.clone()),
        })
    }
}

/// What a relay connects. The watcher keeps it to replace a killed relay.
#[derive(Debug)]
struct Ends {
    from: File,
    to: RelayTarget,
    spool: Option<(PathBuf, Stream)>,
}

/// A started relay.
#[derive(Debug)]
pub struct StreamRelay {
    child: Child,
    copies: File,
    ends: Ends,
}

/// Starts the relay of a stream.
///
/// # Errors
/// The process cannot be started, or fails before it takes over the stream. The stream is lost then.
pub fn start(from: File, to: RelayTarget, spool: Option<(&Path, Stream)>) -> io::Result<StreamRelay> {
    if !CAN_RELAY {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let ends = Ends { from, to, spool: spool.map(|(folder, stream)| (folder.to_owned(), stream)) };
    let (child, copies) = ends.start(None)?;
    Ok(StreamRelay { child, copies, ends })
}

impl Ends {
    /// Starts a relay, `after` an offset if it replaces a killed one. Returns it with the pipe of its copies.
    fn start(&self, after: Option<u64>) -> io::Result<(Child, File)> {
        let (mut copies, theirs) = pipe()?;
        let mut command = Command::new(this_program()?);
        command.arg(COMMAND).stdin(self.from.try_clone()?).stderr(theirs);
        match self.to.try_clone()? {
            RelayTarget::File(file) => command.stdout(file),
            RelayTarget::Log(path) => command.stdout(Stdio::null()).arg(LOG).arg(path),
        };
        if let Some((folder, stream)) = &self.spool {
            command.arg(SPOOL).arg(folder).arg(spool::argument(*stream));
        }
        if let Some(watcher) = Process::this() {
            command.arg(WATCHER).arg(watcher.to_string());
        }
        if let Some(after) = after {
            command.arg(AFTER).arg(after.to_string());
        }
        let mut child = command.spawn()?;
        // `command` holds the relay's end of the pipe open in this process.
        drop(command);
        let mut first = [0];
        match copies.read_exact(&mut first) {
            Ok(()) if first[0] == READY => Ok((child, copies)),
            Ok(()) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(io::Error::other("the relay does not begin"))
            }
        }
    }

    /// Forwards the stream in this process.
    fn pass_on(self, stream: Stream, mailbox: &OutputBuffer) {
        match self.to {
            RelayTarget::File(to) => pass_on(stream, self.from, OwnOutput(to), mailbox),
            RelayTarget::Log(path) => pass_on(stream, self.from, Log::open(&path), mailbox),
        };
    }
}

/// Path of this executable, also if its file was replaced since the start.
pub fn this_program() -> io::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    if link.exists() { Ok(link.to_owned()) } else { env::current_exe() }
}

impl StreamRelay {
    /// Spawns a thread that reads the copies into a mailbox.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn read(self, stream: Stream, mailbox: &Arc<OutputBuffer>) -> io::Result<()> {
        mailbox.count(true);
        let shared = Arc::clone(mailbox);
        let spawned = thread::Builder::new().name("copies".to_owned()).spawn(move || {
            self.read_to_end(stream, &shared);
            shared.count(false);
        });
        if spawned.is_err() {
            mailbox.count(false);
        }
        spawned.map(drop)
    }
}

impl StreamRelay {
    /// Reads the copies of the relay, and of those that replace it if it is killed.
    fn read_to_end(self, stream: Stream, mailbox: &OutputBuffer) {
        let Self { mut child, mut copies, ends } = self;
        let mut received = 0;
        for _ in 0..REPLACEMENTS_MAX {
            // An incomplete piece counts as the end.
            let _ = read_pieces(io::BufReader::new(copies), stream, mailbox, &mut received);
            let was_killed = child.wait().is_ok_and(|status| matches!(ending(status), ProgramEnding::Killed(_)));
            if !was_killed {
                // The relay has ended with its stream.
                return;
            }
            match ends.start(Some(received)) {
                Ok(started) => (child, copies) = started,
                Err(_) => break,
            }
        }
        ends.pass_on(stream, mailbox);
    }
}

/// Reads pieces to their end. `received` is the offset after the last one.
fn read_pieces(mut copies: impl Read, stream: Stream, mailbox: &OutputBuffer, received: &mut u64) -> io::Result<()> {
    loop {
        let mut kind = [0];
        if copies.read(&mut kind)? == 0 {
            return Ok(());
        }
        match kind[0] {
            WRITING => mailbox.is_written(),
            ALIVE => {}
            COPY | COPY_AFTER_GAP => {
                let (mut end, mut length) = ([0; 8], [0; 4]);
                copies.read_exact(&mut end)?;
                copies.read_exact(&mut length)?;
                let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
                if length > PIECE_BYTES_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let mut bytes = vec![0; length];
                copies.read_exact(&mut bytes)?;
                let end = u64::from_le_bytes(end);
                *received = end;
                mailbox.put(stream, &StreamCopy { gap: kind[0] == COPY_AFTER_GAP, bytes, end });
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Runs the relay until its stream ends.
///
/// # Errors
/// The standard streams are missing, or a thread cannot be started.
pub fn run(args: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    own_session();
    let mut options = Options::parse(args);
    let (to, copies) = our_outputs()?;
    let copies = if options.is_guard {
        name_process(guard::NAME);
        let is_replaced = || options.spool.as_ref().is_some_and(|(folder, stream)| spool::is_relayed(folder, *stream));
        if !guard::is_needed(copies, options.relay, options.watcher.as_ref(), is_replaced) {
            return Ok(());
        }
        options.after = Some(0);
        (None, options.spool())
    } else {
        options.hold_stream();
        (Some(copies), options.spool())
    };
    let (mut copies, spool) = copies;
    // Without the spool's lock, a guard would not know that the watcher has replaced the relay.
    let is_guarded = spool.is_some() && options.watcher.is_some();
    let mut guard = Guard::new(options.words());
    if copies.is_none() || is_guarded {
        guard.keep();
    }
    name_process(NAME);
    // The killed relay may have read bytes without writing them. The next offset shows the gap.
    let start = options.after.map_or(0, |after| after.max(spool.as_ref().map_or(0, spool::Writer::end)) + 1);
    let has_gap = options.after.is_some();
    let mailbox = OutputBuffer::starting_at(start);
    let shared = Arc::clone(&mailbox);
    if let Some(copies) = &mut copies {
        copies.write_all(&[READY])?;
    }
    let copier = thread::Builder::new()
        .name("copies".to_owned())
        .spawn(move || copy_on(copies, spool, &shared, (start, has_gap), guard, is_guarded))?;
    let from = io::stdin().lock();
    let ended_by = match &options.log {
        Some(log) => pass_on(Stream::Out, from, Log::open(Path::new(log)), &mailbox),
        None => pass_on(Stream::Out, from, OwnOutput(to), &mailbox),
    };
    if ended_by == EndedBy::Destination
        && let Some((folder, _)) = &options.spool
    {
        output::close(folder);
    }
    mailbox.close();
    // The thread does not panic.
    if let Ok(guard) = copier.join() {
        guard.end();
    }
    Ok(())
}

/// Arguments of a relay.
#[derive(Debug, Default)]
struct Options {
    log: Option<OsString>,
    spool: Option<(PathBuf, Stream)>,
    /// Offset of the output that a killed relay delivered. `None` for the first relay of a stream.
    after: Option<u64>,
    watcher: Option<Process>,
    is_guard: bool,
    /// Process ID of the relay that this guard replaces.
    relay: Option<u32>,
}

impl Options {
    fn parse(args: impl IntoIterator<Item = OsString>) -> Self {
        let mut options = Self::default();
        let mut args = args.into_iter();
        while let Some(option) = args.next() {
            if option == LOG {
                options.log = args.next();
            } else if option == AFTER {
                options.after = args.next().and_then(|after| after.to_str()?.parse().ok());
            } else if option == guard::OPTION {
                options.is_guard = true;
                options.relay = args.next().and_then(|relay| relay.to_str()?.parse().ok());
            } else if option == WATCHER {
                options.watcher = args.next().and_then(|watcher| watcher.to_str()?.parse().ok());
            } else if option == SPOOL
                && let (Some(folder), Some(stream)) = (args.next(), args.next())
                && let Some(stream) = stream.to_str().and_then(spool::stream)
            {
                options.spool = Some((folder.into(), stream));
            }
        }
        options
    }

    /// Arguments of another relay of the stream.
    fn words(&self) -> Vec<OsString> {
        let log = self.log.iter().flat_map(|log| [LOG.into(), log.clone()]);
        let spool = self.spool.iter().flat_map(|(folder, stream)| {
            [SPOOL.into(), folder.clone().into_os_string(), spool::argument(*stream).into()]
        });
        let watcher = self.watcher.iter().flat_map(|watcher| [WATCHER.into(), watcher.to_string().into()]);
        log.chain(spool).chain(watcher).collect()
    }

    /// Opens the spool. `None` without one.
    fn spool(&self) -> Option<spool::Writer> {
        let (folder, stream) = self.spool.as_ref()?;
        for _ in 0..LOCK_ATTEMPTS {
            match spool::Writer::new(folder, *stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(LOCK_PAUSE),
                opened => return opened.ok(),
            }
        }
        None
    }

    /// Takes the lock that shows readers of the spool that the stream continues. Guards inherit it, so it is held from
    /// here until the relay and all of its guards have ended.
    fn hold_stream(&self) {
        let Some((folder, stream)) = &self.spool else { return };
        let Ok(lock) = private_file().open(spool::stream_lock_path(folder, *stream)) else { return };
        if lock.lock_shared().is_ok() {
            hand_on(&lock);
            // The descriptor stays open until the process ends.
            std::mem::forget(lock);
        }
    }
}

/// Writes copies until the stream ends, or neither a watcher nor a spool takes them. `end` is the offset of the first
/// copy, and `has_gap` states that output before it may be lost. Returns the guard, which runs from the start if
/// `is_guarded`, else once the watcher is gone.
fn copy_on(
    mut copies: Option<impl Write>,
    mut spool: Option<spool::Writer>,
    mailbox: &OutputBuffer,
    (mut end, mut has_gap): (u64, bool),
    mut guard: Guard,
    is_guarded: bool,
) -> Guard {
    while let Some([mut copied, _]) = mailbox.take(SAY_EVERY) {
        end = copied.end;
        if !copied.bytes.is_empty() {
            copied.gap |= std::mem::take(&mut has_gap);
            if let Some(spool) = &mut spool {
                spool.add(now_ms(), &copied);
            }
        }
        // Without a watcher the pipe has no reader.
        if copies.as_mut().is_some_and(|to| copy(to, &copied, mailbox).is_err()) {
            copies = None;
        }
        // A killed guard is replaced.
        if copies.is_none() || is_guarded {
            guard.keep();
        }
        if copies.is_none() && spool.is_none() {
            mailbox.close();
        }
    }
    if let Some(spool) = spool {
        spool.finish(now_ms(), end);
    }
    guard
}

fn copy(copies: &mut impl Write, copied: &StreamCopy, mailbox: &OutputBuffer) -> io::Result<()> {
    if copied.bytes.is_empty() {
        // Fails if the watcher is gone.
        return copies.write_all(&[if mailbox.is_writing() { WRITING } else { ALIVE }]);
    }
    let mut end = copied.end.saturating_sub(copied.bytes.len() as u64);
    for (i, bytes) in copied.bytes.chunks(PIECE_BYTES_MAX).enumerate() {
        end += bytes.len() as u64;
        let kind = if copied.gap && i == 0 { COPY_AFTER_GAP } else { COPY };
        copies.write_all(&[kind])?;
        copies.write_all(&end.to_le_bytes())?;
        copies.write_all(&u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes())?;
        copies.write_all(bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_as_they_were_written() {
        let (sent, received) = (OutputBuffer::new(), OutputBuffer::new());
        let (from, mut written) = pipe().expect("a pipe");
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let expected = text.clone();
        let writer = thread::spawn(move || written.write_all(&text).expect("it is read"));
        pass_on(Stream::Out, from, io::sink(), &sent);
        writer.join().expect("it is written");
        sent.close();
        let mut pieces = vec![];
        copy_on(Some(&mut pieces), None, &sent, (0, false), Guard::new(vec![]), false);
        let reader = Arc::clone(&received);
        let reading = thread::spawn(move || {
            let mut read = vec![];
            while let Some([_, err]) = reader.take(Duration::from_secs(60)) {
                assert!(!err.gap);
                read.extend(err.bytes);
            }
            read
        });
        read_pieces(&pieces[..], Stream::Err, &received, &mut 0).expect("whole pieces");
        received.close();
        assert!(reading.join().expect("it reads") == expected);
    }

    #[test]
    fn relay_without_output_keeps_the_spool_of_a_killed_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let writer = || spool::Writer::new(folder.path(), Stream::Out).expect("a spool");
        let copied = StreamCopy { bytes: b"iter 0\n".to_vec(), end: 7, ..StreamCopy::default() };
        let mut killed = writer();
        killed.add(1, &copied);
        drop(killed);
        let mailbox = OutputBuffer::starting_at(8);
        mailbox.close();
        copy_on(None::<io::Sink>, Some(writer()), &mailbox, (8, true), Guard::new(vec![]), false);
        let mut reader = spool::Reader::new(folder.path(), Stream::Out);
        assert_eq!(reader.next(), spool::SpoolRead::Output(1, copied));
        assert_eq!(reader.next(), spool::SpoolRead::End);
    }

    #[test]
    fn invalid_piece_ends_relay_reading() {
        let mailbox = OutputBuffer::new();
        for pieces in [
            &b"x"[..],
            b"c\0\0\0\0\0\0\0\0\xff\xff\xff\xff",
            b"c\0\0\0\0\0\0\0\0\x05\0\0\0ab",
            b"c\0\0\0\0\0\0\0\0\x05",
            b"c\x05",
        ] {
            read_pieces(pieces, Stream::Out, &mailbox, &mut 0).expect_err("an invalid stream");
        }
        read_pieces(&b"wa"[..], Stream::Out, &mailbox, &mut 0).expect("it is one");
    }
}
