//! Tests of refusals: their form, their messages, and the bounds of queries and of rates.

use super::*;
use crate::error::ErrorCode;

#[tokio::test]
async fn message_is_english_with_its_text_beside_it() {
    let server = Server::start().await;
    let bearer = format!("Authorization: Bearer {}", server.place.control);
    for accepted in ["Accept-Language: en", "Accept-Language: de-AT, en;q=0.5"] {
        let answer = server.request("POST", "/api/runs/ab/stop", &[&bearer, accepted]).await;
        let refusal: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!((answer.status, &refusal["code"]), (404, &Value::from("no_run")), "{accepted}");
        assert_eq!(refusal["message"], "there is no run ab", "{accepted}");
        assert_eq!(refusal["message_text"], json!({ "key": "run_none", "args": [{ "text": "ab" }] }));
    }
    let explanation = Some(Message::from(text::run_not_ended("ab")));
    let ended = Run { explanation, ..run("ab") };
    server.place.made.runs.lock().expect("no panic").push(ended.clone());
    let answer = server.request("GET", "/api/runs/ab", &[&bearer, "Accept-Language: de"]).await;
    let body: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(body["explanation"], "run ab has not ended");
    assert_eq!(serde_json::from_value::<Run>(body).expect("a run"), ended);
    server.stop().await;
}

#[tokio::test]
async fn refusals_have_one_form() {
    let server = Server::start().await;
    for (path, code) in [("/api/nothing", "not_found"), ("/api/rig", "no_token"), ("/api/runs/ab", "no_token")] {
        let answer = server.get(path).await;
        assert_eq!(answer.header("content-type"), "application/json", "{path}");
        let refusal: headroom_protocol::Refusal = serde_json::from_str(&answer.body).expect("the protocol's");
        assert!(!refusal.message.en.is_empty() && refusal.supported == [1]);
        assert_eq!(serde_json::from_str::<Value>(&answer.body).expect("JSON")["code"], code);
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    *server.place.made.broken.lock().expect("no panic") = true;
    let answer = server.asked("GET", "/api/runs", &server.place.view).await;
    assert!(answer.status == 503 && answer.body.contains("disk I/O error"), "{answer:?}");
    server.stop().await;
}

#[test]
fn every_code_is_documented_and_every_documented_code_exists() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/reference/rest.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let tables = page.split_once("### Codes of every request").expect("the first table").1;
    let rows = tables.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(code, _)| code));
    let documented: BTreeSet<&str> = rows.collect();
    assert_eq!(documented, ErrorCode::NAMES.iter().copied().collect());
}

#[tokio::test]
async fn questions_have_bounds() {
    let server = Server::start().await;
    // The refusal names the invalid parameter and its valid values.
    for (path, says) in [
        ("/api/history", "gpu is missing: give a GPU's UUID, such"),
        ("/api/history?gpu=GPU-0&from_ms=1", "to_ms is missing: give milliseconds since 1970"),
        ("/api/history?gpu=GPU-0&from_ms=2&to_ms=2", "from_ms must be before to_ms"),
        ("/api/history?gpu=GPU-0&from_ms=1&to_ms=18446744073709551615", "from_ms must be before to_ms"),
        ("/api/history?gpu=GPU-0&from_ms=-1&to_ms=2", "from_ms must be milliseconds since 1970"),
        ("/api/history?gpu=GPU-0&from_ms=yesterday&to_ms=2", "not \\\"yesterday\\\""),
        ("/api/history?gpu=GPU-0&from_ms=1&from_ms=2&to_ms=2", "from_ms is given twice"),
        ("/api/history?gpu=GPU-0&from_ms=1&to_ms=2&points=0", "points must be a number from 1 to 2000, not 0"),
        ("/api/history?gpu=GPU-0&from_ms=1&to_ms=2&points=2001", "points must be a number from 1 to 2000"),
        ("/api/history?gpu=a%20b&from_ms=1&to_ms=2", "gpu must be a GPU's UUID, such"),
        ("/api/history?from_ms=1&to_ms=2&group=slow", "gpu is missing"),
        ("/api/history?gpu=GPU-0&from_ms=1&to_ms=2&group=none", "group must be fast, slow or host"),
        ("/api/runs?limit=0", "limit must be a number from 1 to 1000"),
        ("/api/runs?limit=1001", "limit must be a number from 1 to 1000"),
        ("/api/runs?limit=x", "limit must be a number from 1 to 1000"),
        ("/api/runs?limit=%ff", "limit must be"),
        ("/api/runs/ab/events?after=-1", "after must be the number of an event"),
        ("/api/runs/ab/events?limit=9999", "limit must be a number from 1 to 1000"),
        ("/api/history?gpus=GPU-0&from_ms=1&to_ms=2", "Unknown query parameter \\\"gpus\\\"; this path accepts: gpu"),
        ("/api/runs?Limit=5", "Unknown query parameter \\\"Limit\\\""),
        ("/api/runs?status=running", "this path accepts: limit"),
        ("/api/runs/ab/events?before=5", "this path accepts: after, limit"),
        ("/api/runs/ab/export.csv?from=5", "this path accepts: none"),
        ("/api/runs/ab?x", "this path accepts: none"),
        ("/api/rig?gpu=0", "this path accepts: none"),
        ("/api/settings?%3Cscript%3E=1", "<script>"),
        ("/metrics?gpu=0", "this path accepts: none"),
        ("/api/openapi.json?v=2", "this path accepts: none"),
    ] {
        let answer = server.asked("GET", path, &server.place.view).await;
        let is_reported = answer.body.contains("bad_request") && answer.body.contains(says);
        assert!(answer.status == 400 && is_reported, "{path}: {answer:?}");
    }
    server.place.state.hub.gpus(vec![gpu(0)]);
    for fits in [
        "/api/history?gpu=GPU-0&from_ms=1&to_ms=2&points=2000",
        "/api/history?gpu=GPU-0&from_ms=1&to_ms=2&group=slow",
        "/api/history?from_ms=1&to_ms=2&group=host",
    ] {
        assert_eq!(server.asked("GET", fits, &server.place.view).await.status, 200, "{fits}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_token_has_its_rate() {
    let server = Server::start().await;
    let mut statuses = vec![];
    for _ in 0..260 {
        statuses.push(server.asked("GET", "/api/settings", &server.place.view).await.status);
    }
    assert!(statuses[..200].iter().all(|status| *status == 200));
    assert!(statuses.contains(&429), "it made {} requests at once", statuses.len());
    assert_eq!(server.asked("GET", "/api/settings", &server.place.control).await.status, 200, "another token's");
    server.stop().await;
}
