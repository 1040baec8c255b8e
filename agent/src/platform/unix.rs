//! Unix: a child stands in our process group, so that what the terminal sends (Ctrl-C, Ctrl-Z, Ctrl-\, the hang-up, a
//! new size of the window) reaches it as if we were not there. What is sent to us alone is handed on.
//!
//! A signal that somebody sends to the whole group is handed on too, and a child that takes its time gets it twice: who
//! else got a signal cannot be asked.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::{Child, ExitStatus},
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process, setrlimit, waitid},
    pty::{OpenptFlags, grantpt, openpt, unlockpt},
    termios::{LocalModes, OptionalActions, OutputModes, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize},
};
use signal_hook::{
    consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH},
    iterator::{SignalsInfo, exfiltrator::WithOrigin},
    low_level::{emulate_default_handler, siginfo::Cause},
};

use super::{Ending, Screen};

/// What ends or stops a program unless it says otherwise, and is handed on.
const HANDED_ON: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP];

/// Waits for a child, and hands on what is sent to us in its place.
#[derive(Debug)]
pub struct Attendant {
    signals: SignalsInfo<WithOrigin>,
    screens: Vec<(File, File)>,
    /// A signal was handed on that asks a program to end.
    asked_to_end: bool,
}

impl Attendant {
    /// Takes the signals over. What we were started to ignore, as by `nohup`, stays ignored, also by the child.
    ///
    /// # Errors
    /// The system gives no handlers.
    pub fn new() -> io::Result<Self> {
        let ignored = ignored_signals();
        let mut signals = vec![SIGCHLD, SIGCONT, SIGWINCH];
        signals.extend(HANDED_ON.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0));
        Ok(Self { signals: SignalsInfo::new(signals)?, screens: vec![], asked_to_end: false })
    }

    /// Keeps the size of a child's terminal that of ours, from now on.
    pub fn keep_size(&mut self, screen: &Screen) {
        if let (Ok(ours), Ok(like)) = (screen.ours.try_clone(), screen.like.try_clone()) {
            self.screens.push((ours, like));
        }
    }

    /// Whether somebody asked for the end, by a signal to us or at the terminal.
    pub fn was_asked_to_end(&self) -> bool {
        self.asked_to_end
    }

    /// Waits until the child has ended.
    ///
    /// # Errors
    /// The system does not know the child.
    pub fn wait(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                self.screens.clear();
                // What came while it lived was the child's to answer, and its status is the answer.
                for origin in self.signals.pending() {
                    self.asked_to_end |= asks_to_end(origin.signal);
                }
                return Ok(status);
            }
            let pid = Pid::from_child(child);
            for origin in self.signals.wait() {
                let by_terminal = matches!(origin.cause, Cause::Kernel);
                let hand_on = |signal| {
                    // It may have ended in this moment.
                    let _ = Signal::from_named_raw(signal).map(|signal| kill_process(pid, signal));
                };
                match origin.signal {
                    SIGCHLD => stop_with(pid),
                    SIGWINCH => {
                        resize(&self.screens);
                        // It may have asked for the size before it was new.
                        hand_on(SIGWINCH);
                    }
                    SIGCONT => {
                        resize(&self.screens);
                        hand_on(SIGCONT);
                    }
                    signal => {
                        self.asked_to_end |= asks_to_end(signal);
                        if !by_terminal {
                            hand_on(signal);
                        }
                    }
                }
            }
        }
    }

    /// A signal that came since the child ended and asks for our end too.
    pub fn told_to_end(&mut self) -> Option<i32> {
        let mut signals = self.signals.pending().map(|origin| origin.signal);
        signals.find(|signal| asks_to_end(*signal))
    }
}

/// Whether a signal asks a program to end.
fn asks_to_end(signal: i32) -> bool {
    matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM)
}

/// Stops where the child was stopped by Ctrl-Z or what does the same, until somebody tells us to go on: who started us
/// then sees what it would have seen of the child. A child that is not stopped by it, since it has a handler or nobody is
/// there to continue it, stops nothing.
fn stop_with(pid: Pid) {
    let stopped = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
    let signal = stopped.ok().flatten().and_then(|status| status.stopping_signal());
    if signal == Some(SIGTSTP) {
        let _ = emulate_default_handler(SIGSTOP);
    }
}

/// The signals that this process ignores, by bits; none where the system does not say.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

fn resize(screens: &[(File, File)]) {
    for (ours, like) in screens {
        let _ = tcgetwinsize(like).and_then(|size| tcsetwinsize(ours, size));
    }
}

/// A terminal for a child that looks like `like`; `None` where that is none, or the system has no more of them.
///
/// It is nobody's controlling terminal, and changes no byte: what is written comes out as it is, and is made into lines
/// by the real one.
pub fn screen(like: &File) -> Option<Screen> {
    let mut settings = tcgetattr(like).ok()?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let ours = openpt(flags).ok()?;
    grantpt(&ours).ok()?;
    unlockpt(&ours).ok()?;
    #[cfg(target_os = "linux")]
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags).ok()?;
    #[cfg(not(target_os = "linux"))]
    let theirs = {
        use rustix::fs::{Mode, OFlags, open};
        let name = rustix::pty::ptsname(&ours, Vec::new()).ok()?;
        open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).ok()?
    };
    settings.output_modes.remove(OutputModes::OPOST);
    settings.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&theirs, OptionalActions::Now, &settings).ok()?;
    let _ = tcgetwinsize(like).and_then(|size| tcsetwinsize(&ours, size));
    // Either side that leaked into the child would keep the terminal open behind its end.
    for side in [&ours, &theirs] {
        fcntl_setfd(side, FdFlags::CLOEXEC).ok()?;
    }
    Some(Screen { ours: ours.into(), theirs: theirs.into(), like: like.try_clone().ok()? })
}

/// Our standard output and standard error, as files that write at once.
///
/// # Errors
/// The system lets no more files be open.
pub fn our_outputs() -> io::Result<(File, File)> {
    let (out, err) = (io::stdout().as_fd().try_clone_to_owned()?, io::stderr().as_fd().try_clone_to_owned()?);
    Ok((out.into(), err.into()))
}

/// A pipe: what is written to the second comes out of the first.
///
/// # Errors
/// The system lets no more files be open.
pub fn pipe() -> io::Result<(File, File)> {
    let (reader, writer) = io::pipe()?;
    Ok((OwnedFd::from(reader).into(), OwnedFd::from(writer).into()))
}

/// Whether both are one file, pipe or terminal, as after `2>&1`.
pub fn is_same(a: &impl AsFd, b: &impl AsFd) -> bool {
    let status = |fd: &dyn AsFd| rustix::fs::fstat(fd.as_fd()).ok();
    match (status(a), status(b)) {
        (Some(a), Some(b)) => (a.st_dev, a.st_ino, a.st_rdev) == (b.st_dev, b.st_ino, b.st_rdev),
        _ => false,
    }
}

/// How a program ended.
pub fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, Some(signal)) => Ending::Killed(signal),
        (None, None) => Ending::Exited(1),
    }
}

/// Ends this process by a signal, so that who waits for it sees what it would have seen of the child; a core file is the
/// child's to leave. Returns where the system does not let it.
pub fn end_by_signal(signal: i32) {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = emulate_default_handler(signal);
}
