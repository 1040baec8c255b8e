//! The relay: a process that passes one stream of a watched command on to where it goes, and a copy to the watcher.
//!
//! It has a session of its own and keeps little memory, so that what ends the watcher, be it `kill -9`, a signal to its
//! group or the kernel for lack of memory, does not end it: the command's output still goes where it went, and no write of
//! the command fails or waits for long. It ends with the stream.
//!
//! Its standard input is the stream, its standard output where that goes, and its standard error the watcher's pipe. On the
//! pipe it writes [`READY`] once no signal of the terminal reaches it any more, and then pieces: a kind, and of a copy its
//! length in four bytes, little-endian, and its bytes.

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
    passing::{Copied, Mailbox, Stream, pass_on},
};
use crate::platform::{CAN_RELAY, name_process, our_outputs, own_session, pipe};

/// The hidden command of this program that is a relay.
pub const COMMAND: &str = "relay";
/// Its option: a log with a bound in the place of standard output.
const LOG: &str = "--log";
/// As which the system lists it: whoever ends all `headroom` by name does not mean this one.
const NAME: &str = "hr-relay";

/// The relay's first byte.
const READY: u8 = b'R';
/// A copy.
const COPY: u8 = b'c';
/// A copy before which some was given up.
const COPY_AFTER_GAP: u8 = b'g';
/// The stream's reader has not taken yet what was written.
const WRITING: u8 = b'w';

/// Bytes of a piece at most.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// How often a relay says that it is still writing.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// Where a stream goes.
#[derive(Debug)]
pub enum To {
    /// A stream of ours.
    File(File),
    /// A log.
    Log(PathBuf),
}

/// A relay that was started.
#[derive(Debug)]
pub struct Relay {
    child: Child,
    copies: File,
}

/// Starts the relay of a stream.
///
/// # Errors
/// The system has no such process, or it does not begin to work; the stream is lost then.
pub fn start(from: File, to: To) -> io::Result<Relay> {
    if !CAN_RELAY {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let (mut copies, theirs) = pipe()?;
    let mut command = Command::new(this_program()?);
    command.arg(COMMAND).stdin(from).stderr(theirs);
    match to {
        To::File(file) => command.stdout(file),
        To::Log(path) => command.stdout(Stdio::null()).arg(LOG).arg(path),
    };
    let mut child = command.spawn()?;
    // Its end of the pipe is ours as long as the command lives.
    drop(command);
    let mut first = [0];
    match copies.read_exact(&mut first) {
        Ok(()) if first[0] == READY => Ok(Relay { child, copies }),
        Ok(()) | Err(_) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(io::Error::other("the relay does not begin"))
        }
    }
}

/// This program, whatever became of its file since it started.
fn this_program() -> io::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    if link.exists() { Ok(link.to_owned()) } else { env::current_exe() }
}

impl Relay {
    /// Reads its copies into a mailbox, on a thread of its own.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn read(self, stream: Stream, mailbox: &Arc<Mailbox>) -> io::Result<()> {
        mailbox.count(true);
        let shared = Arc::clone(mailbox);
        let spawned = thread::Builder::new().name("copies".to_owned()).spawn(move || {
            let Self { mut child, copies } = self;
            // What breaks off has ended.
            let _ = read_pieces(io::BufReader::new(copies), stream, &shared);
            shared.count(false);
            // It ends with its stream, which ends the copies.
            let _ = child.wait();
        });
        if spawned.is_err() {
            mailbox.count(false);
        }
        spawned.map(drop)
    }
}

fn read_pieces(mut copies: impl Read, stream: Stream, mailbox: &Mailbox) -> io::Result<()> {
    loop {
        let mut kind = [0];
        if copies.read(&mut kind)? == 0 {
            return Ok(());
        }
        match kind[0] {
            WRITING => mailbox.is_written(),
            COPY | COPY_AFTER_GAP => {
                let mut length = [0; 4];
                copies.read_exact(&mut length)?;
                let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
                if length > PIECE_BYTES_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let mut bytes = vec![0; length];
                copies.read_exact(&mut bytes)?;
                mailbox.put(stream, &Copied { gap: kind[0] == COPY_AFTER_GAP, bytes });
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Is a relay, until its stream ends.
///
/// # Errors
/// It has no streams, or the system gives no thread.
pub fn run(args: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    own_session();
    name_process(NAME);
    let mut args = args.into_iter();
    let log = (args.next().as_deref() == Some(LOG.as_ref())).then(|| args.next()).flatten();
    let (to, mut copies) = our_outputs()?;
    let mailbox = Mailbox::new();
    let shared = Arc::clone(&mailbox);
    copies.write_all(&[READY])?;
    let copier = thread::Builder::new().name("copies".to_owned()).spawn(move || {
        // The watcher is gone: nobody reads copies any more.
        if copy_on(copies, &shared).is_err() {
            shared.close();
        }
    })?;
    let from = io::stdin().lock();
    match log {
        Some(log) => pass_on(Stream::Out, from, Log::open(Path::new(&log)), &mailbox),
        None => pass_on(Stream::Out, from, to, &mailbox),
    }
    mailbox.close();
    // It panics nowhere.
    let _ = copier.join();
    Ok(())
}

fn copy_on(mut copies: impl Write, mailbox: &Mailbox) -> io::Result<()> {
    while let Some([copied, _]) = mailbox.take(SAY_EVERY) {
        if copied.bytes.is_empty() {
            if mailbox.is_writing() {
                copies.write_all(&[WRITING])?;
            }
            continue;
        }
        for (i, bytes) in copied.bytes.chunks(PIECE_BYTES_MAX).enumerate() {
            let kind = if copied.gap && i == 0 { COPY_AFTER_GAP } else { COPY };
            let [a, b, c, d] = u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes();
            copies.write_all(&[kind, a, b, c, d])?;
            copies.write_all(bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_as_they_were_written() {
        let (sent, received) = (Mailbox::new(), Mailbox::new());
        let (from, mut written) = pipe().expect("a pipe");
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let expected = text.clone();
        let writer = thread::spawn(move || written.write_all(&text).expect("it is read"));
        pass_on(Stream::Out, from, io::sink(), &sent);
        writer.join().expect("it is written");
        sent.close();
        let mut pieces = vec![];
        copy_on(&mut pieces, &sent).expect("memory takes all");
        let reader = Arc::clone(&received);
        let reading = thread::spawn(move || {
            let mut read = vec![];
            while let Some([_, err]) = reader.take(Duration::from_secs(60)) {
                assert!(!err.gap);
                read.extend(err.bytes);
            }
            read
        });
        read_pieces(&pieces[..], Stream::Err, &received).expect("whole pieces");
        received.close();
        assert!(reading.join().expect("it reads") == expected);
    }

    #[test]
    fn what_is_no_piece_ends_the_reading() {
        let mailbox = Mailbox::new();
        for pieces in [&b"x"[..], b"c\xff\xff\xff\xff", b"c\x05\0\0\0ab", b"c\x05"] {
            read_pieces(pieces, Stream::Out, &mailbox).expect_err("it is none");
        }
        read_pieces(&b"w"[..], Stream::Out, &mailbox).expect("it is one");
    }
}
