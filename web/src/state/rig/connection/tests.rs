//! The state machine's reaction to every event of a connection.

use headroom_protocol::message::Message;

use super::*;

const T: u64 = 1_795_000_000_000;

fn refusal(code: RefusalCode) -> Refusal {
    Refusal { code, message: Message::plain("why"), supported: vec![1] }
}

/// A page with a token that was greeted at `T` and receives telemetry.
fn live() -> Connection {
    let (mut connection, first) = Connection::begin(T, Some("token".to_owned()), None);
    assert_eq!(first, ConnectionAction::Open);
    assert_eq!(connection.opened(), Some(ConnectionAction::Hello));
    assert_eq!(connection.hello(T, PROTOCOL_VERSION), None);
    connection.heard(T, true);
    assert_eq!(connection.stage, Stage::Live);
    connection
}

fn wait_ms(connection: &Connection, now_ms: u64) -> u64 {
    match connection.stage {
        Stage::Waiting { until_ms, .. } => until_ms - now_ms,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_code_comes_before_a_token_and_its_failure_falls_back_to_it() {
    let (mut connection, first) = Connection::begin(T, Some("old".to_owned()), Some("code".to_owned()));
    assert_eq!((first, &connection.stage), (ConnectionAction::Pair("code".to_owned()), &Stage::Pairing));
    assert_eq!(connection.paired(T, Err("used".to_owned())), Some(ConnectionAction::Open));
    assert_eq!(connection.token.as_deref(), Some("old"));
    let (mut connection, _) = Connection::begin(T, None, Some("code".to_owned()));
    assert_eq!(connection.paired(T, Err("used".to_owned())), None);
    assert_eq!(connection.stage, Stage::Unpaired(Some(Fault::Code("used".to_owned()))));
    assert_eq!(connection.paired(T, Ok("new".to_owned())), Some(ConnectionAction::Open));
    assert_eq!(connection.token.as_deref(), Some("new"));
}

#[test]
fn a_link_that_is_opened_in_a_live_page_is_taken_and_a_used_one_does_no_harm() {
    let mut connection = live();
    assert_eq!(connection.pair(T, "code".to_owned()), Some(ConnectionAction::Pair("code".to_owned())));
    assert_eq!(connection.closed(T, 0.5), None, "an answer is waited for");
    assert_eq!(connection.paired(T, Err("used".to_owned())), Some(ConnectionAction::Open));
    assert_eq!(connection.token.as_deref(), Some("token"));
}

#[test]
fn without_a_token_it_is_seen_first_whether_there_is_an_agent() {
    for (found, stage) in [(Probe::Agent, Stage::Unpaired(None)), (Probe::Other, Stage::NoAgent)] {
        let (mut connection, first) = Connection::begin(T, None, None);
        assert_eq!(first, ConnectionAction::Probe);
        connection.probed(T, found, 0.5);
        assert_eq!(connection.stage, stage);
    }
    let (mut connection, _) = Connection::begin(T, None, None);
    connection.probed(T, Probe::Nothing, 0.5);
    assert_eq!(
        connection.tick(T + WAIT_MS_MIN, 0.5),
        Some(ConnectionAction::Probe),
        "a host that is off may be on again"
    );
}

#[test]
fn a_socket_that_never_opened_is_distinguished_from_a_host_without_an_agent() {
    let (mut connection, _) = Connection::begin(T, Some("token".to_owned()), None);
    assert_eq!(connection.closed(T, 0.5), Some(ConnectionAction::Probe));
    connection.probed(T, Probe::Agent, 0.5);
    assert!(matches!(connection.stage, Stage::Waiting { agent_answers: true, .. }), "{:?}", connection.stage);
    // While the agent restarts, another server may answer at its address for a moment.
    let mut connection = live();
    connection.closed(T, 0.5);
    assert_eq!(connection.tick(T + WAIT_MS_MAX, 0.5), Some(ConnectionAction::Open));
    connection.closed(T + WAIT_MS_MAX, 0.5);
    assert!(matches!(connection.stage, Stage::Waiting { .. }));
}

#[test]
fn waits_grow_within_their_bounds_and_differ_by_chance() {
    let mut connection = live();
    let mut before_ms = 0;
    let mut now_ms = T;
    for _ in 0..20 {
        connection.closed(now_ms, 0.0);
        let now_wait_ms = wait_ms(&connection, now_ms);
        assert!(now_wait_ms >= before_ms && now_wait_ms <= WAIT_MS_MAX, "{now_wait_ms} after {before_ms}");
        before_ms = now_wait_ms;
        now_ms += now_wait_ms;
        assert_eq!(connection.tick(now_ms, 0.0), Some(ConnectionAction::Open));
    }
    assert_eq!(before_ms, WAIT_MS_MAX / 2);
    let (mut early, mut late) = (live(), live());
    early.closed(T, 0.0);
    late.closed(T, 1.0);
    assert_eq!((wait_ms(&early, T), wait_ms(&late, T)), (WAIT_MS_MIN / 2, WAIT_MS_MIN));
    // After it was live again, a failure counts as the first one.
    connection.hello(now_ms, PROTOCOL_VERSION);
    connection.closed(now_ms, 1.0);
    assert_eq!(wait_ms(&connection, now_ms), WAIT_MS_MIN);
}

#[test]
fn silence_is_stale_first_and_then_a_new_socket() {
    let mut connection = live();
    assert!(!connection.is_stale(T + STALE_AFTER_MS));
    assert!(connection.is_stale(T + STALE_AFTER_MS + 1));
    assert_eq!(connection.tick(T + DEAD_AFTER_MS, 0.5), None);
    assert_eq!(connection.stage, Stage::Live);
    assert_eq!(connection.tick(T + DEAD_AFTER_MS + 1, 0.5), Some(ConnectionAction::Open));
}

#[test]
fn an_agent_without_gpus_may_be_silent_for_longer() {
    let mut connection = live();
    connection.heard(T, false);
    assert!(!connection.is_stale(T + DEAD_AFTER_MS + 1));
    assert_eq!(connection.tick(T + DEAD_AFTER_MS + 1, 0.5), None);
    assert_eq!(connection.tick(T + QUIET_DEAD_AFTER_MS + 1, 0.5), Some(ConnectionAction::Open));
}

#[test]
fn a_laptop_that_wakes_waits_for_nothing() {
    let mut connection = live();
    assert_eq!(connection.woke(T + 1000), None, "nothing was missed");
    assert_eq!(connection.woke(T + 3_600_000), Some(ConnectionAction::Open));
    let mut connection = live();
    for _ in 0..8 {
        connection.closed(T, 1.0);
        connection.tick(T + WAIT_MS_MAX, 1.0);
    }
    connection.closed(T, 1.0);
    assert_eq!(connection.woke(T + 1), Some(ConnectionAction::Open));
}

#[test]
fn a_socket_that_hangs_while_opening_is_given_up() {
    let (mut connection, _) = Connection::begin(T, Some("token".to_owned()), None);
    assert_eq!(connection.tick(T + CONNECT_MS_MAX, 0.5), None);
    assert_eq!(connection.tick(T + CONNECT_MS_MAX + 1, 0.5), Some(ConnectionAction::Close));
    assert!(matches!(connection.stage, Stage::Waiting { .. }));
}

#[test]
fn each_refusal_has_its_own_way_on() {
    let mut connection = live();
    connection.refused(T, refusal(RefusalCode::BadToken), 0.5);
    assert_eq!((&connection.stage, &connection.token), (&Stage::Unpaired(Some(Fault::Token)), &None));
    assert_eq!(connection.woke(T + 1), None, "a rejected token is not sent again");
    connection = live();
    connection.refused(T, refusal(RefusalCode::UnknownVersion), 0.5);
    assert_eq!(connection.stage, Stage::Mismatch(vec![1]));
    connection = live();
    connection.refused(T, refusal(RefusalCode::Stopping), 0.5);
    assert!(matches!(connection.stage, Stage::Waiting { .. }));
    connection = live();
    connection.refused(T, refusal(RefusalCode::TooMany), 0.5);
    assert_eq!(connection.stage, Stage::Refused { message: "why".to_owned(), until_ms: T + REFUSED_WAIT_MS });
    // The following close changes nothing.
    assert_eq!(connection.closed(T, 0.5), None);
    assert_eq!(connection.tick(T + REFUSED_WAIT_MS, 0.5), Some(ConnectionAction::Open));
}

#[test]
fn a_later_agent_is_reported_and_not_misread() {
    let (mut connection, _) = Connection::begin(T, Some("token".to_owned()), None);
    connection.opened();
    assert_eq!(connection.hello(T, PROTOCOL_VERSION + 1), Some(ConnectionAction::Close));
    assert_eq!(connection.stage, Stage::Mismatch(vec![PROTOCOL_VERSION + 1]));
    assert_eq!(connection.tick(T + 3_600_000, 0.5), None);
}

#[test]
fn a_clock_that_is_set_back_makes_no_wait_endless() {
    let mut connection = live();
    connection.closed(T, 1.0);
    let early = T - 86_400_000;
    assert_eq!(connection.tick(early, 1.0), None);
    assert_eq!(connection.tick(early + WAIT_MS_MAX, 1.0), Some(ConnectionAction::Open));
}
