//! Tests of the routes against their OpenAPI description, and of their responses.

mod described;

use std::collections::BTreeSet;

use headroom_protocol::{
    alert::{Alert, Settings},
    message::Message,
    run::{Iteration, Run, RunRequest, RunStatus},
};
use headroom_text as text;
use serde_json::{Value, json};

use super::{requirement::CONTROL, *};
use crate::{
    fakes::{event, fired, gpu, run},
    tests::talk::Server,
};
use headroom_agent_core::store::{ArchivedGpu, printed};

fn description() -> Value {
    serde_json::from_str(routes::description()).expect("JSON")
}

/// Returns the described methods and paths.
fn described() -> BTreeSet<(String, String)> {
    let description = description();
    let paths = description["paths"].as_object().expect("paths");
    let methods = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").keys().filter(|key| *key != "parameters");
        methods.map(move |method| (method.to_uppercase(), path.clone()))
    });
    methods.collect()
}

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

#[tokio::test]
async fn the_rig_is_reported_as_it_is() {
    let server = Server::start().await;
    server.place.state.hub.gpus(vec![gpu(0), gpu(1)]);
    server.place.made.alerts.lock().expect("no panic").push(fired(7));
    let answer = server.asked("GET", "/api/rig", &server.place.view).await;
    let rig: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!((rig["protocol"].as_u64(), rig["gpus"][1]["uuid"].as_str()), (Some(1), Some("GPU-1")));
    assert_eq!(rig["alerts"][0]["event"].as_u64(), Some(7));
    assert!(rig["telemetry"].is_null() && rig["state"]["driver"]["state"] == "starting", "{rig}");
    for required in description()["components"]["schemas"]["Rig"]["required"].as_array().expect("names") {
        assert!(rig.get(required.as_str().expect("a name")).is_some(), "{required}");
    }
    server.stop().await;
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
async fn a_gpu_is_found_by_what_names_it() {
    let server = Server::start().await;
    let ask = async |gpu: &str| {
        server.asked("GET", &format!("/api/history?gpu={gpu}&from_ms=1&to_ms=2"), &server.place.view).await
    };
    let none = ask("0").await;
    assert!(
        none.status == 404 && none.body.contains("This machine has no GPU \\\"0\\\": there is none so far"),
        "{none:?}"
    );
    server.place.state.hub.gpus(vec![gpu(0), gpu(7)]);
    let archived = |uuid: &str| ArchivedGpu { uuid: uuid.to_owned(), name: "Tesla T4".to_owned() };
    *server.place.made.gpus.lock().expect("no panic") =
        vec![archived("GPU-0"), archived("GPU-old"), archived("MIG-GPU-1/2/0")];
    for (named, uuid) in [
        ("GPU-0", "GPU-0"),
        ("0", "GPU-0"),
        ("7", "GPU-7"),
        // A removed GPU still has its history.
        ("GPU-old", "GPU-old"),
        ("MIG-GPU-1%2F2%2F0", "MIG-GPU-1/2/0"),
    ] {
        let answer = ask(named).await;
        assert_eq!(answer.status, 200, "{named}: {answer:?}");
        assert_eq!(serde_json::from_str::<Value>(&answer.body).expect("JSON")["gpu"], uuid, "{named}");
    }
    let named = "0: GPU-0 (NVIDIA GeForce RTX 4070), 7: GPU-7 (NVIDIA GeForce RTX 4070), GPU-old (Tesla T4), no \
                 longer present, MIG-GPU-1/2/0 (Tesla T4), no longer present.";
    for unknown in ["1", "-0", "00000000000000000000", "4294967296", "gpu-0", "GPU-", "all"] {
        let answer = ask(unknown).await;
        assert!(answer.status == 404 && answer.body.contains("no_card") && answer.body.contains(named), "{answer:?}");
    }
    // The list is truncated to a readable length.
    *server.place.made.gpus.lock().expect("no panic") = (0..40).map(|i| archived(&format!("GPU-old-{i}"))).collect();
    let many = ask("1").await;
    assert!(many.body.contains("GPU-old-13") && !many.body.contains("GPU-old-14"), "{many:?}");
    assert!(many.body.contains("and 26 more"), "{many:?}");
    // An unreadable history is reported as such, not as a missing GPU.
    *server.place.made.broken.lock().expect("no panic") = true;
    assert_eq!(ask("1").await.status, 503);
    server.stop().await;
}

#[tokio::test]
async fn runs_are_listed_read_exported_and_deleted() {
    let server = Server::start().await;
    let (view, control) = (&server.place.view, &server.place.control);
    let ended = Run { status: RunStatus::exited(0), ..run("cd") };
    server.place.made.runs.lock().expect("no panic").extend([run("ab"), ended]);
    server.place.made.events.lock().expect("no panic").extend((1..=2500).map(|id| event(id, "cd")));
    let list: Vec<Run> =
        serde_json::from_str(&server.asked("GET", "/api/runs?limit=1", view).await.body).expect("runs");
    assert_eq!(list.len(), 1);
    let events = server.asked("GET", "/api/runs/cd/events?after=2000&limit=7", view).await;
    let events: Vec<Value> = serde_json::from_str(&events.body).expect("events");
    assert_eq!((events.len(), events[0]["id"].as_u64()), (7, Some(2001)));
    assert_eq!(server.asked("GET", "/api/runs/ef/events", view).await.status, 404);
    let iteration = |iter| Iteration { iter, loss: Some(2.5), time_ms: 100.0, ..Iteration::default() };
    let line = |iter| printed::PrintedLine { at_ms: 1_000, figures: printed::Figures::Iteration(iteration(iter)) };
    let pages = [1..=1500, 1501..=2500].map(|page| page.map(line).collect()).into();
    server.place.made.printed.lock().expect("no panic").insert("cd".to_owned(), pages);
    let table = server.asked("GET", "/api/runs/cd/export.csv", view).await;
    assert_eq!(table.header("content-disposition"), "attachment; filename=\"headroom-cd.csv\"");
    assert!(table.body.contains(crate::figures::HEAD), "{}", table.body);
    assert_eq!(table.body.matches(",2.5,100,,,,,,,,\n").count(), 2500, "every iteration, over several pieces");
    assert_eq!(server.asked("GET", "/api/runs/ef/export.csv", view).await.status, 404);
    assert_eq!(server.asked("DELETE", "/api/runs/ab", control).await.status, 409, "it continues");
    assert_eq!(server.asked("DELETE", "/api/runs/cd", control).await.status, 204);
    assert_eq!(server.asked("GET", "/api/runs/cd", view).await.status, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_checkpoint_is_given_whole_and_in_ranges() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ckpt.safetensors");
    // A file of several pieces, the last one incomplete.
    let text: String = (0..60_000).map(|i| format!("{i:05}\n")).collect();
    std::fs::write(&path, &text).expect("a file");
    let order = Some(RunRequest { config: "stories".to_owned(), ..RunRequest::default() });
    let (own_run, run) = (run("ab"), Run { order, status: RunStatus::exited(0), ..run("cd") });
    server.place.made.runs.lock().expect("no panic").push(run);
    server.place.made.runs.lock().expect("no panic").push(own_run);
    let bearer = format!("Authorization: Bearer {}", server.place.control);
    let get = async |lines: &[&str]| {
        server.request("GET", "/api/runs/cd/checkpoint", &[&[bearer.as_str()], lines].concat()).await
    };
    let none = get(&[]).await;
    assert!(none.status == 404 && none.body.contains("no_checkpoint"), "{none:?}");
    assert_eq!(server.asked("GET", "/api/runs/ab/checkpoint", &server.place.view).await.status, 404, "not its own");
    *server.place.made.checkpoint.lock().expect("no panic") = Some(path.clone());
    let whole = get(&[]).await;
    assert_eq!((whole.status, whole.body.len(), whole.body == text), (200, text.len(), true));
    assert_eq!((whole.header("accept-ranges"), whole.header("content-encoding")), ("bytes", ""));
    let tag = whole.header("etag").to_owned();
    assert!(tag.starts_with('"') && tag.len() > 30, "{tag}");
    let head = server.request("HEAD", "/api/runs/cd/checkpoint", &[&bearer]).await;
    assert_eq!((head.status, head.header("content-length"), &*head.body), (200, "360000", ""));
    let of_tag = format!("If-Range: {tag}");
    for (range, bytes) in [
        ("bytes=0-5", 0..6),
        ("bytes=6-", 6..360_000),
        ("bytes=-7", 359_993..360_000),
        ("bytes=131000-132000", 131_000..132_001),
    ] {
        let part = get(&[&format!("Range: {range}"), &of_tag]).await;
        assert_eq!((part.status, &*part.body), (206, &text[bytes.clone()]), "{range}");
        let place = format!("bytes {}-{}/360000", bytes.start, bytes.end - 1);
        assert_eq!((part.header("content-range"), part.header("etag")), (&*place, &*tag), "{range}");
    }
    let nowhere = get(&["Range: bytes=360000-"]).await;
    assert_eq!((nowhere.status, nowhere.header("content-range")), (416, "bytes */360000"));
    assert_eq!(get(&[&format!("If-None-Match: {tag}")]).await.status, 304);
    // After the file is replaced, a request for the rest of the old one gets no mixture of both.
    let next = folder.path().join("next");
    std::fs::write(&next, "0".repeat(360_000)).expect("a file");
    std::fs::rename(&next, &path).expect("it is replaced");
    let other = get(&["Range: bytes=0-5", &of_tag]).await;
    assert_eq!((other.status, other.body.len()), (200, 360_000));
    assert_ne!(other.header("etag"), tag);
    let refused = get(&["Range: bytes=0-5", &format!("If-Match: {tag}")]).await;
    assert!(refused.status == 412 && refused.body.contains("changed"), "{refused:?}");
    assert_eq!(get(&["Range: bytes=0-5", "If-Match: *"]).await.status, 206);
    // Deleting a run deletes its files too.
    assert_eq!(server.asked("DELETE", "/api/runs/cd", &server.place.control).await.status, 204);
    assert!(server.place.made.checkpoint.lock().expect("no panic").is_none());
    server.stop().await;
}

#[tokio::test]
async fn training_start_requires_permission() {
    let server = Server::start().await;
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let (view, control) = (bearer(&server.place.view), bearer(&server.place.control));
    let order = r#"{"config":"stories","device":"cpu"}"#;
    let training = server.asked("GET", "/api/training", &server.place.view).await;
    assert!(training.status == 200 && training.body.contains("builtin"), "{training:?}");
    for (path, body) in [("/api/runs", order), ("/api/runs/ef/stop", ""), ("/api/runs/ef/resume", "")] {
        assert_eq!(server.sent("POST", path, &[&view], body).await.status, 403, "{path}");
        assert_eq!(server.sent("POST", path, &[], body).await.status, 401, "{path}");
        let foreign = server.sent("POST", path, &[&control, "Origin: http://evil.example"], body).await;
        assert!(foreign.status == 403 && foreign.body.contains("foreign_origin"), "{path}: {foreign:?}");
    }
    assert_eq!(server.place.made.ordered.lock().expect("no panic").len(), 0);
    let started = server.sent("POST", "/api/runs", &[&control], order).await;
    assert_eq!((started.status, started.header("location")), (201, "/api/runs/ef"));
    let run: Run = serde_json::from_str(&started.body).expect("a run");
    assert_eq!((run.status, run.order.expect("an order").device.as_deref()), (RunStatus::Queued, Some("cpu")));
    assert_eq!(server.sent("POST", "/api/runs/ef/stop", &[&control], "").await.status, 202);
    assert_eq!(server.sent("POST", "/api/runs/none/stop", &[&control], "").await.status, 404);
    for bad in ["", "{}", "[]", r#"{"config":7}"#, r#"{"config":"../stories"}"#, "{\"config\":\"stories\\u0000\"}"] {
        let refused = server.sent("POST", "/api/runs", &[&control], bad).await;
        assert_eq!(refused.status, 400, "{bad}: {refused:?}");
    }
    // Without a JSON content type, which HTML forms cannot send, the request is refused.
    let lines = [&*control, "Content-Length: 35"];
    assert_eq!(server.request("POST", "/api/runs", &lines[..1]).await.status, 400);
    server.stop().await;
}

#[tokio::test]
async fn settings_are_kept() {
    let server = Server::start().await;
    let bearer = format!("Authorization: Bearer {}", server.place.control);
    let settings = Settings {
        alerts: vec![Alert::MemoryAbove { percent: 95 }],
        price_per_kwh: Some(0.35),
        currency: "€".to_owned(),
    };
    let body = serde_json::to_string(&settings).expect("JSON");
    let first = server.asked("GET", "/api/settings", &server.place.view).await.header("etag").to_owned();
    assert!(first.starts_with('"') && first.len() == 34, "{first}");
    let put = async |lines: &[&str], body: &str| {
        let lines = [&[bearer.as_str()], lines].concat();
        server.sent("PUT", "/api/settings", &lines, body).await
    };
    let unnamed = put(&[], &body).await;
    assert!(unnamed.status == 428 && unnamed.body.contains("If-Match"), "{unnamed:?}");
    let of_first = format!("If-Match: {first}");
    let kept = put(&[&of_first], &body).await;
    assert_eq!(kept.status, 200);
    assert_ne!(kept.header("etag"), first);
    let read = server.asked("GET", "/api/settings", &server.place.view).await;
    assert_eq!(serde_json::from_str::<Settings>(&read.body).expect("settings"), settings);
    assert_eq!(read.header("etag"), kept.header("etag"));
    // An outdated tag is refused, and so is a weak one.
    for old in [of_first, format!("If-Match: W/{}", read.header("etag")), "If-Match: \"\"".to_owned()] {
        let refused = put(&[&old], r#"{"alerts":[]}"#).await;
        assert!(refused.status == 412 && refused.body.contains("changed elsewhere"), "{old}: {refused:?}");
    }
    assert_eq!(server.asked("GET", "/api/settings", &server.place.view).await.body, read.body);
    let of_both = format!("If-Match: \"x\", {}", read.header("etag"));
    assert_eq!(put(&[&of_both], r#"{"alerts":[]}"#).await.status, 200);
    assert_eq!(put(&["If-Match: *"], &body).await.status, 200);
    for bad in [
        "",
        "{",
        "[]",
        r#"{"alerts":[{"on":"memory_above","percent":101}]}"#,
        r#"{"alerts":[{"on":"x"}]}"#,
        r#"{"alerts":[],"webhook":"http://x/"}"#,
    ] {
        assert_eq!(put(&["If-Match: *"], bad).await.status, 400, "{bad}");
    }
    server.stop().await;
}

#[tokio::test]
async fn alert_dismissal_requires_permission() {
    let server = Server::start().await;
    server.place.made.alerts.lock().expect("no panic").push(fired(7));
    let (view, control) = (&server.place.view, &server.place.control);
    assert_eq!(server.asked("DELETE", "/api/alerts/7", view).await.status, 403);
    assert_eq!(server.asked("DELETE", "/api/alerts/x", control).await.status, 400);
    let other = server.asked("DELETE", "/api/alerts/18446744073709551615", control).await;
    assert!(other.status == 404 && other.body.contains("no_alert"), "{other:?}");
    assert_eq!(server.asked("DELETE", "/api/alerts/7", control).await.status, 204);
    assert_eq!(server.asked("DELETE", "/api/alerts/7", control).await.status, 404);
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

/// One rule of each kind.
const RULES: [Alert; 5] = [
    Alert::TemperatureAbove { celsius: 85 },
    Alert::MemoryAbove { percent: 95 },
    Alert::NoProgress { minutes: 10 },
    Alert::GpuLost,
    Alert::RunFailed,
];

#[test]
fn every_rule_has_its_fields_in_the_description() {
    // This match does not compile until a new kind of rule is added to the list.
    let place = |rule: &Alert| match rule {
        Alert::TemperatureAbove { .. } => 0,
        Alert::MemoryAbove { .. } => 1,
        Alert::NoProgress { .. } => 2,
        Alert::GpuLost => 3,
        Alert::RunFailed => 4,
    };
    let schemas = &description()["components"]["schemas"];
    let alert = &schemas["Alert"];
    assert_eq!(alert["discriminator"]["propertyName"], "on");
    let mapping = alert["discriminator"]["mapping"].as_object().expect("a mapping");
    assert_eq!((mapping.len(), alert["oneOf"].as_array().map(Vec::len)), (RULES.len(), Some(RULES.len())));
    for (at, rule) in RULES.iter().enumerate() {
        assert_eq!(place(rule), at);
        let rule = serde_json::to_value(rule).expect("JSON");
        let on = rule["on"].as_str().expect("a name");
        let reference = mapping[on].as_str().expect("a reference");
        assert!(alert["oneOf"].as_array().is_some_and(|list| list.iter().any(|one| one["$ref"] == reference)), "{on}");
        let schema = &schemas[reference.strip_prefix("#/components/schemas/").expect("a schema of ours")];
        assert_eq!(schema["properties"]["on"]["const"], on);
        let fields: Vec<&String> = rule.as_object().expect("an object").keys().collect();
        let described: Vec<&String> = schema["properties"].as_object().expect("properties").keys().collect();
        assert_eq!(fields, described, "{on}");
        let required: Vec<&str> =
            schema["required"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
        assert!(fields.iter().all(|field| required.contains(&field.as_str())), "{on}");
    }
}
