//! Tests of runs that the agent starts.

use super::*;

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
