//! Detection whether another process still runs, safe against reuse of its id.
//!
//! Linux gives the details in /proc. Elsewhere nothing is known of a process, and callers use its signs of life
//! instead. The same applies if the other process has its own process namespace, as in a container.

use std::{fmt, fs, str::FromStr};

/// A process, identified so that another program can find it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pid: u32,
    /// Its start, in clock ticks since boot; unaffected by changes of the clock.
    began: u64,
    /// The scope of the id and the start: the boot id and the namespaces.
    place: String,
}

impl Process {
    /// Returns this process; `None` if the system does not give its details.
    pub fn this() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Returns a running process by its id.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, began: Stat::of(pid)?.began, place: place()? })
    }

    /// Sends SIGTERM to the process and returns whether it was sent. Sends nothing if the process has ended, if its ID
    /// now belongs to another process, or if the system has no such signal.
    pub fn terminate(&self) -> bool {
        #[cfg(target_os = "linux")]
        {
            use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
            let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return false };
            // Opened before the check, so that the handle cannot refer to a later process with the same id.
            let held = pidfd_open(pid, PidfdFlags::empty());
            if self.lives() != Some(true) {
                return false;
            }
            let sent = match held {
                Ok(held) => pidfd_send_signal(held, Signal::TERM),
                // Linux before 5.3 has no pidfd.
                Err(_) => kill_process(pid, Signal::TERM),
            };
            sent.is_ok()
        }
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Returns whether the process runs; `None` if that cannot be known from here.
    pub fn lives(&self) -> Option<bool> {
        if place()? != self.place {
            return None;
        }
        match Stat::of(self.pid) {
            Some(stat) => Some(stat.began == self.began && !stat.has_ended),
            // Other users' processes may be hidden.
            None => is_gone(self.pid).then_some(false),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.pid, self.began, self.place)
    }
}

/// The error of a text that is not a process.
#[derive(Debug)]
pub struct NoProcess;

impl FromStr for Process {
    type Err = NoProcess;

    fn from_str(text: &str) -> Result<Self, NoProcess> {
        let mut parts = text.splitn(3, ' ');
        let mut next = || parts.next().ok_or(NoProcess);
        let (pid, began, place) = (next()?, next()?, next()?);
        let [pid, began] = [pid, began].map(|number| number.parse::<u64>().map_err(|_| NoProcess));
        let pid = u32::try_from(pid?).map_err(|_| NoProcess)?;
        Ok(Self { pid, began: began?, place: place.to_owned() })
    }
}

/// The system's details of a process.
struct Stat {
    began: u64,
    /// Whether it is a zombie, kept only for its parent to read its status.
    has_ended: bool,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn read(stat: &str) -> Option<Self> {
        // The second field is the name in parentheses, which may itself contain parentheses and spaces.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
        // Field 22 in proc_pid_stat(5).
        let began = fields.nth(18)?.parse().ok()?;
        Some(Self { began, has_ended })
    }
}

fn place() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let numbers = fs::read_link("/proc/self/ns/pid").ok()?;
    // Older kernels have no time namespaces.
    let times = fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(format!("{} {} {}", boot.trim(), numbers.display(), times.display()))
}

/// Returns whether no process has that id, hidden or not.
fn is_gone(pid: u32) -> bool {
    #[cfg(unix)]
    {
        use rustix::{
            io::Errno,
            process::{Pid, test_kill_process},
        };
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }
    #[cfg(not(unix))]
    {
        let _ = pid;
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn this_process_lives_and_is_read_back_as_it_is_written() {
        let this = Process::this().expect("Linux says it");
        assert_eq!(this.lives(), Some(true));
        assert_eq!(this.to_string().parse::<Process>().expect("it is one"), this);
        for text in ["", "1", "1 2", "x 2 here", "-1 2 here", "4294967296 2 here", "1 2.5 here"] {
            text.parse::<Process>().expect_err(text);
        }
    }

    #[test]
    fn another_with_its_number_is_not_it() {
        let this = Process::this().expect("Linux says it");
        let before = Process { began: this.began - 1, ..this.clone() };
        assert_eq!(before.lives(), Some(false));
        let elsewhere = Process { place: "another start of this machine".to_owned(), ..before };
        assert_eq!(elsewhere.lives(), None, "a process of another boot is unknown");
        let none = Process { pid: 1 << 30, ..this };
        assert_eq!(none.lives(), Some(false), "no process has this number");
    }

    #[test]
    fn killed_process_is_dead_even_if_unreaped() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("there is one");
        let pid = child.id();
        let process =
            Process { pid, began: Stat::of(pid).expect("it is there").began, place: place().expect("a place") };
        assert_eq!(process.lives(), Some(true));
        child.kill().expect("it is ours");
        // The system ends it with some delay.
        while Stat::of(pid).is_some_and(|stat| !stat.has_ended) {
            std::thread::yield_now();
        }
        assert_eq!(process.lives(), Some(false));
        child.wait().expect("it ended");
        assert_eq!(process.lives(), Some(false));
    }

    #[test]
    fn a_name_with_blanks_and_parentheses_is_a_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        let stat = Stat::read(&format!("7 (a) Z (b c) {fields}")).expect("it is one");
        assert_eq!((stat.began, stat.has_ended), (4242, false));
        assert!(Stat::read("7 (a) S 1 2").is_none() && Stat::read("").is_none());
    }
}
