//! Alerts sent to an address of the owner's, as JSON, by a thread of its own: nothing waits for it.
//!
//! The address comes from the command line or the environment alone, never from a client. It is a secret, as whoever
//! knows it can post there: no more than its host is ever said or logged.

mod message;
#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use thiserror::Error;
use ureq::{
    Agent,
    http::{StatusCode, Uri},
};

pub use message::{Message, Names};

/// Messages that wait at most. Alerts are few; where the receiver is away for so many the newest are of no more use.
const QUEUE_MAX: usize = 64;
/// How long one attempt takes at most, its connection and answer included.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// How long is waited before each attempt after the first.
const WAITS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(15)];
/// How long the end of the program waits for what is being sent.
const END_MAX: Duration = Duration::from_secs(3);

/// Why nothing can be sent.
#[derive(Debug, Error)]
pub enum Error {
    /// The address is none.
    #[error("the webhook's address is no http:// or https:// address with a host")]
    Address,
    /// The system gives no thread.
    #[error("cannot start the webhook's thread: {0}")]
    Start(#[from] io::Error),
}

/// Why a message did not arrive.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// It was not taken.
    #[error("the webhook at {host} answered {status} to an alert, which is not tried again")]
    Refused {
        /// Where.
        host: String,
        /// The status.
        status: u16,
    },
    /// Nobody answered, or with an error of its own, as often as it was tried.
    #[error("the webhook at {host} did not take an alert in {attempts} attempts: {reason}")]
    GivenUp {
        /// Where.
        host: String,
        /// How often.
        attempts: usize,
        /// What happened at last.
        reason: String,
    },
    /// Too many wait.
    #[error("the webhook at {host} is too slow: an alert is not sent")]
    Full {
        /// Where.
        host: String,
    },
}

/// How patient it is; tests are not.
#[derive(Clone, Copy, Debug)]
struct Patience {
    attempt_max: Duration,
    waits: [Duration; 2],
    end_max: Duration,
}

/// The thread that sends; it ends when this is dropped.
pub struct Webhook {
    messages: Option<SyncSender<Message>>,
    /// Dropped, it ends a wait.
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
    host: String,
    tell: Arc<dyn Fn(Failure) + Send + Sync>,
    end_max: Duration,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Webhook").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Webhook {
    /// Sends to an address from now on; what fails is told, on any thread.
    ///
    /// # Errors
    /// The address is none, or the system gives no thread.
    pub fn start(address: &str, tell: impl Fn(Failure) + Send + Sync + 'static) -> Result<Self, Error> {
        let patience = Patience { attempt_max: ATTEMPT_MAX, waits: WAITS, end_max: END_MAX };
        Self::start_with(address, patience, tell)
    }

    fn start_with(
        address: &str,
        patience: Patience,
        tell: impl Fn(Failure) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let uri: Uri = address.trim().parse().map_err(|_| Error::Address)?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let host = uri.host().filter(|host| is_web && !host.is_empty()).ok_or(Error::Address)?.to_owned();
        let (messages, queue) = sync_channel(QUEUE_MAX);
        let (stop, stopped) = channel();
        let (running, ended) = channel();
        let tell: Arc<dyn Fn(Failure) + Send + Sync> = Arc::new(tell);
        let poster =
            Poster { agent: agent(patience.attempt_max), uri, host: host.clone(), waits: patience.waits, stopped };
        let tell_failures = Arc::clone(&tell);
        thread::Builder::new().name("webhook".to_owned()).spawn(move || {
            poster.run(&queue, &*tell_failures);
            drop::<Sender<()>>(running);
        })?;
        let end_max = patience.end_max;
        Ok(Self { messages: Some(messages), stop: Some(stop), ended, host, tell, end_max })
    }

    /// Sends a message when its turn comes.
    pub fn send(&self, message: Message) {
        let full = self.messages.as_ref().is_none_or(|messages| match messages.try_send(message) {
            Ok(()) => false,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => true,
        });
        if full {
            (self.tell)(Failure::Full { host: self.host.clone() });
        }
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.messages = None;
        self.stop = None;
        let _ = self.ended.recv_timeout(self.end_max);
    }
}

fn agent(attempt_max: Duration) -> Agent {
    Agent::config_builder()
        .timeout_global(Some(attempt_max))
        // A redirected POST arrives as a GET, and the alert would be lost without a word.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent(concat!("headroom/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent()
}

struct Poster {
    agent: Agent,
    uri: Uri,
    host: String,
    waits: [Duration; 2],
    stopped: Receiver<()>,
}

impl Poster {
    /// Sends until nobody sends more. What waits when the program ends is tried once each.
    fn run(&self, queue: &Receiver<Message>, tell: &dyn Fn(Failure)) {
        while let Ok(message) = queue.recv() {
            if let Err(failure) = self.deliver(&message) {
                tell(failure);
            }
        }
    }

    fn deliver(&self, message: &Message) -> Result<(), Failure> {
        let body = serde_json::to_vec(message).unwrap_or_default();
        let mut waits = self.waits.iter();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let reason = match self.attempt(&body) {
                Ok(status) if status.is_success() => return Ok(()),
                Ok(status) if is_busy(status) => format!("it answered {}", status.as_u16()),
                Ok(status) => return Err(Failure::Refused { host: self.host.clone(), status: status.as_u16() }),
                Err(error) => self.without_address(&error),
            };
            // Whoever stops neither waits nor tries again.
            let goes_on = |wait: &Duration| self.stopped.recv_timeout(*wait) == Err(RecvTimeoutError::Timeout);
            if !waits.next().is_some_and(goes_on) {
                return Err(Failure::GivenUp { host: self.host.clone(), attempts, reason });
            }
        }
    }

    fn attempt(&self, body: &[u8]) -> Result<StatusCode, ureq::Error> {
        let request = self.agent.post(&self.uri).header("content-type", "application/json");
        Ok(request.send(body)?.status())
    }

    /// What the library says of an error may name the address, of which the host alone is no secret.
    fn without_address(&self, error: &ureq::Error) -> String {
        without_secrets(&self.uri, error.to_string())
    }
}

fn without_secrets(uri: &Uri, said: String) -> String {
    let user = uri.authority().and_then(|authority| authority.as_str().rsplit_once('@')).map(|(user, _)| user);
    let secrets = [Some(uri.path()).filter(|path| *path != "/"), uri.query(), user];
    let is_told = |secret: &str| !secret.is_empty() && said.contains(secret);
    if secrets.into_iter().flatten().any(is_told) { "it cannot be asked".to_owned() } else { said }
}

/// Whether a receiver may take later what it does not take now.
fn is_busy(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}
