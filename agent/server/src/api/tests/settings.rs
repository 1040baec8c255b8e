//! Tests of the settings.

use super::*;

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
