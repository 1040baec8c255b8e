//! What the agent on the GPU host and a page say to each other, as JSON texts over one WebSocket, and the values that
//! both sides keep of it.
//!
//! The client speaks first: [`ClientMessage::Hello`] with its version and its token. The answer is
//! [`ServerMessage::Hello`] or [`ServerMessage::Refused`], whose form no later version changes, so that a page of any
//! age can say why. Then everything is for all viewers alike and is encoded once: telemetry, which a slow viewer loses
//! from its old end and is told of, and events, which nobody loses.
//!
//! Times are milliseconds since 1970 by the agent's clock. Those of live telemetry rise, and go back only where that
//! clock was set back. Golden JSON of every message is in `tests/golden/protocol`.

pub mod alert;
pub mod client;
pub mod event;
mod flat;
pub mod gpu;
pub mod history;
pub mod host;
pub mod reading;
pub mod run;
pub mod state;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use alert::Fired;
use event::Event;
use gpu::{Gpu, Sample, SlowSample};
use history::Past;
use host::HostSample;
use run::Run;
use state::State;

/// The version of everything here. A change that an older side would misread counts it up; a field that may be missing
/// does not.
pub const PROTOCOL_VERSION: u32 = 1;

/// Bytes of a client's message at most: all that a client says is a greeting.
pub const CLIENT_MESSAGE_BYTES_MAX: usize = 4096;

/// What a viewer may do; the server decides, by the viewer's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// See everything.
    View,
    /// Change and delete as well.
    Control,
}

/// What a page says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientMessage {
    /// The first and only one that has to come, within the server's deadline.
    Hello {
        /// [`PROTOCOL_VERSION`].
        protocol: u32,
        /// What the rig's owner was given, or pairing gave.
        token: String,
        /// What a viewer that was away has already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<After>,
        /// What sentences of the agent's are to be in: a code as [`crate::text::Language::code`]. English where it is
        /// missing or none of ours.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        language: Option<String>,
    },
}

/// How far a viewer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct After {
    /// Time of the newest telemetry it has.
    pub time_ms: u64,
    /// Number of the newest event it has, 0 for none.
    pub event: u64,
}

pub use flat::read_server_message;

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerMessage {
    /// The viewer is let in.
    Hello(Box<Hello>),
    /// It is not, and the socket closes.
    Refused(Refusal),
    /// Cards came, went or changed; in the place of the list before.
    Inventory {
        /// Every card seen since the agent started; a card keeps its place, lost or not.
        gpus: Vec<Gpu>,
    },
    /// The driver's or the history's state changed.
    State(State),
    /// Ten times a second.
    Telemetry(Telemetry),
    /// Once a second.
    Slow(Slow),
    /// Something happened.
    Event(Event),
    /// Telemetry that this viewer was too slow for: so many messages are gone, oldest first. History has them.
    Lost {
        /// How many of [`ServerMessage::Telemetry`] and [`ServerMessage::Slow`].
        n_messages: u64,
    },
    /// What a viewer that was away missed, oldest first, in several messages; live ones come between. One that has
    /// nothing yet gets the newest events that are not of every printed line, from before its greeting.
    Past(Past),
}

/// The agent's first message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`].
    pub protocol: u32,
    /// The agent's version.
    pub agent: String,
    /// Of this start of the agent: sequence numbers and cards' places are of one session.
    pub session: String,
    /// What the machine is called.
    pub name: String,
    /// What this viewer may do.
    pub scope: Scope,
    /// The agent's clock.
    pub time_ms: u64,
    /// As [`ServerMessage::Inventory`].
    pub gpus: Vec<Gpu>,
    /// Driver and history.
    pub state: State,
    /// Runs that have not ended, and the newest that have: newest first.
    pub runs: Vec<Run>,
    /// Number of the newest event.
    pub last_event: u64,
    /// Alerts that are on, newest first, at most [`alert::FIRED_MAX`].
    #[serde(default)]
    pub alerts: Vec<Fired>,
}

/// Why a viewer is not let in, or a request not answered: the same body everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Stable.
    pub code: RefusalCode,
    /// For people.
    pub message: String,
    /// Versions that the agent speaks.
    pub supported: Vec<u32>,
}

/// Why, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// No hello, a late one, or one that is none.
    BadHello,
    /// A version of the protocol that the agent does not speak.
    UnknownVersion,
    /// The token is unknown, or was revoked.
    BadToken,
    /// Too many refused tokens, or too many viewers.
    TooMany,
    /// The agent is stopping.
    Stopping,
    /// The viewer did not take events for too long.
    TooSlow,
    /// A reason of a later version.
    #[serde(other)]
    Other,
}

/// Readings of all cards at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Counts up by one; a gap is a loss.
    pub seq: u64,
    /// When they were read.
    pub time_ms: u64,
    /// One a card that is present.
    pub gpus: Vec<Sample>,
}

/// What changes slowly, or costs more to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// When it was read.
    pub time_ms: u64,
    /// One a card that is present.
    pub gpus: Vec<SlowSample>,
    /// The machine.
    pub host: HostSample,
}
