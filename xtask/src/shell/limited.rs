//! A command that may take so long and no longer, with what it said.

use super::Cmd;
use crate::failure::{Doing, Result};
use std::{
    io::Read,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How often it is looked whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Of each output so much is kept, its end: a program that prints without end fills no memory.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// Lines that are told of a command that failed.
const LINES_TOLD: usize = 6;

/// How it ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// What it printed on standard output.
    pub out: String,
    /// And on standard error.
    pub err: String,
    /// Whether it ended by itself and well.
    pub success: bool,
    /// Whether it took too long, and was killed.
    pub timed_out: bool,
    /// How long it took.
    pub seconds: f64,
}

impl Ended {
    /// Why it is not a success: its last words.
    pub fn why(&self) -> Option<String> {
        if self.success {
            return None;
        }
        let said = if self.err.trim().is_empty() { &self.out } else { &self.err };
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES_TOLD)..].join(" | ");
        let ending = if self.timed_out { format!("killed after {:.0} s", self.seconds) } else { "failed".to_owned() };
        Some(if last.is_empty() { ending } else { format!("{ending}: {last}") })
    }
}

impl Cmd {
    /// Runs it to its end, or until it has taken too long; `meanwhile` is called again and again with its number.
    ///
    /// It has a group of processes of its own, so that what it started ends with it.
    pub fn limited(mut self, time_max: Duration, mut meanwhile: impl FnMut(u32)) -> Result<Ended> {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut self.command, 0);
        let start = Instant::now();
        let mut child = self.command.spawn().map_err(|error| self.failure(&error.to_string(), ""))?;
        let out = child.stdout.take().map(kept);
        let err = child.stderr.take().map(kept);
        let mut timed_out = false;
        let status = loop {
            if let Some(status) = child.try_wait().doing(|| format!("wait for `{}`", self.shown))? {
                break status;
            }
            if start.elapsed() > time_max {
                timed_out = true;
                kill(&mut child);
                break child.wait().doing(|| format!("wait for `{}`", self.shown))?;
            }
            meanwhile(child.id());
            thread::sleep(LOOK_EVERY);
        };
        let seconds = start.elapsed().as_secs_f64();
        let text = |reader: Option<JoinHandle<Vec<u8>>>| {
            let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(Ended { out: text(out), err: text(err), success: status.success() && !timed_out, timed_out, seconds })
    }
}

/// Ends it with what it started.
fn kill(child: &mut Child) {
    if cfg!(unix) {
        // The shell's own, as not every machine has a program of that name. Whoever has ended already is who was meant to.
        let group = format!("kill -s KILL -- -{}", child.id());
        let _ = Command::new("sh").args(["-c", &group]).stderr(Stdio::null()).status();
    }
    let _ = child.kill();
}

/// Reads to the end, and keeps the last of it.
fn kept(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut kept, mut piece) = (Vec::new(), [0; 1 << 14]);
        while let Ok(n @ 1..) = stream.read(&mut piece) {
            kept.extend_from_slice(&piece[..n]);
            if kept.len() > 2 * KEPT_BYTES_MAX {
                kept.drain(..kept.len() - KEPT_BYTES_MAX);
            }
        }
        kept
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::shell::Shell;

    fn sh(script: &str, time_max: Duration) -> Ended {
        let shell = Shell::new().expect("an environment");
        shell.cmd("sh").args(["-c", script]).limited(time_max, |_| {}).expect("sh is there")
    }

    #[test]
    fn what_ends_by_itself_is_told_with_both_outputs() {
        let ended = sh("echo one; echo two >&2; exit 3", Duration::from_secs(600));
        assert_eq!((ended.out.as_str(), ended.err.as_str()), ("one\n", "two\n"));
        assert_eq!(ended.why().as_deref(), Some("failed: two"));
        assert_eq!(sh("true", Duration::from_secs(600)).why(), None);
    }

    #[test]
    fn what_takes_too_long_is_killed_with_what_it_started() {
        // The inner shell keeps the outputs open; were it left, this would wait for it.
        let ended = sh("echo begun; sh -c 'sleep 3600'; true", Duration::from_millis(100));
        assert!(ended.timed_out && !ended.success && ended.seconds < 3600.0, "{ended:?}");
    }
}
