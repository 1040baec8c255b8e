//! `torch.utils.checkpoint(use_reentrant=True)`: runs a function without a graph, and again with one in backward.
//!
//! Source: `CheckpointFunction` in torch/utils/checkpoint.py (2.11).

use std::{fmt, rc::Rc};

use super::Op;
use crate::{
    dtype::Dtype,
    torch::{Function, Tensor, Torch, tensor::Edge},
};

/// A checkpointed call.
#[derive(Clone)]
pub struct Call {
    function: Rc<Function>,
    autocast: Option<Dtype>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("autocast", &self.autocast).finish_non_exhaustive()
    }
}

impl Torch {
    /// Calls a function without a graph.
    #[must_use]
    pub fn checkpoint_reentrant(&self, function: &Rc<Function>, input: &Tensor) -> Tensor {
        let mut recording = self.record(&[input]);
        let mut out = self.no_grad(|| function(self, input.clone()));
        recording.save(input);
        let call = Call { function: Rc::clone(function), autocast: self.autocast_dtype() };
        recording.finish(Op::Reentrant(call), &mut [&mut out]);
        out
    }

    /// `CheckpointFunction.backward`: the function with a graph, and the backward of this graph.
    pub(super) fn reentrant_backward(
        &self,
        call: &Call,
        gradient: &Tensor,
        input: Option<Tensor>,
    ) -> Vec<Option<Tensor>> {
        let Some(mut input) = input else { return Vec::new() };
        let leaf = self.require_grad(&mut input);
        let records_graph = std::mem::replace(&mut self.state.borrow_mut().records_graph, true);
        let run = || (call.function)(self, input.clone());
        let out = match call.autocast {
            Some(dtype) => self.autocast(dtype, run),
            None => run(),
        };
        let of_outer = std::mem::take(&mut self.state.borrow_mut().held_by_graph);
        self.backward(&out, gradient);
        drop(out);
        self.end_graph();
        self.state.borrow_mut().held_by_graph = of_outer;
        self.state.borrow_mut().records_graph = records_graph;
        vec![self.remove_leaf(leaf)]
    }

    /// `x.requires_grad_(True)` of a tensor without a graph. Returns the number of its gradient.
    pub fn require_grad(&self, x: &mut Tensor) -> usize {
        let leaf = self.add_leaf("input");
        x.edge = Some(Edge::Leaf(leaf));
        leaf as usize
    }

    /// Removes the last tensor that requires a gradient, and returns the gradient.
    pub fn remove_leaf(&self, leaf: usize) -> Option<Tensor> {
        let leaves = &mut self.state.borrow_mut().leaves;
        let result = leaves.get_mut(leaf).and_then(|leaf| leaf.gradient.take());
        leaves.truncate(leaf);
        result
    }
}
