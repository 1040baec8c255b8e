//! A static file host. It serves files by name with a type by suffix, and sends no other header.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

/// The subdirectory of the files, like a part of a site.
const FOLDER: &str = "/some/sub/";

/// A static file host.
pub struct PlainHost {
    /// The directory's URL, with a trailing slash.
    pub address: String,
    files: Arc<Files>,
}

struct Files {
    folder: PathBuf,
    /// A text in the pages, and its replacement when they are sent.
    written_in: Option<(String, String)>,
    /// Requested paths without a file.
    missing: Mutex<Vec<String>>,
}

impl PlainHost {
    /// Starts a host that serves until the process ends.
    pub fn start(folder: &Path) -> Self {
        Self::serve(folder, None)
    }

    /// Starts a host that replaces `words` in its pages by `become_words`, which is known only at run time.
    pub fn start_with(folder: &Path, words: &str, become_words: &str) -> Self {
        Self::serve(folder, Some((words.to_owned(), become_words.to_owned())))
    }

    fn serve(folder: &Path, written_in: Option<(String, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}{FOLDER}", listener.local_addr().expect("bound"));
        let files = Arc::new(Files { folder: folder.to_owned(), written_in, missing: Mutex::default() });
        let served = Arc::clone(&files);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let files = Arc::clone(&served);
                thread::spawn(move || answer(&stream, &files));
            }
        });
        Self { address, files }
    }

    /// Returns the URL by another host name, which makes the pages another site to a browser, not only another origin.
    pub fn address_as_other_site(&self) -> String {
        self.address.replace("127.0.0.1", "localhost")
    }

    /// Checks that every requested file exists.
    pub fn assert_complete(&self) {
        let missing = self.files.missing.lock().expect("no panic");
        assert!(missing.is_empty(), "failed requests: {missing:?}");
    }
}

fn answer(mut stream: &TcpStream, files: &Files) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
    let path = first.split(' ').nth(1).unwrap_or_default();
    let file = file_of(path, &files.folder).and_then(|file| Some((fs::read(&file).ok()?, type_of(&file))));
    let answer = match file {
        Some((body, kind)) => {
            let body = if kind == HTML { files.write_in(body) } else { body };
            [head("200 OK", kind, body.len()).into_bytes(), body].concat()
        }
        None => {
            files.missing.lock().expect("no panic").push(path.to_owned());
            head("404 Not Found", "text/plain", 0).into_bytes()
        }
    };
    let _ = stream.write_all(&answer);
}

impl Files {
    fn write_in(&self, body: Vec<u8>) -> Vec<u8> {
        let Some((words, become_words)) = &self.written_in else { return body };
        String::from_utf8(body).expect("a page").replace(words, become_words).into_bytes()
    }
}

fn head(status: &str, kind: &str, length: usize) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
}

fn file_of(path: &str, folder: &Path) -> Option<PathBuf> {
    let name = path.split('?').next()?.strip_prefix(FOLDER)?;
    let name = Path::new(if name.is_empty() { "index.html" } else { name });
    name.components().all(|part| matches!(part, Component::Normal(_))).then(|| folder.join(name))
}

const HTML: &str = "text/html";

fn type_of(file: &Path) -> &'static str {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("html") => HTML,
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
