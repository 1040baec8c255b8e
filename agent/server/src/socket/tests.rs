//! Tests of a viewer's socket over an in-memory pipe, with a paused clock.

mod pipe;

use std::net::Ipv4Addr;

use headroom_protocol::{
    Refusal as Refused, Telemetry,
    event::{Event, EventKind},
    run::Run,
    state::{DriverState, HistoryState},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::*;
use crate::{
    assets::Assets,
    fakes::{TestServer, event, fired, moment, run},
    host::HostOptions,
};
use pipe::{Pipe, pipe};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn place() -> TestServer {
    TestServer::at("127.0.0.1:8420".parse().expect("an address"), Assets::default(), HostOptions::default())
}

/// The client's side of a socket.
struct Client {
    pipe: Pipe,
    served: JoinHandle<()>,
    start: Instant,
}

impl Client {
    /// Connects a client whose pipe holds `room` unread messages.
    fn connect(place: &TestServer, room: usize) -> Self {
        let (mut server, client) = pipe(room);
        let state = Arc::clone(&place.state);
        let evicted = CancellationToken::new();
        let seat = state.greetings.enter(HERE, &evicted).expect("a place");
        let greeting = Greeting { seat, evicted, tracked: state.sockets.token() };
        let served = tokio::spawn(async move { attend(&mut server, &state, HERE, greeting).await });
        Self { pipe: client, served, start: Instant::now() }
    }

    async fn say(&mut self, text: &str) {
        self.pipe.send(Message::Text(text.into())).await.expect("it listens");
    }

    async fn greet(&mut self, token: &str, after: Option<ResumePoint>) {
        self.greet_in(None, token, after).await;
    }

    async fn greet_in(&mut self, language: Option<&str>, token: &str, after: Option<ResumePoint>) {
        let (token, language) = (token.to_owned(), language.map(str::to_owned));
        let hello = ClientMessage::Hello { protocol: PROTOCOL_VERSION, token, after, language };
        self.say(&serde_json::to_string(&hello).expect("a message")).await;
    }

    /// Connects a client that is authenticated and has received its missed data.
    async fn welcome(place: &TestServer, room: usize) -> Self {
        let mut client = Self::connect(place, room);
        client.greet(&place.view, None).await;
        assert!(matches!(client.next().await, ServerMessage::Hello(_)));
        assert!(matches!(client.next().await, ServerMessage::Past(past) if past.done && past.telemetry.is_empty()));
        client
    }

    /// Returns the next message, answering pings before it.
    async fn next(&mut self) -> ServerMessage {
        loop {
            match self.pipe.next().await.expect("there is more").expect("it is whole") {
                Message::Text(text) => return serde_json::from_str(&text).expect("a message"),
                Message::Ping(bytes) => self.pipe.send(Message::Pong(bytes)).await.expect("it listens"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Returns the refusal that ends the connection, the close code, and the seconds until then.
    async fn refusal(mut self) -> (Refused, u16, u64) {
        let refusal = loop {
            match self.pipe.next().await.expect("last words").expect("they are whole") {
                Message::Text(text) => {
                    if let ServerMessage::Refused(refusal) = serde_json::from_str(&text).expect("a message") {
                        break refusal;
                    }
                }
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        };
        let seconds = self.start.elapsed().as_secs();
        let Some(Ok(Message::Close(Some(frame)))) = self.pipe.next().await else { panic!("it is not closed") };
        drop(self.pipe);
        self.served.await.expect("it ends");
        (refusal, frame.code, seconds)
    }
}

/// Runs all tasks until they are idle.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_viewer_is_greeted_and_then_reported_everything() {
    let place = place();
    place.made.runs.lock().expect("no panic").push(run("ab"));
    place.made.events.lock().expect("no panic").push(event(7, "ab"));
    let mut client = Client::connect(&place, 100);
    client.greet(&place.view, None).await;
    let ServerMessage::Hello(hello) = client.next().await else { panic!("no hello") };
    assert_eq!((hello.protocol, hello.name.as_str(), hello.scope), (1, "rig", headroom_protocol::Scope::View));
    assert_eq!((hello.last_event, hello.runs.len()), (7, 1));
    let ServerMessage::Past(past) = client.next().await else { panic!("no message with past events") };
    assert!(past.done && past.events.is_empty(), "an iteration has no line");
    let hub = &place.state.hub;
    assert_eq!(hub.n_viewers(), 1);
    hub.telemetry(Arc::new(moment(1, 5)));
    assert_eq!(client.next().await, ServerMessage::Telemetry(moment(1, 5)));
    hub.event(event(7, "ab"));
    hub.event(event(8, "ab"));
    assert_eq!(client.next().await, ServerMessage::Event(event(8, "ab")), "the hello includes event 7");
    hub.history(HistoryState::Kept { bytes: 1, set_aside: None });
    assert!(matches!(client.next().await, ServerMessage::State(_)));
    hub.history(HistoryState::Kept { bytes: 1, set_aside: None });
    hub.gpus(vec![]);
    assert!(matches!(client.next().await, ServerMessage::Inventory { .. }), "an unchanged state is not reported");
    drop(client.pipe);
    client.served.await.expect("it ends");
    assert_eq!(hub.n_viewers(), 0);
}

/// Pages of earlier versions send a language in their greeting, which has no effect.
#[tokio::test(start_paused = true)]
async fn viewer_reads_messages_with_their_texts() {
    let place = place();
    let why = ProtocolMessage::from(text::run_no_checkpoint("ab"));
    place.made.runs.lock().expect("no panic").push(Run { explanation: Some(why.clone()), ..run("ab") });
    let message = ProtocolMessage::from(text::xid_reported(79_u64, text::XID_79));
    let what = EventKind::RunExplained { message, xid: Some(79) };
    let explained = Event { id: 8, time_ms: 1, run: Some("ab".to_owned()), what };
    for language in [None, Some("tlh"), Some("de")] {
        let mut client = Client::connect(&place, 100);
        client.greet_in(language, &place.view, None).await;
        let ServerMessage::Hello(hello) = client.next().await else { panic!("no hello") };
        assert_eq!(hello.runs[0].explanation.as_ref(), Some(&why), "{language:?}");
        assert!(matches!(client.next().await, ServerMessage::Past(_)));
        place.state.hub.event(explained.clone());
        assert_eq!(client.next().await, ServerMessage::Event(explained.clone()), "{language:?}");
        let driver = DriverState::NoDriver { reason: text::DRIVER_NOT_LOADED.into() };
        place.state.hub.driver(driver.clone());
        let ServerMessage::State(state) = client.next().await else { panic!("no state") };
        assert_eq!(state.driver, driver, "{language:?}");
        place.state.hub.driver(DriverState::Starting);
    }
}

#[tokio::test(start_paused = true)]
async fn first_viewer_gets_active_alerts_and_recent_events() {
    let place = place();
    place.made.alerts.lock().expect("no panic").push(fired(5));
    let now_ms = now_ms();
    let lost = |id, time_ms| Event { id, time_ms, run: None, what: EventKind::GpuLost { gpu: "GPU-0".to_owned() } };
    let day_ms = 24 * 60 * 60 * 1000;
    let mut events = vec![lost(1, now_ms - day_ms - 1), lost(2, now_ms - day_ms / 2)];
    events.extend((3..100).map(|id| event(id, "ab")));
    events.extend((100..150).map(|id| lost(id, now_ms)));
    place.made.events.lock().expect("no panic").extend(events);
    for (after, ids) in [(None, (100..150).collect::<Vec<_>>()), (Some(148), vec![149])] {
        let mut client = Client::connect(&place, 9);
        client.greet(&place.view, after.map(|event| ResumePoint { time_ms: now_ms, event })).await;
        let ServerMessage::Hello(hello) = client.next().await else { panic!("no hello") };
        assert_eq!((hello.last_event, hello.alerts), (149, vec![fired(5)]));
        let ServerMessage::Past(past) = client.next().await else { panic!("no message with past events") };
        assert_eq!(past.events.iter().map(|event| event.id).collect::<Vec<_>>(), ids);
        assert!(past.done);
    }
    place.made.events.lock().expect("no panic").truncate(10);
    let mut client = Client::connect(&place, 9);
    client.greet(&place.view, None).await;
    client.next().await;
    let ServerMessage::Past(past) = client.next().await else { panic!("no message with past events") };
    assert_eq!(past.events.iter().map(|event| event.id).collect::<Vec<_>>(), [2], "of a day, and no iterations");
}

#[tokio::test(start_paused = true)]
async fn client_without_hello_is_refused_after_timeout() {
    let place = place();
    let (refusal, code, seconds) = Client::connect(&place, 9).refusal().await;
    assert_eq!((refusal.code, code, seconds), (RefusalCode::BadHello, 1008, HELLO_TIME_MAX.as_secs()));
    // Pings do not extend the time limit.
    let mut client = Client::connect(&place, 9);
    for _ in 0..3 {
        client.pipe.send(Message::Ping("x".into())).await.expect("it listens");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(client.refusal().await.2, HELLO_TIME_MAX.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_greeting_that_is_not_good_is_refused_with_its_reason() {
    let place = place();
    let control = &place.control;
    for (text, expected) in [
        ("nonsense".to_owned(), RefusalCode::BadHello),
        (r#"{"type":"hello","protocol":2,"ticket":"x"}"#.to_owned(), RefusalCode::UnknownVersion),
        (r#"{"type":"hello","protocol":1,"token":"x"}"#.to_owned(), RefusalCode::BadToken),
        (format!(r#"{{"type":"hello","protocol":1,"token":"{}"}}"#, &control[1..]), RefusalCode::BadToken),
    ] {
        let mut client = Client::connect(&place, 9);
        client.say(&text).await;
        let (refusal, code, seconds) = client.refusal().await;
        assert_eq!((refusal.code, code, seconds), (expected, 1008, 0), "{text}");
        assert_eq!(refusal.supported, [PROTOCOL_VERSION]);
    }
    let mut client = Client::connect(&place, 9);
    client.pipe.send(Message::Binary("hello".into())).await.expect("it listens");
    assert_eq!(client.refusal().await.0.code, RefusalCode::BadHello);
}

/// Returns the times of missed telemetry, and of live telemetry received in between.
async fn times(client: &mut Client) -> (Vec<u64>, Vec<u64>) {
    let (mut past, mut live) = (vec![], vec![]);
    loop {
        match client.next().await {
            ServerMessage::Past(message) => {
                past.extend(message.telemetry.iter().map(|moment| moment.time_ms));
                if message.done {
                    return (past, live);
                }
            }
            ServerMessage::Telemetry(Telemetry { time_ms, .. }) => live.push(time_ms),
            ServerMessage::Hello(_) | ServerMessage::Event(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn returning_viewer_gets_missed_events_exactly_once() {
    let now_ms = now_ms();
    let at = |i: u64| now_ms - 60_000 + 100 * i;
    // The history lacks the last second, which is in memory; both have the seconds before.
    for (n_kept, n_reported, n_had) in
        [(390, 0, 0), (0, 50, 0), (350, 60, 10), (350, 60, 340), (350, 60, 399), (400, 0, 400)]
    {
        let place = place();
        place.made.telemetry.lock().expect("no panic").extend((0..n_kept).map(|i| moment(i, at(i))));
        for i in 400 - n_reported..400 {
            place.state.hub.telemetry(Arc::new(moment(i, at(i))));
        }
        let mut client = Client::connect(&place, 2);
        let after = ResumePoint { time_ms: at(n_had), event: 0 };
        client.greet(&place.view, Some(after)).await;
        settle().await;
        for i in 400..405 {
            place.state.hub.telemetry(Arc::new(moment(i, at(i))));
        }
        let (past, mut live) = times(&mut client).await;
        while live.len() < 5 {
            let ServerMessage::Telemetry(moment) = client.next().await else { panic!("no telemetry") };
            live.push(moment.time_ms);
        }
        let n_kept_all = if n_reported > 0 { 400 } else { n_kept };
        let first = if n_kept > 0 { n_had + 1 } else { 400 - n_reported };
        assert_eq!(past, (first..n_kept_all).map(at).collect::<Vec<_>>(), "{n_kept} {n_reported} {n_had}");
        assert_eq!(live, (400..405).map(at).collect::<Vec<_>>(), "{n_kept} {n_reported} {n_had}");
    }
}

#[tokio::test(start_paused = true)]
async fn history_beyond_bound_is_reported_not_sent() {
    let place = place();
    let now_ms = now_ms();
    let old_ms = now_ms - 60 * 60 * 1000;
    place.made.telemetry.lock().expect("no panic").extend([moment(1, old_ms), moment(2, now_ms - 1000)]);
    let mut client = Client::connect(&place, 9);
    client.greet(&place.view, Some(ResumePoint { time_ms: old_ms - 1, event: 0 })).await;
    client.next().await;
    let ServerMessage::Past(past) = client.next().await else { panic!("no message with past events") };
    assert_eq!(past.telemetry, [moment(2, now_ms - 1000)]);
    assert!(past.from_ms > old_ms && past.from_ms <= now_ms);
}

#[tokio::test(start_paused = true)]
async fn all_events_that_were_missed_come_in_pieces() {
    let place = place();
    place.made.events.lock().expect("no panic").extend((1..=1750).map(|id| event(id, "ab")));
    for (had, first) in [(0, 1), (1200, 1201), (1750, 1751), (9999, 1)] {
        let mut client = Client::connect(&place, 2);
        client.greet(&place.view, Some(ResumePoint { time_ms: 0, event: had })).await;
        let ServerMessage::Hello(hello) = client.next().await else { panic!("no hello") };
        assert_eq!(hello.last_event, 1750);
        let mut ids = vec![];
        loop {
            let ServerMessage::Past(past) = client.next().await else { panic!("no message with past events") };
            assert!(past.events.len() <= 500);
            ids.extend(past.events.iter().map(|event| event.id));
            if past.done {
                break;
            }
        }
        assert_eq!(ids, (first..=1750).collect::<Vec<_>>(), "after {had}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_history_does_not_refuse_viewer() {
    let place = place();
    *place.made.broken.lock().expect("no panic") = true;
    let mut client = Client::connect(&place, 9);
    client.greet(&place.view, Some(ResumePoint { time_ms: 0, event: 3 })).await;
    assert!(matches!(client.next().await, ServerMessage::Hello(hello) if hello.last_event == 0));
    assert!(matches!(client.next().await, ServerMessage::Past(past) if past.done));
    place.state.hub.telemetry(Arc::new(moment(1, 5)));
    assert!(matches!(client.next().await, ServerMessage::Telemetry(_)));
}

#[tokio::test(start_paused = true)]
async fn slow_viewer_loses_oldest_telemetry_and_learns_count() {
    let place = place();
    let mut client = Client::welcome(&place, 3).await;
    for i in 0..500 {
        place.state.hub.telemetry(Arc::new(moment(i, i)));
        if i % 100 == 0 {
            settle().await;
        }
    }
    let (mut n_lost, mut seqs) = (0, vec![]);
    while seqs.last() != Some(&499) {
        match client.next().await {
            ServerMessage::Lost { n_messages } => n_lost += n_messages,
            ServerMessage::Telemetry(moment) => seqs.push(moment.seq),
            other => panic!("{other:?}"),
        }
    }
    assert!(n_lost > 300, "it was slow: {n_lost}");
    assert_eq!(n_lost + seqs.len() as u64, 500, "every message arrived or is counted as lost");
    assert_eq!(place.state.hub.dropped().viewers, n_lost);
    assert!(seqs.is_sorted() && seqs.ends_with(&(450..500).collect::<Vec<_>>()), "the newest are there: {seqs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_viewer_loses_no_event() {
    let place = place();
    place.state.hub.history(HistoryState::Kept { bytes: 1, set_aside: None });
    let mut client = Client::welcome(&place, 3).await;
    let n = 6000;
    for id in 1..=n {
        place.made.events.lock().expect("no panic").push(event(id, "ab"));
        place.state.hub.event(event(id, "ab"));
        if id % 1000 == 0 {
            settle().await;
        }
    }
    let mut ids = vec![];
    while ids.last() != Some(&n) {
        if let ServerMessage::Event(event) = client.next().await {
            ids.push(event.id);
        }
    }
    assert_eq!(ids, (1..=n).collect::<Vec<_>>());
    // The queue continues as before.
    place.state.hub.event(event(n + 1, "ab"));
    assert_eq!(client.next().await, ServerMessage::Event(event(n + 1, "ab")));
}

#[tokio::test(start_paused = true)]
async fn viewer_too_slow_for_unstored_events_is_disconnected() {
    let place = place();
    let client = Client::welcome(&place, 3).await;
    for _ in 0..5000 {
        place.state.hub.event(event(0, "ab"));
    }
    let (refusal, code, _) = client.refusal().await;
    assert_eq!((refusal.code, code), (RefusalCode::TooSlow, 1013));
}

#[tokio::test(start_paused = true)]
async fn viewer_that_reads_nothing_is_dropped() {
    let place = place();
    let client = Client::welcome(&place, 2).await;
    for id in 1..9 {
        place.state.hub.event(event(id, "ab"));
    }
    let start = Instant::now();
    client.served.await.expect("it ends");
    assert_eq!(start.elapsed().as_secs(), (SEND_TIME_MAX + CLOSE_TIME_MAX).as_secs());
    assert_eq!(place.state.hub.n_viewers(), 0);
}

#[tokio::test(start_paused = true)]
async fn viewer_without_pong_is_dropped() {
    let place = place();
    let mut silent = Client::welcome(&place, 100).await;
    assert!(matches!(silent.pipe.next().await, Some(Ok(Message::Ping(_)))));
    assert_eq!(silent.start.elapsed().as_secs(), 15);
    silent.served.await.expect("it ends");
    assert_eq!(silent.start.elapsed().as_secs(), 15 + 20);
    // A viewer that answers pings stays connected.
    let mut there = Client::welcome(&place, 100).await;
    for _ in 0..100 {
        let Some(Ok(Message::Ping(bytes))) = there.pipe.next().await else { panic!("no ping") };
        there.pipe.send(Message::Pong(bytes)).await.expect("it listens");
    }
    assert_eq!(there.start.elapsed().as_secs(), 1500);
}

#[tokio::test(start_paused = true)]
async fn talkative_client_is_disconnected() {
    let place = place();
    let mut client = Client::welcome(&place, 100).await;
    for _ in 0..10 {
        client.say("and another thing").await;
    }
    settle().await;
    assert_eq!(place.state.hub.n_viewers(), 1, "a few are ignored");
    for _ in 0..100 {
        client.say("and another thing").await;
    }
    assert_eq!(client.refusal().await.0.code, RefusalCode::BadHello);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_revoked_ends_its_sockets_in_two_seconds() {
    let place = place();
    let following = tokio::spawn(place.state.access.clone().follow());
    let client = Client::welcome(&place, 100).await;
    let mut other = Client::connect(&place, 100);
    other.greet(&place.control, None).await;
    sleep(Duration::from_secs(3)).await;
    place.file.change(|book| book.revoke("viewer")).expect("it is there");
    let (refusal, code, seconds) = client.refusal().await;
    assert_eq!((refusal.code, code), (RefusalCode::BadToken, 1008));
    assert!(seconds <= 3 + 2, "{seconds}");
    settle().await;
    assert_eq!(place.state.hub.n_viewers(), 1, "the other token is as good as before");
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn stopping_server_notifies_viewers() {
    let place = place();
    let (greeted, waiting) = (Client::welcome(&place, 100).await, Client::connect(&place, 100));
    settle().await;
    place.state.stopping.send_replace(true);
    for client in [greeted, waiting] {
        let (refusal, code, seconds) = client.refusal().await;
        assert_eq!((refusal.code, code, seconds), (RefusalCode::Stopping, 1001, 0));
    }
    place.state.sockets_end().await;
}

#[tokio::test(start_paused = true)]
async fn there_are_no_more_viewers_than_may_be() {
    let place = place();
    let all = place.state.viewers.try_acquire_many(crate::VIEWERS_MAX).expect("all places are free");
    let mut client = Client::connect(&place, 100);
    client.greet(&place.view, None).await;
    let (refusal, code, _) = client.refusal().await;
    assert_eq!((refusal.code, code), (RefusalCode::TooMany, 1013));
    drop(all);
    Client::welcome(&place, 100).await;
}
