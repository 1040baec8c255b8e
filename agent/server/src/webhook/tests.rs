//! Tests of messages, and of delivery to receivers with various behaviours.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::Duration,
};

use headroom_protocol::{
    alert::Alert,
    event::EventKind,
    run::{Cause, RunStatus},
};
use serde_json::{Value, json};

use super::{Error, Failure, Patience, QUEUE_MAX, Webhook, message::Names};
use crate::webhook::Message;

/// A timeout that no machine and no passing test reaches.
const PATIENCE: Duration = Duration::from_secs(60);
const IMPATIENT: Patience = Patience { attempt_max: PATIENCE, waits: [Duration::ZERO; 2], end_max: PATIENCE };

fn names() -> Names<'static> {
    Names { rig: "attic", gpu: Some("RTX 4070"), run: Some("shakespeare") }
}

fn hot() -> EventKind {
    EventKind::Alert {
        alert: Alert::TemperatureAbove { celsius: 85 },
        gpu: Some("GPU-1".to_owned()),
        value: Some(87.4),
        status: None,
    }
}

fn message() -> Message {
    Message::new(names(), None, &hot(), 1_795_000_000_000).expect("an alert")
}

#[test]
fn a_message_has_words_and_parts() {
    let written = serde_json::to_value(message()).expect("JSON");
    let text = "attic: RTX 4070 is at 87 °C, above 85 °C";
    let expected = json!({
        "text": text,
        "content": text,
        "rig": "attic",
        "kind": "alert",
        "alert": {"on": "temperature_above", "celsius": 85},
        "card": {"uuid": "GPU-1", "name": "RTX 4070"},
        "run": null,
        "value": 87.4,
        "status": null,
        "time_ms": 1_795_000_000_000_u64,
    });
    assert_eq!(written, expected);
}

#[test]
fn every_alert_has_its_words() {
    let gpu = Some("GPU-1".to_owned());
    let on = |alert, gpu: &Option<String>, value| EventKind::Alert { alert, gpu: gpu.clone(), value, status: None };
    let over = |alert, gpu: &Option<String>| EventKind::AlertOver { alert, gpu: gpu.clone() };
    let died = |status: RunStatus, cause| EventKind::Alert {
        alert: Alert::RunFailed,
        gpu: None,
        value: Some(1.0),
        status: Some(status.because(Some(cause))),
    };
    let full = Alert::MemoryAbove { percent: 95 };
    let quiet = Alert::NoProgress { minutes: 10 };
    for (what, expected) in [
        (over(Alert::TemperatureAbove { celsius: 85 }, &gpu), "RTX 4070 is below 85 °C again"),
        (on(full, &gpu, Some(96.6)), "RTX 4070 has 97 % of its memory in use, above 95 %"),
        (over(full, &gpu), "RTX 4070 has less than 95 % of its memory in use again"),
        (on(quiet, &None, Some(12.0)), "shakespeare made no progress for 12 min"),
        (over(quiet, &None), "shakespeare made progress again, or ended"),
        (on(Alert::GpuLost, &gpu, None), "RTX 4070 stopped responding"),
        (over(Alert::GpuLost, &gpu), "RTX 4070 responds again"),
        (on(Alert::RunFailed, &None, Some(1.0)), "shakespeare failed with status 1"),
        (on(Alert::RunFailed, &None, None), "shakespeare failed"),
        (died(RunStatus::exited(1), Cause::OutOfGpuMemory), "shakespeare ran out of GPU memory"),
        (died(RunStatus::exited(1), Cause::GpuError), "shakespeare failed with status 1 after a GPU error"),
        (died(RunStatus::exited(1), Cause::Other), "shakespeare failed with status 1"),
        (died(RunStatus::killed(9), Cause::OutOfHostMemory), "shakespeare was killed: the machine ran out of memory"),
    ] {
        let run =
            matches!(&what, EventKind::Alert { gpu: None, .. } | EventKind::AlertOver { gpu: None, .. }).then_some("r");
        let message = Message::new(names(), run, &what, 0).expect("an alert");
        assert_eq!(message.text(), format!("attic: {expected}"));
    }
    assert_eq!(Message::new(names(), None, &EventKind::RunDeleted { name: None }, 0), None);
    let unnamed = Message::new(Names { rig: "attic", ..Names::default() }, None, &hot(), 0).expect("an alert");
    assert_eq!(unnamed.text(), "attic: GPU-1 is at 87 °C, above 85 °C");
}

#[test]
fn invalid_address_is_refused_without_echo() {
    for address in ["", "attic", "ftp://attic/secret", "http://", "http:///secret", "/secret", "https://a b/secret"] {
        let error = Webhook::start(address, |_| {}).expect_err(address);
        assert!(matches!(error, Error::Address) && !error.to_string().contains("secret"), "{address}: {error}");
    }
    let webhook = Webhook::start("https://hooks.example/secret?key=secret", |_| {}).expect("an address");
    assert_eq!(format!("{webhook:?}"), r#"Webhook { host: "hooks.example", .. }"#);
}

/// Reads a request's head and body.
fn request(stream: &mut TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).expect("a line"), 0, "{head}");
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.expect("a length")];
    reader.read_exact(&mut body).expect("a body");
    (head, serde_json::from_slice(&body).expect("JSON"))
}

struct Rig {
    listener: TcpListener,
    webhook: Webhook,
    failures: mpsc::Receiver<Failure>,
}

impl Rig {
    fn new(patience: Patience) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (tell, failures) = mpsc::channel();
        let address = format!("http://{}/secret", listener.local_addr().expect("an address"));
        let webhook =
            Webhook::start_with(&address, patience, move |failure| drop(tell.send(failure))).expect("a thread");
        Self { listener, webhook, failures }
    }

    /// Accepts one request and responds with a status.
    fn answer(&self, status: &str) -> (String, Value) {
        let (mut stream, _) = self.listener.accept().expect("a connection");
        let request = request(&mut stream);
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nlocation: /elsewhere\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("an answer");
        request
    }

    fn failure(&self) -> Failure {
        self.failures.recv_timeout(PATIENCE).expect("a failure")
    }
}

const HOST: &str = "127.0.0.1";

#[test]
fn an_alert_arrives_once_and_as_json() {
    let rig = Rig::new(IMPATIENT);
    rig.webhook.send(message());
    let (head, body) = rig.answer("204 No Content");
    assert!(head.starts_with("POST /secret HTTP/1.1\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("content-type: application/json\r\n"), "{head}");
    assert_eq!(body, serde_json::to_value(message()).expect("JSON"));
    let Rig { webhook, failures, .. } = rig;
    drop(webhook);
    assert_eq!(failures.recv(), Err(mpsc::RecvError), "nothing failed, and the thread has ended");
}

#[test]
fn a_busy_receiver_is_tried_again_and_then_given_up() {
    let rig = Rig::new(IMPATIENT);
    rig.webhook.send(message());
    rig.answer("503 Service Unavailable");
    rig.answer("429 Too Many Requests");
    rig.answer("200 OK");
    rig.webhook.send(message());
    for _ in 0..3 {
        rig.answer("500 Internal Server Error");
    }
    let reason = "it answered 500".to_owned();
    assert_eq!(rig.failure(), Failure::GivenUp { host: HOST.to_owned(), attempts: 3, reason });
}

#[test]
fn refused_or_redirected_delivery_is_not_retried() {
    let rig = Rig::new(IMPATIENT);
    for status in ["404 Not Found", "403 Forbidden", "302 Found"] {
        rig.webhook.send(message());
        rig.answer(status);
        let Failure::Refused { host, status: said } = rig.failure() else { panic!("{status}") };
        assert_eq!((&*host, &*said.to_string()), (HOST, &status[..3]));
    }
}

#[test]
fn unreachable_receiver_is_reported_without_address() {
    let Rig { listener, webhook, failures } = Rig::new(IMPATIENT);
    drop(listener);
    webhook.send(message());
    let failure = failures.recv_timeout(PATIENCE).expect("a failure");
    assert!(matches!(&failure, Failure::GivenUp { attempts: 3, .. }), "{failure:?}");
    assert!(!failure.to_string().contains("secret"), "{failure}");
}

#[test]
fn no_part_of_the_address_but_its_host_is_said() {
    for (address, secret) in [
        ("https://hooks.example/T0/s3cret", "/T0/s3cret"),
        ("https://hooks.example/?key=s3cret", "key=s3cret"),
        ("https://user:s3cret@hooks.example/", "user:s3cret"),
    ] {
        let uri = address.parse().expect("an address");
        let said = |said: &str| super::without_secrets(&uri, said.to_owned());
        assert_eq!(said(&format!("bad uri: {secret} is odd")), "it cannot be asked", "{address}");
        assert_eq!(said("hooks.example does not answer"), "hooks.example does not answer");
    }
}

#[test]
fn silent_receiver_blocks_no_one() {
    let patience = Patience { end_max: Duration::ZERO, ..IMPATIENT };
    let Rig { listener, webhook, failures } = Rig::new(patience);
    webhook.send(message());
    let (mut stream, _) = listener.accept().expect("a connection");
    request(&mut stream);
    for _ in 0..QUEUE_MAX {
        webhook.send(message());
    }
    assert_eq!(failures.try_recv(), Err(mpsc::TryRecvError::Empty));
    webhook.send(message());
    assert_eq!(failures.try_recv(), Ok(Failure::Full { host: HOST.to_owned() }));
    drop(webhook);
}

#[test]
fn a_wait_ends_when_the_program_does() {
    let hour = Duration::from_secs(3600);
    let rig = Rig::new(Patience { waits: [hour; 2], ..IMPATIENT });
    rig.webhook.send(message());
    rig.answer("503 Service Unavailable");
    let Rig { webhook, failures, .. } = rig;
    drop(webhook);
    assert!(matches!(failures.recv(), Ok(Failure::GivenUp { attempts: 1, .. })));
    assert_eq!(failures.recv(), Err(mpsc::RecvError), "the thread has ended");
}
