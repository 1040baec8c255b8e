//! Child process: its command, and the path of its output.
//!
//! If one of our output streams is a terminal, the child's stream is a terminal too. This preserves line buffering,
//! colours and progress bars. Other streams become pipes. If our two streams are the same file, the child's are too,
//! which preserves their order. Standard input is inherited.
//!
//! A child that the agent starts writes to a log instead. Each stream passes through a relay, or through a thread of
//! this process on systems without relays.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, IsTerminal},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use super::{
    log::Log,
    relay::{self, RelayTarget},
    tee::{OutputBuffer, OwnOutput, Stream, pass},
};
use headroom_agent_core::platform::{ChildSupervisor, is_same, our_outputs, pipe, screen};
use headroom_train::output;

#[derive(Debug)]
struct StreamPath {
    from: File,
    to: File,
    /// The child's end.
    theirs: File,
}

/// Creates a command from words, with additional environment variables.
///
/// # Errors
/// `words` is empty.
pub fn command(words: &[OsString], variables: &[(String, String)]) -> io::Result<Command> {
    let mut words = words.iter();
    let mut command = Command::new(words.next().ok_or(io::ErrorKind::InvalidInput)?);
    command.args(words).envs(variables.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

/// Starts a command with forwarded output. If pipes or threads are unavailable, the command inherits our streams and
/// its output is not parsed.
///
/// # Errors
/// The command cannot be started.
pub fn start(
    mut child: Command,
    log: Option<&Path>,
    spool: Option<&Path>,
    attendant: &mut ChildSupervisor,
    mailbox: &Arc<OutputBuffer>,
) -> io::Result<Child> {
    // A failure here must not prevent the start.
    let streams = log.map_or_else(|| passed(spool, attendant, mailbox), |log| logged(log, spool, mailbox));
    if let Ok([out, err]) = streams {
        child.stdout(out).stderr(err);
    }
    // `child` owns the child's ends too and is dropped here, so that the streams end together with the process.
    child.spawn()
}

/// Sets up both streams and returns the child's ends. Their threads already run, as the child would block without them.
fn passed(
    spool: Option<&Path>,
    attendant: &mut ChildSupervisor,
    mailbox: &Arc<OutputBuffer>,
) -> io::Result<[Stdio; 2]> {
    let (out, err) = our_outputs()?;
    let is_one = is_same(&out, &err);
    let out = way(out, attendant)?;
    let (out_theirs, err_theirs) = if is_one {
        let both = out.theirs.try_clone()?;
        through(Stream::Out, out.from, RelayTarget::File(out.to), spool, mailbox)?;
        (out.theirs, both)
    } else {
        let err = way(err, attendant)?;
        through(Stream::Out, out.from, RelayTarget::File(out.to), spool, mailbox)?;
        through(Stream::Err, err.from, RelayTarget::File(err.to), spool, mailbox)?;
        (out.theirs, err.theirs)
    };
    if let Some(spool) = spool {
        output::keep_open(spool, [&out_theirs, &err_theirs]);
    }
    Ok([out_theirs, err_theirs].map(Stdio::from))
}

/// Sets up a log for both streams, in their order, and returns the child's ends.
fn logged(log: &Path, spool: Option<&Path>, mailbox: &Arc<OutputBuffer>) -> io::Result<[Stdio; 2]> {
    let (from, theirs) = pipe()?;
    let both = theirs.try_clone()?;
    if let Some(spool) = spool {
        output::keep_open(spool, [&theirs, &both]);
    }
    through(Stream::Out, from, RelayTarget::Log(log.to_owned()), spool, mailbox)?;
    Ok([theirs, both].map(Stdio::from))
}

/// Forwards a stream through a relay, or else through a thread of this process.
fn through(
    stream: Stream,
    from: File,
    to: RelayTarget,
    spool: Option<&Path>,
    mailbox: &Arc<OutputBuffer>,
) -> io::Result<()> {
    let spare = to.try_clone()?;
    let again = from.try_clone()?;
    match relay::start(from, to, spool.map(|folder| (folder, stream))) {
        Ok(relay) => relay.read(stream, mailbox),
        Err(_) => match spare {
            RelayTarget::File(file) => pass(stream, again, OwnOutput(file), mailbox),
            RelayTarget::Log(path) => pass(stream, again, Log::open(&path), mailbox),
        },
    }
}

fn way(ours: File, attendant: &mut ChildSupervisor) -> io::Result<StreamPath> {
    if ours.is_terminal()
        && let Some(screen) = screen(&ours)
    {
        attendant.keep_size(&screen);
        return Ok(StreamPath { from: screen.ours, to: ours, theirs: screen.theirs });
    }
    let (from, theirs) = pipe()?;
    Ok(StreamPath { from, to: ours, theirs })
}
