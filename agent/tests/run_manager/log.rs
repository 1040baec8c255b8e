//! The log of the agent: no secret at any level, and the cause and the request ID of an internal error.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
};

use serde_json::{Value, json};

use super::{Agent, DEADLINE, MODEL, OwnerData, eventually, has_ended, headroom};

/// Part of every secret that this test invents.
const SECRET: &str = "S3CR3T";

/// Starts an agent with a log in a file.
fn serve<'a>(owner: &'a OwnerData, log: &Path, options: &[&str], webhook: &str) -> Agent<'a> {
    let file = File::create(log).expect("a file");
    owner.serve_with(|command| {
        command.args(options).env("HEADROOM_LOG", "trace").env("HEADROOM_WEBHOOK", webhook);
        command.env("JOURNAL_STREAM", "1:2").stderr(Stdio::from(file));
    })
}

/// Returns a new pairing code of `headroom token pair`.
fn pairing_code(owner: &OwnerData) -> String {
    let mut pair = headroom();
    let output = pair.args(["token", "pair"]).env("HEADROOM_DATA_DIR", owner.history.path()).output();
    let link = String::from_utf8(output.expect("it runs").stdout).expect("text");
    let code = link.split("pair=").nth(1).unwrap_or_else(|| panic!("{link:?} has no code"));
    code.split_whitespace().next().expect("a code").to_owned()
}

impl Agent<'_> {
    /// Pairs a device. Returns the status, the head and the body.
    fn pair(&self, code: &str) -> (u16, String, Value) {
        let origin = format!("Origin: http://{}\r\nCookie: session={SECRET}-cookie\r\n", self.host);
        let body = json!({ "code": code, "name": format!("phone {SECRET}") }).to_string();
        let (status, head, body) = self.asked_by("none", "POST", "/api/pair", &origin, &body);
        (status, head, serde_json::from_slice(&body).expect("JSON"))
    }

    /// Opens a WebSocket, and returns its handshake and the beginning of the answer to a hello with a token.
    fn hello(&self, token: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a time");
        let head = format!(
            "GET /ws HTTP/1.1\r\nHost: {0}\r\nOrigin: http://{0}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nCookie: a={SECRET}-ws\r\n\r\n",
            self.host
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = vec![];
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a handshake");
            answer.push(byte[0]);
        }
        let hello = json!({ "type": "hello", "protocol": 1, "token": token }).to_string();
        let length = u16::try_from(hello.len()).expect("short").to_be_bytes();
        // A masked text frame whose mask changes nothing.
        let frame = [&[0x81, 0x80 | 126, length[0], length[1], 0, 0, 0, 0][..], hello.as_bytes()].concat();
        stream.write_all(&frame).expect("it reads");
        let mut first = vec![0; 200];
        let n = stream.read(&mut first).expect("an answer");
        first.truncate(n);
        (String::from_utf8_lossy(&answer).into_owned(), first)
    }
}

fn request_id(head: &str) -> &str {
    let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).expect(head);
    assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    id
}

#[test]
fn trace_log_contains_no_secret() {
    for options in [&[][..], &["--log-format=json"]] {
        check_log_without_secrets(options);
    }
}

fn check_log_without_secrets(options: &[&str]) {
    let owner = OwnerData::new();
    let config = format!("{MODEL}max_iters = 3\nwandb_run_name = 'api_key={SECRET}-config'\n");
    fs::write(owner.train.path().join("config/secret.py"), config).expect("a config");
    let log = owner.history.path().join("serve.log");
    // A receiver that refuses every alert.
    let receiver = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = receiver.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in receiver.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let webhook = format!("http://me:{SECRET}-user@127.0.0.1:{port}/{SECRET}-path?key={SECRET}-query");
    let agent = serve(&owner, &log, options, &webhook);
    let read = || fs::read_to_string(&log).expect("a log");
    let mut secrets = vec![SECRET.to_owned(), owner.token.clone()];
    let mut ids = vec![];

    // Pairing, tokens and cookies, right and wrong.
    let code = pairing_code(&owner);
    let (status, head, paired) = agent.pair(&code);
    assert_eq!(status, 200, "{paired}");
    ids.push(request_id(&head).to_owned());
    let token = paired["token"].as_str().expect("a token").to_owned();
    assert_eq!(agent.pair(&code).0, 403, "a code is valid once");
    assert_eq!(agent.pair(&format!("{SECRET}-code")).0, 403);
    let wrong = "0123456789abcdef".repeat(4);
    let cookie = format!("Cookie: {SECRET}-cookie={token}\r\nUser-Agent: {SECRET}-agent\r\n");
    for (given, path, expected) in [
        (&*token, "/api/rig", 200),
        (&*wrong, "/api/rig", 401),
        (&*owner.token, "/api/rig?token=S3CR3T", 400),
        (&*owner.token, "/api/runs?limit=S3CR3T", 400),
        (&*owner.token, "/api/runs/S3CR3Trun", 404),
        (&*owner.token, "/api/S3CR3T-route", 404),
    ] {
        let (status, head, body) = agent.asked_by(given, "GET", path, &cookie, "");
        assert_eq!(status, expected, "{path}: {}", String::from_utf8_lossy(&body));
        ids.push(request_id(&head).to_owned());
    }
    agent.asked_by(&owner.token, "S3CR3T-METHOD", "/S3CR3T/page?S3CR3T", &cookie, "");
    for token in [&token, &wrong] {
        let (head, answer) = agent.hello(token);
        assert!(head.starts_with("HTTP/1.1 101 ") && answer.len() > 20, "{head}");
        ids.push(request_id(&head).to_owned());
    }

    // Orders, right and wrong, and a watched command that fails.
    let order = |order: Value| agent.asked("POST", "/api/runs", "", &order.to_string()).0;
    assert_eq!(order(json!({ "config": format!("{SECRET}.py") })), 400);
    assert_eq!(order(json!({ "config": "secret.py", "device": format!("{SECRET}-device") })), 400);
    assert_eq!(order(json!({ "config": { "password": SECRET } })), 400);
    let name = format!("--api-key={SECRET}-name");
    let run = agent.order(&json!({ "config": "secret.py", "device": "cpu", "name": name }));
    agent.comes(&run, "done", has_ended(0));
    let script = format!("echo password={SECRET}-printed >&2; exit 3");
    let mut watch = headroom();
    watch.args(["watch", "--name", &format!("token={SECRET}"), "--", "sh", "-c", &script, "--token", SECRET]);
    let watched = watch.env("HEADROOM_DATA_DIR", owner.history.path()).output().expect("it runs");
    assert_eq!(watched.status.code(), Some(3), "{watched:?}");

    eventually("the webhook's failure", || read().contains("answered 400").then_some(()));
    assert!(ids.iter().collect::<std::collections::BTreeSet<_>>().len() == ids.len(), "each request has its own");
    let log = read();
    for said in ["a device was paired", "refused", "a viewer connected", "a run was queued", "an alert fired"] {
        assert!(log.contains(said), "{said:?} is missing:\n{log}");
    }
    ids.iter().for_each(|id| assert!(log.contains(id), "{id} is missing:\n{log}"));
    secrets.extend([code, token, wrong]);
    for secret in &secrets {
        assert!(!log.contains(&**secret), "the log has {secret}:\n{log}");
    }
    if !options.is_empty() {
        for line in log.lines() {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let has = |field: &str| event[field].as_str().is_some_and(|text| !text.is_empty());
            assert!(has("timestamp") && has("level") && has("target") && has("message"), "{line}");
        }
    }
}

#[test]
fn internal_error_has_its_request_id_and_its_cause_in_the_log() {
    let owner = OwnerData::new();
    let log = owner.history.path().join("serve.log");
    let file = File::create(&log).expect("a file");
    // At the default level.
    let agent = owner.serve_with(|command| {
        command.stderr(Stdio::from(file));
    });
    let code = pairing_code(&owner);
    // The lock of the tokens cannot be opened any more.
    let lock = owner.history.path().join("access.lock");
    fs::remove_file(&lock).expect("a lock");
    fs::create_dir(&lock).expect("a folder");
    let (status, head, refusal) = agent.pair(&code);
    assert_eq!((status, refusal["code"].as_str()), (500, Some("access_file")), "{refusal}");
    let id = request_id(&head);
    assert_eq!(refusal["request_id"].as_str(), Some(id), "users can quote it: {refusal}");
    let log = fs::read_to_string(&log).expect("a log");
    let line = log.lines().find(|line| line.contains(id)).unwrap_or_else(|| panic!("{id} is missing:\n{log}"));
    assert!(line.contains("ERROR") && line.contains("access.lock") && line.contains("/api/pair"), "{line}");
    assert!(!log.contains(&code), "{log}");
    // A refusal is not a server error.
    let (status, head, refusal) = agent.pair("wrong");
    assert_eq!((status, refusal.get("request_id")), (403, None), "{refusal}");
    request_id(&head);
}
