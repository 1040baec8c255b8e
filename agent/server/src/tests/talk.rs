//! A server on a real port, and a client that sends arbitrary bytes.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use crate::{assets::Assets, fakes::TestServer, host::HostOptions, listen, serve, tls::Tls};

/// A time limit far above any response time, which turns a hang into a failure.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const INDEX: &str = "<!doctype html><title>page</title>";
pub const WASM: &str = "app-0123456789abcdef_bg.wasm";

/// A file larger than the system's buffers of one connection.
pub const LARGE: &str = "large.js";
pub const LARGE_BYTES: usize = 6 << 20;

pub struct Server {
    pub place: TestServer,
    pub address: SocketAddr,
    pub end: oneshot::Sender<()>,
    pub served: JoinHandle<()>,
}

impl Server {
    pub async fn with(assets: Assets) -> Self {
        Self::given(assets, HostOptions::default()).await
    }

    /// Starts a server with the owner's settings.
    pub async fn given(assets: Assets, given: HostOptions) -> Self {
        Self::over(None, assets, given).await
    }

    /// Starts a server, optionally with TLS.
    pub async fn over(tls: Option<Tls>, assets: Assets, given: HostOptions) -> Self {
        let listener = listen("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (end, ended) = oneshot::channel();
        let place = TestServer::at(address, assets, given);
        let state = Arc::clone(&place.state);
        let served = tokio::spawn(serve(listener, state, tls, async {
            let _ = ended.await;
        }));
        Self { place, address, end, served }
    }

    pub async fn start() -> Self {
        Self::with(Self::page()).await
    }

    /// Returns files like those of the page.
    pub fn page() -> Assets {
        let file = |name: &str, content: &str| {
            let mut hash = [0; 32];
            name.bytes().chain(content.bytes()).enumerate().for_each(|(i, byte)| hash[i % 16] ^= byte.rotate_left(1));
            (name.to_owned(), Bytes::copy_from_slice(content.as_bytes()), hash)
        };
        Assets::new([
            file("index.html", INDEX),
            file("index.html.br", "index as brotli"),
            file("index.html.gz", "index as gzip"),
            file(WASM, "wasm, plain"),
            file(&format!("{WASM}.br"), "wasm as brotli"),
            file("boot.js", "boot"),
            file("style.css", "style"),
            file("embed.html", "embed"),
            file("headroom-calculator.js", "element"),
            file("previews/index.png", "preview"),
            file(LARGE, &"large ".repeat(LARGE_BYTES / 6)),
        ])
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    /// Sends bytes unchanged and reads to the end.
    pub async fn send(&self, bytes: &str) -> HttpAnswer {
        let mut stream = self.connect().await;
        // The server may refuse before it has read everything.
        let _ = stream.write_all(bytes.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer in time");
        HttpAnswer::of(&answer)
    }

    /// Sends a request for a path with the right `Host` and further headers.
    pub async fn request(&self, method: &str, path: &str, lines: &[&str]) -> HttpAnswer {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let host = self.address;
        self.send(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n")).await
    }

    pub async fn get(&self, path: &str) -> HttpAnswer {
        self.request("GET", path, &[]).await
    }

    pub async fn stop(self) {
        self.end.send(()).expect("it runs");
        timeout(PATIENCE, self.served).await.expect("it ends in time").expect("it does not panic");
    }
}

#[derive(Debug)]
pub struct HttpAnswer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl HttpAnswer {
    pub fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        Self { status, headers, body: body.to_owned() }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Returns the greeting of a client.
pub fn hello(token: &str) -> String {
    format!(r#"{{"type":"hello","protocol":1,"token":"{token}"}}"#)
}

/// A WebSocket of a common client library.
pub type Socket = WebSocketStream<TcpStream>;

impl Server {
    /// Returns the origin of the server's own pages.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends a request with a token.
    pub async fn asked(&self, method: &str, path: &str, token: &str) -> HttpAnswer {
        self.request(method, path, &[&format!("Authorization: Bearer {token}")]).await
    }

    /// Sends a request with a token and a JSON body.
    pub async fn sent(&self, method: &str, path: &str, lines: &[&str], body: &str) -> HttpAnswer {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{lines}\r\n{body}",
            self.address,
            body.len()
        ))
        .await
    }

    /// Requests a WebSocket upgrade with additional headers.
    pub async fn upgrade(&self, path: &str, host: &str, lines: &[&str]) -> HttpAnswer {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let mut stream = self.connect().await;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{lines}\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("it listens");
        // A socket stays open, so only the response head is read.
        let mut answer = vec![];
        while !answer.windows(4).any(|window| window == b"\r\n\r\n") {
            let mut bytes = [0; 1024];
            let n = timeout(PATIENCE, stream.read(&mut bytes)).await.expect("in time").expect("an answer");
            if n == 0 {
                break;
            }
            answer.extend(&bytes[..n]);
        }
        let _ = timeout(Duration::from_millis(0), stream.read_to_end(&mut answer)).await;
        HttpAnswer::of(&answer)
    }

    /// Opens a socket without a greeting.
    pub async fn socket(&self) -> Socket {
        let mut request = format!("ws://{}/ws", self.address).into_client_request().expect("a request");
        request.headers_mut().insert("origin", self.origin().parse().expect("a value"));
        client_async(request, self.connect().await).await.expect("a socket").0
    }

    /// Opens a socket and authenticates it.
    pub async fn viewer(&self) -> Socket {
        let mut socket = self.socket().await;
        socket.send(Message::text(hello(&self.place.view))).await.expect("it listens");
        assert_eq!(said(&mut socket).await["type"], "hello");
        socket
    }
}

/// Returns the next message.
pub async fn said(socket: &mut Socket) -> serde_json::Value {
    loop {
        match timeout(PATIENCE, socket.next()).await.expect("in time").expect("there is more").expect("it is whole") {
            Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
            Message::Close(_) => return serde_json::Value::Null,
            _ => {}
        }
    }
}
