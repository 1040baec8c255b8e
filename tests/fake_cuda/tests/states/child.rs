//! A test in a process of its own: the same executable, started again for that test alone.

use std::{
    env,
    ffi::OsString,
    fmt::Display,
    io::Write,
    path::Path,
    process::{Command, exit},
};

use headroom_fake_cuda::Scenario;

/// The environment variable that marks the child process; its value is the test.
const CHILD: &str = "HEADROOM_STATES_CHILD";
/// Delimits the child's output within the test runner's.
const MARK: &str = "\n--- output ---\n";

/// Environment variables that decide where libraries are searched.
const PLACES: &[&str] =
    &["HEADROOM_CUBLASLT", "HEADROOM_CUDNN", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME", "CUDA_HOME", "CUDA_PATH"];

/// A process that runs a test.
#[derive(Debug)]
pub struct Child {
    test: &'static str,
    environment: Vec<(&'static str, OsString)>,
    folder: tempfile::TempDir,
}

#[derive(Debug)]
pub struct ChildOutput {
    /// The lines reported by the test; positions in this repository's files become `.rs:LINE`.
    pub output: String,
    /// Standard error, including the library's messages.
    pub errors: String,
}

impl Child {
    /// Creates a process for a test, given by its path in this program, with only the machine's driver.
    pub fn of(test: &'static str) -> Self {
        Self { test, environment: vec![], folder: tempfile::tempdir().expect("a folder") }
    }

    /// Creates a process on the machine of a scenario.
    pub fn on(test: &'static str, scenario: &Scenario) -> Self {
        let mut child = Self::of(test);
        child.environment.extend(scenario.play(child.folder.path()).expect("the library was built"));
        child
    }

    /// Adds an environment variable.
    pub fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.set(name, value);
        self
    }

    /// Sets an environment variable of the process.
    pub fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.environment.push((name, value.into()));
    }

    /// Returns a temporary directory, shown as `FOLDER` in output.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the test's part in the child, and returns its output.
    #[track_caller]
    pub fn run<T: Display>(&self, part: impl FnOnce(&mut dyn FnMut(T))) -> ChildOutput {
        if env::var_os(CHILD).is_some_and(|test| test == self.test) {
            let mut report = MARK.to_owned();
            part(&mut |text| report += &format!("{text}\n"));
            std::io::stdout().write_all((report + MARK).as_bytes()).expect("a pipe");
            exit(0);
        }
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["--exact", self.test, "--nocapture", "--test-threads=1"]).env(CHILD, self.test);
        for variable in ["HEADROOM_CUDA", "HEADROOM_CUDA_SYNC", headroom_fake_cuda::VARIABLE].iter().chain(PLACES) {
            command.env_remove(variable);
        }
        let output = command.envs(self.environment.iter().cloned()).output().expect("it starts");
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{stdout}\n{stderr}");
        let text = stdout.split(MARK).nth(1).unwrap_or_else(|| panic!("no test is called {}: {stdout}", self.test));
        let folder = self.folder.path().display().to_string();
        ChildOutput { output: without_lines(&text.replace(&folder, "FOLDER")), errors: stderr }
    }
}

/// Replaces line numbers of this repository's files, which change with every edit.
fn without_lines(text: &str) -> String {
    let mut parts = text.split(".rs:");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        assert!(rest.len() < part.len(), "a place has a line: {text}");
        out += ".rs:LINE";
        out += rest;
    }
    out
}
