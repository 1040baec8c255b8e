//! A thousand viewers at ten messages a second: what the server takes of a core, what is lost on the way, and how long
//! a sample takes to the other end of a socket.
//!
//! `cargo test --release -p headroom-agent --no-default-features bench_of_viewers -- --ignored --nocapture` prints one
//! line of JSON. Server, publisher and clients are threads of one process, so that one clock counts; only the first two
//! count as the server's. HEADROOM_VIEWERS and HEADROOM_SECONDS ask for another size.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use futures_util::{SinkExt, StreamExt};
use headroom_shared::protocol::{
    Slow, Telemetry,
    gpu::Sample,
    host::HostSample,
    reading::{Reading, Why},
};
use tokio::{net::TcpStream, runtime, sync::oneshot, task::JoinSet};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use super::{assets::Assets, host::Given, listen, made::Place, serve, tests::talk::hello};
use crate::limits;

const CARDS: u32 = 8;
const TICK: Duration = Duration::from_millis(100);
/// Messages that may be sent in all.
const SEQS_MAX: usize = 100_000;
/// What DESIGN.md asks for.
const P99_MAX: Duration = Duration::from_millis(50);

fn asked(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Nanoseconds that a thread was on a processor.
#[derive(Clone)]
struct Cpu(String);

impl Cpu {
    fn of_this_thread() -> Self {
        let link = fs::read_link("/proc/thread-self").expect("Linux tells a thread's time");
        Self(format!("/proc/{}/schedstat", link.display()))
    }

    fn nanos(&self) -> u64 {
        let text = fs::read_to_string(&self.0).expect("the thread is there");
        text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number")
    }
}

fn telemetry(seq: u64) -> Telemetry {
    let sample = |gpu| Sample {
        gpu,
        memory_used_bytes: Reading::Is(5_368_709_120 + seq),
        memory_free_bytes: Reading::Is(7_516_192_768 - seq),
        memory_reserved_bytes: Reading::Is(268_435_456),
        utilization_percent: Reading::Is(97),
        memory_utilization_percent: Reading::Is(41),
        power_watts: Reading::Is(199.532),
        clock_sm_mhz: Reading::Is(2805),
        clock_memory_mhz: Reading::Is(10_501),
        temperature_celsius: Reading::Is(71),
        throttle: Reading::Is(4),
    };
    Telemetry { seq, time_ms: crate::clock::now_ms(), gpus: (0..CARDS).map(sample).collect() }
}

fn slow() -> Slow {
    let host = HostSample {
        cpu_percent: Reading::Is(12.5),
        memory_used_bytes: Reading::Is(1),
        memory_total_bytes: Reading::Is(2),
        disk_free_bytes: Reading::Is(3),
        disk_total_bytes: Reading::missing(Why::Failed),
    };
    Slow { time_ms: crate::clock::now_ms(), gpus: vec![], host }
}

/// What the clients saw.
#[derive(Default)]
struct Seen {
    latencies: Vec<Duration>,
    n_lost: u64,
    bytes: u64,
}

/// One viewer, for as long as messages come: each has to be the one after the last.
async fn watch(
    address: std::net::SocketAddr,
    token: String,
    begun: Arc<AtomicBool>,
    n_ready: Arc<AtomicU64>,
    sent: Arc<Vec<AtomicU64>>,
    start: Instant,
) -> Seen {
    let mut request = format!("ws://{address}/ws").into_client_request().expect("a request");
    request.headers_mut().insert("origin", format!("http://{address}").parse().expect("a value"));
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (mut socket, _) = client_async(request, stream).await.expect("a socket");
    socket.send(Message::text(hello(&token))).await.expect("it listens");
    let mut seen = Seen::default();
    let mut last: Option<u64> = None;
    while let Some(Ok(message)) = socket.next().await {
        let now = start.elapsed();
        let Message::Text(text) = message else { continue };
        if text.starts_with(r#"{"type":"hello""#) {
            n_ready.fetch_add(1, Ordering::Relaxed);
        }
        if text.starts_with(r#"{"type":"refused","code":"stopping""#) {
            break;
        }
        assert!(!text.starts_with(r#"{"type":"lost""#) && !text.starts_with(r#"{"type":"refused""#), "{text}");
        let Some(rest) = text.strip_prefix(r#"{"type":"telemetry","seq":"#) else { continue };
        let seq: u64 = rest.split(',').next().and_then(|seq| seq.parse().ok()).expect("a number");
        seen.n_lost += last.map_or(0, |last| seq - last - 1);
        last = Some(seq);
        if begun.load(Ordering::Relaxed) {
            let sent = Duration::from_nanos(sent[usize::try_from(seq).expect("it fits")].load(Ordering::Relaxed));
            seen.latencies.push(now - sent);
            seen.bytes += text.len() as u64;
        }
    }
    seen
}

#[test]
#[ignore = "measures for half a minute; in a release build, on a machine that does nothing else"]
fn bench_of_viewers() {
    let (n_viewers, seconds) = (asked("HEADROOM_VIEWERS", 1000), asked("HEADROOM_SECONDS", 20));
    let n_files = limits::raise_open_files(2 * n_viewers + 500);
    assert!(n_files >= 2 * n_viewers + 100, "this machine gives {n_files} open files");
    // The server on its thread, as `headroom serve` has it.
    let (tell, told) = mpsc::channel();
    let (end, ended) = oneshot::channel::<()>();
    let server = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(16).build();
        runtime.expect("a runtime").block_on(async {
            let listener = listen("127.0.0.1:0".parse().expect("an address")).expect("a free port");
            let address = listener.local_addr().expect("an address");
            let place = Place::at(address, Assets::default(), Given::default());
            let state = Arc::clone(&place.state);
            let told = (address, place.view.clone(), state.hub.clone(), Cpu::of_this_thread());
            tell.send(told).expect("somebody waits");
            serve(listener, state, None, async { drop(ended.await) }).await;
        });
    });
    let (address, token, hub, server_cpu) = told.recv().expect("it starts");
    let start = Instant::now();
    let sent: Arc<Vec<AtomicU64>> = Arc::new((0..SEQS_MAX).map(|_| AtomicU64::new(0)).collect());
    let (begun, n_ready, stop) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
    let stop = Arc::new(stop);
    // Whoever reads cards.
    let (publisher, publisher_cpu) = {
        let (sent, stop, hub) = (Arc::clone(&sent), Arc::clone(&stop), hub.clone());
        let (tell, told) = mpsc::channel();
        let handle = thread::spawn(move || {
            tell.send(Cpu::of_this_thread()).expect("somebody waits");
            for seq in 0..SEQS_MAX as u64 {
                let due = start + TICK * u32::try_from(seq).expect("it fits");
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let sample = telemetry(seq);
                let at = u64::try_from(start.elapsed().as_nanos()).expect("it fits");
                sent[usize::try_from(seq).expect("it fits")].store(at, Ordering::Relaxed);
                hub.telemetry(Arc::new(sample));
                if seq % 10 == 0 {
                    hub.slow(slow());
                }
            }
        });
        (handle, told.recv().expect("it starts"))
    };
    // The clients on theirs.
    let clients = thread::spawn({
        let (begun, n_ready, sent) = (Arc::clone(&begun), Arc::clone(&n_ready), Arc::clone(&sent));
        move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut viewers = JoinSet::new();
                for i in 0..n_viewers {
                    let (begun, ready, sent) = (Arc::clone(&begun), Arc::clone(&n_ready), Arc::clone(&sent));
                    viewers.spawn(watch(address, token.clone(), begun, ready, sent, start));
                    // A few at once: they come as people do.
                    while n_ready.load(Ordering::Relaxed) + 50 < i {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                viewers.join_all().await
            })
        }
    });
    while n_ready.load(Ordering::Relaxed) < n_viewers {
        thread::sleep(TICK);
        assert!(!clients.is_finished(), "a client gave up");
    }
    thread::sleep(10 * TICK);
    let (server_before, publisher_before) = (server_cpu.nanos(), publisher_cpu.nanos());
    let measured = Instant::now();
    begun.store(true, Ordering::Relaxed);
    thread::sleep(Duration::from_secs(seconds));
    begun.store(false, Ordering::Relaxed);
    let wall = measured.elapsed();
    let share = |after: u64, before: u64| (after - before) as f64 / wall.as_nanos() as f64;
    let server_share = share(server_cpu.nanos(), server_before);
    let publisher_share = share(publisher_cpu.nanos(), publisher_before);
    assert_eq!(hub.n_viewers(), n_viewers);
    stop.store(true, Ordering::Relaxed);
    publisher.join().expect("no panic");
    end.send(()).expect("it runs");
    let seen = clients.join().expect("no panic");
    server.join().expect("no panic");
    let mut latencies: Vec<Duration> = seen.iter().flat_map(|seen| seen.latencies.iter().copied()).collect();
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    let n_lost: u64 = seen.iter().map(|seen| seen.n_lost).sum();
    let bytes: u64 = seen.iter().map(|seen| seen.bytes).sum();
    println!(
        "{{\"bench\":\"viewers\",\"viewers\":{n_viewers},\"cards\":{CARDS},\"hz\":10,\"seconds\":{:.1},\
         \"messages\":{},\"lost\":{n_lost},\"bytes_per_message\":{},\"server_core_share\":{server_share:.3},\
         \"encoding_core_share\":{publisher_share:.4},\"p50_ms\":{:.2},\"p99_ms\":{:.2},\"max_ms\":{:.2}}}",
        wall.as_secs_f64(),
        latencies.len(),
        bytes / latencies.len() as u64,
        at(50),
        at(99),
        at(100)
    );
    let expected = n_viewers * (seconds * 10).saturating_sub(2);
    assert!(latencies.len() as u64 >= expected, "{} of {expected} messages", latencies.len());
    assert_eq!(n_lost, 0);
    assert!(server_share + publisher_share < 1.0, "more than a core");
    assert!(at(99) < P99_MAX.as_secs_f64() * 1e3, "the slowest hundredth took longer");
}
