//! A viewer: a socket that authenticates and then reads, and its counts.

use std::{
    error::Error,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use futures_util::{SinkExt, StreamExt};
use headroom_protocol::{ClientMessage, PROTOCOL_VERSION, ServerMessage};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, client::IntoClientRequest, protocol::WebSocketConfig},
};

/// Read buffer of a socket in bytes. The library's default of 128 KiB would be most of this process's memory.
const READ_BYTES: usize = 8 * 1024;

/// The counts of a viewer during the measurement.
#[derive(Clone, Debug, Default)]
pub struct ViewerCounts {
    /// Telemetry messages.
    pub n_telemetry: u64,
    pub n_messages: u64,
    /// Bytes of all messages.
    pub n_bytes: u64,
    /// Missing sequence numbers.
    pub n_gaps: u64,
    /// Messages that the server reports as dropped.
    pub n_lost: u64,
    /// Time from each reading to its receipt, in microseconds.
    pub latencies_us: Vec<u64>,
    /// Why the connection ended early.
    pub ended: Option<String>,
    last_seq: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Viewer(Arc<Mutex<ViewerCounts>>);

impl Viewer {
    /// Returns the counts so far.
    pub fn seen(&self) -> MutexGuard<'_, ViewerCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads until the connection ends, which is an error; counts while `measuring` is set.
    pub async fn watch(self, mut socket: WebSocketStream<TcpStream>, measuring: Arc<AtomicBool>) {
        let why = loop {
            match socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    if let Err(error) = self.seen().take(&text, measuring.load(Ordering::Relaxed)) {
                        break error.to_string();
                    }
                }
                // The library answers pings together with the next reading.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(other)) => break format!("{other:?}"),
                Some(Err(error)) => break error.to_string(),
                None => break "the end".to_owned(),
            }
        };
        self.seen().ended = Some(why);
    }
}

impl ViewerCounts {
    fn take(&mut self, text: &str, measuring: bool) -> Result<(), Box<dyn Error>> {
        let now_us = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        if measuring {
            self.n_messages += 1;
            self.n_bytes += text.len() as u64;
        }
        if let Some((seq, time_ms)) = telemetry(text) {
            let n_missing = self.last_seq.map_or(0, |last| seq.abs_diff(last + 1));
            self.last_seq = Some(seq);
            if measuring {
                self.n_telemetry += 1;
                self.n_gaps += n_missing;
                self.latencies_us.push(u64::try_from(now_us)?.saturating_sub(time_ms * 1000));
            }
            return Ok(());
        }
        match serde_json::from_str(text)? {
            ServerMessage::Telemetry(_) => Err("telemetry begins otherwise than this program reads it".into()),
            ServerMessage::Refused(refusal) => Err(refusal.message.en.into()),
            ServerMessage::Lost { n_messages } => {
                self.n_lost += n_messages;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the sequence number and the time of a telemetry message. Only its head is parsed, because parsing all of it
/// would measure this process.
fn telemetry(text: &str) -> Option<(u64, u64)> {
    let rest = text.strip_prefix(r#"{"type":"telemetry","seq":"#)?;
    let (seq, rest) = rest.split_once(r#","time_ms":"#)?;
    let (time_ms, _) = rest.split_once(',')?;
    Some((seq.parse().ok()?, time_ms.parse().ok()?))
}

/// Opens a socket in the same way as the server's own page, and authenticates.
pub async fn join(address: SocketAddr, token: &str) -> Result<WebSocketStream<TcpStream>, Box<dyn Error>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut request = format!("ws://{address}/ws").into_client_request()?;
    request.headers_mut().insert("Origin", format!("http://{address}").parse()?);
    let config = WebSocketConfig::default().read_buffer_size(READ_BYTES).write_buffer_size(0);
    let (mut socket, _) = client_async_with_config(request, stream, Some(config)).await?;
    let hello =
        ClientMessage::Hello { protocol: PROTOCOL_VERSION, token: token.to_owned(), after: None, language: None };
    socket.send(Message::text(serde_json::to_string(&hello)?)).await?;
    match socket.next().await {
        Some(Ok(Message::Text(text))) => match serde_json::from_str(&text)? {
            ServerMessage::Hello(_) => Ok(socket),
            other => Err(format!("not let in: {other:?}").into()),
        },
        other => Err(format!("no hello: {other:?}").into()),
    }
}
