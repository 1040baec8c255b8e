//! Commands with a time limit.

use super::Cmd;
use crate::failure::{IoContext, Result};
use std::{
    io::Read,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The polling interval of a command's end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes kept of each output, from its end, so that endless output does not fill memory.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// Lines of a failed command's output that are shown.
const LINES_REPORTED: usize = 6;

#[derive(Debug, Default)]
pub struct CommandResult {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Whether it exited successfully.
    pub success: bool,
    /// Whether it exceeded its time limit and was killed.
    pub timed_out: bool,
    /// Its duration.
    pub seconds: f64,
}

impl CommandResult {
    /// Returns why it failed: its last lines.
    pub fn why(&self) -> Option<String> {
        if self.success {
            return None;
        }
        let said = if self.err.trim().is_empty() { &self.out } else { &self.err };
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES_REPORTED)..].join(" | ");
        let ending = if self.timed_out { format!("killed after {:.0} s", self.seconds) } else { "failed".to_owned() };
        Some(if last.is_empty() { ending } else { format!("{ending}: {last}") })
    }
}

impl Cmd {
    /// Runs the command to its end or its time limit; `meanwhile` is called repeatedly with its process id.
    ///
    /// It has its own process group, so that its children end with it.
    pub fn limited(mut self, time_max: Duration, mut meanwhile: impl FnMut(u32)) -> Result<CommandResult> {
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
        Ok(CommandResult {
            out: text(out),
            err: text(err),
            success: status.success() && !timed_out,
            timed_out,
            seconds,
        })
    }
}

/// Kills the command and its children.
fn kill(child: &mut Child) {
    if cfg!(unix) {
        // The shell's own, as not every machine has a program of that name. A process that has ended already needs no signal.
        let group = format!("kill -s KILL -- -{}", child.id());
        let _ = Command::new("sh").args(["-c", &group]).stderr(Stdio::null()).status();
    }
    let _ = child.kill();
}

/// Reads to the end, and keeps the last bytes.
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

    fn sh(script: &str, time_max: Duration) -> CommandResult {
        let shell = Shell::new().expect("an environment");
        shell.cmd("sh").args(["-c", script]).limited(time_max, |_| {}).expect("sh is there")
    }

    #[test]
    fn finished_command_returns_both_outputs() {
        let ended = sh("echo one; echo two >&2; exit 3", Duration::from_secs(600));
        assert_eq!((ended.out.as_str(), ended.err.as_str()), ("one\n", "two\n"));
        assert_eq!(ended.why().as_deref(), Some("failed: two"));
        assert_eq!(sh("true", Duration::from_secs(600)).why(), None);
    }

    #[test]
    fn command_over_limit_is_killed_with_children() {
        // The inner shell keeps the outputs open; if it survived, this would wait for it.
        let ended = sh("echo begun; sh -c 'sleep 3600'; true", Duration::from_millis(100));
        assert!(ended.timed_out && !ended.success && ended.seconds < 3600.0, "{ended:?}");
    }
}
