//! A fake agent. It serves the page's files, answers REST requests and sends WebSocket messages that a test scripts.
//! The messages are the protocol's golden messages.

use headroom_protocol::{Telemetry, run::Training};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tungstenite::{Message, WebSocket, accept};

/// The access token that the fake agent accepts.
pub const TOKEN: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// The one-time pairing code.
pub const CODE: &str = "one-use";
/// The `Content-Security-Policy` header of the agent's own pages.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; manifest-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'";
/// Interval at which a socket polls for messages to send.
const TICK: Duration = Duration::from_millis(20);

/// A fake agent. A clone is a handle to the same agent.
#[derive(Clone)]
pub struct Agent {
    /// The agent's base URL, with a trailing slash.
    pub address: String,
    script: Arc<Mutex<Script>>,
}

/// The scripted behaviour and the recorded requests.
struct Script {
    dist: PathBuf,
    /// The messages that are sent in reply to a `hello`.
    answers: Vec<Value>,
    /// All messages since the last restart. Each socket keeps its own position in this list.
    said: Vec<Value>,
    /// The restart count. Sockets of an earlier count close.
    age: u64,
    /// Whether WebSocket connections are accepted.
    is_up: bool,
    /// Whether telemetry is sent ten times per second.
    is_feeding: bool,
    hellos: Vec<Value>,
    /// Method with path, and body, of each request.
    requests: Vec<(String, String)>,
    /// Responses by prefix of method and path. The longest matching prefix applies.
    rest: BTreeMap<String, (u16, Value)>,
    /// The settings, and how often they changed. The count is the ETag.
    settings: (Value, u64),
    checkpoint: Checkpoint,
}

/// The checkpoint of every run, and the faults that its downloads meet.
#[derive(Default)]
struct Checkpoint {
    /// The file's bytes, or `None` if no checkpoint exists.
    file: Option<Vec<u8>>,
    /// How often the checkpoint was replaced. The count is the ETag.
    age: u64,
    /// The number of parts to serve before a newer checkpoint replaces this one, and the newer checkpoint's bytes.
    until_replaced: Option<(u64, Vec<u8>)>,
    /// The number of further partial responses to cut off before their last byte.
    n_broken: u64,
    /// Whether downloads are refused although the token is valid.
    is_closed: bool,
}

/// Reads a golden message by its file name.
pub fn golden(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/protocol").join(name);
    serde_json::from_str(&fs::read_to_string(&path).expect("a golden message")).expect("JSON")
}

/// Returns the current time in milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("in range")
}

/// Returns the options for starting a run: configs, data sets and devices.
pub fn training() -> Value {
    let training = json!({
        "configs": [{ "name": "tiny" }, { "name": "gpt2", "dataset": "owt", "max_iters": 5000 }],
        "datasets": ["builtin", "owt"],
        "devices": [{ "name": "cuda:0", "label": "GeForce RTX 4070" }, { "name": "cpu", "label": "CPU" }]
    });
    let _: Training = serde_json::from_value(training.clone()).expect("an answer of this version");
    training
}

/// Returns the golden `hello` message with the current time.
pub fn hello() -> Value {
    let mut hello = golden("hello.json");
    hello["time_ms"] = json!(now_ms());
    hello
}

/// Returns the golden telemetry with the current time and the given GPU utilisation in percent.
pub fn telemetry(seq: u64, utilization: u64) -> Value {
    let mut telemetry = golden("telemetry.json");
    (telemetry["seq"], telemetry["time_ms"]) = (json!(seq), json!(now_ms()));
    telemetry["gpus"][0]["utilization_percent"] = json!(utilization);
    let _: Telemetry = serde_json::from_value(telemetry.clone()).expect("a message of this version");
    telemetry
}

impl Agent {
    /// Starts the fake agent, which serves the files in `dist` until the process ends.
    pub fn start(dist: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}/", listener.local_addr().expect("bound"));
        let empty = json!({ "gpu": "", "from_ms": 0, "to_ms": 0, "step_ms": 1000, "times_ms": [],
            "series": vec![json!({ "min": [], "mean": [], "max": [] }); 7] });
        let rest = [
            ("GET /api/openapi.json", (200, json!({}))),
            ("GET /api/history", (200, empty)),
            ("GET /api/runs/", (200, json!([]))),
            ("GET /api/settings", (200, json!({}))),
            ("PUT /api/settings", (200, json!({}))),
            ("DELETE /api/alerts/", (200, json!({}))),
            ("GET /api/training", (200, training())),
        ];
        let script = Script {
            dist: dist.to_owned(),
            answers: vec![hello()],
            said: vec![],
            age: 0,
            is_up: true,
            is_feeding: false,
            hellos: vec![],
            requests: vec![],
            rest: rest.map(|(path, answer)| (path.to_owned(), answer)).into(),
            settings: (golden("settings.json"), 1),
            checkpoint: Checkpoint::default(),
        };
        let agent = Self { address, script: Arc::new(Mutex::new(script)) };
        let served = agent.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let agent = served.clone();
                thread::spawn(move || agent.connected(stream));
            }
        });
        agent
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no panic")
    }

    /// Sets the messages that are sent in reply to a `hello`.
    pub fn answer(&self, answers: Vec<Value>) {
        self.script().answers = answers;
    }

    /// Sends a message to every connected page.
    pub fn say(&self, message: Value) {
        self.script().said.push(message);
    }

    /// Changes the settings as another device would, and sends the event with this number to every connected page.
    pub fn set_elsewhere(&self, event: u64, settings: Value) {
        let mut script = self.script();
        script.settings = (settings, script.settings.1 + 1);
        script.said.push(json!({ "type": "event", "id": event, "time_ms": 1, "what": { "kind": "settings_changed" } }));
    }

    /// Returns the current settings.
    pub fn settings(&self) -> Value {
        self.script().settings.0.clone()
    }

    /// Turns telemetry on or off.
    pub fn feed(&self, is_feeding: bool) {
        self.script().is_feeding = is_feeding;
    }

    /// Closes every socket. New connections are accepted only if `is_up`.
    pub fn restart(&self, is_up: bool) {
        let mut script = self.script();
        (script.age, script.is_up) = (script.age + 1, is_up);
        script.said.clear();
    }

    /// Sets the response to requests whose method and path begin with `asked`.
    pub fn answer_rest(&self, asked: &str, status: u16, body: Value) {
        self.script().rest.insert(asked.to_owned(), (status, body));
    }

    /// Replaces the checkpoint.
    pub fn save(&self, checkpoint: &[u8]) {
        self.script().checkpoint.save(checkpoint.to_vec());
    }

    /// Replaces the checkpoint after `n_parts` more requests for parts.
    pub fn save_after(&self, n_parts: u64, checkpoint: &[u8]) {
        self.script().checkpoint.until_replaced = Some((n_parts, checkpoint.to_vec()));
    }

    /// Cuts off the next `n_parts` partial responses before their last byte.
    pub fn break_parts(&self, n_parts: u64) {
        self.script().checkpoint.n_broken = n_parts;
    }

    /// Refuses all checkpoint downloads, or permits them to paired browsers.
    pub fn close_checkpoint(&self, is_closed: bool) {
        self.script().checkpoint.is_closed = is_closed;
    }

    /// Stops answering the requests that only an agent answers.
    pub fn be_none(&self) {
        let mut script = self.script();
        script.rest.clear();
        script.is_up = false;
    }

    /// Returns every `hello` received so far.
    pub fn hellos(&self) -> Vec<Value> {
        self.script().hellos.clone()
    }

    /// Returns the bodies of the requests to a path. `path` begins with the method.
    pub fn requests(&self, path: &str) -> Vec<String> {
        self.script().requests.iter().filter(|request| request.0.starts_with(path)).map(|r| r.1.clone()).collect()
    }

    fn connected(&self, stream: TcpStream) {
        let mut head = vec![0; 16 * 1024];
        // Peeking leaves the head in the socket for the handler to read.
        let Ok(n) = stream.peek(&mut head) else { return };
        let head = String::from_utf8_lossy(&head[..n]).into_owned();
        if !head.starts_with("GET /ws") {
            self.answer_request(&stream);
        } else if self.script().is_up
            && let Ok(socket) = accept(stream)
        {
            self.speak(socket);
        }
    }

    fn speak(&self, mut socket: WebSocket<TcpStream>) {
        let Ok(Message::Text(greeting)) = socket.read() else { return };
        let greeting: Value = serde_json::from_str(&greeting).expect("a greeting");
        let (age, answers, mut at) = {
            let mut script = self.script();
            script.hellos.push(greeting.clone());
            let refused = json!({ "type": "refused", "code": "bad_token", "message": "Unknown.", "supported": [1] });
            let is_known = greeting["token"] == TOKEN;
            (script.age, if is_known { script.answers.clone() } else { vec![refused] }, script.said.len())
        };
        let mut say = |message: &Value| socket.send(Message::text(message.to_string())).is_ok();
        if !answers.iter().all(&mut say) || answers.iter().any(|answer| answer["type"] == "refused") {
            let _ = socket.close(None);
            return;
        }
        let mut seq = 0;
        loop {
            let (messages, is_over) = {
                let script = self.script();
                let mut messages = script.said.get(at..).unwrap_or_default().to_vec();
                at = script.said.len();
                seq += 1;
                if script.is_feeding && seq % 5 == 0 {
                    messages.push(telemetry(seq / 5, 10 + seq / 5 % 80));
                }
                (messages, script.age != age)
            };
            if is_over || !messages.iter().all(&mut say) {
                return;
            }
            thread::sleep(TICK);
        }
    }

    fn answer_request(&self, mut stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut lines = reader.by_ref().lines().map_while(Result::ok);
        let Some(first) = lines.next() else { return };
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).map(|line| line.to_lowercase()).collect();
        let header = |name: &str| head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let mut body = vec![0; header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let asked = first.trim_end_matches(" HTTP/1.1").to_owned();
        let body = String::from_utf8(body).expect("text");
        let is_known = header("authorization") == Some(&format!("bearer {TOKEN}"));
        let answer = match asked.contains("/checkpoint") {
            true => self.script().answer_part(&asked, is_known, header("range"), header("if-match")),
            false => self.script().answer_to(&asked, &body, is_known, header("if-match")),
        };
        match stream.write_all(&answer) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{asked}: {error}"),
            _ => {}
        }
    }
}

impl Script {
    fn answer_to(&mut self, asked: &str, body: &str, is_known: bool, condition: Option<&str>) -> Vec<u8> {
        let path = asked.split([' ', '?']).nth(1).unwrap_or_default();
        if !path.starts_with("/api/") {
            let name = if path == "/" { "index.html" } else { path.trim_start_matches('/') };
            let file =
                [name.to_owned(), format!("{name}.html")].into_iter().find(|name| self.dist.join(name).is_file());
            return match file {
                Some(name) => answer(200, kind(&name), &fs::read(self.dist.join(&name)).expect("a file")),
                None => answer(404, "text/plain", b""),
            };
        }
        self.requests.push((asked.to_owned(), body.to_owned()));
        let json = |status, body: &Value| answer(status, "application/json", body.to_string().as_bytes());
        if asked == "POST /api/pair" {
            let code: Value = serde_json::from_str(body).unwrap_or_default();
            let is_first = self.requests.iter().filter(|request| request.0 == asked).count() == 1;
            return match code["code"] == CODE && is_first {
                true => json(200, &json!({ "token": TOKEN, "scope": "control" })),
                false => json(403, &json!({ "code": "bad_code", "message": "The code was used." })),
            };
        }
        match self.rest.iter().rev().find(|(beginning, _)| asked.starts_with(*beginning)) {
            None => answer(404, "text/plain", b""),
            // The API description is public. The page uses it to detect an agent.
            Some((_, (status, body))) if path == "/api/openapi.json" => json(*status, body),
            Some(_) if !is_known => json(401, &json!({ "code": "bad_token", "message": "A token is missing." })),
            Some(_) if path == "/api/settings" => self.answer_settings(asked, body, condition),
            Some((_, (status, body))) => json(*status, body),
        }
    }

    /// Serves a part of the checkpoint, as the agent does. Only range requests are supported. A request that names an
    /// outdated checkpoint is refused.
    fn answer_part(&mut self, asked: &str, is_known: bool, range: Option<&str>, condition: Option<&str>) -> Vec<u8> {
        self.requests.push((asked.to_owned(), range.unwrap_or_default().to_owned()));
        let refused = |status, code, message| {
            let refusal = json!({ "code": code, "message": message }).to_string();
            answer(status, "application/json", refusal.as_bytes())
        };
        let checkpoint = &mut self.checkpoint;
        match &mut checkpoint.until_replaced {
            Some((0, newer)) => {
                let newer = std::mem::take(newer);
                checkpoint.until_replaced = None;
                checkpoint.save(newer);
            }
            Some((n_parts, _)) => *n_parts -= 1,
            None => {}
        }
        if !is_known || checkpoint.is_closed {
            return refused(401, "bad_token", "This token is not known any more.");
        }
        let tag = format!("\"{}\"", checkpoint.age);
        let Some(file) = &checkpoint.file else { return refused(404, "no_checkpoint", "There is none.") };
        if condition.is_some_and(|condition| condition != tag) {
            return refused(412, "changed", "The checkpoint was replaced.");
        }
        let ends = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let (first, last) = ends.expect("a page reads parts");
        let number = |digits: &str| digits.parse::<usize>().expect("a number");
        let (first, last) = (number(first), number(last).min(file.len() - 1));
        let head =
            format!("application/octet-stream\r\nETag: {tag}\r\nContent-Range: bytes {first}-{last}/{}", file.len());
        let mut part = answer(206, &head, &file[first..=last]);
        if checkpoint.n_broken > 0 {
            checkpoint.n_broken -= 1;
            part.truncate(part.len() - 1);
        }
        part
    }

    /// Reads or changes the settings, as the agent does. A change must name the version that it changes.
    fn answer_settings(&mut self, asked: &str, body: &str, condition: Option<&str>) -> Vec<u8> {
        let tag = |script: &Self| format!("\"{}\"", script.settings.1);
        if asked.starts_with("PUT") {
            if condition != Some(&tag(self)) {
                let refusal = json!({ "code": "changed", "message": "They were changed elsewhere." });
                return answer(412, "application/json", refusal.to_string().as_bytes());
            }
            self.settings = (serde_json::from_str(body).expect("JSON"), self.settings.1 + 1);
        }
        let body = self.settings.0.to_string();
        answer(200, &format!("application/json\r\nETag: {}", tag(self)), body.as_bytes())
    }
}

impl Checkpoint {
    fn save(&mut self, file: Vec<u8>) {
        self.file = Some(file);
        self.age += 1;
    }
}

fn answer(status: u16, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nContent-Security-Policy: {POLICY}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("webmanifest") => "application/manifest+json",
        _ => "text/plain; charset=utf-8",
    }
}
