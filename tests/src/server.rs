//! `headroom serve`, started as a user would.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// A server on a free port of this machine; dropping it ends the server.
#[derive(Debug)]
pub struct Server {
    /// The server's own directory, so that tests do not touch the user's history and tokens.
    folder: TempDir,
    process: Child,
    link: String,
}

impl Server {
    /// Starts a server and reads the link that it prints.
    ///
    /// # Panics
    ///
    /// If it does not start, or prints something else.
    #[must_use]
    pub fn start(headroom: &Path) -> Self {
        Self::start_with(headroom, |_| {})
    }

    /// Starts a server after `prepare` has changed its command.
    ///
    /// # Panics
    ///
    /// As [`Server::start`].
    #[must_use]
    pub fn start_with(headroom: &Path, prepare: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(headroom);
        // The runtime directory with the devices' locks is its own too, so that other runs of this user do not
        // interfere.
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

    /// Returns its data directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the id of the server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns the link that it printed.
    #[must_use]
    pub fn link(&self) -> &str {
        &self.link
    }

    /// Returns its address and port.
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
