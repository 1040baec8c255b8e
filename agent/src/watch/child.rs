//! The child: its command, and what its output goes through.
//!
//! Each of our streams that is a terminal becomes a terminal for the child, so that it writes lines as it would, with
//! colours and progress bars; any other becomes a pipe. Where our two streams are one file, the child's are one too, so
//! that both keep their order. Standard input is ours, untouched.
//!
//! A child of the agent's writes into a log in their place. Each stream passes through a relay, and through a thread of ours
//! where the system has none.

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
    passing::{Mailbox, Stream, pass},
    relay::{self, To},
};
use crate::platform::{Attendant, is_same, our_outputs, pipe, screen};

/// The way of one stream.
#[derive(Debug)]
struct Way {
    from: File,
    to: File,
    /// The child's side.
    theirs: File,
}

/// Starts a command whose output passes through us. Where the system has no pipes or threads for that it starts all the
/// same, with our own streams, and nothing of it is read.
///
/// # Errors
/// The command cannot be started.
pub fn start(
    command: &[OsString],
    variables: &[(String, String)],
    log: Option<&Path>,
    attendant: &mut Attendant,
    mailbox: &Arc<Mailbox>,
) -> io::Result<Child> {
    let mut words = command.iter();
    let mut child = Command::new(words.next().ok_or(io::ErrorKind::InvalidInput)?);
    child.args(words).envs(variables.iter().map(|(name, value)| (name, value)));
    // What fails here is ours alone.
    let streams = log.map_or_else(|| passed(attendant, mailbox), |log| logged(log, mailbox));
    if let Ok([out, err]) = streams {
        child.stdout(out).stderr(err);
    }
    // The command holds the child's side too: dropped with it, so that the streams end when the child's do.
    child.spawn()
}

/// The child's side of both streams, whose threads run already: without one of them the child would wait for ever.
fn passed(attendant: &mut Attendant, mailbox: &Arc<Mailbox>) -> io::Result<[Stdio; 2]> {
    let (out, err) = our_outputs()?;
    let is_one = is_same(&out, &err);
    let out = way(out, attendant)?;
    let (out_theirs, err_theirs) = if is_one {
        let both = out.theirs.try_clone()?;
        through(Stream::Out, out.from, To::File(out.to), mailbox)?;
        (out.theirs, both)
    } else {
        let err = way(err, attendant)?;
        through(Stream::Out, out.from, To::File(out.to), mailbox)?;
        through(Stream::Err, err.from, To::File(err.to), mailbox)?;
        (out.theirs, err.theirs)
    };
    Ok([out_theirs, err_theirs].map(Stdio::from))
}

/// The child's side of a log, which both streams go to in their order.
fn logged(log: &Path, mailbox: &Arc<Mailbox>) -> io::Result<[Stdio; 2]> {
    let (from, theirs) = pipe()?;
    let both = theirs.try_clone()?;
    through(Stream::Out, from, To::Log(log.to_owned()), mailbox)?;
    Ok([theirs, both].map(Stdio::from))
}

/// Passes a stream on through a relay, or where the system has none, through a thread of ours.
fn through(stream: Stream, from: File, to: To, mailbox: &Arc<Mailbox>) -> io::Result<()> {
    let spare = match &to {
        To::File(file) => To::File(file.try_clone()?),
        To::Log(path) => To::Log(path.clone()),
    };
    let again = from.try_clone()?;
    match relay::start(from, to) {
        Ok(relay) => relay.read(stream, mailbox),
        Err(_) => match spare {
            To::File(file) => pass(stream, again, file, mailbox),
            To::Log(path) => pass(stream, again, Log::open(&path), mailbox),
        },
    }
}

fn way(ours: File, attendant: &mut Attendant) -> io::Result<Way> {
    if ours.is_terminal()
        && let Some(screen) = screen(&ours)
    {
        attendant.keep_size(&screen);
        return Ok(Way { from: screen.ours, to: ours, theirs: screen.theirs });
    }
    let (from, theirs) = pipe()?;
    Ok(Way { from, to: ours, theirs })
}
