//! Unix: the child is in this process's group, so that it gets the terminal's signals directly: Ctrl-C, Ctrl-Z, Ctrl-\,
//! hang-up and window size. Signals sent to this process alone are forwarded.
//!
//! A signal sent to the whole group is forwarded too, so a child that reacts slowly gets it twice. The system does not
//! report the other recipients of a signal.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::FileTypeExt, process::ExitStatusExt},
    },
    process::{Child, ExitStatus},
};

use nix::unistd;
use rustix::{
    io::{Errno, FdFlags, fcntl_setfd},
    process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process, setrlimit, waitid},
    pty::{OpenptFlags, grantpt, openpt, unlockpt},
    termios::{LocalModes, OptionalActions, OutputModes, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize},
};
use signal_hook::{
    consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH},
    iterator::{SignalsInfo, exfiltrator::WithOrigin},
    low_level::{emulate_default_handler, siginfo::Cause},
};

use super::{ProgramEnding, Screen};

/// Signals that are forwarded: those that end or stop a program by default.
const HANDED_ON: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP];

/// Waits for a child, and forwards the signals that this process gets.
#[derive(Debug)]
pub struct ChildSupervisor {
    signals: SignalsInfo<WithOrigin>,
    screens: Vec<(File, File)>,
    /// Whether a signal that requests a program's end was forwarded.
    asked_to_end: bool,
}

impl ChildSupervisor {
    /// Installs the signal handlers. Signals that this process was started to ignore, for example by `nohup`, stay
    /// ignored, by the child too.
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub fn new() -> io::Result<Self> {
        let ignored = ignored_signals();
        let mut signals = vec![SIGCHLD, SIGCONT, SIGWINCH];
        signals.extend(HANDED_ON.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0));
        Ok(Self { signals: SignalsInfo::new(signals)?, screens: vec![], asked_to_end: false })
    }

    /// Keeps the size of a child's terminal equal to that of the original terminal.
    pub fn keep_size(&mut self, screen: &Screen) {
        if let (Ok(ours), Ok(like)) = (screen.ours.try_clone(), screen.like.try_clone()) {
            self.screens.push((ours, like));
        }
    }

    /// Returns whether a signal or the terminal requested the end.
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
                // Signals that arrived while it ran were for the child, and its exit status answers them.
                for origin in self.signals.pending() {
                    self.asked_to_end |= asks_to_end(origin.signal);
                }
                return Ok(status);
            }
            let pid = Pid::from_child(child);
            for origin in self.signals.wait() {
                let by_terminal = matches!(origin.cause, Cause::Kernel);
                let hand_on = |signal| {
                    // Fails if the child has just ended.
                    let _ = Signal::from_named_raw(signal).map(|signal| kill_process(pid, signal));
                };
                match origin.signal {
                    SIGCHLD => stop_with(pid),
                    SIGWINCH => {
                        resize(&self.screens);
                        // The child may have read the size before it was updated.
                        hand_on(SIGWINCH);
                    }
                    SIGCONT => {
                        resize(&self.screens);
                        hand_on(SIGCONT);
                    }
                    signal => {
                        self.asked_to_end |= asks_to_end(signal);
                        // When the terminal is gone, the kernel signals only the leader of its session.
                        let is_only_ours = signal == SIGHUP && leads_session();
                        if !by_terminal || is_only_ours {
                            hand_on(signal);
                        }
                    }
                }
            }
        }
    }

    /// Returns a signal that arrived after the child ended and requests the end of this process.
    pub fn stop_signal(&mut self) -> Option<i32> {
        let mut signals = self.signals.pending().map(|origin| origin.signal);
        signals.find(|signal| asks_to_end(*signal))
    }
}

/// Returns whether this process leads its session, such as a command that `ssh -t` or a terminal emulator runs.
///
/// The session's ID is 0 if its leader is outside this process's PID namespace, as in `unshare --pid`. rustix 1 declares
/// that value impossible: its `getsid` panics in debug builds and is undefined behavior in others.
fn leads_session() -> bool {
    unistd::getsid(None).is_ok_and(|leader| leader == unistd::getpid())
}

/// Returns whether a write failed because the terminal is gone. Errors of files on a disk do not count.
pub fn is_hung_up(file: &File, error: &io::Error) -> bool {
    let is_device = || file.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device());
    error.raw_os_error() == Some(Errno::IO.raw_os_error()) && is_device()
}

/// Returns whether a signal requests a program's end.
fn asks_to_end(signal: i32) -> bool {
    matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM)
}

/// Stops this process if the child was stopped by SIGTSTP, for example by Ctrl-Z, until it is continued. The parent of
/// this process then sees what it would have seen of the child. If the child has a handler or its process group is
/// orphaned, it does not stop, and neither does this process.
fn stop_with(pid: Pid) {
    let stopped = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
    let signal = stopped.ok().flatten().and_then(|status| status.stopping_signal());
    if signal == Some(SIGTSTP) {
        let _ = emulate_default_handler(SIGSTOP);
    }
}

/// Returns the signals that this process ignores, as bits; 0 if the system does not report them.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// Whether this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    ignored_signals() >> (signal - 1) & 1 == 1
}

/// Returns the signal of a closed terminal, or `None` if this process ignores it, as under `nohup`.
pub fn hang_up() -> Option<i32> {
    Some(SIGHUP).filter(|&signal| !is_ignored(signal))
}

fn resize(screens: &[(File, File)]) {
    for (ours, like) in screens {
        let _ = tcgetwinsize(like).and_then(|size| tcsetwinsize(ours, size));
    }
}

/// Creates a terminal for a child with the settings of `like`. Returns `None` if `like` is not a terminal, or the
/// system has no more of them.
///
/// It is not a controlling terminal, and its output is raw: the real terminal converts line ends.
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
    // A side inherited by the child would keep the terminal open after the child's end.
    for side in [&ours, &theirs] {
        fcntl_setfd(side, FdFlags::CLOEXEC).ok()?;
    }
    Some(Screen { ours: ours.into(), theirs: theirs.into(), like: like.try_clone().ok()? })
}

/// Returns this process's standard output and standard error as unbuffered files.
///
/// # Errors
/// The limit of open files is reached.
pub fn our_outputs() -> io::Result<(File, File)> {
    let (out, err) = (io::stdout().as_fd().try_clone_to_owned()?, io::stderr().as_fd().try_clone_to_owned()?);
    Ok((out.into(), err.into()))
}

/// Creates a pipe and returns its reader and its writer.
///
/// # Errors
/// The limit of open files is reached.
pub fn pipe() -> io::Result<(File, File)> {
    let (reader, writer) = io::pipe()?;
    Ok((OwnedFd::from(reader).into(), OwnedFd::from(writer).into()))
}

/// Returns whether both are the same file, pipe or terminal, for example after `2>&1`.
pub fn is_same(a: &impl AsFd, b: &impl AsFd) -> bool {
    let status = |fd: &dyn AsFd| rustix::fs::fstat(fd.as_fd()).ok();
    match (status(a), status(b)) {
        (Some(a), Some(b)) => (a.st_dev, a.st_ino, a.st_rdev) == (b.st_dev, b.st_ino, b.st_rdev),
        _ => false,
    }
}

/// Returns a text that identifies an open file, pipe or terminal of this system.
pub fn identity(file: &impl AsFd) -> Option<String> {
    let status = rustix::fs::fstat(file.as_fd()).ok()?;
    Some(format!("{}:{}:{}", status.st_dev, status.st_ino, status.st_rdev))
}

/// Returns the id of this process's parent. It changes when the parent ends, after the parent's files are closed.
pub fn parent_id() -> Option<u32> {
    Some(std::os::unix::process::parent_id())
}

/// Returns how a program ended.
pub fn ending(status: ExitStatus) -> ProgramEnding {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnding::Exited(code),
        (None, Some(signal)) => ProgramEnding::Killed(signal),
        (None, None) => ProgramEnding::Exited(1),
    }
}

/// Ends this process by a signal, so that its parent sees what it would have seen of the child. Core files are
/// disabled, because the child leaves its own. Returns if the system refuses.
pub fn end_by_signal(signal: i32) {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = emulate_default_handler(signal);
}
