//! How the page stands with the agent that serves it: a machine that is told what happened and when, and says what to
//! do. It knows no socket and no clock.

use headroom_shared::protocol::{PROTOCOL_VERSION, Refusal, RefusalCode};

/// Silence after which what is shown is called stale: telemetry comes ten times a second, and the rest once.
pub const STALE_AFTER_MS: u64 = 3_000;
/// Silence after which the socket is taken for dead, as behind a Wi-Fi that changed: no close ever arrives there.
const DEAD_AFTER_MS: u64 = 12_000;
/// The same where no card is read and the agent may have nothing to say.
const QUIET_DEAD_AFTER_MS: u64 = 60_000;
/// Time for a socket to open and be greeted.
const CONNECT_MS_MAX: u64 = 10_000;
/// First wait before another try; each further one is twice as long.
const WAIT_MS_MIN: u64 = 500;
/// Longest wait, so that an agent that is back is seen soon.
const WAIT_MS_MAX: u64 = 30_000;
/// Wait after a refusal that may pass.
const REFUSED_WAIT_MS: u64 = 30_000;

/// Where things stand.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// A socket is being opened, or it is being seen whether there is an agent at all.
    Connecting,
    /// A code is being exchanged for a token.
    Pairing,
    /// There is an agent, and no token that it takes; and what was wrong with the last.
    Unpaired(Option<Fault>),
    /// Messages arrive.
    Live,
    /// The next try.
    Waiting {
        /// When it is.
        until_ms: u64,
        /// Whether an agent answered where its socket did not.
        agent_answers: bool,
    },
    /// The agent does not let this page in now.
    Refused {
        /// In its words.
        message: String,
        /// When it is asked again.
        until_ms: u64,
    },
    /// The agent speaks other versions of the protocol than this page.
    Mismatch(Vec<u32>),
    /// Whatever serves this page is no agent.
    NoAgent,
}

/// What was wrong with a token or a code.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The agent does not know the token, or no longer.
    Token,
    /// The agent did not take the code; in its words.
    Code(String),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Do {
    /// Open a socket, in the place of one that is open.
    Open,
    /// Send the greeting.
    Hello,
    /// Close the socket.
    Close,
    /// Ask whether there is an agent.
    Probe,
    /// Exchange this code for a token.
    Pair(String),
}

/// What answers where an agent should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// An agent.
    Agent,
    /// Something else.
    Other,
    /// Nothing.
    Nothing,
}

/// The machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// Where it stands.
    pub stage: Stage,
    /// The token, if there is one.
    pub token: Option<String>,
    /// Whether it was ever live: then there is something to show, however old.
    pub was_live: bool,
    /// When something was heard last.
    pub heard_ms: u64,
    /// When the stage began.
    since_ms: u64,
    /// Tries that failed since it was live.
    n_failures: u32,
    /// Whether cards are read, so that silence means something.
    is_fed: bool,
}

impl Connection {
    /// The beginning. A code in the address comes before a token that was kept.
    pub fn begin(now_ms: u64, token: Option<String>, code: Option<String>) -> (Self, Do) {
        let (stage, first) = match (code, &token) {
            (Some(code), _) => (Stage::Pairing, Do::Pair(code)),
            (None, Some(_)) => (Stage::Connecting, Do::Open),
            (None, None) => (Stage::Connecting, Do::Probe),
        };
        let connection =
            Self { stage, token, was_live: false, heard_ms: now_ms, since_ms: now_ms, n_failures: 0, is_fed: false };
        (connection, first)
    }

    fn enter(&mut self, now_ms: u64, stage: Stage) {
        self.stage = stage;
        self.since_ms = now_ms;
    }

    fn open(&mut self, now_ms: u64) -> Option<Do> {
        self.enter(now_ms, Stage::Connecting);
        Some(if self.token.is_some() { Do::Open } else { Do::Probe })
    }

    /// Waits longer after each failure, by chance not at the same moment as every other page of the same agent.
    /// `chance` is from 0 to 1.
    fn wait(&mut self, now_ms: u64, chance: f64, agent_answers: bool) {
        let whole = WAIT_MS_MIN.saturating_mul(1 << self.n_failures.min(10)).min(WAIT_MS_MAX);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between half of it and all of it")]
        let wait_ms = (whole as f64 * (0.5 + chance.clamp(0.0, 1.0) / 2.0)) as u64;
        self.n_failures = self.n_failures.saturating_add(1);
        self.enter(now_ms, Stage::Waiting { until_ms: now_ms.saturating_add(wait_ms), agent_answers });
    }

    /// A pairing link was opened in the open page.
    pub fn pair(&mut self, now_ms: u64, code: String) -> Option<Do> {
        self.enter(now_ms, Stage::Pairing);
        Some(Do::Pair(code))
    }

    /// A code was exchanged, or not.
    pub fn paired(&mut self, now_ms: u64, answer: Result<String, String>) -> Option<Do> {
        match answer {
            Ok(token) => self.take_token(now_ms, token),
            // A page that had a token before goes on with it: a link is often opened twice.
            Err(_) if self.token.is_some() => self.open(now_ms),
            Err(message) => {
                self.enter(now_ms, Stage::Unpaired(Some(Fault::Code(message))));
                None
            }
        }
    }

    /// A person typed a token.
    pub fn take_token(&mut self, now_ms: u64, token: String) -> Option<Do> {
        self.token = Some(token);
        self.n_failures = 0;
        self.open(now_ms)
    }

    /// The token is not wanted any more.
    pub fn forget_token(&mut self, now_ms: u64) -> Option<Do> {
        self.token = None;
        self.enter(now_ms, Stage::Unpaired(None));
        Some(Do::Close)
    }

    /// The socket is open.
    pub fn opened(&mut self) -> Option<Do> {
        matches!(self.stage, Stage::Connecting).then_some(Do::Hello)
    }

    /// The agent greets.
    pub fn hello(&mut self, now_ms: u64, protocol: u32) -> Option<Do> {
        if protocol != PROTOCOL_VERSION {
            self.enter(now_ms, Stage::Mismatch(vec![protocol]));
            return Some(Do::Close);
        }
        self.enter(now_ms, Stage::Live);
        (self.was_live, self.n_failures, self.heard_ms) = (true, 0, now_ms);
        None
    }

    /// Any message came.
    pub fn heard(&mut self, now_ms: u64, is_fed: bool) {
        self.heard_ms = now_ms;
        self.is_fed = is_fed;
    }

    /// The agent refuses.
    pub fn refused(&mut self, now_ms: u64, refusal: Refusal, chance: f64) -> Option<Do> {
        match refusal.code {
            RefusalCode::UnknownVersion => self.enter(now_ms, Stage::Mismatch(refusal.supported)),
            RefusalCode::BadToken => {
                self.token = None;
                self.enter(now_ms, Stage::Unpaired(Some(Fault::Token)));
            }
            RefusalCode::Stopping | RefusalCode::TooSlow => self.wait(now_ms, chance, false),
            RefusalCode::BadHello | RefusalCode::TooMany | RefusalCode::Other => {
                let until_ms = now_ms.saturating_add(REFUSED_WAIT_MS);
                self.enter(now_ms, Stage::Refused { message: refusal.message, until_ms });
            }
        }
        Some(Do::Close)
    }

    /// The socket closed, or never opened.
    pub fn closed(&mut self, now_ms: u64, chance: f64) -> Option<Do> {
        match self.stage {
            // It may be that there never was an agent: a browser does not say why a socket fails.
            Stage::Connecting if !self.was_live => Some(Do::Probe),
            Stage::Connecting | Stage::Live => {
                self.wait(now_ms, chance, false);
                None
            }
            _ => None,
        }
    }

    /// It is known now what answers.
    pub fn probed(&mut self, now_ms: u64, found: Probe, chance: f64) -> Option<Do> {
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

    /// Time passed.
    pub fn tick(&mut self, now_ms: u64, chance: f64) -> Option<Do> {
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
                Some(Do::Close)
            }
            Stage::Live if now_ms - self.heard_ms > self.dead_after_ms() => self.open(now_ms),
            _ => None,
        }
    }

    const fn dead_after_ms(&self) -> u64 {
        if self.is_fed { DEAD_AFTER_MS } else { QUIET_DEAD_AFTER_MS }
    }

    /// The machine woke up, the network is back, or somebody looks at the page again: nobody waits for a timer.
    pub fn woke(&mut self, now_ms: u64) -> Option<Do> {
        match self.stage {
            Stage::Waiting { .. } | Stage::Refused { .. } => {
                self.n_failures = 0;
                self.open(now_ms)
            }
            Stage::Live if self.is_stale(now_ms) => self.open(now_ms),
            _ => None,
        }
    }

    /// A person asks for another try.
    pub fn again(&mut self, now_ms: u64) -> Option<Do> {
        self.n_failures = 0;
        self.open(now_ms)
    }

    /// Whether what is shown is of an earlier time, and not what comes now.
    pub fn is_old(&self, now_ms: u64) -> bool {
        self.stage != Stage::Live || self.is_stale(now_ms)
    }

    /// Whether what is shown is older than it should be.
    pub fn is_stale(&self, now_ms: u64) -> bool {
        self.is_fed && now_ms.saturating_sub(self.heard_ms) > STALE_AFTER_MS
    }
}

#[cfg(test)]
mod tests;
