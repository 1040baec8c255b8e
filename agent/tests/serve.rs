//! `headroom serve` as a process: what it prints, that it answers, and how it ends.
//!
//! `HEADROOM_BIN` names a binary to test in place of this build's.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
};

fn headroom() -> OsString {
    std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into())
}

/// A server on a port of its own; ended with the test, whatever comes.
struct Server {
    /// Its own, and gone with it.
    folder: Arc<tempfile::TempDir>,
    process: Child,
    stdout: BufReader<std::process::ChildStdout>,
    /// `127.0.0.1:port`.
    host: String,
}

impl Server {
    fn start(listen: &str) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().expect("a folder")), listen)
    }

    fn start_in(folder: Arc<tempfile::TempDir>, listen: &str) -> Self {
        let mut process = Command::new(headroom())
            .args(["serve", "--listen", listen])
            .env("HEADROOM_DATA_DIR", folder.path())
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("headroom runs");
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let mut link = String::new();
        stdout.read_line(&mut link).expect("a link");
        let host = link.strip_prefix("http://").and_then(|link| link.strip_suffix("/\n"));
        let host = host.unwrap_or_else(|| panic!("{link:?} is no link")).to_owned();
        Self { folder, process, stdout, host }
    }

    fn get(&self, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Ends it by a signal and gives its status and what it said on both streams after the link.
    #[cfg(unix)]
    fn end(mut self, signal: &str) -> (Option<i32>, String, String) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill runs").success());
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).expect("text");
        self.process.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        (self.process.wait().expect("it ends").code(), stdout, stderr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn it_prints_its_link_and_answers_there() {
    let server = Server::start("127.0.0.1:0");
    assert!(server.host.starts_with("127.0.0.1:") && !server.host.ends_with(":0"), "{}", server.host);
    let answer = server.get("/", &server.host);
    // With the page or without it: both are this server.
    assert!(answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("frame-ancestors 'none'"), "{answer}");
    assert!(server.get("/", "evil.example").starts_with("HTTP/1.1 403 "));
    assert!(server.get("/Cargo.toml", &server.host).starts_with("HTTP/1.1 404 "));
}

#[cfg(unix)]
#[test]
fn it_ends_in_order_when_it_is_told_to() {
    for signal in ["-INT", "-TERM"] {
        let server = Server::start("localhost:0");
        assert!(server.get("/", &server.host).starts_with("HTTP/1.1 "));
        let (status, stdout, stderr) = server.end(signal);
        assert_eq!((status, stdout.as_str()), (Some(0), ""), "{signal}: the link is all that is printed");
        assert!(stderr.contains("only this machine can open it") && stderr.ends_with("stopped\n"), "{stderr}");
        assert!(stderr.contains("/rig#pair="), "at the first start a browser is invited: {stderr}");
        assert!(!stderr.contains("warning"), "{stderr}");
    }
}

#[test]
fn a_port_that_is_taken_is_said() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = taken.local_addr().expect("an address").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(headroom());
    command.args(["serve", "--listen", &listen]).env("HEADROOM_DATA_DIR", folder.path());
    let output = command.output().expect("headroom runs");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b""[..]));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with(&format!("headroom: cannot listen on {listen}: ")), "{stderr}");
    assert!(
        stderr.ends_with("\n\nhint: is `headroom serve` running already? --listen 127.0.0.1:0 takes any free port\n")
    );
}

/// A command on a folder, and what it ended with: status and standard error.
fn fails(mut command: Command) -> (Option<i32>, String) {
    let output = command.stdin(Stdio::null()).output().expect("headroom runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_data_folder_has_one_agent_and_its_other_commands_beside_it() {
    let first = Server::start("127.0.0.1:0");
    let folder = first.folder.path().to_owned();
    let command = |args: &[&str]| {
        let mut command = Command::new(headroom());
        command.args(args).env("HEADROOM_DATA_DIR", &folder).env_remove("JOURNAL_STREAM");
        command
    };
    let (status, stderr) = fails(command(&["serve", "--listen", "127.0.0.1:0"]));
    assert!(status.is_some_and(|status| status != 0), "{stderr}");
    let pid = first.process.id();
    assert!(
        stderr.starts_with(&format!(
            "headroom: cannot use the data folder {}: `headroom serve` with process id {pid} uses it\n\nhint: ",
            folder.display()
        )),
        "{stderr}"
    );
    assert!(first.get("/", &first.host).starts_with("HTTP/1.1 "), "the first serves on");
    for args in [&["runs"][..], &["token", "list"], &["watch", "--", "true"]] {
        let output = command(args).stdin(Stdio::null()).output().expect("headroom runs");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // However the first ends, its lock ends with it.
    let kept = Arc::clone(&first.folder);
    drop(first);
    let second = Server::start_in(kept, "127.0.0.1:0");
    assert!(second.get("/", &second.host).starts_with("HTTP/1.1 "));
}

#[cfg(unix)]
#[test]
fn an_open_address_without_tls_is_warned_of() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let mut process = Command::new(headroom())
        .args(["serve", "--listen", "0.0.0.0:0"])
        .env("HEADROOM_DATA_DIR", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("headroom runs");
    let stderr = BufReader::new(process.stderr.take().expect("piped"));
    let warning = stderr.lines().map_while(Result::ok).find(|line| line.starts_with("warning: "));
    process.kill().expect("it runs");
    process.wait().expect("it ended");
    let warning = warning.expect("a warning");
    assert!(warning.starts_with("warning: 0.0.0.0:") && warning.contains("without TLS"), "{warning}");
    assert!(warning.contains("--tls-cert"), "{warning}");
}

#[test]
fn a_folder_of_trainings_that_is_not_there_is_a_usage_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(headroom());
    command.args(["serve", "--listen", "127.0.0.1:0", "--train"]).arg(folder.path().join("none"));
    let (status, stderr) = fails({
        command.env("HEADROOM_DATA_DIR", folder.path());
        command
    });
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("cannot open the folder") && stderr.contains("none"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn without_a_home_no_folder_is_guessed() {
    for home in [None, Some(""), Some("relative")] {
        let mut command = Command::new(headroom());
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        for name in ["HOME", "XDG_DATA_HOME", "HEADROOM_DATA_DIR"] {
            command.env_remove(name);
        }
        command.envs(home.map(|home| ("HOME", home)));
        let (status, stderr) = fails(command);
        assert!(status.is_some_and(|status| status != 0), "{stderr}");
        assert!(stderr.contains("cannot choose a data folder: HOME is not set"), "{stderr}");
        assert!(stderr.contains("hint: --data-dir FOLDER"), "{stderr}");
    }
}
