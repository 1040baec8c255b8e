//! Autograd: the graph that forward records, and its execution in backward.
//!
//! A node's number is its sequence number. PyTorch executes ready nodes by descending sequence number, and accumulates
//! the gradient of a parameter as soon as all of its parts are known. Source: torch/csrc/autograd/engine.cpp and
//! functions/accumulate_grad.cpp (2.11).

use super::{
    Name, Recorder, Torch,
    checkpoint::{Pass, Saved},
    layout::Layout,
    ops::{Gradients, Op},
    scope::Scope,
    tensor::{Edge, Tensor},
};
use crate::{
    dtype::Dtype,
    gpt::tensors::{Category, Lifetime},
};

/// An input of a node, with the metadata to which its gradient must conform.
#[derive(Debug)]
struct Input {
    edge: Option<Edge>,
    layout: Layout,
    dtype: Dtype,
}

#[derive(Debug)]
struct Node {
    op: Op,
    scope: Scope,
    inputs: Vec<Input>,
    saved: Vec<Saved>,
    /// Index of its first output in the list of all outputs.
    first_output: u32,
    n_outputs: u8,
}

/// All nodes since the last backward.
#[derive(Debug, Default)]
pub struct Tape {
    nodes: Vec<Node>,
    n_outputs: u32,
}

/// A node that is being recorded. It has no node if no input requires a gradient.
#[derive(Debug)]
pub struct Recording<'t> {
    torch: &'t Torch,
    inputs: Vec<Input>,
    saved: Option<Vec<Saved>>,
}

impl Torch {
    /// Starts to record an operation with these inputs.
    pub(super) fn record(&self, inputs: &[&Tensor]) -> Recording<'_> {
        let is_recorded = self.state.borrow().records_graph && inputs.iter().any(|input| input.edge.is_some());
        let of = |input: &&Tensor| Input { edge: input.edge, layout: *input.layout(), dtype: input.dtype() };
        let inputs = if is_recorded { inputs.iter().map(of).collect() } else { Vec::new() };
        Recording { torch: self, inputs, saved: is_recorded.then(Vec::new) }
    }
}

impl Recording<'_> {
    /// Whether autograd records the operation.
    pub(super) fn is_recorded(&self) -> bool {
        self.saved.is_some()
    }

    /// Whether the input requires a gradient.
    pub(super) fn needs(&self, input: usize) -> bool {
        self.inputs.get(input).is_some_and(|input| input.edge.is_some())
    }

    /// Saves a tensor for backward.
    pub(super) fn save(&mut self, tensor: &Tensor) {
        if let Some(saved) = &mut self.saved {
            tensor.relabel(|label| {
                if label.lifetime == Lifetime::Intermediate {
                    label.lifetime = Lifetime::SavedForBackward;
                }
            });
            saved.push(self.torch.pack(tensor));
        }
    }

    /// Ends the recording of an operation and connects its differentiable outputs.
    pub(super) fn finish(self, op: Op, outputs: &mut [&mut Tensor]) {
        let Some(saved) = self.saved else { return };
        let n_outputs = u8::try_from(outputs.len()).unwrap_or(u8::MAX);
        let state = &mut *self.torch.state.borrow_mut();
        // A recomputation records no second graph: its tensors replace those of the first one.
        let id = if state.checkpoint.as_ref().is_some_and(Pass::is_recomputation) {
            state.held_by_graph.extend(op.into_held());
            u32::MAX
        } else {
            let first_output = state.tape.n_outputs;
            state.tape.n_outputs += u32::from(n_outputs);
            state.tape.nodes.push(Node {
                op,
                scope: self.torch.modules.current(),
                inputs: self.inputs,
                saved,
                first_output,
                n_outputs,
            });
            u32::try_from(state.tape.nodes.len() - 1).unwrap_or(u32::MAX)
        };
        for (number, output) in (0..n_outputs).zip(outputs) {
            output.edge = Some(Edge::Node(id, number));
        }
    }
}

/// Gradients that wait for their other parts.
struct Buffers {
    outputs: Vec<Option<Tensor>>,
    leaves: Vec<Option<Tensor>>,
    /// Parts of each parameter's gradient that are still missing.
    missing: Vec<u32>,
    first_output: Vec<u32>,
}

impl Buffers {
    fn new(tape: &Tape, n_leaves: usize, root: u32) -> Self {
        let mut missing = vec![0; n_leaves];
        let mut is_reachable = vec![false; tape.nodes.len()];
        if let Some(root) = is_reachable.get_mut(root as usize) {
            *root = true;
        }
        for (at, node) in tape.nodes.iter().enumerate().rev() {
            if !is_reachable[at] {
                continue;
            }
            for input in &node.inputs {
                match input.edge {
                    Some(Edge::Leaf(leaf)) => missing[leaf as usize] += 1,
                    Some(Edge::Node(id, _)) => is_reachable[id as usize] = true,
                    None => {}
                }
            }
        }
        let empty = |n: usize| std::iter::repeat_with(|| None).take(n).collect();
        let first_output = tape.nodes.iter().map(|node| node.first_output).collect();
        Self { outputs: empty(tape.n_outputs as usize), leaves: empty(n_leaves), missing, first_output }
    }

    fn slot(&mut self, edge: Edge) -> &mut Option<Tensor> {
        match edge {
            Edge::Leaf(leaf) => &mut self.leaves[leaf as usize],
            Edge::Node(id, output) => &mut self.outputs[(self.first_output[id as usize] + u32::from(output)) as usize],
        }
    }
}

impl Torch {
    /// `torch.autograd.backward(loss, gradient)`.
    pub fn backward(&self, loss: &Tensor, gradient: &Tensor) {
        let Some(Edge::Node(root, output)) = loss.edge else { return };
        let mut tape = std::mem::take(&mut self.state.borrow_mut().tape);
        let n_leaves = self.state.borrow().leaves.len();
        let mut buffers = Buffers::new(&tape, n_leaves, root);
        *buffers.slot(Edge::Node(root, output)) = Some(gradient.clone());
        let records_graph = std::mem::replace(&mut self.state.borrow_mut().records_graph, false);
        let in_backward = std::mem::replace(&mut self.state.borrow_mut().in_backward, true);
        for node in tape.nodes.drain(..).rev() {
            self.execute(node, &mut buffers);
        }
        let state = &mut *self.state.borrow_mut();
        state.records_graph = records_graph;
        state.in_backward = in_backward;
    }

    fn execute(&self, node: Node, buffers: &mut Buffers) {
        let _scope = self.modules.enter_scope(node.scope);
        let outputs = node.first_output as usize..node.first_output as usize + usize::from(node.n_outputs);
        let gradients: Vec<_> = buffers.outputs[outputs].iter_mut().map(Option::take).collect();
        if gradients.iter().all(Option::is_none) {
            return;
        }
        let needs: Vec<_> = node.inputs.iter().map(|input| input.edge.is_some()).collect();
        let saved = node.saved.iter().map(|saved| self.unpack(saved)).collect();
        let mut results = node.op.backward(self, Gradients { outputs: &gradients, needs: &needs }, saved);
        for (result, input) in results.iter_mut().zip(&node.inputs) {
            if let Some(gradient) = result.take() {
                *result = Some(self.conform(gradient, input));
            }
        }
        drop(gradients);
        drop(node.saved);
        self.state.borrow_mut().held_by_graph.extend(node.op.into_held());
        let mut complete = Vec::new();
        for (result, input) in results.into_iter().zip(&node.inputs) {
            let Some(edge) = input.edge else { continue };
            if let Some(part) = result {
                let slot = buffers.slot(edge);
                *slot = Some(match slot.take() {
                    Some(earlier) => self.sum_of(earlier, &part),
                    None => part,
                });
            }
            if let Edge::Leaf(leaf) = edge {
                let missing = &mut buffers.missing[leaf as usize];
                *missing -= 1;
                if *missing == 0 {
                    complete.push(leaf);
                }
            }
        }
        for leaf in complete {
            if let Some(gradient) = buffers.leaves[leaf as usize].take() {
                self.accumulate(leaf, gradient);
            }
        }
    }

    /// Reduces a gradient to the shape and the dtype of its input: `validate_outputs` in engine.cpp.
    fn conform(&self, mut gradient: Tensor, input: &Input) -> Tensor {
        if gradient.sizes() != input.layout.sizes() {
            let sum = self.empty("sum of a gradient over broadcast axes", input.layout.sizes(), gradient.dtype());
            if gradient.sizes().ends_with(input.layout.sizes()) {
                let columns = input.layout.elements().max(1);
                drop(self.column_reduction([gradient.layout().elements() / columns, columns]));
            }
            gradient = sum;
        }
        if gradient.dtype() != input.dtype {
            gradient = self.like("cast of a gradient", &gradient, input.dtype);
        }
        gradient
    }

    /// Adds a part of a gradient: in place, if nothing else refers to the sum.
    ///
    /// PyTorch never adds in place to tensor subclasses such as fake tensors. Source: `can_accumulate_inplace` in
    /// torch/csrc/autograd/input_buffer.cpp.
    fn sum_of(&self, sum: Tensor, part: &Tensor) -> Tensor {
        if self.recorder == Recorder::Gpu && sum.is_unique() {
            return sum;
        }
        self.like("sum of gradients", part, sum.dtype())
    }

    /// `AccumulateGrad`: keeps the first gradient of a parameter, and adds later ones to it in place.
    fn accumulate(&self, leaf: u32, gradient: Tensor) {
        let leaf = &mut self.state.borrow_mut().leaves[leaf as usize];
        let is_first = leaf.gradient.is_none();
        gradient.relabel(|label| {
            label.name = Name::Of("gradient", leaf.name);
            label.scope = leaf.scope;
            label.category = Category::Gradients;
            if is_first {
                label.lifetime = Lifetime::UntilZeroGrad;
            }
        });
        if is_first {
            leaf.gradient = Some(gradient);
        }
    }
}
