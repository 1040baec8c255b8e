//! Paths, and execution of other programs, with the tools directory first in PATH.

mod limited;

pub use limited::CommandResult;

use crate::failure::{Failure, IoContext, Result};
use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// The directories that xtask uses.
#[derive(Debug)]
pub struct Shell {
    /// The workspace.
    pub root: PathBuf,
    /// Downloaded programs: `.tools`, or the directory in `HEADROOM_TOOLS_DIR`.
    pub tools: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
    /// PATH with the tools directory first.
    path: OsString,
}

impl Shell {
    /// Reads the environment.
    pub fn new() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut root = manifest.parent().unwrap_or(manifest).to_path_buf();
        if !root.is_dir() {
            // Built elsewhere and copied to a machine with a GPU.
            root = env::current_dir().doing(|| "find the current folder".into())?;
        }
        let folder = |variable: &str, usual: &str| match env::var_os(variable) {
            Some(chosen) if !chosen.is_empty() => root.join(chosen),
            _ => root.join(usual),
        };
        let tools = folder("HEADROOM_TOOLS_DIR", ".tools");
        let target = folder("CARGO_TARGET_DIR", "target");
        let mut folders = vec![tools.join("bin"), tools.join("node_modules").join(".bin")];
        folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        let path = env::join_paths(folders).doing(|| "put the tools folder on PATH".into())?;
        Ok(Self { root, tools, target, path })
    }

    /// Creates a command that runs in the workspace, without standard input.
    pub fn cmd(&self, program: impl Into<OsString>) -> Cmd {
        let program = program.into();
        // Uses the full path: npm is a script on Windows, which is found only with its extension.
        let found = self.which(&program.to_string_lossy()).map_or_else(|| program.clone(), PathBuf::into_os_string);
        let mut command = Command::new(found);
        command.current_dir(&self.root).env("PATH", &self.path).stdin(Stdio::null());
        // `cargo run` describes xtask in these. Build scripts, such as ring's, run again when one of them changes.
        let of_xtask = |name: &OsString| {
            let name = name.to_string_lossy();
            ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
        };
        env::vars_os().map(|(name, _)| name).filter(of_xtask).for_each(|name| {
            command.env_remove(name);
        });
        Cmd { command, shown: Path::new(&program).display().to_string() }
    }

    /// Returns the full path of a program in PATH, tools directory first.
    pub fn which(&self, program: &str) -> Option<PathBuf> {
        let endings: &[&str] = if cfg!(windows) { &[".exe", ".cmd", ".bat"] } else { &[""] };
        env::split_paths(&self.path)
            .flat_map(|folder| endings.iter().map(move |ending| folder.join(format!("{program}{ending}"))))
            .find(|file| file.is_file())
    }
}

/// A command with its text for error messages.
#[derive(Debug)]
pub struct Cmd {
    command: Command,
    shown: String,
}

impl Cmd {
    /// Adds arguments.
    pub fn args<S: AsRef<str>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        for arg in args {
            self.shown = format!("{} {}", self.shown, arg.as_ref());
            self.command.arg(arg.as_ref());
        }
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    /// Sets the working directory.
    pub fn dir(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Starts the command without its standard output, and does not wait.
    pub fn start(mut self) -> Result<Child> {
        self.command.stdout(Stdio::null());
        self.command.spawn().map_err(|error| self.failure(&error.to_string(), ""))
    }

    /// Runs the command with inherited output; `hint` is for its failure.
    pub fn run(mut self, hint: &str) -> Result<()> {
        let status = self.command.status().map_err(|error| self.failure(&error.to_string(), hint))?;
        if status.success() { Ok(()) } else { Err(self.failure(&status.to_string(), hint)) }
    }

    /// Runs the command and returns its standard output; `None` if it fails.
    pub fn read(mut self) -> Option<String> {
        let output = self.command.stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the command and returns both outputs, and whether it succeeded. Nothing is shown.
    pub fn capture(mut self) -> Result<(String, bool)> {
        let output = self.command.output().map_err(|error| self.failure(&error.to_string(), ""))?;
        let text = [output.stdout, output.stderr].concat();
        Ok((String::from_utf8_lossy(&text).into_owned(), output.status.success()))
    }

    /// Runs the command with inherited standard error; returns its standard output, and whether it succeeded.
    pub fn output_with_errors_shown(mut self) -> Result<(String, bool)> {
        let output =
            self.command.stderr(Stdio::inherit()).output().map_err(|error| self.failure(&error.to_string(), ""))?;
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success()))
    }

    /// Runs the command and shows each line immediately; returns all lines, and whether it succeeded.
    pub fn watch(mut self, mut line_came: impl FnMut(&str)) -> Result<(Vec<String>, bool)> {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|error| self.failure(&error.to_string(), ""))?;
        let (sender, lines) = mpsc::channel();
        let readers: Vec<_> = [
            child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>),
            child.stderr.take().map(|err| Box::new(err) as Box<dyn Read + Send>),
        ]
        .into_iter()
        .flatten()
        .map(|stream| (stream, sender.clone()))
        .map(|(stream, sender)| thread::spawn(move || send_lines(stream, &sender)))
        .collect();
        drop(sender);
        let mut all = Vec::new();
        for line in lines {
            eprintln!("{line}");
            line_came(&line);
            all.push(line);
        }
        for reader in readers {
            // A reader ends with its stream and has no result.
            drop(reader.join());
        }
        let status = child.wait().doing(|| format!("wait for `{}`", self.shown))?;
        Ok((all, status.success()))
    }

    fn failure(&self, why: &str, hint: &str) -> Failure {
        let failure = Failure::new(format!("`{}` failed ({why})", self.shown));
        if hint.is_empty() { failure } else { failure.hint(hint) }
    }
}

/// Sends lines; reads bytes first, because a test may print invalid UTF-8.
fn send_lines(stream: impl Read, sender: &mpsc::Sender<String>) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while stream.read_until(b'\n', &mut line).is_ok_and(|read_bytes| read_bytes > 0) {
        let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
        if sender.send(text).is_err() {
            return;
        }
        line.clear();
    }
}

/// Runs a step: prints its name and purpose before, and its time after.
pub fn step<T>(what: &str, why: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("==> {what} ({why})");
    let start = Instant::now();
    let done = work();
    let outcome = if done.is_ok() { "done" } else { "failed" };
    eprintln!("    {outcome}: {what}, {}", seconds(start.elapsed()));
    done
}

/// Prints an additional remark.
pub fn note(text: &str) {
    eprintln!("    {text}");
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_with_its_arguments() {
        let shell = Shell::new().expect("an environment");
        let error = shell.cmd("no-such-program").args(["--flag"]).run("install it").expect_err("it does not exist");
        assert!(error.to_string().starts_with("error: `no-such-program --flag` failed ("), "{error}");
        assert!(error.to_string().ends_with("hint: install it"), "{error}");
    }

    #[test]
    fn lines_that_are_not_utf8_are_passed_on() {
        let (sender, lines) = mpsc::channel();
        send_lines(&b"one\r\n\xfftwo"[..], &sender);
        drop(sender);
        assert_eq!(lines.iter().collect::<Vec<_>>(), ["one", "\u{fffd}two"]);
    }
}
