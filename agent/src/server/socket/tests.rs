//! A viewer's socket over a pipe, with the clock in hand.

mod pipe;

use std::net::Ipv4Addr;

use headroom_shared::protocol::{
    Refusal as Refused, Telemetry,
    event::{Event, What},
    run::Run,
    state::{DriverState, HistoryState},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::*;
use crate::server::{
    assets::Assets,
    host::Given,
    made::{Place, event, fired, moment, run},
};
use pipe::{Pipe, pipe};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn place() -> Place {
    Place::at("127.0.0.1:8420".parse().expect("an address"), Assets::default(), Given::default())
}

/// The page's side.
struct Client {
    pipe: Pipe,
    served: JoinHandle<()>,
    start: Instant,
}

impl Client {
    /// A page that holds so many messages that it did not take.
    fn connect(place: &Place, room: usize) -> Self {
        let (mut server, client) = pipe(room);
        let state = Arc::clone(&place.state);
        let leave = Arc::default();
        let seat = state.greetings.enter(HERE, &leave).expect("a place");
        let greeting = Greeting { seat, leave };
        let served = tokio::spawn(async move { attend(&mut server, &state, HERE, greeting).await });
        Self { pipe: client, served, start: Instant::now() }
    }

    async fn say(&mut self, text: &str) {
        self.pipe.send(Message::Text(text.into())).await.expect("it listens");
    }

    async fn greet(&mut self, token: &str, after: Option<After>) {
        self.greet_in(None, token, after).await;
    }

    async fn greet_in(&mut self, language: Option<&str>, token: &str, after: Option<After>) {
        let (token, language) = (token.to_owned(), language.map(str::to_owned));
        let hello = ClientMessage::Hello { protocol: PROTOCOL_VERSION, token, after, language };
        self.say(&serde_json::to_string(&hello).expect("a message")).await;
    }

    /// One that was let in and has what it missed.
    async fn welcome(place: &Place, room: usize) -> Self {
        let mut client = Self::connect(place, room);
        client.greet(&place.view, None).await;
        assert!(matches!(client.next().await, ServerMessage::Hello(_)));
        assert!(matches!(client.next().await, ServerMessage::Past(past) if past.done && past.telemetry.is_empty()));
        client
    }

    /// The next message; answers pings on the way.
    async fn next(&mut self) -> ServerMessage {
        loop {
            match self.pipe.next().await.expect("there is more").expect("it is whole") {
                Message::Text(text) => return serde_json::from_str(&text).expect("a message"),
                Message::Ping(bytes) => self.pipe.send(Message::Pong(bytes)).await.expect("it listens"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The refusal that ends it, the code that it closes with, and when.
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

/// Lets everybody do what there is to do.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_viewer_is_greeted_and_then_told_everything() {
    let place = place();
    place.made.runs.lock().expect("no panic").push(run("ab"));
    place.made.events.lock().expect("no panic").push(event(7, "ab"));
    let mut client = Client::connect(&place, 100);
    client.greet(&place.view, None).await;
    let ServerMessage::Hello(hello) = client.next().await else { panic!("no hello") };
    assert_eq!((hello.protocol, hello.name.as_str(), hello.scope), (1, "rig", headroom_shared::protocol::Scope::View));
    assert_eq!((hello.last_event, hello.runs.len()), (7, 1));
    let ServerMessage::Past(past) = client.next().await else { panic!("no past") };
    assert!(past.done && past.events.is_empty(), "an iteration has no line");
    let hub = &place.state.hub;
    assert_eq!(hub.n_viewers(), 1);
    hub.telemetry(Arc::new(moment(1, 5)));
    assert_eq!(client.next().await, ServerMessage::Telemetry(moment(1, 5)));
    hub.event(event(7, "ab"));
    hub.event(event(8, "ab"));
    assert_eq!(client.next().await, ServerMessage::Event(event(8, "ab")), "the hello knows of number 7 already");
    hub.history(HistoryState::Kept { bytes: 1, set_aside: None });
    assert!(matches!(client.next().await, ServerMessage::State(_)));
    hub.history(HistoryState::Kept { bytes: 1, set_aside: None });
    hub.gpus(vec![]);
    assert!(matches!(client.next().await, ServerMessage::Inventory { .. }), "a state that is as it was is not told");
    drop(client.pipe);
    client.served.await.expect("it ends");
    assert_eq!(hub.n_viewers(), 0);
}

/// One that names none, or one that nobody speaks here, reads English.
#[tokio::test(start_paused = true)]
async fn a_viewer_reads_sentences_in_its_language() {
    let place = place();
    let why = "Run ab has no checkpoint: it saved none, or the file is gone.";
    let ended = Run { explanation: Some(why.to_owned()), ..run("ab") };
    place.made.runs.lock().expect("no panic").push(ended);
    let message = text::xid_reported(79_u64, text::XID_79).to_string();
    let explained =
        Event { id: 8, time_ms: 1, run: Some("ab".to_owned()), what: What::RunExplained { message, xid: Some(79) } };
    for (language, words) in [
        (None, ["Run ab has no checkpoint", "fallen off the bus", "not loaded"]),
        (Some("tlh"), ["Run ab has no checkpoint", "fallen off the bus", "not loaded"]),
        (Some("de"), ["Lauf ab hat keinen Checkpoint", "vom Bus verschwunden", "nicht geladen"]),
        (Some("zh"), ["训练 ab 没有检查点", "从总线上掉线", "未加载"]),
    ] {
        let mut client = Client::connect(&place, 100);
        client.greet_in(language, &place.view, None).await;
        let ServerMessage::Hello(hello) = client.next().await else { panic!("no hello") };
        let said = hello.runs[0].explanation.clone().expect("it is there");
        assert!(said.starts_with(words[0]), "{language:?}: {said}");
        assert!(matches!(client.next().await, ServerMessage::Past(_)));
        place.state.hub.event(explained.clone());
        let ServerMessage::Event(event) = client.next().await else { panic!("no event") };
        assert!(
            matches!(&event.what, What::RunExplained { message, xid: Some(79) } if message.contains(words[1])),
            "{language:?}: {event:?}"
        );
        let reason = text::DRIVER_NOT_LOADED.to_string();
        place.state.hub.driver(DriverState::NoDriver { reason });
        let ServerMessage::State(state) = client.next().await else { panic!("no state") };
        assert!(
            matches!(&state.driver, DriverState::NoDriver { reason } if reason.contains(words[2])),
            "{language:?}: {state:?}"
        );
        place.state.hub.driver(DriverState::Starting);
    }
    assert_eq!(place.made.runs.lock().expect("no panic")[0].explanation.as_deref(), Some(why), "it is kept as it was");
}

#[tokio::test(start_paused = true)]
async fn who_comes_first_gets_alerts_that_are_on_and_what_happened_lately() {
    let place = place();
    place.made.alerts.lock().expect("no panic").push(fired(5));
    let now_ms = now_ms();
    let lost = |id, time_ms| Event { id, time_ms, run: None, what: What::CardLost { gpu: "GPU-0".to_owned() } };
    let day_ms = 24 * 60 * 60 * 1000;
    let mut events = vec![lost(1, now_ms - day_ms - 1), lost(2, now_ms - day_ms / 2)];
    events.extend((3..100).map(|id| event(id, "ab")));
    events.extend((100..150).map(|id| lost(id, now_ms)));
    place.made.events.lock().expect("no panic").extend(events);
    for (after, ids) in [(None, (100..150).collect::<Vec<_>>()), (Some(148), vec![149])] {
        let mut client = Client::connect(&place, 9);
        client.greet(&place.view, after.map(|event| After { time_ms: now_ms, event })).await;
        let ServerMessage::Hello(hello) = client.next().await else { panic!("no hello") };
        assert_eq!((hello.last_event, hello.alerts), (149, vec![fired(5)]));
        let ServerMessage::Past(past) = client.next().await else { panic!("no past") };
        assert_eq!(past.events.iter().map(|event| event.id).collect::<Vec<_>>(), ids);
        assert!(past.done);
    }
    place.made.events.lock().expect("no panic").truncate(10);
    let mut client = Client::connect(&place, 9);
    client.greet(&place.view, None).await;
    client.next().await;
    let ServerMessage::Past(past) = client.next().await else { panic!("no past") };
    assert_eq!(past.events.iter().map(|event| event.id).collect::<Vec<_>>(), [2], "of a day, and no iterations");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_greet_is_refused_in_time() {
    let place = place();
    let (refusal, code, seconds) = Client::connect(&place, 9).refusal().await;
    assert_eq!((refusal.code, code, seconds), (RefusalCode::BadHello, 1008, HELLO_TIME_MAX.as_secs()));
    // Pings do not hold it open.
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

/// Times of telemetry up to the end of the past, and of what came live between.
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
async fn who_was_away_gets_what_it_missed_without_gap_or_double() {
    let now_ms = now_ms();
    let at = |i: u64| now_ms - 60_000 + 100 * i;
    // History has all but the last second, which memory has; both have the seconds between.
    for (n_kept, n_told, n_had) in
        [(390, 0, 0), (0, 50, 0), (350, 60, 10), (350, 60, 340), (350, 60, 399), (400, 0, 400)]
    {
        let place = place();
        place.made.telemetry.lock().expect("no panic").extend((0..n_kept).map(|i| moment(i, at(i))));
        for i in 400 - n_told..400 {
            place.state.hub.telemetry(Arc::new(moment(i, at(i))));
        }
        let mut client = Client::connect(&place, 2);
        let after = After { time_ms: at(n_had), event: 0 };
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
        let n_kept_all = if n_told > 0 { 400 } else { n_kept };
        let first = if n_kept > 0 { n_had + 1 } else { 400 - n_told };
        assert_eq!(past, (first..n_kept_all).map(at).collect::<Vec<_>>(), "{n_kept} {n_told} {n_had}");
        assert_eq!(live, (400..405).map(at).collect::<Vec<_>>(), "{n_kept} {n_told} {n_had}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_older_than_the_bound_is_said_and_not_sent() {
    let place = place();
    let now_ms = now_ms();
    let old_ms = now_ms - 60 * 60 * 1000;
    place.made.telemetry.lock().expect("no panic").extend([moment(1, old_ms), moment(2, now_ms - 1000)]);
    let mut client = Client::connect(&place, 9);
    client.greet(&place.view, Some(After { time_ms: old_ms - 1, event: 0 })).await;
    client.next().await;
    let ServerMessage::Past(past) = client.next().await else { panic!("no past") };
    assert_eq!(past.telemetry, [moment(2, now_ms - 1000)]);
    assert!(past.from_ms > old_ms && past.from_ms <= now_ms);
}

#[tokio::test(start_paused = true)]
async fn all_events_that_were_missed_come_in_pieces() {
    let place = place();
    place.made.events.lock().expect("no panic").extend((1..=1750).map(|id| event(id, "ab")));
    for (had, first) in [(0, 1), (1200, 1201), (1750, 1751), (9999, 1)] {
        let mut client = Client::connect(&place, 2);
        client.greet(&place.view, Some(After { time_ms: 0, event: had })).await;
        let ServerMessage::Hello(hello) = client.next().await else { panic!("no hello") };
        assert_eq!(hello.last_event, 1750);
        let mut ids = vec![];
        loop {
            let ServerMessage::Past(past) = client.next().await else { panic!("no past") };
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
async fn a_past_that_cannot_be_read_is_no_reason_to_stay_out() {
    let place = place();
    *place.made.broken.lock().expect("no panic") = true;
    let mut client = Client::connect(&place, 9);
    client.greet(&place.view, Some(After { time_ms: 0, event: 3 })).await;
    assert!(matches!(client.next().await, ServerMessage::Hello(hello) if hello.last_event == 0));
    assert!(matches!(client.next().await, ServerMessage::Past(past) if past.done));
    place.state.hub.telemetry(Arc::new(moment(1, 5)));
    assert!(matches!(client.next().await, ServerMessage::Telemetry(_)));
}

#[tokio::test(start_paused = true)]
async fn a_slow_viewer_loses_the_oldest_telemetry_and_is_told_how_much() {
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
    assert_eq!(n_lost + seqs.len() as u64, 500, "every one came or is counted");
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
    // It goes on as before.
    place.state.hub.event(event(n + 1, "ab"));
    assert_eq!(client.next().await, ServerMessage::Event(event(n + 1, "ab")));
}

#[tokio::test(start_paused = true)]
async fn who_is_too_slow_for_events_that_nobody_keeps_is_sent_away() {
    let place = place();
    let client = Client::welcome(&place, 3).await;
    for _ in 0..5000 {
        place.state.hub.event(event(0, "ab"));
    }
    let (refusal, code, _) = client.refusal().await;
    assert_eq!((refusal.code, code), (RefusalCode::TooSlow, 1013));
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_is_given_up() {
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
async fn who_answers_no_ping_is_gone() {
    let place = place();
    let mut silent = Client::welcome(&place, 100).await;
    assert!(matches!(silent.pipe.next().await, Some(Ok(Message::Ping(_)))));
    assert_eq!(silent.start.elapsed().as_secs(), 15);
    silent.served.await.expect("it ends");
    assert_eq!(silent.start.elapsed().as_secs(), 15 + 20);
    // One that answers stays for as long as it likes.
    let mut there = Client::welcome(&place, 100).await;
    for _ in 0..100 {
        let Some(Ok(Message::Ping(bytes))) = there.pipe.next().await else { panic!("no ping") };
        there.pipe.send(Message::Pong(bytes)).await.expect("it listens");
    }
    assert_eq!(there.start.elapsed().as_secs(), 1500);
}

#[tokio::test(start_paused = true)]
async fn who_talks_on_is_sent_away() {
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
async fn a_server_that_stops_says_so() {
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
    let all = place.state.viewers.try_acquire_many(crate::server::VIEWERS_MAX).expect("all places are free");
    let mut client = Client::connect(&place, 100);
    client.greet(&place.view, None).await;
    let (refusal, code, _) = client.refusal().await;
    assert_eq!((refusal.code, code), (RefusalCode::TooMany, 1013));
    drop(all);
    Client::welcome(&place, 100).await;
}
