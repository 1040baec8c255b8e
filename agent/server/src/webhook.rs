//! Sends alerts as JSON to the owner's webhook, on its own thread. No other part waits for it.
//!
//! The address comes only from the command line or the environment, never from a client. The address is a secret,
//! because anyone with the address can post there. Messages and logs contain only its host.

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

use headroom_agent_core::logging::WEBHOOK;
pub use message::{Message, Names};

/// Maximum number of queued messages. Alerts are rare; if the receiver is unavailable for this many, newer ones are of
/// little use.
const QUEUE_MAX: usize = 64;
/// Maximum duration of one attempt, including connection and response.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// Delays before the attempts after the first.
const WAITS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(15)];
/// Maximum time for which the program's end waits for a message being sent.
const END_MAX: Duration = Duration::from_secs(3);

/// Why a webhook cannot be started.
#[derive(Debug, Error)]
pub enum Error {
    /// The address is invalid.
    #[error("the webhook's address is no http:// or https:// address with a host")]
    Address,
    /// The system cannot create a thread.
    #[error("cannot start the webhook's thread: {0}")]
    Start(#[from] io::Error),
}

/// Why a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The receiver rejected the message.
    #[error("the webhook at {host} answered {status} to an alert, which is not tried again")]
    Refused {
        /// Host of the webhook.
        host: String,
        /// HTTP status.
        status: u16,
    },
    /// No attempt succeeded: the receiver did not respond, or with a server error.
    #[error("the webhook at {host} did not take an alert in {attempts} attempts: {reason}")]
    GivenUp {
        /// Host of the webhook.
        host: String,
        /// Number of attempts.
        attempts: usize,
        /// Error of the last attempt.
        reason: String,
    },
    /// The queue is full.
    #[error("the webhook at {host} is too slow: an alert is not sent")]
    Full {
        /// Host of the webhook.
        host: String,
    },
}

/// Timeouts, which are shorter in tests.
#[derive(Clone, Copy, Debug)]
struct Patience {
    attempt_max: Duration,
    waits: [Duration; 2],
    end_max: Duration,
}

/// The sending thread, which ends when this value is dropped.
pub struct Webhook {
    messages: Option<SyncSender<Message>>,
    /// Dropping it interrupts a delay.
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
    /// Starts sending to an address. `tell` is called with failures, on any thread.
    ///
    /// # Errors
    /// The address is invalid, or the system cannot create a thread.
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

    /// Queues a message.
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
        // A redirected POST would become a GET, and the alert would be lost without an error.
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
    /// Sends messages until all senders are dropped. Messages that are queued when the program ends get one attempt
    /// each.
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
                Ok(status) if status.is_success() => {
                    tracing::debug!(target: WEBHOOK, host = self.host, attempts, "an alert was delivered");
                    return Ok(());
                }
                Ok(status) if is_busy(status) => format!("it answered {}", status.as_u16()),
                Ok(status) => return Err(Failure::Refused { host: self.host.clone(), status: status.as_u16() }),
                Err(error) => self.without_address(&error),
            };
            tracing::debug!(target: WEBHOOK, host = self.host, attempts, reason, "an alert is not delivered yet");
            // A stop interrupts the delay and prevents further attempts.
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

    /// Removes the address from an error message of the library, except for the host, which is not secret.
    fn without_address(&self, error: &ureq::Error) -> String {
        without_secrets(&self.uri, error.to_string())
    }
}

fn without_secrets(uri: &Uri, said: String) -> String {
    let user = uri.authority().and_then(|authority| authority.as_str().rsplit_once('@')).map(|(user, _)| user);
    let secrets = [Some(uri.path()).filter(|path| *path != "/"), uri.query(), user];
    let is_reported = |secret: &str| !secret.is_empty() && said.contains(secret);
    if secrets.into_iter().flatten().any(is_reported) { "it cannot be asked".to_owned() } else { said }
}

/// Whether a receiver may accept the message later.
fn is_busy(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}
