//! The protocol between the agent on the GPU host and a page: JSON texts over one WebSocket, and the values that both
//! sides keep.
//!
//! The client sends the first message: [`ClientMessage::Hello`] with its protocol version and its token. The agent
//! replies with [`ServerMessage::Hello`] or [`ServerMessage::Refused`]. No later version changes the form of these two,
//! so a page of any version can show the reason for a refusal. All later messages are the same for every viewer and are
//! encoded once. Telemetry may be dropped for a slow viewer, oldest first; the viewer then receives
//! [`ServerMessage::Lost`]. Events are never dropped.
//!
//! Times are milliseconds since 1970 by the agent's clock. Times of live telemetry increase, except after that clock is
//! set back. Golden JSON of every message is in `tests/golden/protocol`.

#![warn(missing_docs)]

pub mod alert;
pub mod alert_rule;
pub mod client;
pub mod demo;
pub mod event;
mod fold;
pub mod gpu;
pub mod history;
pub mod message;
pub mod metric;
pub mod printed;
pub mod reading;
pub mod run;
pub mod state;
#[cfg(test)]
mod tests;

// Tests read the English wording of texts.
#[cfg(test)]
use headroom_languages as _;

use serde::{Deserialize, Serialize};

use alert::FiredAlert;
use event::Event;
use gpu::Gpu;
use history::MissedHistory;
use message::Message;
use metric::{HostSample, Sample, SlowSample};
use run::Run;
use state::State;

/// The version of the protocol. A change that an older side would misread increments the version. A new optional field
/// does not.
pub const PROTOCOL_VERSION: u32 = 1;

/// Maximum length of a client's message in bytes. Clients send only a greeting.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = 4096;

/// Permissions of a viewer. The server determines them from the viewer's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Read-only access.
    View,
    /// Access that also permits changes and deletions.
    Control,
}

/// A message from a page to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientMessage {
    /// The first and only required message. It must arrive within the server's deadline.
    Hello {
        /// [`PROTOCOL_VERSION`].
        protocol: u32,
        /// The access token, from the rig's owner or from pairing.
        token: String,
        /// What a returning viewer already has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<ResumePoint>,
        /// A language code. The agent ignores it. Agents before typed messages used it to translate for their viewers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        language: Option<String>,
    },
}

/// The newest data that a viewer already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoint {
    /// Time of the newest telemetry.
    pub time_ms: u64,
    /// Number of the newest event; 0 if there is none.
    pub event: u64,
}

/// A message from the agent to a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerMessage {
    /// The viewer is accepted.
    Hello(Box<Hello>),
    /// The viewer is refused, and the agent closes the socket.
    Refused(Refusal),
    /// The list of GPUs changed. It replaces the previous list.
    Inventory {
        /// Every GPU seen since the agent started. A GPU keeps its index, even after it is lost.
        gpus: Vec<Gpu>,
    },
    /// The driver's or the history's state changed.
    State(State),
    /// Fast readings, ten times per second.
    Telemetry(Telemetry),
    /// Slow readings, once per second.
    Slow(SlowReadings),
    /// A numbered event.
    Event(Event),
    /// Telemetry messages that were dropped, oldest first, because this viewer was too slow. History has them.
    Lost {
        /// Number of dropped [`ServerMessage::Telemetry`] and [`ServerMessage::Slow`] messages.
        n_messages: u64,
    },
    /// What a returning viewer missed, oldest first, in several messages; live messages may come between. A viewer
    /// without any events gets the newest events from before its greeting, without those of each printed line.
    Past(MissedHistory),
}

/// The agent's first message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// The agent's version.
    pub agent: String,
    /// Random identifier of this start of the agent. Sequence numbers and GPU indices are valid within one session.
    pub session: String,
    /// The machine's name.
    pub name: String,
    /// Permissions of this viewer.
    pub scope: Scope,
    /// Current time of the agent's clock.
    pub time_ms: u64,
    /// GPUs, as in [`ServerMessage::Inventory`].
    pub gpus: Vec<Gpu>,
    /// State of the driver and of history.
    pub state: State,
    /// All runs that have not ended and the newest ended runs, newest first.
    pub runs: Vec<Run>,
    /// Number of the newest event.
    pub last_event: u64,
    /// Active alerts, newest first, at most [`alert::FIRED_MAX`].
    #[serde(default)]
    pub alerts: Vec<FiredAlert>,
}

/// The reason why a viewer is refused or a request fails. All endpoints use this body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Stable code for programs.
    pub code: RefusalCode,
    /// Message for people.
    #[serde(flatten, with = "message::message")]
    pub message: Message,
    /// Protocol versions that the agent supports.
    pub supported: Vec<u32>,
}

/// Reason for a refusal, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The greeting is missing, late or invalid.
    BadHello,
    /// The agent does not support this protocol version.
    UnknownVersion,
    /// The token is unknown or revoked.
    BadToken,
    /// Too many invalid tokens, or too many viewers.
    TooMany,
    /// The agent is stopping.
    Stopping,
    /// The viewer did not receive events for too long.
    TooSlow,
    /// A reason that a later version defines.
    #[serde(other)]
    Other,
}

/// Readings of all GPUs at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Sequence number, incremented by one per message. A gap means loss.
    pub seq: u64,
    /// Time of the readings.
    pub time_ms: u64,
    /// One sample per present GPU.
    pub gpus: Vec<Sample>,
}

/// Readings that change slowly or are expensive to take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowReadings {
    /// Time of the readings.
    pub time_ms: u64,
    /// One sample per present GPU.
    pub gpus: Vec<SlowSample>,
    /// Readings of the machine.
    pub host: HostSample,
}
