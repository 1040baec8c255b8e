//! Tests of `headroom serve` and `headroom token` as concurrent processes: access, and the data that a viewer receives.
//!
//! `HEADROOM_BIN` names a binary to test instead of this build's.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// Timeout far above the usual time, so that a hang becomes a failure.
const PATIENCE: Duration = Duration::from_secs(30);

fn headroom(folder: &Path, args: &[&str]) -> Command {
    let binary: OsString = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let mut command = Command::new(binary);
    command.args(args).env("HEADROOM_DATA_DIR", folder).env_remove("JOURNAL_STREAM").stdin(Stdio::null());
    command
}

fn token(folder: &Path, args: &[&str], status: i32) -> Output {
    let output = headroom(folder, &[&["token"], args].concat()).output().expect("headroom runs");
    assert_eq!(output.status.code(), Some(status), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text").trim_end()
}

struct Agent {
    process: Child,
    link: String,
    host: String,
    /// Lines of standard error.
    said: Receiver<String>,
}

impl Agent {
    fn start(folder: &Path, options: &[&str]) -> Self {
        Self::run(headroom(folder, &[&["serve", "--listen", "127.0.0.1:0"], options].concat()))
    }

    fn run(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("headroom runs");
        let mut link = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut link).expect("a link");
        let link = link.trim_end().to_owned();
        let host = link.split('/').nth(2).unwrap_or_else(|| panic!("{link:?} is not a link")).to_owned();
        let (tell, said) = channel();
        let stderr = BufReader::new(process.stderr.take().expect("piped"));
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self { process, link, host, said }
    }

    /// Returns the next line that contains `what`.
    fn says(&self, what: &str) -> String {
        loop {
            let line = self.said.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("the output lacks {what:?}"));
            if line.contains(what) {
                return line;
            }
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.host).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream
    }

    fn send(&self, method: &str, path: &str, lines: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{lines}\r\n{body}",
            self.host,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), body.to_owned())
    }

    fn rig(&self, token: &str) -> u16 {
        self.send("GET", "/api/rig", &format!("Authorization: Bearer {token}\r\n"), "").0
    }

    fn pair(&self, code: &str) -> (u16, Value) {
        let body = format!(r#"{{"code":"{code}","name":"phone"}}"#);
        let (status, body) = self.send("POST", "/api/pair", &format!("Origin: http://{}\r\n", self.host), &body);
        (status, serde_json::from_str(&body).expect("JSON"))
    }

    /// Polls until a token that is accepted is refused.
    fn until_refused(&self, token: &str) {
        let start = Instant::now();
        loop {
            match self.rig(token) {
                401 => return,
                status => assert!(status == 200 && start.elapsed() < PATIENCE, "{status}"),
            }
            thread::sleep(Duration::from_millis(250));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Returns the one-time code of a pairing link in a line.
fn code(line: &str) -> &str {
    let code = line.split("/rig#pair=").nth(1).unwrap_or_else(|| panic!("no code in {line:?}")).trim();
    assert!(code.len() == 64 && code.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
    code
}

#[test]
fn the_first_start_lets_one_browser_in() {
    let folder = folder();
    let agent = Agent::start(folder.path(), &[]);
    let line = agent.says("#pair=");
    assert!(line.trim().starts_with(&agent.link), "{line}");
    assert_eq!(agent.rig(code(&line)), 401, "a pairing code is not a token");
    let (status, paired) = agent.pair(code(&line));
    assert_eq!((status, paired["scope"].as_str()), (200, Some("control")));
    let token = paired["token"].as_str().expect("a token").to_owned();
    assert_eq!(agent.rig(&token), 200);
    assert_eq!(agent.pair(code(&line)).0, 403, "it is used");
    drop(agent);
    // The token stays valid, and a second start prints no link.
    let again = Agent::start(folder.path(), &[]);
    again.says("Ctrl-C ends it");
    assert_eq!(again.rig(&token), 200);
    assert!(again.said.try_iter().all(|line| !line.contains("#pair=")));
    let kept = std::fs::read_to_string(folder.path().join("access.json")).expect("a file");
    assert!(!kept.contains(&token) && !kept.contains(code(&line)), "{kept}");
}

#[test]
fn a_log_gets_no_code() {
    let folder = folder();
    let mut command = headroom(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    command.env("JOURNAL_STREAM", "8:12345");
    let agent = Agent::run(command);
    assert!(!agent.says("headroom token pair").contains('#'));
    assert!(agent.said.try_iter().all(|line| !line.contains("#pair=")));
}

#[test]
fn tokens_are_added_listed_and_revoked_beside_a_running_agent() {
    let folder = folder();
    let agent = Agent::start(folder.path(), &[]);
    let added = token(folder.path(), &["add", "prometheus"], 0);
    let good = text(&added.stdout);
    assert_eq!(good.len(), 64, "{good}");
    assert_eq!(agent.rig(good), 200, "an unknown token makes the agent read the file again");
    let listed = token(folder.path(), &["list", "--json"], 0);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!(listed["schema"], 1);
    assert_eq!(
        (listed["tokens"][0]["name"].as_str(), listed["tokens"][0]["scope"].as_str()),
        (Some("prometheus"), Some("view"))
    );
    let table = token(folder.path(), &["list"], 0);
    assert!(text(&table.stdout).starts_with("name        scope  created"), "{}", text(&table.stdout));
    assert!(!text(&table.stdout).contains(good));
    let twice = token(folder.path(), &["add", "prometheus"], 1);
    assert!(text(&twice.stderr).contains("revoke"), "{}", text(&twice.stderr));
    token(folder.path(), &["revoke", "prometheus"], 0);
    agent.until_refused(good);
    token(folder.path(), &["revoke", "prometheus"], 1);
    for wrong in [&["add"][..], &[], &["lend", "x"], &["list", "x"], &["add", "x", "y"], &["add", "x", "--scope=all"]] {
        token(folder.path(), wrong, 2);
    }
}

#[test]
fn another_device_is_paired_by_a_link_of_its_own() {
    let folder = folder();
    let agent = Agent::start(folder.path(), &["--host", "rig.tail1234.ts.net"]);
    let printed = token(folder.path(), &["pair"], 0);
    let line = text(&printed.stdout);
    assert!(line.starts_with(&agent.link), "{line}");
    assert!(text(&printed.stderr).contains("https://rig.tail1234.ts.net/rig#pair="), "{}", text(&printed.stderr));
    let (status, paired) = agent.pair(code(line));
    assert_eq!((status, paired["scope"].as_str(), paired["name"].as_str()), (200, Some("view"), Some("phone")));
}

#[test]
fn a_proxys_name_is_answered_for_and_no_other() {
    let folder = folder();
    let added = token(folder.path(), &["add", "me"], 0);
    let agent = Agent::start(folder.path(), &["--host", "rig.tail1234.ts.net"]);
    let ask = |host: &str| {
        let mut stream = agent.connect();
        let token = text(&added.stdout);
        let request = format!(
            "GET /api/rig HTTP/1.1\r\nHost: {host}\r\nOrigin: https://{host}\r\nAuthorization: Bearer {token}\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    assert!(ask("rig.tail1234.ts.net").starts_with("HTTP/1.1 200 "));
    assert!(ask("other.tail1234.ts.net").starts_with("HTTP/1.1 403 "));
}

#[test]
fn a_damaged_file_of_tokens_is_said_at_the_start() {
    let folder = folder();
    std::fs::write(folder.path().join("access.json"), "{").expect("written");
    let output = headroom(folder.path(), &["serve", "--listen", "127.0.0.1:0"]).output().expect("headroom runs");
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("access.json is damaged") && stderr.contains("hint: move "), "{stderr}");
}

#[cfg(unix)]
#[test]
fn it_answers_though_the_system_gives_it_few_files() {
    let folder = folder();
    let token = text(&token(folder.path(), &["add", "me"], 0).stdout).to_owned();
    let serve = headroom(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let mut few = Command::new("sh");
    // The shell lowers both limits, so that the program cannot raise its own.
    few.args(["-c", "ulimit -n 100 && exec \"$0\" \"$@\""]).arg(serve.get_program()).args(serve.get_args());
    few.env("HEADROOM_DATA_DIR", folder.path()).env_remove("JOURNAL_STREAM").stdin(Stdio::null());
    let agent = Agent::run(few);
    agent.says("the system allows 100 open files");
    assert_eq!(agent.rig(&token), 200);
    // Many more connections than the agent can have open, which send nothing or half of a request. They must make room
    // too.
    let host = &agent.host;
    let body = format!("POST /api/pair HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: 9\r\n\r\n");
    for brings in ["", "GET /", &body.replace("\r\n\r\n", "\r\nContent-Type: application/json\r\n\r\n{")] {
        let held: Vec<TcpStream> = (0..300)
            .map(|_| {
                let mut stream = agent.connect();
                let _ = stream.write_all(brings.as_bytes());
                stream
            })
            .collect();
        assert_eq!(agent.rig(&token), 200, "{brings}");
        drop(held);
    }
}

/// Creates a certificate for 127.0.0.1. Returns `None` without OpenSSL.
fn certificate(folder: &Path) -> Option<[String; 2]> {
    let files = ["cert.pem", "key.pem"].map(|name| folder.join(name).display().to_string());
    let [certificate, key] = &files;
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=rig", "-days", "2"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate])
        .stderr(Stdio::null())
        .status();
    made.is_ok_and(|status| status.success()).then_some(files)
}

#[test]
fn only_tls_with_owner_certificate_is_served() {
    let folder = folder();
    let Some([certificate, key]) = certificate(folder.path()) else {
        return headroom_harness::skip("only_tls_with_owner_certificate_is_served", "openssl is not installed");
    };
    let added = token(folder.path(), &["add", "me"], 0);
    let agent = Agent::start(folder.path(), &["--tls-cert", &certificate, "--tls-key", &key]);
    assert!(agent.link.starts_with("https://127.0.0.1:"), "{}", agent.link);
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &agent.host, "-CAfile", &certificate, "-verify_return_error", "-quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let request = format!(
        "GET /api/rig HTTP/1.1\r\nHost: {0}\r\nOrigin: https://{0}\r\nAuthorization: Bearer {1}\r\n\
         Connection: close\r\n\r\n",
        agent.host,
        text(&added.stdout)
    );
    client.stdin.as_mut().expect("piped").write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    client.stdout.take().expect("piped").read_to_string(&mut answer).expect("it answers");
    let _ = client.kill();
    let _ = client.wait();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // A client without TLS gets no answer, and the agent does not wait for it.
    let mut plain = agent.connect();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it listens");
    let mut answer = vec![];
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
    // An error about an unusable file names the file.
    let wrong = folder.path().join("wrong.pem").display().to_string();
    std::fs::write(&wrong, "nothing").expect("written");
    let other = tempfile::tempdir().expect("a folder");
    let [_, other_key] = self::certificate(other.path()).expect("another key");
    for (certificate, key, said, status) in [
        (&wrong, &key, "wrong.pem", 2),
        (&certificate, &wrong, "wrong.pem", 2),
        (&certificate, &format!("{key}.gone"), "key.pem.gone", 3),
        (&certificate, &other_key, "together", 2),
        #[cfg(unix)]
        (&"/dev/zero".to_owned(), &key, "it is larger than 1 MiB", 3),
    ] {
        let args = ["serve", "--listen", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key];
        let output = headroom(folder.path(), &args).output().expect("headroom runs");
        assert_eq!(output.status.code(), Some(status), "{args:?}");
        assert!(text(&output.stderr).contains(said) && text(&output.stderr).contains("hint: "), "{output:?}");
    }
    let alone = headroom(folder.path(), &["serve", "--tls-cert", &certificate]).output().expect("headroom runs");
    assert_eq!(alone.status.code(), Some(2));
}

#[test]
#[cfg(unix)]
fn signal_ends_wait_for_certificate() {
    use std::os::unix::process::ExitStatusExt;
    let folder = folder();
    let pipe = folder.path().join("cert.pem").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let mut agent =
        headroom(folder.path(), &["serve", "--tls-cert", &pipe, "--tls-key", &pipe]).spawn().expect("it runs");
    // This waits until the agent opens the pipe to read it.
    let writer = std::fs::File::options().write(true).open(&pipe).expect("a pipe");
    assert!(Command::new("kill").arg(agent.id().to_string()).status().expect("kill runs").success());
    let start = Instant::now();
    let status = loop {
        match agent.try_wait().expect("it is ours") {
            None if start.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(5)),
            status => break status,
        }
    };
    let _ = agent.kill();
    drop(writer);
    assert_eq!(status.and_then(|status| status.signal()), Some(15));
}

#[test]
fn help() {
    let folder = folder();
    for command in ["serve", "token"] {
        let shown = |args: &[&str]| headroom(folder.path(), args).output().expect("headroom runs").stdout;
        let help = shown(&[command, "--help"]);
        assert_eq!((shown(&["help", command]), shown(&[command, "-h"])), (help.clone(), help.clone()), "{command}");
        insta::assert_snapshot!(format!("help_{command}"), String::from_utf8(help).expect("text"));
    }
}
