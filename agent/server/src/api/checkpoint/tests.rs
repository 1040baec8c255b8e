//! Tests of ranges and refusals over a real connection.

use std::{
    fs,
    path::{Path, PathBuf},
};

use headroom_protocol::run::{Run, RunRequest};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::*;
use crate::{
    fakes,
    tests::talk::{HttpAnswer, PATIENCE, Server},
};

const BYTES: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// Starts a server with run `ab` of the agent, whose checkpoint has the returned path, and run `cd` of a watcher.
async fn server() -> (Server, tempfile::TempDir, PathBuf) {
    let server = Server::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ckpt.safetensors");
    let ours = Run { order: Some(RunRequest::default()), ..fakes::run("ab") };
    server.place.made.runs.lock().expect("no panic").extend([ours, fakes::run("cd")]);
    *server.place.made.checkpoint.lock().expect("no panic") = Some(path.clone());
    (server, folder, path)
}

/// Requests the file as it is, which need not be a checkpoint then.
async fn ask(server: &Server, method: &str, id: &str, lines: &[&str]) -> HttpAnswer {
    ask_as(server, &server.place.control, method, id, lines).await
}

async fn ask_as(server: &Server, token: &str, method: &str, id: &str, lines: &[&str]) -> HttpAnswer {
    let bearer = format!("Authorization: Bearer {token}");
    let lines: Vec<&str> = lines.iter().copied().chain([bearer.as_str()]).collect();
    server.request(method, &format!("/api/runs/{id}/checkpoint"), &lines).await
}

/// Replaces a file by renaming, like the writer of checkpoints.
fn replace(path: &Path, content: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, content).expect("a file");
    fs::rename(&beside, path).expect("the file is replaced");
}

#[tokio::test]
async fn a_checkpoint_comes_whole_or_in_parts() {
    let (server, _folder, path) = server().await;
    replace(&path, BYTES);
    let whole = ask(&server, "GET", "ab", &[]).await;
    assert_eq!((whole.status, whole.body.as_str()), (200, BYTES));
    for (name, value) in [
        ("content-length", "36"),
        ("accept-ranges", "bytes"),
        ("content-type", "application/octet-stream"),
        ("cache-control", "no-store"),
        ("content-encoding", ""),
        ("content-range", ""),
    ] {
        assert_eq!(whole.header(name), value, "{name}");
    }
    let etag = whole.header("etag");
    assert!(etag.starts_with('"') && etag.len() == 34, "a strong tag: {etag}");
    for (range, content_range, body) in [
        ("bytes=0-7", "bytes 0-7/36", "01234567"),
        ("bytes=30-", "bytes 30-35/36", "uvwxyz"),
        ("bytes=30-99", "bytes 30-35/36", "uvwxyz"),
        ("bytes=-3", "bytes 33-35/36", "xyz"),
        ("bytes=35-35", "bytes 35-35/36", "z"),
    ] {
        // Browsers send this `Accept-Encoding` by default.
        let part = ask(&server, "GET", "ab", &[&format!("Range: {range}"), "Accept-Encoding: gzip, br"]).await;
        assert_eq!((part.status, part.header("content-range")), (206, content_range), "{range}");
        assert_eq!((part.body.as_str(), part.header("etag")), (body, etag), "{range}");
        assert_eq!(part.header("content-length"), body.len().to_string(), "{range}");
        assert_eq!(part.header("content-encoding"), "", "{range}");
    }
    for range in ["bytes=36-", "bytes=9-8", "bytes=0-1,4-5", "bytes=x-y", "bytes=", "bytes=-0"] {
        let refused = ask(&server, "GET", "ab", &[&format!("Range: {range}")]).await;
        assert_eq!((refused.status, refused.header("content-range")), (416, "bytes */36"), "{range}");
        assert!(refused.body.contains("\"range\"") && refused.body.contains("36 bytes"), "{}", refused.body);
    }
    let other_unit = ask(&server, "GET", "ab", &["Range: tensors=0-1"]).await;
    assert_eq!((other_unit.status, other_unit.body.as_str()), (200, BYTES));
    let head = ask(&server, "HEAD", "ab", &["Range: bytes=0-7"]).await;
    assert_eq!((head.status, head.body.as_str(), head.header("etag")), (206, "", etag));
    let head = ask(&server, "HEAD", "ab", &[]).await;
    assert_eq!((head.status, head.header("content-length"), head.header("accept-ranges")), (200, "36", "bytes"));
    assert_eq!(ask(&server, "GET", "ab", &[&format!("If-None-Match: {etag}")]).await.status, 304);
    assert_eq!(ask(&server, "POST", "ab", &[]).await.status, 405);
    server.stop().await;
}

#[tokio::test]
async fn parts_of_two_checkpoints_are_never_mixed() {
    let (server, _folder, path) = server().await;
    replace(&path, BYTES);
    let etag = ask(&server, "GET", "ab", &["Range: bytes=0-7"]).await.header("etag").to_owned();
    let (first, range) = (format!("If-Match: {etag}"), "Range: bytes=8-9");
    assert_eq!(ask(&server, "GET", "ab", &[range, &first]).await.body, "89");
    assert_eq!(ask(&server, "GET", "ab", &[range, &format!("If-Match: \"x\", {etag}")]).await.status, 206);
    assert_eq!(ask(&server, "GET", "ab", &[range, "If-Match: *"]).await.status, 206);
    assert_eq!(ask(&server, "GET", "ab", &[range, &format!("If-Match: W/{etag}")]).await.status, 412);
    assert_eq!(ask(&server, "GET", "ab", &[range, &format!("If-Range: {etag}")]).await.body, "89");
    // A file of the same length, with the same timestamp as on a clock of low resolution.
    let time = fs::metadata(&path).and_then(|about| about.modified()).expect("a time");
    let other = BYTES.to_uppercase();
    replace(&path, &other);
    File::options().write(true).open(&path).and_then(|file| file.set_modified(time)).expect("set");
    let refused = ask(&server, "GET", "ab", &[range, &first]).await;
    assert_eq!(refused.status, 412);
    assert!(refused.body.contains("\"changed\"") && refused.body.contains("newer"), "{}", refused.body);
    for tag in [etag.as_str(), "Sun, 06 Nov 1994 08:49:37 GMT"] {
        let whole = ask(&server, "GET", "ab", &[range, &format!("If-Range: {tag}")]).await;
        assert_eq!((whole.status, whole.body.as_str()), (200, other.as_str()), "{tag}");
        assert_ne!(whole.header("etag"), etag);
    }
    server.stop().await;
}

#[tokio::test]
async fn forbidden_fetch_reports_reason() {
    let (server, _folder, path) = server().await;
    for (id, code, words) in
        [("ab", "no_checkpoint", "has no checkpoint"), ("cd", "no_checkpoint", "elsewhere"), ("ef", "no_run", "")]
    {
        let refused = ask(&server, "GET", id, &[]).await;
        assert_eq!(refused.status, 404, "{id}");
        assert!(refused.body.contains(code) && refused.body.contains(words), "{}", refused.body);
    }
    fs::create_dir(&path).expect("a folder in its place");
    assert_eq!(ask(&server, "GET", "ab", &[]).await.status, 404, "a directory is not a checkpoint");
    fs::remove_dir(&path).expect("it is empty");
    replace(&path, BYTES);
    for lines in [vec![], vec!["Authorization: Bearer 00".to_owned()]] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let refused = server.request("GET", "/api/runs/ab/checkpoint", &lines).await;
        assert_eq!(refused.status, 401, "{lines:?}");
        assert!(!refused.body.contains("0123"), "{}", refused.body);
    }
    let in_address = server.get(&format!("/api/runs/ab/checkpoint?token={}", server.place.view)).await;
    assert!(in_address.status == 400 && in_address.body.contains("token_in_query"), "{in_address:?}");
    server.stop().await;
}

/// Downloads ranges of a sparse file larger than any machine's memory. A newer file is served only to new requests, and
/// the number of simultaneous downloads is bounded.
#[tokio::test]
async fn a_checkpoint_of_any_size_is_read_in_pieces_by_a_bounded_number_at_once() {
    const BYTES: u64 = 1 << 40;
    let (server, _folder, path) = server().await;
    let sparse = File::create(&path).and_then(|file| file.set_len(BYTES));
    sparse.expect("the file system supports a sparse file of 1 TiB");
    let last = ask(&server, "GET", "ab", &[&format!("Range: bytes={}-", BYTES - 4)]).await;
    assert_eq!((last.status, last.body.as_str()), (206, "\0\0\0\0"));
    let request = format!(
        "GET /api/runs/ab/checkpoint HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address, server.place.control
    );
    let mut open = Vec::new();
    for _ in 0..CHECKPOINT_READS_MAX {
        let mut stream = server.connect().await;
        stream.write_all(request.as_bytes()).await.expect("it listens");
        let mut some = vec![0; 2 * PIECE_BYTES];
        timeout(PATIENCE, stream.read_exact(&mut some)).await.expect("in time").expect("more than a piece");
        assert!(some.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&some[..64]));
        open.push(stream);
    }
    let refused = ask(&server, "GET", "ab", &["Range: bytes=0-7"]).await;
    assert!(refused.status == 503 && refused.body.contains("too_many"), "{refused:?}");
    // A closed connection frees its permit.
    drop(open.pop());
    let room = async {
        while ask(&server, "GET", "ab", &["Range: bytes=0-7"]).await.status != 206 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, room).await.expect("there is room again");
    drop(open);
    server.stop().await;
}

/// A file that became shorter than its announced length aborts the connection.
#[tokio::test]
async fn truncated_checkpoint_ends_with_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ckpt.safetensors");
    fs::write(&path, "0123").expect("a file");
    let source = |bytes| (File::open(&path).expect("it is there"), Content::whole(bytes));
    assert_eq!(piece(source(4), 1, 3).map(|(_, bytes)| bytes).expect("there"), "123");
    assert_eq!(piece(source(5), 1, 4).map(|_| ()).expect_err("too short").kind(), io::ErrorKind::UnexpectedEof);
}
