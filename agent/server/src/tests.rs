//! Tests of the server on a real port with test files.

mod connection_flood;
mod hostile;
mod secrets;
pub mod talk;

use std::collections::BTreeSet;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{assets::Assets, connection::HEAD_BYTES_MAX, host::HostOptions};
use talk::{HttpAnswer, INDEX, PATIENCE, Server, WASM};

#[tokio::test]
async fn the_page_is_at_the_root() {
    let server = Server::start().await;
    let answer = server.get("/").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, INDEX));
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(answer.header("content-length"), INDEX.len().to_string());
    assert_eq!(answer.header("cache-control"), "no-cache");
    assert_eq!(answer.header("vary"), "accept-encoding");
    assert_eq!(answer.header("content-encoding"), "");
    let named = server.get("/index.html?query").await;
    assert_eq!((named.status, named.header("etag")), (200, answer.header("etag")));
    server.stop().await;
}

#[tokio::test]
async fn every_answer_has_the_strict_headers() {
    let server = Server::start().await;
    let foreign = server.send("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    let answers =
        [server.get("/").await, server.get("/nothing").await, server.request("POST", "/", &[]).await, foreign];
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 404, 405, 403]);
    for answer in answers {
        for (name, value) in [
            (
                "content-security-policy",
                "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; \
                 img-src 'self'; manifest-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
            ),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), value, "{name} of {}", answer.status);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn every_answer_has_its_own_request_id() {
    let server = Server::given(Assets::default(), HostOptions::default()).await;
    let foreign = server.send("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    let host = server.address.to_string();
    let socket = server.upgrade("/ws", &host, &[&format!("Origin: {}", server.origin())]).await;
    let page = server.get("/").await;
    *server.place.made.broken.lock().expect("no panic") = true;
    let broken = server.asked("GET", "/api/runs", &server.place.view).await;
    let known = server.asked("GET", "/api/nothing", &server.place.view).await;
    let answers = [&foreign, &socket, &page, &broken, &known];
    assert_eq!(answers.map(|answer| answer.status), [403, 101, 503, 503, 404]);
    let ids: BTreeSet<&str> = answers.iter().map(|answer| answer.header("x-request-id")).collect();
    assert!(ids.len() == answers.len() && ids.iter().all(|id| id.len() == 16), "{ids:?}");
    // Users quote the ID of the server's errors, and only of those.
    assert!(page.body.contains(&format!("no_page · request {}<", page.header("x-request-id"))), "{page:?}");
    assert!(broken.body.contains(&format!("\"request_id\":\"{}\"", broken.header("x-request-id"))), "{broken:?}");
    assert!([&foreign, &known].iter().all(|answer| !answer.body.contains("request_id")), "{known:?}");
    server.stop().await;
}

#[tokio::test]
async fn others_may_show_the_calculator_and_nothing_else() {
    let server = Server::start().await;
    for (path, framed, loaded) in [
        ("/embed.html", true, true),
        ("/embed.html?host=https%3A%2F%2Fdocs.example", true, true),
        ("/embed", true, true),
        ("/embed?lang=de", true, true),
        ("/headroom-calculator.js", false, true),
        ("/previews/index.png", false, true),
        ("/previews/other.png", false, false),
        ("/", false, false),
        ("/index.html", false, false),
        ("/boot.js", false, false),
        ("/embed.html.br", false, false),
        ("/embed.html/", false, false),
    ] {
        let answer = server.get(path).await;
        let policy = answer.header("content-security-policy");
        let ends = if framed {
            "frame-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors *"
        } else {
            "frame-ancestors 'none'"
        };
        assert!(policy.ends_with(ends), "{path}: {policy}");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; "),
            "{policy}"
        );
        let origins = if loaded { "cross-origin" } else { "same-origin" };
        assert_eq!(answer.header("cross-origin-resource-policy"), origins, "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    // A refusal cannot be embedded, even under an embeddable path.
    let refused = [
        server.request("POST", "/embed.html", &[]).await,
        server.send("GET /embed.html HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await,
    ];
    assert_eq!(refused.each_ref().map(|answer| answer.status), [405, 403]);
    for answer in refused {
        assert!(answer.header("content-security-policy").ends_with("frame-ancestors 'none'"));
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
    }
    // A 304 response has the same headers.
    let etag = server.get("/embed.html").await.header("etag").to_owned();
    let known = server.request("GET", "/embed.html", &[&format!("If-None-Match: {etag}")]).await;
    assert_eq!(known.status, 304);
    assert!(known.header("content-security-policy").ends_with("frame-ancestors *"));
    server.stop().await;
}

#[tokio::test]
async fn the_copy_the_client_wants_is_sent() {
    let server = Server::start().await;
    let mut etags = Vec::new();
    for (accept, encoding, body) in [
        ("gzip, deflate, br", "br", "index as brotli"),
        ("gzip", "gzip", "index as gzip"),
        ("br;q=0.1, gzip;q=0.9", "gzip", "index as gzip"),
        ("br;q=0, gzip;q=0", "", INDEX),
        ("zstd", "", INDEX),
    ] {
        let answer = server.request("GET", "/", &[&format!("Accept-Encoding: {accept}")]).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, body), "{accept}");
        assert_eq!(answer.header("content-encoding"), encoding, "{accept}");
        assert_eq!(answer.header("content-length"), body.len().to_string(), "{accept}");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8", "{accept}");
        etags.push(answer.header("etag").to_owned());
    }
    etags.dedup();
    etags.sort();
    etags.dedup();
    assert_eq!(etags.len(), 3, "each copy has a tag of its own: {etags:?}");
    // This file has no gzip copy.
    let plain = server.request("GET", &format!("/{WASM}"), &["Accept-Encoding: gzip"]).await;
    assert_eq!((plain.header("content-encoding"), plain.body.as_str()), ("", "wasm, plain"));
    let refused = server.request("GET", "/", &["Accept-Encoding: *;q=0"]).await;
    assert_eq!(refused.status, 406);
    server.stop().await;
}

#[tokio::test]
async fn hashed_files_are_kept_and_others_asked_for_again() {
    let server = Server::start().await;
    let wasm = server.get(&format!("/{WASM}")).await;
    assert_eq!(wasm.header("content-type"), "application/wasm");
    assert_eq!(wasm.header("cache-control"), "public, max-age=31536000, immutable");
    let script = server.get("/boot.js").await;
    assert_eq!(script.header("content-type"), "text/javascript; charset=utf-8");
    assert_eq!(script.header("cache-control"), "no-cache");
    assert_eq!(server.get("/style.css").await.header("content-type"), "text/css; charset=utf-8");
    server.stop().await;
}

#[tokio::test]
async fn a_file_the_client_has_is_not_sent_again() {
    let server = Server::start().await;
    let etag = server.get("/").await.header("etag").to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() == 34, "{etag}");
    for known in [etag.clone(), format!("\"x\", {etag}"), format!("W/{etag}"), "*".to_owned()] {
        let answer = server.request("GET", "/", &[&format!("If-None-Match: {known}")]).await;
        assert_eq!((answer.status, answer.body.as_str()), (304, ""), "{known}");
        assert_eq!(answer.header("etag"), etag);
        assert_eq!(answer.header("vary"), "accept-encoding");
        assert_eq!(answer.header("cache-control"), "no-cache");
    }
    for other in ["\"x\"".to_owned(), etag.trim_matches('"').to_owned()] {
        assert_eq!(server.request("GET", "/", &[&format!("If-None-Match: {other}")]).await.status, 200, "{other}");
    }
    let other_copy = server.request("GET", "/", &["Accept-Encoding: br", &format!("If-None-Match: {etag}")]).await;
    assert_eq!(other_copy.status, 200, "the ETag belongs to another copy");
    server.stop().await;
}

#[tokio::test]
async fn head_has_the_headers_alone() {
    let server = Server::start().await;
    let get = server.request("GET", "/", &["Accept-Encoding: br"]).await;
    let mut head = server.request("HEAD", "/", &["Accept-Encoding: br"]).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    for of_one_request in ["date", "x-request-id"] {
        head.headers.insert(of_one_request.into(), get.header(of_one_request).into());
    }
    assert_eq!(head.headers, get.headers);
    assert_eq!(head.header("content-length"), "index as brotli".len().to_string());
    let missing = server.request("HEAD", "/nothing", &[]).await;
    assert_eq!((missing.status, missing.body.as_str()), (404, ""));
    server.stop().await;
}

#[tokio::test]
async fn only_reading_is_allowed() {
    let server = Server::start().await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
        let answer = server.request(method, "/", &["Content-Length: 0"]).await;
        assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD"), "{method}");
    }
    server.stop().await;
}

#[tokio::test]
async fn no_path_leads_anywhere_else() {
    let server = Server::start().await;
    for path in [
        "/nothing",
        "/../Cargo.toml",
        "/../../../../etc/passwd",
        "/%2e%2e/Cargo.toml",
        "/..%2fCargo.toml",
        "/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/..\\Cargo.toml",
        "//index.html",
        "/./index.html",
        "/index.html/",
        "/index.html%00",
        "/index.html.br",
        "/index%2ehtml",
        "/INDEX.HTML",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.body.contains("not_found") && !answer.body.contains("[package]"), "{path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    }
    for target in ["index.html", "../index.html"] {
        let status = server.get(target).await.status;
        assert!([400, 403].contains(&status), "{target} is an invalid target: {status}");
    }
    server.stop().await;
}

#[tokio::test]
async fn foreign_host_is_refused_with_right_address() {
    let server = Server::start().await;
    let port = server.address.port();
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("localhost.evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        format!("localhost.:{port}"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        format!("127.0.0.1:{}", port ^ 1),
        format!("[::2]:{port}"),
        format!("192.168.0.1:{port}"),
        format!("<script>:{port}"),
    ] {
        let answer = server.send(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
        assert_eq!(answer.status, 403, "{host}");
        assert!(answer.body.contains(&format!("http://127.0.0.1:{port}/")), "{host}: {}", answer.body);
        assert!(!answer.body.contains("<script>") && !answer.body.contains("<title>page"), "{host}: {}", answer.body);
    }
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")] {
        let answer = server.send(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
        assert_eq!(answer.status, 200, "{host}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_request_without_a_clear_host_is_refused() {
    let server = Server::start().await;
    let own = server.address;
    for lines in [
        String::new(),
        "Host:\r\n".to_owned(),
        format!("Host: {own}\r\nHost: {own}\r\n"),
        format!("Host: {own}\r\nHost: evil.example\r\n"),
    ] {
        let answer = server.send(&format!("GET / HTTP/1.1\r\n{lines}Connection: close\r\n\r\n")).await;
        assert_eq!(answer.status, 400, "{lines:?}");
    }
    let line = format!("GET http://evil.example/ HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n");
    assert_eq!(server.send(&line).await.status, 403, "the request line counts too");
    server.stop().await;
}

#[tokio::test]
async fn a_head_is_limited() {
    let server = Server::start().await;
    // The limit is checked between two reads, so the last read may exceed it.
    let long = "x".repeat(HEAD_BYTES_MAX * 4);
    assert_eq!(server.request("GET", "/", &[&format!("Cookie: {long}")]).await.status, 431);
    let many: Vec<String> = (0..200).map(|n| format!("X-{n}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(server.request("GET", "/", &many).await.status, 431);
    let fair = "x".repeat(HEAD_BYTES_MAX / 2);
    assert_eq!(server.request("GET", "/", &[&format!("Cookie: {fair}")]).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_slow_client_holds_up_no_other() {
    let server = Server::start().await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HTTP/1.1\r\nHo").await.expect("it listens");
    assert_eq!(server.get("/").await.status, 200);
    let rest = format!("st: {}\r\nConnection: close\r\n\r\n", server.address);
    slow.write_all(rest.as_bytes()).await.expect("it waits");
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).await.expect("an answer");
    assert_eq!(HttpAnswer::of(&answer).status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_connection_serves_more_than_one_request() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let request = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{more}\r\n", server.address);
    let both = request("/boot.js", "") + &request("/style.css", "Connection: close\r\n");
    stream.write_all(both.as_bytes()).await.expect("it listens");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.expect("two answers");
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{answers}");
    server.stop().await;
}

#[tokio::test]
async fn it_stops_though_a_client_stays() {
    let server = Server::start().await;
    let mut idle = server.connect().await;
    idle.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", server.address).as_bytes()).await.expect("it listens");
    let mut first = [0; 16];
    idle.read_exact(&mut first).await.expect("an answer");
    let address = server.address;
    server.stop().await;
    let mut rest = Vec::new();
    timeout(PATIENCE, idle.read_to_end(&mut rest)).await.expect("it is closed in time").expect("in order");
    TcpStream::connect(address).await.expect_err("the server no longer listens");
}

#[tokio::test]
async fn without_a_page_it_says_how_to_get_one() {
    let server = Server::with(Assets::default()).await;
    let answer = server.get("/").await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("cargo xtask run"), "{}", answer.body);
    assert_eq!(answer.header("cache-control"), "no-store");
    server.stop().await;
}
