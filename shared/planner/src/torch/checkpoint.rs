//! `torch.utils.checkpoint(use_reentrant=False)`: saves nothing in forward, and recomputes at the first saved tensor
//! that backward needs.
//!
//! Recomputation stops after the last saved tensor. Source: torch/utils/checkpoint.py (2.11).

use std::{cell::RefCell, fmt, rc::Rc};

use super::{Torch, tensor::Tensor};
use crate::dtype::Dtype;

/// A part of a model that is recomputed in backward.
pub type Function = dyn Fn(&Torch, Tensor) -> Tensor;

/// A checkpointed call.
pub struct Frame {
    function: Rc<Function>,
    input: Tensor,
    autocast: Option<Dtype>,
    state: RefCell<FrameState>,
}

#[derive(Default)]
struct FrameState {
    n_saved: usize,
    /// Tensors of the recomputation, in the order of saving.
    recomputed: Option<Vec<Option<Tensor>>>,
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("input", &self.input).finish_non_exhaustive()
    }
}

/// A pass through a checkpointed call.
#[derive(Clone, Debug)]
pub enum Pass {
    /// In forward.
    First(Rc<Frame>),
    /// In backward.
    Recomputation(Rc<Frame>),
}

impl Pass {
    /// Whether the pass is in backward.
    pub fn is_recomputation(&self) -> bool {
        matches!(self, Self::Recomputation(_))
    }
}

/// A tensor saved for backward.
#[derive(Debug)]
pub enum Saved {
    /// A reference.
    Held(Tensor),
    /// The tensor with this number of a checkpointed call.
    Recomputed(Rc<Frame>, usize),
}

impl Torch {
    /// Calls a function without saving its tensors.
    #[must_use]
    pub fn checkpoint(&self, function: &Rc<Function>, input: Tensor) -> Tensor {
        if !self.state.borrow().records_graph {
            return function(self, input);
        }
        let frame = Rc::new(Frame {
            function: Rc::clone(function),
            input: input.clone(),
            autocast: self.autocast_dtype(),
            state: RefCell::default(),
        });
        self.pass(Pass::First(frame), || function(self, input))
    }

    fn pass<R>(&self, pass: Pass, run: impl FnOnce() -> R) -> R {
        let before = self.state.borrow_mut().checkpoint.replace(pass);
        let result = run();
        let ended = std::mem::replace(&mut self.state.borrow_mut().checkpoint, before);
        drop(ended);
        result
    }

    /// Saves a tensor for backward, or counts it in a checkpointed call.
    pub(super) fn pack(&self, tensor: &Tensor) -> Saved {
        let pass = self.state.borrow().checkpoint.clone();
        match pass {
            None => Saved::Held(tensor.detached()),
            Some(Pass::First(frame)) => {
                let n_saved = &mut frame.state.borrow_mut().n_saved;
                *n_saved += 1;
                Saved::Recomputed(Rc::clone(&frame), *n_saved - 1)
            }
            Some(Pass::Recomputation(frame)) => {
                let state = &mut *frame.state.borrow_mut();
                if let Some(recomputed) = &mut state.recomputed
                    && recomputed.len() < state.n_saved
                {
                    recomputed.push(Some(tensor.detached()));
                    // PyTorch ends the function with an exception here.
                    self.heap.pause(recomputed.len() == state.n_saved);
                }
                Saved::Recomputed(Rc::clone(&frame), usize::MAX)
            }
        }
    }

    /// The saved tensor. That of a checkpointed call is handed over.
    pub(super) fn unpack(&self, saved: &Saved) -> Option<Tensor> {
        match saved {
            Saved::Held(tensor) => Some(tensor.clone()),
            Saved::Recomputed(frame, at) => {
                if frame.state.borrow().recomputed.is_none() {
                    self.recompute(frame);
                }
                frame.state.borrow_mut().recomputed.as_mut()?.get_mut(*at)?.take()
            }
        }
    }

    fn recompute(&self, frame: &Rc<Frame>) {
        frame.state.borrow_mut().recomputed = Some(Vec::new());
        let in_backward = std::mem::replace(&mut self.state.borrow_mut().records_graph, true);
        let function = Rc::clone(&frame.function);
        let held_before = std::mem::take(&mut self.state.borrow_mut().held_by_graph);
        let result = self.pass(Pass::Recomputation(Rc::clone(frame)), || {
            self.autocast(frame.autocast.unwrap_or(Dtype::Float32), || function(self, frame.input.clone()))
        });
        drop(result);
        self.end_graph();
        self.state.borrow_mut().held_by_graph = held_before;
        self.heap.pause(false);
        self.state.borrow_mut().records_graph = in_backward;
    }
}
