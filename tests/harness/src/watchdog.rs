//! Watchdog: ends a test that hangs, and prints what the processes under test wait for.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{Write as _, stderr},
    path::Path,
    process,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// Time after which a test hangs. Steps take a hundredth of it, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Lines of `/proc/PID/status` that explain a hang.
const LINES: [&str; 10] =
    ["Name:", "State:", "PPid:", "NSsid:", "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:", "Threads:"];

/// Ends the test's process after 90 s, unless it is dropped before.
#[derive(Debug)]
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Starts to watch. On expiry it prints the descendants of this process, and the processes whose command line
    /// contains `folder`.
    #[must_use]
    pub fn start(folder: &Path) -> Self {
        let (alive, dropped) = channel();
        let folder = folder.display().to_string();
        thread::spawn(move || {
            if dropped.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // `eprintln!` would write to the captured output of the test, which this exit discards.
                let _ = writeln!(stderr(), "the test hangs; its processes:\n{}", describe(&folder));
                process::exit(1);
            }
        });
        Self { _alive: alive }
    }
}

/// Describes the descendants of this process, and the processes whose command line contains `folder`. Empty on systems
/// without `/proc`.
fn describe(folder: &str) -> String {
    let mut ours = BTreeSet::from([process::id()]);
    let all = processes();
    // A child can have a lower ID than its parent, so one pass does not find all.
    loop {
        let n_before = ours.len();
        ours.extend(
            all.iter().filter(|process| ours.contains(&process.parent)).map(|process| process.id).collect::<Vec<_>>(),
        );
        if ours.len() == n_before {
            break;
        }
    }
    let mut text = String::new();
    for process in all.iter().filter(|process| ours.contains(&process.id) || process.words.contains(folder)) {
        let _ = writeln!(text, "{} {}", process.id, process.words);
        for line in process.status.lines().filter(|line| LINES.iter().any(|start| line.starts_with(start))) {
            let _ = writeln!(text, "    {line}");
        }
        for thread in directories(&format!("/proc/{}/task", process.id)) {
            let read = |name: &str| fs::read_to_string(format!("/proc/{}/task/{thread}/{name}", process.id));
            let [name, waits, call] = ["comm", "wchan", "syscall"].map(|file| read(file).unwrap_or_default());
            let _ = writeln!(text, "    thread {thread} {} in {} of {}", name.trim(), waits.trim(), call.trim());
        }
    }
    text
}

/// A process of this system.
struct Process {
    id: u32,
    parent: u32,
    /// Command line.
    words: String,
    /// Text of `/proc/PID/status`.
    status: String,
}

fn processes() -> Vec<Process> {
    let processes = directories("/proc").into_iter().map(|id| {
        let read = |name: &str| fs::read(format!("/proc/{id}/{name}")).unwrap_or_default();
        let status = String::from_utf8_lossy(&read("status")).into_owned();
        let words = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        Process { id, parent: parent.unwrap_or(0), words, status }
    });
    processes.collect()
}

/// Entries of a directory that are numbers.
fn directories(path: &str) -> Vec<u32> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_are_described_with_their_threads() {
        let mut child = Command::new("sleep").arg("600.25").stdout(Stdio::null()).spawn().expect("sleep runs");
        // The child has its own command line once it has started the program.
        while !fs::read_to_string(format!("/proc/{}/cmdline", child.id())).is_ok_and(|words| words.contains("600.25")) {
            thread::yield_now();
        }
        let (by_parent, by_words) = (describe("missing folder"), describe("600.25"));
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        for text in [by_parent, by_words] {
            assert!(text.contains(&format!("{} sleep 600.25", child.id())), "{text}");
            assert!(text.contains(&format!("thread {} sleep in ", child.id())) && text.contains("SigBlk:"), "{text}");
        }
    }
}
