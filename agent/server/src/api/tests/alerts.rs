//! Tests of active alerts.

use super::*;

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
