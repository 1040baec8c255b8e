//! Tests of the table of routes against its description, and of each route against what it describes.

use super::*;

#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let routes: BTreeSet<(String, String)> =
        ROUTES.iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    assert_eq!(routes, described());
    assert_eq!(routes.len(), ROUTES.len(), "one is listed twice");
    for route in ROUTES {
        let operation = &description()["paths"][route.path][route.method.to_lowercase()];
        let public = operation["security"] == serde_json::json!([]);
        assert_eq!(public, !matches!(route.needs, RouteRequirement::Token(_)), "{}", route.path);
        let control = operation["summary"].as_str().expect("a summary").contains("scope control");
        assert_eq!(control, route.needs == CONTROL, "{}", route.path);
        for path in ["responses", "operationId"] {
            assert!(!operation[path].is_null(), "{} has no {path}", route.path);
        }
    }
    // Every reference resolves.
    let text = routes::description().replace(char::is_whitespace, "");
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().expect("a pointer");
        assert!(description().pointer(pointer).is_some(), "{pointer}");
    }
}

#[tokio::test]
async fn every_description_is_answered_as_it_says() {
    let server = Server::start().await;
    server.place.state.hub.gpus(vec![gpu(0)]);
    let ours = Run { order: Some(RunRequest::default()), ..run("ab") };
    server.place.made.runs.lock().expect("no panic").push(ours);
    server.place.made.alerts.lock().expect("no panic").push(fired(7));
    let checkpoint = tempfile::NamedTempFile::new().expect("a file");
    *server.place.made.checkpoint.lock().expect("no panic") = Some(checkpoint.path().to_owned());
    assert!(described().len() > 10);
    for (method, path) in described() {
        let path = path.replace("{id}", "ab").replace("{event}", "7");
        let path = if path == "/api/history" { format!("{path}?gpu=GPU-0&from_ms=1&to_ms=2") } else { path };
        let bearer = format!("Authorization: Bearer {}", server.place.control);
        let origin = format!("Origin: {}", server.origin());
        let answer = server.sent(&method, &path, &[&bearer, &origin], r#"{"alerts":[],"code":"x","name":"y"}"#).await;
        assert!(![404, 405, 500].contains(&answer.status), "{method} {path}: {answer:?}");
        let operation = &description()["paths"]
            [path.split('?').next().expect("a path").replace("/ab", "/{id}").replace("/7", "/{event}")]
            [method.to_lowercase()];
        let described = &operation["responses"][answer.status.to_string()];
        assert!(described.is_object(), "{method} {path} responds with {}, which is undocumented", answer.status);
        let has_id = described["$ref"].is_string() || described["headers"]["X-Request-Id"].is_object();
        assert!(has_id && answer.header("x-request-id").len() == 16, "{method} {path}: {answer:?}");
        // Requests without a token, and with an unsupported method.
        if operation["security"].is_null() {
            let answer = server.request(&method, &path, &[]).await;
            assert_eq!(answer.status, 401, "{method} {path}");
            assert!(operation["responses"]["401"].is_object(), "{method} {path}");
        }
        let other = server.request("PATCH", &path, &[&bearer]).await;
        assert_eq!(other.status, 405, "{path}");
        assert!(other.header("allow").split(',').any(|allowed| allowed == method), "{path}: {other:?}");
        assert!(other.body.contains("method_not_allowed"), "{other:?}");
    }
    server.stop().await;
}
