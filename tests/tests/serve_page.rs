//! The page as `headroom serve` sends it, byte for byte as built. Each client gets the encoding that it accepts.
//!
//! `HEADROOM_BIN` and `HEADROOM_DIST` name the program with the page in it, and the page. `cargo xtask test` sets both.
//! Without them the test is counted as skipped.

use headroom_harness::skip;
use headroom_tests::server::Server;
use std::{
    env, fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
};

/// Returns the head in lower case, and the body.
fn get(host: &str, path: &str, accept_encoding: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(host).expect("it listens");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: {accept_encoding}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    (String::from_utf8_lossy(&answer[..end]).to_lowercase(), answer[end + 4..].to_vec())
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn served_page_equals_build() {
    let (Some(headroom), Some(dist)) = (env::var_os("HEADROOM_BIN"), env::var_os("HEADROOM_DIST")) else {
        return skip(
            "serve_page",
            "HEADROOM_BIN and HEADROOM_DIST are not set; `cargo xtask test` builds the page and sets both",
        );
    };
    let dist = PathBuf::from(dist);
    let server = Server::start(Path::new(&headroom));
    let get = |path: &str, accept: &str| get(server.host(), path, accept);
    let files = files_below(&dist);
    let plain = files.iter().filter(|file| file.extension().is_none_or(|ending| ending != "br" && ending != "gz"));
    let names: Vec<String> = plain
        .map(|file| file.strip_prefix(&dist).expect("it is below").display().to_string().replace('\\', "/"))
        .collect();
    assert!(names.iter().any(|name| name.ends_with(".wasm")), "the page has a program: {names:?}");
    for name in &names {
        for (accept, ending) in [("br, gzip", "br"), ("gzip", "gz"), ("identity", "")] {
            let copy = if ending.is_empty() { dist.join(name) } else { dist.join(format!("{name}.{ending}")) };
            let Ok(expected) = fs::read(&copy) else { continue };
            let (head, body) = get(&format!("/{name}"), accept);
            assert!(head.starts_with("http/1.1 200 "), "{name} as {accept}: {head}");
            assert!(body == expected, "{name} as {accept} differs from {}", copy.display());
            assert!(head.contains(&format!("content-length: {}", expected.len())), "{head}");
        }
    }
    let (head, index) = get("/", "identity");
    assert_eq!(index, fs::read(dist.join("index.html")).expect("the page"));
    assert!(head.contains("cache-control: no-cache"), "{head}");
    let (head, docs) = get("/docs/", "identity");
    assert_eq!(docs, fs::read(dist.join("docs/index.html")).expect("the documentation"));
    assert!(head.contains("default-src 'none'"), "{head}");
    let (head, _) = get("/docs", "identity");
    assert!(head.starts_with("http/1.1 308 ") && head.contains("location: docs/"), "{head}");
    // The demo's worker has a name without a hash, so clients request it again.
    let wasm =
        names.iter().find(|name| name.ends_with(".wasm") && !name.starts_with("headroom-demo")).expect("a page's");
    let (head, _) = get(&format!("/{wasm}"), "br");
    for line in ["content-type: application/wasm", "content-encoding: br", "immutable", "vary: accept-encoding"] {
        assert!(head.contains(line), "{wasm}: no {line} in {head}");
    }
}
