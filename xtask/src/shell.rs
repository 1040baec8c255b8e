//! Where things lie, and how other programs are called: with the tools folder first on PATH, and shown when they fail.

mod limited;

pub use limited::Ended;

use crate::failure::{Doing, Failure, Result};
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

/// The folders that xtask works in.
#[derive(Debug)]
pub struct Shell {
    /// The workspace.
    pub root: PathBuf,
    /// Fetched programs: `.tools`, or what `HEADROOM_TOOLS_DIR` says.
    pub tools: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
    /// PATH with the tools folder first.
    path: OsString,
}

impl Shell {
    /// Reads the environment.
    pub fn new() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut root = manifest.parent().unwrap_or(manifest).to_path_buf();
        if !root.is_dir() {
            // Built elsewhere, and carried to a machine with a card.
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

    /// A program to run in the workspace. It never reads our standard input.
    pub fn cmd(&self, program: impl Into<OsString>) -> Cmd {
        let program = program.into();
        // Asked for by its full path: on Windows npm is a script, which is only found with its ending.
        let found = self.which(&program.to_string_lossy()).map_or_else(|| program.clone(), PathBuf::into_os_string);
        let mut command = Command::new(found);
        command.current_dir(&self.root).env("PATH", &self.path).stdin(Stdio::null());
        Cmd { command, shown: Path::new(&program).display().to_string() }
    }

    /// The full path of a program on PATH, tools folder first.
    pub fn which(&self, program: &str) -> Option<PathBuf> {
        let endings: &[&str] = if cfg!(windows) { &[".exe", ".cmd", ".bat"] } else { &[""] };
        env::split_paths(&self.path)
            .flat_map(|folder| endings.iter().map(move |ending| folder.join(format!("{program}{ending}"))))
            .find(|file| file.is_file())
    }
}

/// A command that knows how it reads.
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

    /// Sets a variable of the environment.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    /// Runs elsewhere than in the workspace.
    pub fn dir(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Starts it, its output aside, and does not wait.
    pub fn start(mut self) -> Result<Child> {
        self.command.stdout(Stdio::null());
        self.command.spawn().map_err(|error| self.failure(&error.to_string(), ""))
    }

    /// Runs to the end with our own output; `hint` says what to do where it fails.
    pub fn run(mut self, hint: &str) -> Result<()> {
        let status = self.command.status().map_err(|error| self.failure(&error.to_string(), hint))?;
        if status.success() { Ok(()) } else { Err(self.failure(&status.to_string(), hint)) }
    }

    /// What it prints on standard output, or `None` where it cannot be run or fails.
    pub fn read(mut self) -> Option<String> {
        let output = self.command.stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs to the end and gives what it prints on both outputs, with whether it succeeded; nothing is shown.
    pub fn capture(mut self) -> Result<(String, bool)> {
        let output = self.command.output().map_err(|error| self.failure(&error.to_string(), ""))?;
        let text = [output.stdout, output.stderr].concat();
        Ok((String::from_utf8_lossy(&text).into_owned(), output.status.success()))
    }

    /// Runs to the end with our own standard error, and gives what it prints on standard output, with whether it
    /// succeeded.
    pub fn output_with_errors_shown(mut self) -> Result<(String, bool)> {
        let output =
            self.command.stderr(Stdio::inherit()).output().map_err(|error| self.failure(&error.to_string(), ""))?;
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success()))
    }

    /// Runs to the end, shows each line as it comes, and gives all of them with whether it succeeded.
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
            // A reader ends when its stream does; it has nothing to tell but that.
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

/// Lines as bytes first: a test may print what is not UTF-8.
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

/// Says what is done and why, does it, and says how long it took.
pub fn step<T>(what: &str, why: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("==> {what} ({why})");
    let start = Instant::now();
    let done = work();
    let outcome = if done.is_ok() { "done" } else { "failed" };
    eprintln!("    {outcome}: {what}, {}", seconds(start.elapsed()));
    done
}

/// Something worth knowing that is not a step.
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
