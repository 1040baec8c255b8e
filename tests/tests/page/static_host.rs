//! The page as plain files: any static host, in a folder.

use crate::{
    TRAIN_GPT2,
    means::Means,
    page::{tell, tell_at},
};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

const FOLDER: &str = "/some/sub/";

/// A host that knows nothing of the page: files by their names, types by their endings, no other header.
struct StaticHost {
    address: String,
    /// What was asked for and is not there.
    missing: Arc<Mutex<Vec<String>>>,
}

impl StaticHost {
    /// Serves until the process ends.
    fn start(files: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}{FOLDER}", listener.local_addr().expect("bound"));
        let missing = Arc::new(Mutex::new(Vec::new()));
        let (files, list) = (files.to_owned(), Arc::clone(&missing));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (files, list) = (files.clone(), Arc::clone(&list));
                thread::spawn(move || answer(&stream, &files, &list));
            }
        });
        Self { address, missing }
    }
}

fn answer(mut stream: &TcpStream, files: &Path, missing: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
    let path = first.split(' ').nth(1).unwrap_or_default();
    let file = file_of(path, files).and_then(|file| Some((fs::read(&file).ok()?, file)));
    let answer = match file {
        Some((body, file)) => [head("200 OK", type_of(&file), body.len()).into_bytes(), body].concat(),
        None => {
            missing.lock().expect("no panic").push(path.to_owned());
            head("404 Not Found", "text/plain", 0).into_bytes()
        }
    };
    let _ = stream.write_all(&answer);
}

fn head(status: &str, kind: &str, length: usize) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
}

fn file_of(path: &str, files: &Path) -> Option<PathBuf> {
    let name = path.split('?').next()?.strip_prefix(FOLDER)?;
    let name = Path::new(if name.is_empty() { "index.html" } else { name });
    name.components().all(|part| matches!(part, Component::Normal(_))).then(|| files.join(name))
}

fn type_of(file: &Path) -> &'static str {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}

#[test]
fn plain_files_in_a_folder_answer_the_same() {
    let test = "plain_files_in_a_folder_answer_the_same";
    let Some(means) = Means::of(test) else { return };
    let mut served = None;
    tell(test, async |page| {
        page.paste("#config", TRAIN_GPT2).await;
        page.choose_card("GeForce RTX 3060 12GB").await;
        page.click("#copy-link").await;
        let link = page.clipboard().await;
        served = Some((link.split_once('#').expect("a fragment").1.to_owned(), page.numbers().await));
    });
    let (fragment, numbers) = served.expect("the page was served");
    let host = StaticHost::start(&means.dist);
    tell_at(test, &means, &host.address, None, async |page| {
        page.open(&fragment).await;
        crate::numbers::assert_same(&numbers, &page.numbers().await);
    });
    let missing = host.missing.lock().expect("no panic");
    assert!(missing.is_empty(), "asked for in vain: {missing:?}");
}
