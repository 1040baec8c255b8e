//! The residual stream in compiled code: each layer norm sums it again, until it would read too many buffers.

use super::wrapper::Buf;

/// Maximum loads of an unstored sum; a sum with more loads is stored (`realize_reads_threshold` of Inductor).
const REALIZE_READS_THRESHOLD: usize = 4;

/// The terms of the residual stream since its last stored sum.
pub(super) struct Residual {
    /// Buffers that a reader loads, in order.
    terms: Vec<Buf>,
    /// Total loads: an embedding gathered again counts its indices and its two tables.
    reads: usize,
}

/// A layer norm's access to the stream.
pub(super) struct ResidualAccess {
    /// Buffers that the norm reads.
    pub(super) reads: Vec<Buf>,
    /// Whether the norm stores the sum.
    pub(super) stores: bool,
}

impl Residual {
    /// A stream that starts with `terms`, or with a gather of `reads` loads.
    pub(super) fn starting(terms: Vec<Buf>, reads: usize) -> Self {
        Self { terms, reads }
    }

    /// Adds a branch's output and its dropout mask, if any.
    pub(super) fn add(&mut self, output: Buf, mask: Option<Buf>) {
        self.terms.push(output);
        self.terms.extend(mask);
        self.reads += if mask.is_some() { 2 } else { 1 };
    }

    /// Buffers that the next layer norm reads, and whether it stores the sum.
    pub(super) fn summed(&self) -> ResidualAccess {
        ResidualAccess { reads: self.terms.clone(), stores: self.reads > REALIZE_READS_THRESHOLD }
    }

    /// Replaces the terms by one stored buffer.
    pub(super) fn stored(&mut self, sum: Buf) {
        self.terms = vec![sum];
        self.reads = 1;
    }
}
