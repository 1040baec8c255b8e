//! Results of finalizing descriptors.

use std::{collections::BTreeMap, sync::Arc};

use super::graph::{Graph, Operation, Tensor, Work};
use crate::Engine;

/// The result of finalizing a descriptor.
#[derive(Clone, Debug)]
pub enum FinalizedDescriptor {
    Tensor(Tensor),
    /// The work of a pointwise operation, a matrix multiplication or a reduction.
    Work(Work),
    /// An operation with its tensors.
    Operation(Operation),
    /// A graph of operations.
    Graph(Arc<Graph>),
    /// The result of heuristics.
    Heuristics,
    /// The choice of an engine's knob.
    Knob,
    /// An engine, with or without its knobs: both are the same here.
    Chosen(EngineChoice),
    /// An execution plan.
    Plan(Plan),
    /// A variant pack.
    Pack(Pack),
}

/// An engine for a graph.
#[derive(Clone, Debug)]
pub struct EngineChoice {
    pub graph: Arc<Graph>,
    /// The engine's place in the scenario.
    pub place: usize,
    pub engine: Engine,
}

/// An execution plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The engine and its graph.
    pub chosen: EngineChoice,
    pub handle: usize,
}

/// A variant pack: the memory that a plan is executed with.
#[derive(Clone, Debug)]
pub struct Pack {
    /// Addresses by the tensors' unique ids.
    pub pointers: BTreeMap<i64, u64>,
    /// The workspace's address; 0 for none.
    pub workspace: u64,
}
