//! Attacks on the server, in the style of Jupyter Server's tests. Each tries one thing, must fail, and must not affect
//! other clients.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use headroom_protocol::Scope;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_tungstenite::tungstenite::Message;

use super::talk::{PATIENCE, Server, hello, said};
use crate::{
    api::{TestRoute, routes_for_tests},
    connection::HEAD_BYTES_MAX,
};

/// A precondition that any settings meet.
pub const ANY: &str = "If-Match: *";

/// Checks that the server works.
pub async fn is_well(server: &Server) {
    assert_eq!(server.get("/").await.status, 200);
    assert_eq!(server.asked("GET", "/api/rig", &server.place.view).await.status, 200);
    let viewer = server.viewer().await;
    drop(viewer);
}

#[tokio::test]
async fn no_foreign_page_opens_a_socket() {
    let server = Server::start().await;
    let (own, port) = (server.address.to_string(), server.address.port());
    let origin = |origin: &str| format!("Origin: {origin}");
    for (host, lines, code) in [
        (own.clone(), vec![], "missing_origin"),
        (own.clone(), vec![origin("null")], "foreign_origin"),
        (own.clone(), vec![origin("")], "foreign_origin"),
        (own.clone(), vec![origin("http://evil.example")], "foreign_origin"),
        (own.clone(), vec![origin(&format!("http://evil.example:{port}"))], "foreign_origin"),
        (own.clone(), vec![origin(&format!("http://{own}.evil.example"))], "foreign_origin"),
        (own.clone(), vec![origin(&format!("http://127.0.0.1.evil.example:{port}"))], "foreign_origin"),
        (own.clone(), vec![origin(&format!("http://evil.example#{own}"))], "foreign_origin"),
        (own.clone(), vec![origin(&format!("http://{own}@evil.example"))], "foreign_origin"),
        (own.clone(), vec![origin(&format!("https://{own}"))], "foreign_origin"),
        (own.clone(), vec![origin(&format!("ws://{own}"))], "foreign_origin"),
        (own.clone(), vec![origin("http://127.0.0.1")], "foreign_origin"),
        (own.clone(), vec![origin(&format!("http://127.0.0.1:{}", port ^ 1))], "foreign_origin"),
        // Both names are this machine's, but they are different origins: another local server may have the other one.
        (own.clone(), vec![origin(&format!("http://localhost:{port}"))], "foreign_origin"),
        (own.clone(), vec![origin(&server.origin()), origin("http://evil.example")], "foreign_origin"),
        (own.clone(), vec!["Referer: http://evil.example/".to_owned()], "missing_origin"),
        // A rebound name equals its own origin, and is refused because of the `Host`.
        (format!("evil.example:{port}"), vec![origin(&format!("http://evil.example:{port}"))], "foreign_host"),
        (format!("localhost.evil.example:{port}"), vec![origin(&server.origin())], "foreign_host"),
        (format!("127.0.0.1.nip.io:{port}"), vec![origin(&format!("http://127.0.0.1.nip.io:{port}"))], "foreign_host"),
        (String::new(), vec![origin(&server.origin())], "unclear_host"),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let answer = server.upgrade("/ws", &host, &lines).await;
        assert!([400, 403].contains(&answer.status), "{host} {lines:?}: {answer:?}");
        assert!(answer.body.contains(&format!("\"{code}\"")), "{host} {lines:?}: {answer:?}");
    }
    assert_eq!(server.upgrade("/ws", &own, &[&origin(&server.origin())]).await.status, 101);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn no_foreign_page_asks_or_pairs() {
    let server = Server::start().await;
    let bearer = format!("Authorization: Bearer {}", server.place.control);
    for origin in ["null", "http://evil.example", "https://127.0.0.1"] {
        let lines = [bearer.as_str(), &format!("Origin: {origin}")];
        for TestRoute { method, path, .. } in routes_for_tests() {
            let answer = server.sent(method, &path, &lines, r#"{"alerts":[]}"#).await;
            assert_eq!(answer.status, 403, "{method} {path} {origin}");
            assert!(answer.body.contains("foreign_origin"), "{answer:?}");
            assert_eq!(answer.header("access-control-allow-origin"), "");
        }
        let preflight = [lines[1], "Access-Control-Request-Method: PUT"];
        let answer = server.request("OPTIONS", "/api/settings", &preflight).await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (405, ""));
    }
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn a_token_counts_only_where_it_belongs() {
    let server = Server::start().await;
    let token = &server.place.control;
    let routes = routes_for_tests().into_iter().map(|route| (route.method, route.path));
    let others = ["/api/runs?limit=1", "/ws"].map(|path| ("GET", path.to_owned()));
    for (method, path) in routes.chain(others) {
        for name in ["token", "access_token", "TOKEN", "auth"] {
            let query = if path.contains('?') { '&' } else { '?' };
            let path = format!("{path}{query}{name}={token}");
            let lines = [&format!("Origin: {}", server.origin()), &format!("Authorization: Bearer {token}")];
            let answer = server.request(method, &path, &lines.map(String::as_str)).await;
            assert_eq!(answer.status, 400, "{method} {path}");
            assert!(answer.body.contains("token_in_query") && !answer.body.contains(token.as_str()), "{answer:?}");
        }
    }
    for line in [
        format!("Cookie: token={token}"),
        format!("Cookie: Authorization=Bearer {token}"),
        format!("Authorization: Basic {token}"),
        format!("Authorization: {token}"),
        format!("Authorization: Bearer{token}"),
        format!("Authorization: Bearer {token}\r\nAuthorization: Bearer {token}"),
        format!("X-Api-Key: {token}"),
        format!("Proxy-Authorization: Bearer {token}"),
        "Authorization: Bearer".to_owned(),
    ] {
        let answer = server.request("GET", "/api/rig", &[&line]).await;
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, "Bearer"), "{line}");
        assert!(answer.body.contains("no_token") && answer.header("set-cookie").is_empty(), "{answer:?}");
    }
    for bad in ["", "0", &token[..63], &format!("{token}0"), "' OR 1=1 --", &"x".repeat(8000)] {
        assert_eq!(server.asked("GET", "/api/rig", bad).await.status, 401, "{bad}");
    }
    assert_eq!(server.request("GET", "/api/rig", &[&format!("authorization: bEARER {token}")]).await.status, 200);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn guessing_is_slowed_and_the_owner_is_not() {
    let server = Server::start().await;
    let mut statuses = vec![];
    for i in 0..40 {
        statuses.push(server.asked("GET", "/api/rig", &format!("{i:064}")).await.status);
    }
    assert_eq!((statuses[0], statuses[39]), (401, 429), "{statuses:?}");
    let origin = format!("Origin: {}", server.origin());
    let answer = server.sent("POST", "/api/pair", &[&origin], r#"{"code":"x","name":"y"}"#).await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, "60"));
    let mut socket = server.socket().await;
    socket.send(Message::text(hello("guess"))).await.expect("it listens");
    assert_eq!(said(&mut socket).await["code"], "too_many");
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn a_link_is_good_once_and_for_a_page_of_ours_alone() {
    let server = Server::start().await;
    let code = server.place.state.access.new_code(Scope::View).expect("a code");
    let body = format!(r#"{{"code":"{code}","name":"phone"}}"#);
    let origin = format!("Origin: {}", server.origin());
    for (lines, text) in [
        (vec![], "missing_origin"),
        (vec!["Origin: null"], "foreign_origin"),
        (vec!["Origin: http://evil.example"], "foreign_origin"),
    ] {
        let answer = server.sent("POST", "/api/pair", &lines, &body).await;
        assert_eq!(answer.status, 403, "{lines:?}");
        assert!(answer.body.contains(text), "{answer:?}");
    }
    // A request that a form of a foreign page can send without a preflight.
    let form = format!(
        "POST /api/pair HTTP/1.1\r\nHost: {}\r\n{origin}\r\nConnection: close\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    assert_eq!(server.send(&form).await.status, 400);
    assert_eq!(server.get(&format!("/api/pair?code={code}&name=phone")).await.status, 405);
    // Of many simultaneous requests, one gets the token.
    let mut statuses = vec![];
    let lines = [origin.as_str()];
    let all = (0..8).map(|_| server.sent("POST", "/api/pair", &lines, &body));
    for answer in futures_util::future::join_all(all).await {
        if answer.status == 200 {
            let token = serde_json::from_str::<serde_json::Value>(&answer.body).expect("JSON");
            assert_eq!(token["scope"], "view");
            let token = token["token"].as_str().expect("a token");
            assert_eq!(server.asked("GET", "/api/rig", token).await.status, 200);
            assert_eq!(server.asked("DELETE", "/api/runs/ab", token).await.status, 403);
        }
        statuses.push(answer.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 403, 403, 403, 403, 403, 403, 403]);
    let replayed = server.sent("POST", "/api/pair", &[&origin], &body).await;
    assert!(replayed.status == 403 && replayed.body.contains("bad_code"), "{replayed:?}");
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn view_scope_cannot_change_anything() {
    let server = Server::start().await;
    let view = &server.place.view;
    let bearer = format!("Authorization: Bearer {view}");
    let body = r#"{"alerts":[],"scope":"control"}"#;
    for lines in [
        vec![bearer.as_str()],
        vec![&bearer, "X-Scope: control"],
        vec![&bearer, "X-HTTP-Method-Override: GET"],
        vec![&bearer, "X-Forwarded-For: 127.0.0.1"],
    ] {
        for TestRoute { method, path, scope, .. } in routes_for_tests() {
            let answer = server.sent(method, &path, &lines, body).await;
            if scope == Some(Scope::Control) {
                assert_eq!(answer.status, 403, "{method} {path} {lines:?}");
                assert!(answer.body.contains("\"scope\""), "{answer:?}");
            } else {
                // A route that changes something needs the scope. Pairing has its own requirement.
                assert!(method == "GET" || path == "/api/pair", "{method} {path} needs no scope");
            }
        }
    }
    let overridden = [bearer.as_str(), "X-HTTP-Method-Override: DELETE"];
    assert_eq!(server.request("GET", "/api/runs/ab", &overridden).await.status, 404, "a GET is a GET");
    assert!(server.place.made.settings.lock().expect("no panic").alerts.is_empty());
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn page_cannot_be_framed() {
    let server = Server::start().await;
    let others = ["/", "/rig", "/ws"].map(str::to_owned);
    for path in routes_for_tests().into_iter().map(|route| route.path).chain(others) {
        let answer = server.asked("GET", &path, &server.place.view).await;
        assert!(answer.header("content-security-policy").ends_with("frame-ancestors 'none'"), "{path}: {answer:?}");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn no_path_leads_out_of_the_api() {
    let server = Server::start().await;
    for path in [
        "/api",
        "/api/",
        "/api/nothing",
        "/api/../etc/passwd",
        "/api//rig",
        "/api/rig/",
        "/api/runs/..%2f..%2fetc%2fpasswd",
        "/api/runs/%2e%2e",
        "/api/runs/..",
        "/api/runs/%00",
        "/api/runs/a%20b",
        "/api/runs/%ff",
        "/api/runs/../settings",
        "/api/runs/ab/export.csv/..",
        "/api/runs/..%2fab/export.csv",
        &format!("/api/runs/{}", "a".repeat(65)),
        "/api/runs/';DROP%20TABLE%20runs;--/events",
        "/api/history?gpu=..%2f..%2fetc&from_ms=1&to_ms=2",
        "/metrics/../etc/passwd",
    ] {
        let answer = server.asked("GET", path, &server.place.view).await;
        assert!([400, 404].contains(&answer.status), "{path}: {answer:?}");
        assert!(!answer.body.contains("root:"), "{path}");
    }
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn invalid_path_parameter_is_refused_as_json() {
    let server = Server::start().await;
    let has_parameter = |route: &&TestRoute| ["/ab", "/7"].iter().any(|value| route.path.contains(value));
    let routes = routes_for_tests();
    let mut n_refused = 0;
    for TestRoute { method, path, .. } in routes.iter().filter(has_parameter) {
        for invalid in ["%ff", "%00", "a%20b", "..%2fab"] {
            let path = path.replace("/ab", &format!("/{invalid}")).replace("/7", &format!("/{invalid}"));
            let answer = server.asked(method, &path, &server.place.control).await;
            assert_eq!((answer.status, answer.header("content-type")), (400, "application/json"), "{method} {path}");
            assert!(answer.body.contains("\"bad_request\""), "{method} {path}: {answer:?}");
            n_refused += 1;
        }
    }
    assert!(n_refused > 0);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn oversized_request_is_refused() {
    let server = Server::start().await;
    let bearer = format!("Authorization: Bearer {}", server.place.control);
    let long = "x".repeat(4 * HEAD_BYTES_MAX);
    let refused = server.request("GET", "/api/rig", &[&bearer, &format!("X-Long: {long}")]).await;
    // The HTTP library refuses it, before any layer of the server.
    assert_eq!((refused.status, refused.body.as_str(), refused.header("x-request-id")), (431, "", ""));
    let many: Vec<String> = (0..200).map(|i| format!("X-{i}: y")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(server.request("GET", "/", &many).await.status, 431);
    assert!([400, 414, 431].contains(&server.request("GET", &format!("/{long}"), &[]).await.status));
    let body = format!(r#"{{"alerts":[],"currency":"{long}"}}"#);
    assert_eq!(server.sent("PUT", "/api/settings", &[&bearer, ANY], &body).await.status, 413);
    let chunked = format!(
        "PUT /api/settings HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n{bearer}\r\n{ANY}\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n0\r\n\r\n",
        server.address,
        long.len()
    );
    assert_eq!(server.send(&chunked).await.status, 413);
    let deep = "[".repeat(15_000);
    assert_eq!(server.sent("PUT", "/api/settings", &[&bearer, ANY], &deep).await.status, 400);
    // Frames: too long, announced as too long, too long as fragments of one message, and unmasked.
    let mut socket = server.socket().await;
    socket.send(Message::text("x".repeat(5000))).await.expect("it listens");
    assert_eq!(said(&mut socket).await["code"], "bad_hello");
    for frame in [
        &[0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4][..],
        &[0x81, 0x05, b'h', b'e', b'l', b'l', b'o'],
        &[0x8f, 0x80, 0, 0, 0, 0],
        &[0xf1, 0x80, 0, 0, 0, 0],
    ] {
        let mut socket = server.socket().await;
        socket.get_mut().write_all(frame).await.expect("it listens");
        let mut rest = vec![];
        let ended = timeout(PATIENCE, socket.get_mut().read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "{frame:?} is waited on");
    }
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn no_request_hides_in_another() {
    let server = Server::start().await;
    let host = server.address;
    let hidden = format!("GET /api/openapi.json HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let n = hidden.len();
    for (head, body) in [
        // Two lengths: a proxy may use one and the server the other.
        (format!("Content-Length: {n}\r\nTransfer-Encoding: chunked"), format!("0\r\n\r\n{hidden}")),
        (format!("Transfer-Encoding: chunked\r\nContent-Length: {n}"), format!("0\r\n\r\n{hidden}")),
        (format!("Content-Length: 0\r\nContent-Length: {n}"), hidden.clone()),
        (format!("Content-Length: 0, {n}"), hidden.clone()),
        // Invalid lengths.
        (format!("Content-Length: +{n}"), hidden.clone()),
        (format!("Content-Length: 0x{n:x}"), hidden.clone()),
        ("Content-Length: -1".to_owned(), hidden.clone()),
        // Encodings that only one of the two understands.
        ("Transfer-Encoding: xchunked".to_owned(), format!("0\r\n\r\n{hidden}")),
        ("Transfer-Encoding: chunked, identity".to_owned(), format!("0\r\n\r\n{hidden}")),
        ("Transfer-Encoding : chunked".to_owned(), format!("0\r\n\r\n{hidden}")),
        ("X: y\r\n Transfer-Encoding: chunked".to_owned(), format!("0\r\n\r\n{hidden}")),
        // A chunk whose length overflows.
        ("Transfer-Encoding: chunked".to_owned(), format!("fffffffffffffffff\r\n{hidden}")),
    ] {
        let request = format!(
            "POST /api/pair HTTP/1.1\r\nHost: {host}\r\nOrigin: {}\r\nContent-Type: application/json\r\n{head}\r\n\r\n{body}",
            server.origin()
        );
        let mut stream = server.connect().await;
        stream.write_all(request.as_bytes()).await.expect("it listens");
        let mut answers = Vec::new();
        // A second response would arrive at once. After the timeout, none has.
        let _ = timeout(Duration::from_millis(300), stream.read_to_end(&mut answers)).await;
        let text = String::from_utf8_lossy(&answers);
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{head}: {text}");
        assert!(text.starts_with("HTTP/1.1 4"), "{head}: {text}");
    }
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn a_socket_is_asked_for_as_one() {
    let server = Server::start().await;
    let origin = format!("Origin: {}", server.origin());
    assert_eq!(server.request("GET", "/ws", &[&origin]).await.status, 400);
    assert_eq!(server.request("POST", "/ws", &[&origin]).await.status, 405);
    let old = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 12", "Sec-WebSocket-Key: eA=="];
    assert_eq!(server.request("GET", "/ws", &[&[origin.as_str()], &old[..]].concat()).await.status, 400);
    server.stop().await;
}

#[tokio::test]
async fn it_stops_while_pages_watch() {
    let server = Server::start().await;
    let mut viewers = vec![];
    for _ in 0..20 {
        viewers.push(server.viewer().await);
    }
    server.end.send(()).expect("it runs");
    for mut viewer in viewers {
        let refused = loop {
            let said = said(&mut viewer).await;
            if said["type"] == "refused" {
                break said;
            }
        };
        assert_eq!(refused["code"], "stopping");
        assert!(matches!(viewer.next().await, Some(Ok(Message::Close(_)))));
    }
    timeout(PATIENCE, server.served).await.expect("it ends in time").expect("it does not panic");
}
