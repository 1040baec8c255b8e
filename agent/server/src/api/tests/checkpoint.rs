//! Tests of a run's checkpoint over HTTP.

use super::*;

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
