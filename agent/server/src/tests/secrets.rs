//! Tests of secrets in commands and configs: scope `view` never reads them, and scope `control` always does.

use futures_util::SinkExt as _;
use headroom_protocol::{
    event::{Event, EventKind},
    message::Message as Explanation,
    run::{Diagnosis, Run, RunRequest, RunStatus, Wording},
};
use headroom_text as text;
use tokio_tungstenite::tungstenite::Message;

use super::talk::{Server, Socket, hello, said};
use crate::{
    api::{TestRoute, routes_for_tests},
    fakes,
};

/// A mark that all secrets of these tests contain, and nothing else.
const MARK: &str = "s3cr3t";

fn words() -> Vec<String> {
    let secret = |before: &str| format!("{before}{MARK}");
    let mut words = vec!["env".to_owned(), secret("HF_TOKEN="), "python".to_owned(), "train.py".to_owned()];
    words.extend([secret("--api_key="), "--password".to_owned(), MARK.to_owned(), "--batch_size=12".to_owned()]);
    words.push(format!("--data=https://ada:{MARK}@example.org/data"));
    words
}

fn config() -> String {
    format!("batch_size = 12\nwandb_api_key = '{MARK}'\naws_secret_access_key = \"{MARK}\"\n")
}

fn message() -> String {
    format!("requests.HTTPError: 401 for https://ada:{MARK}@example.org/ with token={MARK}")
}

/// A message whose translatable text has the words as an argument.
fn explained() -> Explanation {
    text::run_not_computed(7_u64, message()).into()
}

fn diagnosis() -> Diagnosis {
    let change = Some(format!("--api_key={MARK} --batch_size=6"));
    let german = Wording { language: "de".to_owned(), sentence: "x".to_owned(), change: change.clone() };
    Diagnosis { sentence: "x".to_owned(), change: change.clone(), command: change, others: vec![german] }
}

fn run() -> Run {
    Run {
        name: format!("password={MARK}"),
        command: words(),
        config: Some(config()),
        config_notes: vec![
            Explanation::plain(format!("line 2: wandb_api_key = '{MARK}' is not used")),
            text::note_of("a.py", text::not_evaluated(format!("wandb_api_key = '{MARK}'"))).into(),
        ],
        oom: Some(message()),
        explanation: Some(explained()),
        diagnosis: Some(diagnosis()),
        order: Some(RunRequest { name: Some(format!("token={MARK}")), ..RunRequest::default() }),
        status: RunStatus::exited(1),
        ..fakes::run("ab")
    }
}

/// Returns all kinds of events that carry a command, a config or printed text.
fn events() -> Vec<EventKind> {
    vec![
        EventKind::RunStarted { run: Box::new(run()) },
        EventKind::RunConfig { config: config(), max_iters: None },
        EventKind::RunCommand { command: words() },
        EventKind::RunResumed { pid: None, command: words() },
        EventKind::RunOom { message: message() },
        EventKind::RunDiagnosed { diagnosis: diagnosis() },
        EventKind::RunExplained { message: explained(), xid: None },
        EventKind::RunNotSaved { iter: 1, message: explained() },
        EventKind::RunCheckpoint { folder: format!("https://ada:{MARK}@example.org/out") },
        EventKind::RunRetried { next: "cd".to_owned(), changes: vec![("api_key".to_owned(), MARK.to_owned())] },
        EventKind::RunDeleted { name: Some(format!("token={MARK}")) },
    ]
}

fn event(id: u64, what: EventKind) -> Event {
    Event { id, time_ms: headroom_agent_core::clock::now_ms(), run: Some("ab".to_owned()), what }
}

fn kept() -> Vec<Event> {
    (1..).zip(events()).map(|(id, what)| event(id, what)).collect()
}

#[tokio::test]
async fn no_route_gives_a_viewer_a_secret() {
    let server = Server::start().await;
    let goes_on = Run { id: "cd".to_owned(), status: RunStatus::Running, ..run() };
    server.place.made.runs.lock().expect("no panic").extend([run(), goes_on]);
    *server.place.made.events.lock().expect("no panic") = kept();
    for TestRoute { method, path, has_run_data, .. } in routes_for_tests() {
        if method != "GET" {
            continue;
        }
        let ask = async |token: &str| server.request(method, &path, &[&format!("Authorization: Bearer {token}")]).await;
        let (view, control) = (ask(&server.place.view).await, ask(&server.place.control).await);
        assert!(!view.body.contains(MARK), "{path}: {}", view.body);
        assert_eq!(view.status, control.status, "{path}");
        assert!(path != "/metrics" || view.body.contains("[redacted]"), "a run's name is a label: {}", view.body);
        assert_eq!(control.body.contains(MARK), has_run_data, "{path}: {}", control.body);
        if has_run_data {
            assert!(view.body.contains("[redacted]"), "{path}: {}", view.body);
            assert!(view.body.contains("batch_size"), "the rest is there: {}", view.body);
        }
    }
    // Responses to orders require scope `control`.
    for action in ["stop", "resume"] {
        let path = format!("/api/runs/ab/{action}");
        let answer = server.asked("POST", &path, &server.place.control).await;
        assert!(answer.status == 202 && answer.body.contains(MARK), "{answer:?}");
        let refused = server.asked("POST", &path, &server.place.view).await;
        assert!(refused.status == 403 && !refused.body.contains(MARK), "{refused:?}");
    }
    server.stop().await;
}

async fn greeted(server: &Server, token: &str, after: bool) -> Socket {
    let mut socket = server.socket().await;
    let after = if after { r#","after":{"time_ms":1,"event":0}}"# } else { "}" };
    let hello = hello(token).trim_end_matches('}').to_owned() + after;
    socket.send(Message::text(hello)).await.expect("it listens");
    socket
}

#[tokio::test]
async fn no_message_gives_a_viewer_a_secret() {
    let server = Server::start().await;
    server.place.made.runs.lock().expect("no panic").push(run());
    *server.place.made.events.lock().expect("no panic") = kept();
    let n_kept = kept().len();
    for after in [false, true] {
        let mut view = greeted(&server, &server.place.view, after).await;
        let mut control = greeted(&server, &server.place.control, after).await;
        // The hello message, the missed data, and then live data.
        for part in 0..2 {
            let (seen, whole) = (said(&mut view).await.to_string(), said(&mut control).await.to_string());
            assert!(!seen.contains(MARK) && seen.contains("[redacted]"), "{part}: {seen}");
            assert!(whole.contains(MARK), "{part}: {whole}");
        }
        for (id, what) in (n_kept as u64 + 1..).zip(events()) {
            server.place.state.hub.event(event(id, what));
            let (seen, whole) = (said(&mut view).await.to_string(), said(&mut control).await.to_string());
            assert!(!seen.contains(MARK) && seen.contains("[redacted]"), "{seen}");
            assert!(whole.contains(MARK), "{whole}");
        }
    }
    server.stop().await;
}
