//! The residual stream in compiled code: a sum that each layer norm adds up anew, until it would read too much.

use super::wrapper::Buf;

/// A sum is stored once its readers would load more buffers than this (`realize_reads_threshold` of Inductor).
const REALIZE_READS_THRESHOLD: usize = 4;

/// The terms of the residual stream that are not summed up in memory yet.
pub(super) struct Residual {
    /// Buffers that are read for it, in order.
    terms: Vec<Buf>,
    /// Loads in all: an embedding that is gathered anew counts its indices and its two tables.
    reads: usize,
}

/// What a layer norm does about the stream.
pub(super) struct Summed {
    /// The buffers it reads.
    pub(super) reads: Vec<Buf>,
    /// Whether it stores the sum.
    pub(super) stores: bool,
}

impl Residual {
    /// A stream that starts with `terms`, or with what `reads` loads gather.
    pub(super) fn starting(terms: Vec<Buf>, reads: usize) -> Self {
        Self { terms, reads }
    }

    /// Adds a branch's output, with its dropout mask where it has one.
    pub(super) fn add(&mut self, output: Buf, mask: Option<Buf>) {
        self.terms.push(output);
        self.terms.extend(mask);
        self.reads += if mask.is_some() { 2 } else { 1 };
    }

    /// What the next layer norm reads, and whether it stores the sum.
    pub(super) fn summed(&self) -> Summed {
        Summed { reads: self.terms.clone(), stores: self.reads > REALIZE_READS_THRESHOLD }
    }

    /// From here on the stream is one buffer.
    pub(super) fn stored(&mut self, sum: Buf) {
        self.terms = vec![sum];
        self.reads = 1;
    }
}
