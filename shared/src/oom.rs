//! What a person pastes after a run ended for want of memory: the message in it, and what that says.
//!
//! `parse` finds the message in a traceback or a log and reads its figures; it knows no config and explains nothing.

mod cause;
pub mod diagnosis;
mod explain;
mod figures;
mod guess;
mod message;
mod others;
mod parse;
mod prefix;
mod pytorch;
mod reader;
mod scan;
#[cfg(test)]
mod tests;
mod words;

pub use cause::Cause;
pub use diagnosis::{Diagnosis, diagnose, diagnose_run};
pub use explain::{Agreement, Arithmetic, Explanation, Match, card_of, explain};
pub use message::{Era, Kind, Message, NotOom, Note, Operation, OtherProcess, Phase, PhaseHint, Report, Size};
pub use parse::{MAX_INPUT_BYTES, read};
pub use words::shape;
