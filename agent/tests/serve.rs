//! Tests of the `headroom serve` process: its output, its responses and its exit.
//!
//! `HEADROOM_BIN` names a binary to test instead of this build's.

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

/// A server on a port of its own. It ends with the test, also on failure.
struct Server {
    /// The server's data directory, deleted with the last reference.
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
        Self::start_with(folder, &["--listen", listen])
    }

    fn start_with(folder: Arc<tempfile::TempDir>, options: &[&str]) -> Self {
        let mut process = Command::new(headroom())
            .arg("serve")
            .args(options)
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
        let host = host.unwrap_or_else(|| panic!("{link:?} is not a link")).to_owned();
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

    /// Ends the server by a signal. Returns its exit status, and both streams after the link.
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

#[cfg(unix)]
#[test]
fn quiet_server_prints_warnings() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let server = Server::start_with(folder, &["--quiet", "--listen", "0.0.0.0:0"]);
    // It prints before it answers.
    server.get("/", &server.host);
    let (_, _, stderr) = server.end("-TERM");
    assert!(stderr.contains("warning: 0.0.0.0:") && stderr.contains(" without TLS: "), "{stderr}");
    assert!(!stderr.contains("serving the page") && !stderr.contains("pair"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn json_log_has_notes_as_events_and_no_pairing_code() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let options = ["--listen", "0.0.0.0:0", "--log=info", "--log-format=json"];
    let server = Server::start_with(folder, &options);
    // It prints before it answers.
    server.get("/", &server.host);
    let (status, _, stderr) = server.end("-TERM");
    assert_eq!(status, Some(0), "{stderr}");
    let events =
        stderr.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    let events: Vec<serde_json::Value> = events.collect();
    let has = |level: &str, words: &str| {
        let is_it = |event: &&serde_json::Value| event["message"].as_str().is_some_and(|text| text.contains(words));
        events.iter().find(is_it).is_some_and(|event| event["level"] == level)
    };
    assert!(has("WARN", "without TLS") && has("INFO", "serving the page") && has("INFO", "stopped"), "{stderr}");
    assert!(has("INFO", "`headroom token pair` prints a link") && !stderr.contains("pair="), "{stderr}");
}

#[test]
fn token_is_valid_when_its_command_ends() {
    let server = Server::start("127.0.0.1:0");
    for i in 0..20 {
        let mut add = Command::new(headroom());
        add.args(["token", "add", &format!("name{i}")]).env("HEADROOM_DATA_DIR", server.folder.path());
        let token = String::from_utf8(add.output().expect("it runs").stdout).expect("text");
        let bearer = format!("{}\r\nAuthorization: Bearer {}", server.host, token.trim());
        let answer = server.get("/api/runs", &bearer);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{i}: {answer}");
    }
    let answer = server.get("/api/runs", &format!("{}\r\nAuthorization: Bearer {}", server.host, "0".repeat(64)));
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[cfg(target_os = "linux")]
#[test]
fn token_that_is_not_printed_is_revoked() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |args: &[&str], stdout: Stdio| {
        let mut command = Command::new(headroom());
        command.arg("token").args(args).env("HEADROOM_DATA_DIR", folder.path()).stdin(Stdio::null()).stdout(stdout);
        command.output().expect("headroom runs")
    };
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
    let output = run(&["add", "prometheus"], full.into());
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("standard output"));
    let list = String::from_utf8(run(&["list", "--json"], Stdio::piped()).stdout).expect("text");
    assert!(!list.contains("prometheus"), "{list}");
    let again = run(&["add", "prometheus"], Stdio::piped());
    assert!(again.status.success(), "{again:?}");
}

/// Programs that are generated from the description send no request that the server refuses.
#[test]
fn description_has_required_parameters_and_bounds() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let mut add = Command::new(headroom());
    add.args(["token", "add", "test"]).env("HEADROOM_DATA_DIR", folder.path());
    let token = String::from_utf8(add.output().expect("it runs").stdout).expect("text");
    let server = Server::start_in(folder, "127.0.0.1:0");
    let answer = server.get("/api/openapi.json", &format!("{}\r\nAuthorization: Bearer {}", server.host, token.trim()));
    let body = answer.split_once("\r\n\r\n").expect("a head").1;
    let api: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    let parameters = api["paths"]["/api/history"]["get"]["parameters"].as_array().expect("parameters");
    let of = |name: &str| parameters.iter().find(|parameter| parameter["name"] == name).expect("a parameter");
    assert_eq!(of("gpu")["required"], true, "{}", of("gpu"));
    assert!(of("to_ms")["schema"]["maximum"].is_u64(), "{}", of("to_ms"));
    let refuses_unknown_keys = |body: &serde_json::Value| body["additionalProperties"] == false;
    let schemas = api["components"]["schemas"].as_object().expect("schemas");
    assert!(schemas.values().any(refuses_unknown_keys), "no body refuses unknown keys");
}

#[test]
fn it_prints_its_link_and_answers_there() {
    let server = Server::start("127.0.0.1:0");
    assert!(server.host.starts_with("127.0.0.1:") && !server.host.ends_with(":0"), "{}", server.host);
    let answer = server.get("/", &server.host);
    // The status is 503 in a build without the page.
    assert!(answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("frame-ancestors 'none'"), "{answer}");
    assert!(server.get("/", "evil.example").starts_with("HTTP/1.1 403 "));
    assert!(server.get("/Cargo.toml", &server.host).starts_with("HTTP/1.1 404 "));
}

#[cfg(unix)]
#[test]
fn it_ends_in_order_when_it_is_reported_to() {
    for signal in ["-INT", "-TERM"] {
        let server = Server::start("localhost:0");
        assert!(server.get("/", &server.host).starts_with("HTTP/1.1 "));
        let (status, stdout, stderr) = server.end(signal);
        assert_eq!((status, stdout.as_str()), (Some(0), ""), "{signal}: only the link is printed");
        assert!(stderr.contains("only this machine can open it") && stderr.ends_with("stopped\n"), "{stderr}");
        assert!(stderr.contains("/rig#pair="), "the first start prints a pairing link: {stderr}");
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

/// Runs a command that must fail. Returns its exit status and standard error.
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
    // The lock ends with the process, however that ends.
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
fn unknown_level_of_log_is_a_usage_error() {
    let folder = tempfile::tempdir().expect("a folder");
    for (option, variable, error) in [
        ("--log=http=loud", "", "headroom: --log: \"loud\" is not one of off, error, warn, info, debug, trace\n"),
        ("--log=htp=debug", "", "hint: did you mean --log http=debug?"),
        ("--quiet", "verbose", "headroom: HEADROOM_LOG: \"verbose\" is not one of off, error,"),
        ("--quiet", "webhok", "hint: did you mean HEADROOM_LOG=webhook=debug?"),
        ("--log-format=xml", "", "headroom: --log-format: \"xml\" is not one of text, json\n"),
    ] {
        let mut command = Command::new(headroom());
        command.args(["serve", "--listen", "127.0.0.1:0", option]);
        let (status, stderr) = fails({
            command.env("HEADROOM_DATA_DIR", folder.path()).env("HEADROOM_LOG", variable);
            command
        });
        assert!(status == Some(2) && stderr.contains(error), "{option} {variable}: {stderr}");
    }
}

#[test]
fn missing_folder_of_trainings_is_an_input_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(headroom());
    command.args(["serve", "--listen", "127.0.0.1:0", "--train"]).arg(folder.path().join("none"));
    let (status, stderr) = fails({
        command.env("HEADROOM_DATA_DIR", folder.path());
        command
    });
    assert_eq!(status, Some(3), "{stderr}");
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
        assert!(stderr.contains("cannot choose the data folder: HOME is not set"), "{stderr}");
        assert!(stderr.contains("hint: --data-dir FOLDER"), "{stderr}");
    }
}
