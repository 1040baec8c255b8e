//! `headroom serve`, as a person starts it.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// A server on a free port of this machine, for as long as the value lives.
#[derive(Debug)]
pub struct Server {
    /// Its own: the history and the tokens of whoever runs the tests are not for them.
    folder: TempDir,
    process: Child,
    link: String,
}

impl Server {
    /// Starts it and reads the link that it prints.
    ///
    /// # Panics
    ///
    /// Where it does not start or prints something else.
    #[must_use]
    pub fn start(headroom: &Path) -> Self {
        Self::start_with(headroom, |_| {})
    }

    /// The same, with more said to the program before it starts.
    ///
    /// # Panics
    ///
    /// As [`Server::start`] does.
    #[must_use]
    pub fn start_with(headroom: &Path, prepare: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(headroom);
        // Its devices are its own too, whoever else of this user trains.
        command.env("HEADROOM_DATA_DIR", folder.path()).env("XDG_RUNTIME_DIR", folder.path());
        command.args(["serve", "--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut process = command.stderr(Stdio::null()).spawn().expect("headroom runs");
        let mut link = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut link).expect("a link");
        let server = Self { folder, process, link: link.trim().to_owned() };
        assert!(server.link.starts_with("http://127.0.0.1:"), "no link: {:?}", server.link);
        server
    }

    /// Its data folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process that answers.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The link that it printed.
    #[must_use]
    pub fn link(&self) -> &str {
        &self.link
    }

    /// Its address and port.
    #[must_use]
    pub fn host(&self) -> &str {
        self.link.trim_start_matches("http://").trim_end_matches('/')
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
