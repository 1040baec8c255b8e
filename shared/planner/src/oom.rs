//! Recognition and explanation of out-of-memory messages in pasted text.
//!
//! `parse` finds the message in a traceback or a log and reads its figures. It does not use a config and does not
//! explain the message.

mod cause;
pub mod diagnosis;
mod difference;
mod explain;
mod explanation;
mod figures;
mod guess;
pub mod link;
mod message;
mod others;
mod parse;
mod prefix;
mod pytorch;
mod reader;
mod scan;
pub mod solve;
#[cfg(test)]
mod tests;
mod words;

pub use diagnosis::{Diagnosis, diagnose, diagnose_run};
pub use difference::{Difference, Figure};
pub use explain::{explain, gpu_of};
pub use explanation::{Agreement, Arithmetic, Cause, Explanation, Match, MatchingRun, shape};
pub use message::{Era, Kind, Message, NotOom, Note, Operation, Origin, OtherProcess, Phase, PhaseHint, Report, Size};
pub use parse::{MAX_INPUT_BYTES, read};
