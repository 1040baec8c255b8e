//! A test in a process of its own: the same executable once more, for that test alone.

use std::{
    env,
    ffi::OsString,
    fmt::Display,
    io::Write,
    path::Path,
    process::{Command, exit},
};

use headroom_fake_cuda::Scenario;

/// Tells the process that it is the one.
const CHILD: &str = "HEADROOM_STATES_CHILD";
/// Where the child's own words begin among the test runner's.
const MARK: &str = "\n--- told ---\n";

/// What says where a library of products may be.
const PLACES: &[&str] =
    &["HEADROOM_CUBLASLT", "HEADROOM_CUDNN", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME", "CUDA_HOME", "CUDA_PATH"];

/// A process that plays a test.
#[derive(Debug)]
pub struct Child {
    test: &'static str,
    environment: Vec<(&'static str, OsString)>,
    folder: tempfile::TempDir,
}

/// What it said.
#[derive(Debug)]
pub struct Said {
    /// Line by line, what the test told; places in our files are `.rs:LINE`.
    pub told: String,
    /// Standard error: the library's words among others.
    pub errors: String,
}

impl Child {
    /// A process for a test, by its path in this program, with no driver but the machine's.
    pub fn of(test: &'static str) -> Self {
        Self { test, environment: vec![], folder: tempfile::tempdir().expect("a folder") }
    }

    /// On a machine.
    pub fn on(test: &'static str, scenario: &Scenario) -> Self {
        let mut child = Self::of(test);
        child.environment.extend(scenario.play(child.folder.path()).expect("the library was built"));
        child
    }

    /// With a variable.
    pub fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.set(name, value);
        self
    }

    /// Sets a variable of the process.
    pub fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.environment.push((name, value.into()));
    }

    /// A folder that is there as long as this is; told as `FOLDER`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the test's part for the child there, and gives what it told.
    #[track_caller]
    pub fn run<T: Display>(&self, part: impl FnOnce(&mut dyn FnMut(T))) -> Said {
        if env::var_os(CHILD).is_some_and(|test| test == self.test) {
            let mut told = MARK.to_owned();
            part(&mut |text| told += &format!("{text}\n"));
            std::io::stdout().write_all((told + MARK).as_bytes()).expect("a pipe");
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
        let told = stdout.split(MARK).nth(1).unwrap_or_else(|| panic!("no test is called {}: {stdout}", self.test));
        let folder = self.folder.path().display().to_string();
        Said { told: without_lines(&told.replace(&folder, "FOLDER")), errors: stderr }
    }
}

/// Files of ours keep their names and lose their lines, which every edit moves.
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
