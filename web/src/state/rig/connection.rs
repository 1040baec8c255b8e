//! The state of the page's connection to its agent: a state machine that receives events with times and returns
//! actions. It uses no socket and no clock.

use headroom_protocol::{PROTOCOL_VERSION, Refusal, RefusalCode};

use crate::text;

/// The silence after which readings are stale, in milliseconds. Telemetry arrives ten times per second, the rest once.
pub const STALE_AFTER_MS: u64 = 3_000;
/// The silence after which the socket is considered dead, as after a change of Wi-Fi, where no close ever arrives.
const DEAD_AFTER_MS: u64 = 12_000;
/// The same limit while no GPU is monitored, when the agent may have nothing to send.
const QUIET_DEAD_AFTER_MS: u64 = 60_000;
/// The longest time for a socket to open and receive the greeting.
const CONNECT_MS_MAX: u64 = 10_000;
/// The first delay before a retry, in milliseconds; each further one is twice as long.
const WAIT_MS_MIN: u64 = 500;
/// The longest delay, in milliseconds, so that the page soon finds an agent that is back.
const WAIT_MS_MAX: u64 = 30_000;
/// The delay after a refusal that may be temporary, in milliseconds.
const REFUSED_WAIT_MS: u64 = 30_000;

/// The state of the connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// A socket opens, or the page checks whether there is an agent.
    Connecting,
    /// The page exchanges a code for a token.
    Pairing,
    /// There is an agent but no valid token; the fault describes the last attempt.
    Unpaired(Option<Fault>),
    /// Messages arrive.
    Live,
    /// A retry is scheduled.
    Waiting {
        /// Its time, in milliseconds.
        until_ms: u64,
        /// Whether the agent answers over HTTP although its socket failed.
        agent_answers: bool,
    },
    /// The agent refuses this page for now.
    Refused {
        /// The agent's message.
        message: String,
        /// The time of the next attempt, in milliseconds.
        until_ms: u64,
    },
    /// The agent does not support this page's protocol version.
    Mismatch(Vec<u32>),
    /// The server of this page is not an agent.
    NoAgent,
}

/// The fault of a token or a code.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The agent does not know the token, or has revoked it.
    Token,
    /// The agent rejected the code, with its message.
    Code(String),
}

/// An action for the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum ConnectionAction {
    /// Open a socket, replacing an open one.
    Open,
    /// Send the greeting.
    Hello,
    /// Close the socket.
    Close,
    /// Check whether there is an agent.
    Probe,
    /// Exchange this code for a token.
    Pair(String),
}

/// The result of a check for an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// An agent answered.
    Agent,
    /// Another server answered.
    Other,
    /// No answer.
    Nothing,
}

/// The state machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// The current stage.
    pub stage: Stage,
    /// The token, if there is one.
    pub token: Option<String>,
    /// Whether it was ever live, so that there is data to show, however old.
    pub was_live: bool,
    /// The time of the last message, in milliseconds.
    pub heard_ms: u64,
    /// The start of the stage, in milliseconds.
    since_ms: u64,
    /// The number of failed attempts since it was live.
    n_failures: u32,
    /// Whether GPUs are monitored, so that silence means a problem.
    is_fed: bool,
}

impl Connection {
    /// The initial state. A code in the address takes precedence over a stored token.
    pub fn begin(now_ms: u64, token: Option<String>, code: Option<String>) -> (Self, ConnectionAction) {
        let (stage, first) = match (code, &token) {
            (Some(code), _) => (Stage::Pairing, ConnectionAction::Pair(code)),
            (None, Some(_)) => (Stage::Connecting, ConnectionAction::Open),
            (None, None) => (Stage::Connecting, ConnectionAction::Probe),
        };
        let connection =
            Self { stage, token, was_live: false, heard_ms: now_ms, since_ms: now_ms, n_failures: 0, is_fed: false };
        (connection, first)
    }

    fn enter(&mut self, now_ms: u64, stage: Stage) {
        self.stage = stage;
        self.since_ms = now_ms;
    }

    fn open(&mut self, now_ms: u64) -> Option<ConnectionAction> {
        self.enter(now_ms, Stage::Connecting);
        Some(if self.token.is_some() { ConnectionAction::Open } else { ConnectionAction::Probe })
    }

    /// Waits longer after each failure. The random part keeps the pages of one agent from retrying at the same moment.
    /// `chance` is from 0 to 1.
    fn wait(&mut self, now_ms: u64, chance: f64, agent_answers: bool) {
        let whole = WAIT_MS_MIN.saturating_mul(1 << self.n_failures.min(10)).min(WAIT_MS_MAX);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between half of it and all of it")]
        let wait_ms = (whole as f64 * (0.5 + chance.clamp(0.0, 1.0) / 2.0)) as u64;
        self.n_failures = self.n_failures.saturating_add(1);
        self.enter(now_ms, Stage::Waiting { until_ms: now_ms.saturating_add(wait_ms), agent_answers });
    }

    /// Handles a pairing link that was opened in the open page.
    pub fn pair(&mut self, now_ms: u64, code: String) -> Option<ConnectionAction> {
        self.enter(now_ms, Stage::Pairing);
        Some(ConnectionAction::Pair(code))
    }

    /// Handles the result of the exchange of a code.
    pub fn paired(&mut self, now_ms: u64, answer: Result<String, String>) -> Option<ConnectionAction> {
        match answer {
            Ok(token) => self.take_token(now_ms, token),
            // A page that already had a token keeps it: users often open a link twice.
            Err(_) if self.token.is_some() => self.open(now_ms),
            Err(message) => {
                self.enter(now_ms, Stage::Unpaired(Some(Fault::Code(message))));
                None
            }
        }
    }

    /// Takes a token that the user typed.
    pub fn take_token(&mut self, now_ms: u64, token: String) -> Option<ConnectionAction> {
        self.token = Some(token);
        self.n_failures = 0;
        self.open(now_ms)
    }

    /// Removes the token.
    pub fn forget_token(&mut self, now_ms: u64) -> Option<ConnectionAction> {
        self.token = None;
        self.enter(now_ms, Stage::Unpaired(None));
        Some(ConnectionAction::Close)
    }

    /// Handles the opening of the socket.
    pub fn opened(&mut self) -> Option<ConnectionAction> {
        matches!(self.stage, Stage::Connecting).then_some(ConnectionAction::Hello)
    }

    /// Handles the agent's greeting.
    pub fn hello(&mut self, now_ms: u64, protocol: u32) -> Option<ConnectionAction> {
        if protocol != PROTOCOL_VERSION {
            self.enter(now_ms, Stage::Mismatch(vec![protocol]));
            return Some(ConnectionAction::Close);
        }
        self.enter(now_ms, Stage::Live);
        (self.was_live, self.n_failures, self.heard_ms) = (true, 0, now_ms);
        None
    }

    /// Handles the arrival of any message.
    pub fn heard(&mut self, now_ms: u64, is_fed: bool) {
        self.heard_ms = now_ms;
        self.is_fed = is_fed;
    }

    /// Handles the agent's refusal.
    pub fn refused(&mut self, now_ms: u64, refusal: Refusal, chance: f64) -> Option<ConnectionAction> {
        match refusal.code {
            RefusalCode::UnknownVersion => self.enter(now_ms, Stage::Mismatch(refusal.supported)),
            RefusalCode::BadToken => {
                self.token = None;
                self.enter(now_ms, Stage::Unpaired(Some(Fault::Token)));
            }
            RefusalCode::Stopping | RefusalCode::TooSlow => self.wait(now_ms, chance, false),
            RefusalCode::BadHello | RefusalCode::TooMany | RefusalCode::Other => {
                let until_ms = now_ms.saturating_add(REFUSED_WAIT_MS);
                self.enter(now_ms, Stage::Refused { message: text::message(&refusal.message), until_ms });
            }
        }
        Some(ConnectionAction::Close)
    }

    /// Handles the closing of the socket, or its failure to open.
    pub fn closed(&mut self, now_ms: u64, chance: f64) -> Option<ConnectionAction> {
        match self.stage {
            // There may be no agent: a browser gives no reason for a socket's failure.
            Stage::Connecting if !self.was_live => Some(ConnectionAction::Probe),
            Stage::Connecting | Stage::Live => {
                self.wait(now_ms, chance, false);
                None
            }
            _ => None,
        }
    }

    /// Handles the result of a check for an agent.
    pub fn probed(&mut self, now_ms: u64, found: Probe, chance: f64) -> Option<ConnectionAction> {
        if self.stage != Stage::Connecting {
            return None;
        }
        match found {
            Probe::Agent if self.token.is_none() => self.enter(now_ms, Stage::Unpaired(None)),
            Probe::Other if !self.was_live => self.enter(now_ms, Stage::NoAgent),
            Probe::Agent => self.wait(now_ms, chance, true),
            Probe::Other | Probe::Nothing => self.wait(now_ms, chance, false),
        }
        None
    }

    /// Handles the passing of time.
    pub fn tick(&mut self, now_ms: u64, chance: f64) -> Option<ConnectionAction> {
        // A clock that was set back would make every wait endless.
        self.since_ms = self.since_ms.min(now_ms);
        self.heard_ms = self.heard_ms.min(now_ms);
        if let Stage::Waiting { until_ms, .. } | Stage::Refused { until_ms, .. } = &mut self.stage {
            *until_ms = (*until_ms).min(now_ms.saturating_add(WAIT_MS_MAX));
        }
        match self.stage {
            Stage::Waiting { until_ms, .. } | Stage::Refused { until_ms, .. } if until_ms <= now_ms => {
                self.open(now_ms)
            }
            Stage::Connecting if now_ms - self.since_ms > CONNECT_MS_MAX => {
                self.wait(now_ms, chance, false);
                Some(ConnectionAction::Close)
            }
            Stage::Live if now_ms - self.heard_ms > self.dead_after_ms() => self.open(now_ms),
            _ => None,
        }
    }

    const fn dead_after_ms(&self) -> u64 {
        if self.is_fed { DEAD_AFTER_MS } else { QUIET_DEAD_AFTER_MS }
    }

    /// Retries immediately after the machine woke up, the network returned, or the page became visible.
    pub fn woke(&mut self, now_ms: u64) -> Option<ConnectionAction> {
        match self.stage {
            Stage::Waiting { .. } | Stage::Refused { .. } => {
                self.n_failures = 0;
                self.open(now_ms)
            }
            Stage::Live if self.is_stale(now_ms) => self.open(now_ms),
            _ => None,
        }
    }

    /// Retries at the user's request.
    pub fn again(&mut self, now_ms: u64) -> Option<ConnectionAction> {
        self.n_failures = 0;
        self.open(now_ms)
    }

    /// Returns whether the shown data is from an earlier time rather than live.
    pub fn is_old(&self, now_ms: u64) -> bool {
        self.stage != Stage::Live || self.is_stale(now_ms)
    }

    /// Returns whether the shown data is older than expected.
    pub fn is_stale(&self, now_ms: u64) -> bool {
        self.is_fed && now_ms.saturating_sub(self.heard_ms) > STALE_AFTER_MS
    }
}

#[cfg(test)]
mod tests;
