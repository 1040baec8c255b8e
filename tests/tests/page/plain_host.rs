//! A static file host. It serves files by name with a type by suffix, and sends no other header.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Component, Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
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
    slow: Option<SlowFile>,
}

/// A file that a slow network delivers in two parts.
struct SlowFile {
    name: String,
    /// The length of the first part in bytes.
    first_bytes: usize,
    /// Whether the second part may be sent.
    is_released: Mutex<bool>,
    released: Condvar,
}

impl PlainHost {
    /// Starts a host that serves until the process ends.
    pub fn start(folder: &Path) -> Self {
        Self::serve(folder, None, None)
    }

    /// Starts a host that sends `first_bytes` of the file `name`, and the rest after [`Self::release`].
    pub fn start_slow(folder: &Path, name: &str, first_bytes: usize) -> Self {
        let (is_released, released) = Default::default();
        Self::serve(folder, None, Some(SlowFile { name: name.to_owned(), first_bytes, is_released, released }))
    }

    /// Sends the rest of the slow file.
    pub fn release(&self) {
        let slow = self.files.slow.as_ref().expect("a slow file");
        *slow.is_released.lock().expect("no panic") = true;
        slow.released.notify_all();
    }

    /// Starts a host that replaces `words` in its pages by `become_words`, which is known only at run time.
    pub fn start_with(folder: &Path, words: &str, become_words: &str) -> Self {
        Self::serve(folder, Some((words.to_owned(), become_words.to_owned())), None)
    }

    fn serve(folder: &Path, written_in: Option<(String, String)>, slow: Option<SlowFile>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}{FOLDER}", listener.local_addr().expect("bound"));
        let files = Arc::new(Files { folder: folder.to_owned(), written_in, missing: Mutex::default(), slow });
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
    let first_bytes = match files.slow.as_ref().filter(|slow| path.ends_with(&slow.name)) {
        Some(slow) => slow.send_first(stream, &answer),
        None => 0,
    };
    let _ = stream.write_all(&answer[first_bytes..]);
}

impl SlowFile {
    /// Sends the first part of an answer, and waits until the second may be sent. Returns the bytes sent.
    fn send_first(&self, mut stream: &TcpStream, answer: &[u8]) -> usize {
        let head_bytes = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
        let n = head_bytes + self.first_bytes;
        let _ = stream.write_all(&answer[..n]);
        let is_released = self.is_released.lock().expect("no panic");
        drop(self.released.wait_while(is_released, |is_released| !*is_released).expect("no panic"));
        n
    }
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
