//! Figures of a message that its config contradicts.

use std::cell::Cell;

use serde_json::{Map, Value as Json};

use super::Message;
use crate::{
    memory::allocator::segment_bytes,
    plan::{Plan, RunOnMachine},
};
use headroom_text::{self as text, Text};

/// A figure that differs between the message and the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Size of the request.
    Requested,
    /// Memory of live tensors.
    Allocated,
}

/// A figure of the message that the run never reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The figure.
    pub figure: Figure,
    /// Bytes in the message.
    pub message_bytes: u64,
    /// Maximum of the run in bytes.
    pub run_bytes: u64,
}

impl Difference {
    /// Returns the difference in words.
    #[must_use]
    pub fn text(&self) -> Text {
        let (message, run) = (text::printed_size(self.message_bytes), text::printed_size(self.run_bytes));
        match self.figure {
            Figure::Requested => text::differs_requested(message, run),
            Figure::Allocated => text::differs_allocated(message, run),
        }
    }

    /// Returns the row of the JSON contract.
    #[must_use]
    pub fn json(&self) -> Json {
        let name = match self.figure {
            Figure::Requested => "requested",
            Figure::Allocated => "allocated",
        };
        let mut row = Map::new();
        row.insert("figure".to_owned(), Json::from(name));
        row.insert("message_bytes".to_owned(), Json::from(self.message_bytes));
        row.insert("run_bytes".to_owned(), Json::from(self.run_bytes));
        Json::Object(row)
    }
}

/// Returns the figures of the message that exceed the run's maxima.
pub(super) fn differences<R: RunOnMachine>(message: &Message, plan: &Plan<R>) -> Vec<Difference> {
    let largest = Cell::new(0);
    let see = |bytes: u64| {
        largest.set(bytes.max(largest.get()));
        false
    };
    drop(plan.allocations(see, 0));
    let figures = [
        (Figure::Requested, message.requested, segment_bytes(largest.get())),
        (Figure::Allocated, message.allocated, plan.peak.max_allocated_bytes),
    ];
    let differing = figures.into_iter().filter_map(|(figure, size, run_bytes)| {
        let size = size.filter(|size| size.bytes > run_bytes && !size.is_printed_for(run_bytes))?;
        Some(Difference { figure, message_bytes: size.bytes, run_bytes })
    });
    differing.collect()
}
