//! Tests of `headroom watch` at a terminal. The command has the terminal too, and receives the keyboard's signals. The
//! tests use Linux's pseudo-terminals, and a shell with job control.
#![cfg(target_os = "linux")]

use std::{
    ffi::OsString,
    fs::File,
    io::{ErrorKind, Read, Write},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::ioctl_fionbio,
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

/// Timeout for any step on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

fn headroom() -> OsString {
    std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into())
}

/// A terminal with a program on it.
struct Terminal {
    keyboard: File,
    shown: Receiver<Vec<u8>>,
    /// Everything shown so far.
    all: String,
    /// Length of the text that [`Self::wait`] has searched, in bytes.
    seen: usize,
    child: Child,
    history: tempfile::TempDir,
    is_closed: Arc<AtomicBool>,
    reader: Option<thread::JoinHandle<()>>,
}

const SIZE: Winsize = Winsize { ws_row: 40, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };

impl Terminal {
    /// Starts a shell with job control on a new terminal. `$W` is `headroom watch … --`.
    fn start(script: &str) -> Self {
        // Programs on the terminal must not hold its other end.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags).expect("a pseudo-terminal");
        grantpt(&terminal).expect("this process holds its other end");
        unlockpt(&terminal).expect("and open");
        tcsetwinsize(&terminal, SIZE).expect("a size");
        let screen: OwnedFd = ioctl_tiocgptpeer(&terminal, flags).expect("the other end");
        let history = tempfile::tempdir().expect("a folder");
        let watch = format!("{} watch --data-dir {} --", Path::new(&headroom()).display(), history.path().display());
        let mut command = Command::new("setsid");
        command.args(["--ctty", "sh", "-c", &format!("set -m\n{script}")]).env("W", watch).env("PS1", "");
        let screens = [&screen, &screen].map(|screen| screen.try_clone().expect("a screen"));
        let [stdin, stdout] = screens;
        let child = command.stdin(stdin).stdout(stdout).stderr(screen).spawn().expect("setsid runs");
        drop(command);
        let keyboard = File::from(terminal);
        // The reader must notice that the terminal is to be closed.
        ioctl_fionbio(&keyboard, true).expect("a mode");
        let (mut from, (send, shown)) = (keyboard.try_clone().expect("a copy"), channel());
        let is_closed = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_closed);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while !stop.load(Ordering::Relaxed) {
                match from.read(&mut piece) {
                    Ok(n @ 1..) if send.send(piece[..n].to_vec()).is_ok() => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
                    // The end of a terminal reads as an error.
                    _ => return,
                }
            }
        });
        Self { keyboard, shown, all: String::new(), seen: 0, child, history, is_closed, reader: Some(reader) }
    }

    /// Closes the terminal, as a window or an SSH connection does. Its programs continue.
    fn close(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.reader.take().expect("it is open").join().expect("it ends");
        let closed = File::open("/dev/null").expect("a file");
        drop(std::mem::replace(&mut self.keyboard, closed));
    }

    /// Waits until the terminal shows a text after the last match.
    #[track_caller]
    fn wait(&mut self, text: &str) {
        let start = Instant::now();
        loop {
            if let Some(at) = self.all[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            match self.shown.recv_timeout(DEADLINE.saturating_sub(start.elapsed())) {
                Ok(bytes) => self.all.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{text:?} is not shown: {:?}", self.all),
            }
        }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("it takes them");
    }

    /// Waits for the shell to end. Returns all text shown and the exit status.
    fn end(mut self) -> (String, Option<i32>) {
        let status = self.child.wait().expect("it ends").code();
        while let Ok(bytes) = self.shown.recv_timeout(DEADLINE) {
            self.all.push_str(&String::from_utf8_lossy(&bytes));
        }
        assert!(self.history.path().exists());
        (self.all.clone(), status)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        match self.child.kill() {
            Err(error) if error.kind() != ErrorKind::InvalidInput => panic!("{error}"),
            _ => drop(self.child.wait()),
        }
    }
}

const CTRL_C: &[u8] = b"\x03";
const CTRL_Z: &[u8] = b"\x1a";
const CTRL_BACKSLASH: &[u8] = b"\x1c";

#[test]
fn a_command_shows_what_it_shows_without_us() {
    let command = "sh -c 'test -t 0 && test -t 1 && test -t 2 && stty size <&1; printf \"a\\tb\\033[1mc\\033[0m\\r10%%\\r20%%\\n\\377\\n\"; \
                   echo err >&2; exit 3'";
    let (without, status) = Terminal::start(&format!("{command}; exit $?")).end();
    assert!(without.starts_with("40 90\r\n") && without.ends_with("err\r\n"), "{without:?}");
    assert_eq!(Terminal::start(&format!("$W {command}; exit $?")).end(), (without, status));
    assert_eq!(status, Some(3));
}

#[test]
fn only_what_is_a_terminal_is_one() {
    let script = "sh -c 'for fd in 0 1 2; do test -t $fd && all=\"$all yes\" || all=\"$all no\"; done; echo $all >&2'";
    let (shown, _) = Terminal::start(&format!("$W {script} > /dev/null")).end();
    assert_eq!(shown, "yes no yes\r\n");
    let (shown, _) = Terminal::start(&format!("$W {script} 2>&1 | cat")).end();
    assert_eq!(shown, "yes no no\r\n");
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    // The command starts no program meanwhile and ends slowly. A forwarded signal would reach it a second time.
    let script = "$W sh -c 'trap \"echo got INT; sleep 0.3; kill \\$!; exit 5\" INT; \
                  sleep 60 > /dev/null 2>&1 & echo ready; while :; do wait; done'; echo \"status $?\"";
    let mut terminal = Terminal::start(script);
    terminal.wait("ready");
    terminal.press(CTRL_C);
    terminal.wait("status 5");
    assert_eq!(terminal.all.matches("got INT").count(), 1, "{:?}", terminal.all);
    let mut terminal = Terminal::start("$W sh -c 'ulimit -c 0; echo ready; sleep 60'; echo \"status $?\"");
    terminal.wait("ready");
    terminal.press(CTRL_BACKSLASH);
    terminal.wait("status 131");
}

// The command starts no program meanwhile. A shell that is stopped between fork and exec hangs with or without
// `headroom watch`.
#[test]
fn ctrl_z_gives_the_shell_back_and_fg_goes_on() {
    let script = "$W sh -c 'trap \"echo going on\" CONT; trap \"exit 6\" INT; \
                  sleep 60 > /dev/null 2>&1 & echo ready; while :; do wait; done'; \
                  echo \"back $?\"; fg > /dev/null; echo \"status $?\"";
    let mut terminal = Terminal::start(script);
    terminal.wait("ready");
    terminal.press(CTRL_Z);
    // A shell's status is 128 plus the number of the stop signal.
    terminal.wait("back 14");
    terminal.wait("going on");
    terminal.press(CTRL_C);
    terminal.wait("status 6");
}

#[test]
fn ctrl_z_is_ignored_without_job_control() {
    // The whole session is one process group, which the system does not stop from the keyboard.
    let script = "set +m; exec $W sh -c 'echo ready; read line; echo \"got $line\"'";
    let mut terminal = Terminal::start(script);
    terminal.wait("ready");
    terminal.press(CTRL_Z);
    thread::sleep(Duration::from_millis(100));
    terminal.press(b"a line\n");
    terminal.wait("got a line");
}

#[test]
fn a_window_that_is_resized_is_so_for_the_command() {
    let script = "$W sh -c 'trap \"stty size <&1\" WINCH; echo ready; while :; do sleep 0.02; done'";
    let mut terminal = Terminal::start(script);
    terminal.wait("ready");
    tcsetwinsize(&terminal.keyboard, Winsize { ws_row: 25, ws_col: 132, ..SIZE }).expect("a size");
    terminal.wait("25 132");
    terminal.press(CTRL_C);
}

#[test]
fn a_hang_up_ends_the_command() {
    let mut terminal = Terminal::start("exec $W sh -c 'echo pid $$.; while :; do sleep 0.02; done'");
    terminal.wait("pid ");
    terminal.wait(".");
    let pid = terminal.all[..terminal.seen - 1].rsplit(' ').next().expect("a number").to_owned();
    let lives = || Path::new("/proc").join(&pid).exists();
    assert!(lives());
    // The kernel signals only the leader of the session, which is `headroom watch`.
    terminal.close();
    let start = Instant::now();
    while lives() {
        assert!(start.elapsed() < DEADLINE, "it keeps running");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_outlives_a_closed_terminal_with_all_its_output() {
    const LINES: usize = 5000;
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let script = format!(
        "trap '' HUP; exec $W sh -c 'echo ready; until [ -e {} ]; do sleep 0.02; done; i=0; \
         while [ $i -lt {LINES} ]; do echo \"iter $i: loss 4.0000, time 5.00ms, mfu 1.00%\"; i=$((i+1)); done; exit 4'",
        go.display()
    );
    let mut terminal = Terminal::start(&script);
    terminal.wait("ready");
    terminal.close();
    std::fs::write(&go, "").expect("a writable folder");
    assert_eq!(terminal.child.wait().expect("it ends").code(), Some(4));
    let runs = |words: &[&str]| {
        let mut command = Command::new(headroom());
        command.arg("runs").args(words).arg("--data-dir").arg(terminal.history.path());
        let output = command.output().expect("headroom runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let listed: serde_json::Value = serde_json::from_str(&runs(&["list", "--json"])).expect("JSON");
    let id = listed["runs"][0]["id"].as_str().expect("an id");
    let csv = runs(&["export", id]);
    assert_eq!(csv.lines().filter(|line| line.contains("iteration,")).count(), LINES, "{}", csv.len());
}
