//! Tests of connection floods: many clients send little and stay connected. The server must still answer requests and
//! keep its viewers. One runs at a time, because each uses thousands of ports: a group of .config/nextest.toml, and
//! `cargo test -- --test-threads=1`.

use std::{
    collections::VecDeque,
    io::Write,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use futures_util::{SinkExt, StreamExt};
use headroom_protocol::{
    Scope,
    run::{Run, RunRequest},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, ClientConnection, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};
use tokio_tungstenite::tungstenite::Message;

use super::{
    hostile::{ANY, is_well},
    talk::{HttpAnswer, LARGE, LARGE_BYTES, PATIENCE, Server, Socket, hello, said},
};
use crate::{
    FILES_MAX, GREETINGS_MAX, WAITING_MAX, WORKING_MAX,
    fakes::run,
    host::{HostOptions, Scheme},
    tls::Tls,
};
use headroom_agent_core::platform;

/// The number of connections that the server must withstand.
const MANY: usize = 10_000;
/// Returns how many of `n` connections the system's limit of open files permits beside a server. A smaller number holds
/// fewer connections at once, but opens as many in total.
fn at_once(n: usize) -> usize {
    let spare = FILES_MAX as usize + 500;
    let files = platform::raise_open_files((n + spare) as u64);
    let n = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(spare).min(n);
    assert!(n > 300, "this test needs more than {files} open files");
    n
}

/// The data that each client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crowd {
    Silent,
    HalfHead,
    /// A TLS ClientHello and nothing after it.
    ClientHello,
    NoBody,
    /// A request for more data than the system buffers, of which the client reads nothing.
    TakesNothing,
    /// A WebSocket upgrade without a greeting.
    NoHello,
}

impl Crowd {
    const PLAIN: [Self; 5] = [Self::Silent, Self::HalfHead, Self::NoBody, Self::TakesNothing, Self::NoHello];

    fn brings(self, server: &Server) -> Vec<u8> {
        let (host, origin) = (server.address, server.origin());
        match self {
            Self::Silent => String::new(),
            Self::HalfHead => format!("GET /rig HTTP/1.1\r\nHost: {host}\r\nX: "),
            Self::ClientHello => return client_hello(),
            Self::NoBody => format!(
                "POST /api/pair HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nContent-Type: application/json\r\n\
                 Content-Length: 100\r\n\r\n{{"
            ),
            Self::TakesNothing => format!("GET /{LARGE} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            Self::NoHello => format!(
                "GET /ws HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            ),
        }
        .into_bytes()
    }

    /// Returns a hundred more than the number of seats, so that a hundred must be evicted.
    fn enough(self) -> usize {
        100 + match self {
            Self::Silent | Self::HalfHead | Self::ClientHello => WAITING_MAX,
            Self::NoBody | Self::TakesNothing => WORKING_MAX,
            Self::NoHello => GREETINGS_MAX,
        } as usize
    }

    /// Opens `n` connections of this kind that stay open.
    async fn gather(self, server: &Server, n: usize) -> Vec<TcpStream> {
        let bytes = self.brings(server);
        let mut held = Vec::with_capacity(n);
        for _ in 0..n {
            let mut stream = timeout(PATIENCE, server.connect()).await.expect("every connection is accepted");
            // Some are evicted while they send.
            let _ = stream.write_all(&bytes).await;
            held.push(stream);
        }
        held
    }
}

/// Opens connections as fast as one thread can until it is dropped.
struct Endless {
    n_opened: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Endless {
    fn start(address: SocketAddr, bytes: Vec<u8>, n_held: usize) -> Self {
        let (n_opened, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, over) = (Arc::clone(&n_opened), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let mut held = VecDeque::new();
            while !over.load(Ordering::Relaxed) {
                let connected = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1));
                let Ok(mut stream) = connected else { continue };
                let _ = stream.write_all(&bytes);
                counted.fetch_add(1, Ordering::Relaxed);
                held.push_back(stream);
                if held.len() > n_held {
                    held.pop_front();
                }
            }
        });
        Self { n_opened, is_over, thread: Some(thread) }
    }

    /// Waits until `n` more connections are open.
    async fn opens(&self, n: usize) {
        let start = self.n_opened.load(Ordering::Relaxed);
        let opened = async {
            while self.n_opened.load(Ordering::Relaxed) < start + n {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(4 * PATIENCE, opened).await.expect("it opens them");
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Checks that a viewer is connected and served.
async fn is_heard(viewer: &mut Socket) {
    viewer.send(Message::Ping("there?".into())).await.expect("it listens");
    let answered = async {
        loop {
            match viewer.next().await.expect("it stays").expect("it is whole") {
                Message::Pong(_) => return,
                other => assert!(!other.is_close(), "{other:?}"),
            }
        }
    };
    timeout(PATIENCE, answered).await.expect("in time");
}

/// Checks that the server responds within the time limit.
async fn is_well_in_time(server: &Server) {
    timeout(PATIENCE, is_well(server)).await.expect("in time");
}

#[tokio::test]
async fn idle_flood_locks_no_one_out() {
    for crowd in Crowd::PLAIN {
        let server = Server::start().await;
        let mut viewer = server.viewer().await;
        let n = at_once(if crowd == Crowd::Silent { MANY } else { crowd.enough() });
        let held = crowd.gather(&server, n).await;
        is_well_in_time(&server).await;
        is_heard(&mut viewer).await;
        drop(held);
        is_well_in_time(&server).await;
        server.stop().await;
    }
}

#[tokio::test]
async fn endless_flood_locks_no_one_out() {
    for crowd in Crowd::PLAIN {
        let server = Server::start().await;
        let mut viewer = server.viewer().await;
        let n = at_once(crowd.enough());
        let endless = Endless::start(server.address, crowd.brings(&server), n);
        endless.opens(n).await;
        for _ in 0..2 {
            is_well_in_time(&server).await;
            is_heard(&mut viewer).await;
        }
        // The flood lasted all the time.
        endless.opens(100).await;
        drop(endless);
        server.stop().await;
    }
}

#[tokio::test]
async fn sequential_connections_leak_nothing() {
    let server = Server::start().await;
    for i in 0..MANY {
        let mut stream = server.connect().await;
        if i % 3 == 0 {
            let _ = stream.write_all(b"GET /api/rig HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
        }
    }
    is_well_in_time(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn authorized_download_completes() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint");
    std::fs::write(&path, vec![7; LARGE_BYTES]).expect("written");
    server.place.made.runs.lock().expect("no panic").push(Run { order: Some(RunRequest::default()), ..run("ab") });
    *server.place.made.checkpoint.lock().expect("no panic") = Some(path);
    let head = format!(
        "GET /api/runs/ab/checkpoint HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        server.address, server.place.control
    );
    let mut slow = server.connect().await;
    slow.write_all(head.as_bytes()).await.expect("it listens");
    let mut answer = vec![0; 15];
    slow.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(answer, b"HTTP/1.1 200 OK");
    // The others connect later, and exceed the number of seats.
    let mut held = vec![];
    while held.len() < Crowd::TakesNothing.enough() {
        held.extend(Crowd::TakesNothing.gather(&server, 50).await);
        // Slow enough to take long, but fast enough not to stall.
        let n = timeout(PATIENCE, slow.read_buf(&mut answer)).await.expect("in time").expect("there is more");
        assert!(n > 0);
    }
    is_well_in_time(&server).await;
    timeout(PATIENCE, slow.read_to_end(&mut answer)).await.expect("in time").expect("the connection stays open");
    assert!(answer.ends_with(&[7; 64]) && answer.len() > LARGE_BYTES);
    drop(held);
    server.stop().await;
}

/// Returns the first bytes of a TLS client.
fn client_hello() -> Vec<u8> {
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let mut client = ClientConnection::new(client_config(RootCertStore::empty()), name).expect("it begins");
    let mut bytes = vec![];
    client.write_tls(&mut bytes).expect("writing to a vector cannot fail");
    bytes
}

fn client_config(roots: RootCertStore) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Creates a certificate for 127.0.0.1 and its trust root, if `openssl` is installed.
fn certified() -> Option<(Tls, RootCertStore)> {
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=rig", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).expect("it was made")).expect("it is one");
    Some((Tls::read(&certificate, &key).expect("they go together"), roots))
}

#[tokio::test]
async fn unfinished_handshakes_lock_no_one_out() {
    let Some((tls, roots)) = certified() else {
        return headroom_harness::skip("unfinished_handshakes_lock_no_one_out", "openssl is not installed");
    };
    let given = HostOptions { scheme: Scheme::Https, ..HostOptions::default() };
    let server = Server::over(Some(tls), Server::page(), given).await;
    let connector = TlsConnector::from(client_config(roots));
    let is_answered = async || {
        let stream = server.connect().await;
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let mut stream = connector.connect(name, stream).await.expect("a handshake");
        let head = format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
        stream.write_all(head.as_bytes()).await.expect("it listens");
        let mut answer = vec![];
        stream.read_to_end(&mut answer).await.expect("an answer");
        assert_eq!(HttpAnswer::of(&answer).status, 200);
    };
    let is_answered = async || timeout(PATIENCE, is_answered()).await.expect("in time");
    is_answered().await;
    for crowd in [Crowd::Silent, Crowd::ClientHello] {
        let held = crowd.gather(&server, at_once(crowd.enough())).await;
        is_answered().await;
        drop(held);
        let n = at_once(crowd.enough());
        let endless = Endless::start(server.address, crowd.brings(&server), n);
        endless.opens(n).await;
        for _ in 0..2 {
            is_answered().await;
        }
        endless.opens(100).await;
    }
    server.stop().await;
}

/// Advances the server's clock only.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
}

#[tokio::test]
async fn unfinished_requests_are_cut_off() {
    let server = Server::start().await;
    let are_cut_off = async |held: Vec<TcpStream>| {
        for mut stream in held {
            let read = timeout(PATIENCE, stream.read(&mut [0; 256])).await.expect("in time");
            // Some receive a 408 response.
            assert!(read.is_err() || stream.read(&mut [0]).await.is_ok_and(|n| n == 0), "{read:?}");
        }
    };
    // The time limit for the first byte is shorter than that for a request head.
    let mut begun = Crowd::HalfHead.gather(&server, 1).await;
    let silent = Crowd::Silent.gather(&server, 300).await;
    is_well(&server).await;
    pass(6).await;
    are_cut_off(silent).await;
    begun[0].write_all(b"y\r\nConnection: close\r\n\r\n").await.expect("it waits");
    let mut answer = vec![];
    timeout(PATIENCE, begun[0].read_to_end(&mut answer)).await.expect("in time").expect("an answer");
    assert_eq!(HttpAnswer::of(&answer).status, 404);
    // The same limit applies to the next request of an idle connection.
    let mut held = Crowd::HalfHead.gather(&server, 300).await;
    let mut idle = server.connect().await;
    let head = format!("HEAD / HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    idle.write_all(head.as_bytes()).await.expect("it listens");
    assert!(idle.read(&mut [0; 4096]).await.expect("an answer") > 0);
    held.push(idle);
    is_well(&server).await;
    pass(16).await;
    are_cut_off(held).await;
    // An incomplete body blocks no other request, and is given up.
    let head = format!(
        "PUT /api/settings HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n{ANY}\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        server.address, server.place.control
    );
    let mut stream = server.connect().await;
    stream.write_all(head.as_bytes()).await.expect("it listens");
    is_well(&server).await;
    pass(11).await;
    let mut answer = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("in time").expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 408");
    server.stop().await;
}

#[tokio::test]
async fn requests_beyond_the_working_seats_are_refused_as_busy() {
    let server = Server::start().await;
    // An authenticated client is not evicted, and a token takes 200 requests at once.
    let owner = |i: usize| {
        let name = format!("owner {i}");
        server.place.file.change(|book| book.add(&name, Scope::Control, 1)).expect("a token")
    };
    let tokens: Vec<String> = (0..=WORKING_MAX as usize / 100).map(owner).collect();
    let mut held = vec![];
    for i in 0..WORKING_MAX as usize {
        let head = format!(
            "PUT /api/settings HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n{ANY}\r\n\
             Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
            server.address,
            tokens[i / 100]
        );
        let mut stream = server.connect().await;
        stream.write_all(head.as_bytes()).await.expect("it listens");
        // The server reads the body, so the request has its seat.
        let mut answer = [0; 21];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("in time").expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 100 Continue", "{i}");
        held.push(stream);
    }
    for (path, content_type) in [("/api/rig", "application/json"), ("/", "text/html; charset=utf-8")] {
        let answer = server.asked("GET", path, &server.place.view).await;
        assert_eq!((answer.status, answer.header("content-type")), (503, content_type), "{path}");
        assert!(answer.body.contains("busy") && answer.body.contains("Try again later."), "{answer:?}");
    }
    // A request that ends gives its seat to the next one.
    let mut first = held.swap_remove(0);
    first.write_all(b"{}").await.expect("it waits");
    let mut answer = [0; 12];
    timeout(PATIENCE, first.read_exact(&mut answer)).await.expect("in time").expect("an answer");
    assert!(answer.starts_with(b"\r\n\r\nHTTP/1.1"), "{answer:?}");
    let is_answered = async { while server.get("/").await.status == 503 {} };
    timeout(PATIENCE, is_answered).await.expect("a seat is free");
    drop(held);
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn a_socket_that_says_nothing_makes_room() {
    let server = Server::start().await;
    let mut viewer = server.viewer().await;
    let mut silent = VecDeque::new();
    for _ in 0..GREETINGS_MAX {
        silent.push_back(server.socket().await);
    }
    assert_eq!(server.place.state.hub.n_viewers(), 1);
    let mut next = server.socket().await;
    let mut oldest = silent.pop_front().expect("one of them");
    let end = timeout(PATIENCE, oldest.next()).await.expect("in time");
    assert!(matches!(end, None | Some(Err(_))), "{end:?}");
    for socket in [&mut next, &mut silent[0]] {
        socket.send(Message::text(hello(&server.place.view))).await.expect("it listens");
        assert_eq!(said(socket).await["type"], "hello");
    }
    is_heard(&mut viewer).await;
    is_well_in_time(&server).await;
    server.stop().await;
}
