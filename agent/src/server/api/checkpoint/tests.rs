//! Parts of a file, and what is said where there is none, over a real connection.

use std::{
    fs,
    path::{Path, PathBuf},
};

use headroom_shared::protocol::run::{Order, Run};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::*;
use crate::server::{
    made,
    tests::talk::{Answer, PATIENCE, Server},
};

const BYTES: &str = "0123456789abcdefghijklmnopqrstuvwxyz";

/// A server with the run `ab` of the agent's own, whose checkpoint is at that path, and `cd` of somebody else's.
async fn server() -> (Server, tempfile::TempDir, PathBuf) {
    let server = Server::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ckpt.safetensors");
    let ours = Run { order: Some(Order::default()), ..made::run("ab") };
    server.place.made.runs.lock().expect("no panic").extend([ours, made::run("cd")]);
    *server.place.made.checkpoint.lock().expect("no panic") = Some(path.clone());
    (server, folder, path)
}

async fn ask(server: &Server, method: &str, id: &str, lines: &[&str]) -> Answer {
    let bearer = format!("Authorization: Bearer {}", server.place.view);
    let lines: Vec<&str> = lines.iter().copied().chain([bearer.as_str()]).collect();
    server.request(method, &format!("/api/runs/{id}/checkpoint"), &lines).await
}

/// As the writer of checkpoints does it.
fn replace(path: &Path, content: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, content).expect("a file");
    fs::rename(&beside, path).expect("in the place of the other");
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
        // A browser asks for what is compressed, wherever it does not say what it wants.
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
    // Another one of the same length, and within the same moment of a coarse clock.
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
async fn what_may_not_be_fetched_is_said() {
    let (server, _folder, path) = server().await;
    for (id, code, words) in
        [("ab", "no_checkpoint", "has no checkpoint"), ("cd", "no_checkpoint", "elsewhere"), ("ef", "no_run", "")]
    {
        let refused = ask(&server, "GET", id, &[]).await;
        assert_eq!(refused.status, 404, "{id}");
        assert!(refused.body.contains(code) && refused.body.contains(words), "{}", refused.body);
    }
    fs::create_dir(&path).expect("a folder in its place");
    assert_eq!(ask(&server, "GET", "ab", &[]).await.status, 404, "it is nothing to read");
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

/// Of a file that no machine's memory holds: what is asked for comes, the newer one included once it is asked for anew,
/// and no more answers at once than there may be.
#[tokio::test]
async fn a_checkpoint_of_any_size_is_read_in_pieces_by_a_bounded_number_at_once() {
    const BYTES: u64 = 1 << 40;
    let (server, _folder, path) = server().await;
    let sparse = File::create(&path).and_then(|file| file.set_len(BYTES));
    sparse.expect("a file system that takes a hole of a tebibyte");
    let last = ask(&server, "GET", "ab", &[&format!("Range: bytes={}-", BYTES - 4)]).await;
    assert_eq!((last.status, last.body.as_str()), (206, "\0\0\0\0"));
    let request = format!(
        "GET /api/runs/ab/checkpoint HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address, server.place.view
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
    // Who goes makes room.
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

/// A file that became shorter than it was said to be ends the connection instead of the answer.
#[tokio::test]
async fn what_cannot_be_read_breaks_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ckpt.safetensors");
    fs::write(&path, "0123").expect("a file");
    let file = File::open(&path).expect("it is there");
    assert_eq!(piece(file, 1, 3).map(|(_, bytes)| bytes).expect("there"), "123");
    let file = File::open(&path).expect("it is there");
    assert_eq!(piece(file, 1, 4).map(|_| ()).expect_err("too short").kind(), io::ErrorKind::UnexpectedEof);
}
